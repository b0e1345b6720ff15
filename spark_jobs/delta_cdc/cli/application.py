"""The one Spark application of a subcommand that runs a configuration."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.cli.common import session
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.rules import known_as
from delta_cdc.core.spec import IngestSpec
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.launch.run_folder import run_folder
from delta_cdc.launch.session import INTERPRETED
from delta_cdc.planning.size import SMALL, TINY, job_size
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from delta_cdc.cli.pipelines import Chosen
    from delta_cdc.core.spec import BatchSpec, JobResult, Part

#: Arguments of a group that configure its application; one Spark application can have one value of each.
_OF_THE_APPLICATION = ("storage_options", "kafka_options", "conf")
#: Attributes of a request that name a location.
_PLACES = ("source", "log", "target", "staging", "current")


def settings_of(pipelines: Sequence[Chosen]) -> dict[str, Any]:
    """Return the settings of an application for some pipelines: options of store and Kafka, and confs.

    :return: the settings by name; one that no pipeline has is None
    :raises InvalidConfiguration: the groups have different settings
    """
    groups = {one.group.name if one.group is not None else "": one.settings for one in pipelines}
    settings: dict[str, Any] = dict.fromkeys(_OF_THE_APPLICATION)
    for name in settings:
        values = [group.get(name) for group in groups.values()]
        if any(value != values[0] for value in values):
            raise InvalidConfiguration(
                f"The groups {', '.join(groups)} have different {name}.",
                remedy="run them one at a time, with --group.",
            )
        settings[name] = values[0]
    return settings


class Application:
    """Spark in this process: it starts with the first batch, and stops at the end of the block.

    It may run several batches; its confs fit all requests.

    :param settings: see :func:`settings_of`; each may be missing
    :param requests: all requests to ingest, to apply or to verify
    """

    def __init__(self, settings: Mapping[str, Any], requests: Iterable[Any] = ()) -> None:
        self._settings = settings
        self._requests = list(requests)
        self._open = ExitStack()
        self._rounds = 0

    def __enter__(self) -> Application:
        self._folder = str(self._open.enter_context(run_folder()).path)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def execute(self, batch: BatchSpec) -> JobResult:
        """Run a batch."""
        self._rounds += 1
        options = self._settings.get("storage_options")
        parts = tuple(
            # A manifest is named by its versions, and two parts may read the same versions of two tables.
            prepared(part, f"{self._folder}/{self._rounds}/{number}", options)
            for number, part in enumerate(batch.parts)
        )
        if self._rounds == 1:
            self._spark = self._open.enter_context(self._session(batch))
        with quietly():
            return job.run(
                self._spark,
                replace(batch, parts=parts),
                storage_options=options,
                kafka_options=self._settings.get("kafka_options"),
            )

    def _applied_later(self, part: Part) -> bool:
        """Return whether a later batch applies what a part of the first one ingests."""
        if not isinstance(part, IngestSpec):
            return False
        log, here = known_as(part.log_uri), {one.pipeline for one in part.after}
        return any(
            isinstance(one, ApplyRequest) and one.pipeline not in here and known_as(one.source) == log
            for one in self._requests
        )

    def _session(self, first: BatchSpec) -> AbstractContextManager[SparkSession]:
        options = self._settings.get("storage_options")
        places = [
            str(value) for one in self._requests for name in _PLACES if (value := getattr(one, name, None))
        ]
        topics = [place for place in places if place.startswith("kafka:")]
        # If a later batch applies what this one ingests, its size is unknown.
        size = math.inf if any(map(self._applied_later, first.parts)) else job_size(first, options)
        return session(
            "delta-cdc run",
            locations=[*first.locations, *(place for place in places if place not in topics)],
            storage_options=options,
            quick_start=size <= SMALL,
            **({"kafka": True} if topics or first.reads_topics else {}),
            **{**(INTERPRETED if size <= TINY else {}), **(self._settings.get("conf") or {})},
        )
