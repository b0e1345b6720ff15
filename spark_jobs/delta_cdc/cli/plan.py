"""``delta-cdc plan``: show what the next run would do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import settings_of
from delta_cdc.cli.common import flags, json_file, refuse
from delta_cdc.cli.work import OF_AN_INGEST, jobs_of, refuse_an_apply, takes_work, working
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import INGEST
from delta_cdc.run.detect_changes import detect_changes

if TYPE_CHECKING:
    import argparse

    from delta_cdc.run.batch import PipelineJob


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    plan = commands.add_parser(
        "plan",
        help="show what the next run of pipelines would do, from the logs alone (starts no Spark)",
        description="Without a watermark, the next run is the initial load. The options come from the "
        "configuration, or else from the target's seal. Before the first load, they come from --key, "
        "--source-kind and --sequence-by. Exit code 1: a pipeline cannot run.",
    )
    takes_work(plan)
    ingest = plan.add_argument_group("what an ingest would take")
    ingest.add_argument(
        "--ingest", action="store_true",
        help="plan the ingest alone; SOURCE is a folder of files or kafka://<host:port>,…/<topic>,…, and "
        "TARGET its change log",
    )  # fmt: skip
    flags(ingest, (INGEST[name] for name in OF_AN_INGEST))
    ingest.add_argument("--kafka-options", type=json_file, metavar="FILE",
                        help="JSON file with the configuration of Kafka's client")  # fmt: skip
    plan.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.ingest:
        refuse_an_apply(arguments, "with --ingest")
    else:
        refuse(arguments, (*OF_AN_INGEST, "kafka_options"), "without --ingest")
    pipelines = working(arguments)
    pipeline_jobs = jobs_of(arguments, pipelines, settings_of(pipelines), is_plan=True)
    if arguments.ingest:
        pipeline_jobs = [_ingest_alone(job) for job in pipeline_jobs]
    plans = detect_changes(pipeline_jobs)
    if len(plans) == 1 and plans[0].error is not None and not plans[0].plan:
        raise plans[0].error
    for one in plans:
        if len(plans) > 1:
            print(one.pipeline)
        print(one.plan or one.found)
    return 1 if any(one.error is not None for one in plans) else 0


def _ingest_alone(job: PipelineJob) -> PipelineJob:
    if job.error is None and job.ingest is None:
        raise InvalidConfiguration(
            f"--ingest given, and {job.pipeline} has no change log.", remedy="leave it out."
        )
    return replace(job, apply=None)
