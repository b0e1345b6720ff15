"""``delta-cdc run``: the pipelines of a configuration once, in a Spark of this process."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.common import session, tables_of
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import ApplySpec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from delta_cdc.config import Group, Table
    from delta_cdc.flow import PieceResult
    from delta_cdc.spec import BundleSpec, JobResult

#: Of a group, what its application is told; one Spark can be told one of each.
_OF_THE_APPLICATION = ("storage_options", "kafka_options", "conf")
_PARALLEL = 8


def add(commands: Any) -> None:
    """Declare the subcommand."""
    run = commands.add_parser(
        "run",
        help="run the pipelines of a file once (starts Spark here, if there is anything to do)",
        description="Looks at all of them without Spark, and runs those with work in one application on this "
        "machine. Connections are Airflow's, and not used. Exit code 1: some pipelines failed.",
    )
    run.add_argument("file", metavar="FILE|FOLDER", help="the configuration")
    run.add_argument("--group", metavar="NAME", help="only the pipelines of this group")
    run.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME", help="only this one, repeatable"
    )
    run.add_argument("--json", action="store_true", help="print what became of each as JSON")
    run.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from delta_cdc.flow import run_bundle
    from delta_cdc.tables import piece

    chosen = tables_of(arguments.file, arguments.group, arguments.pipelines)
    told = _application(chosen)
    run_id = f"delta-cdc-run-{uuid.uuid4().hex[:12]}"
    tables = [table for _, tables in chosen for table in tables]
    _refuse_templates(tables)
    pieces = [
        piece(
            table.arguments,
            run_id=run_id,
            storage_options=told["storage_options"],
            kafka_options=told["kafka_options"],
        )
        for table in tables
    ]
    parallel = max(int(group.settings.get("max_parallel_tables", _PARALLEL)) for group, _ in chosen)
    with _Application(told) as application:
        results = run_bundle(
            pieces, execute=application.execute, run_id=run_id, parallel=parallel, say=_unsaid
        )
    _show(results, as_json=arguments.json)
    return 1 if any(result.error is not None for result in results) else 0


def _unsaid(_: str) -> None:
    """What a flow says of each table is in the table of results."""


def _application(chosen: Sequence[tuple[Group, Sequence[Table]]]) -> dict[str, Any]:
    """Return what the one application is told.

    :raises InvalidConfiguration: the groups disagree
    """
    told: dict[str, Any] = {}
    for name in _OF_THE_APPLICATION:
        values = {json.dumps(group.settings.get(name), sort_keys=True) for group, _ in chosen}
        if len(values) > 1:
            raise InvalidConfiguration(
                f"The groups {', '.join(group.name for group, _ in chosen)} have different {name}.",
                remedy="run them one at a time, with --group.",
            )
        told[name] = chosen[0][0].settings.get(name)
    return told


def _refuse_templates(tables: Sequence[Table]) -> None:
    found = [table.pipeline for table in tables if "{{" in (text := str(table.arguments)) or "{%" in text]
    if found:
        raise InvalidConfiguration(
            f"Templates stand in the arguments of {', '.join(found)}, and only Airflow renders them.",
            remedy="name the others with --pipeline, or write values in their place.",
        )


class _Application:
    """Spark in this process, started once something is to be run.

    :param told: the options of the store and of Kafka's client, and confs
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self._open = ExitStack()
        self._rounds = 0

    def __enter__(self) -> _Application:
        self._folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="delta-cdc-run-"))
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def execute(self, bundle: BundleSpec) -> JobResult:
        """Run a bundle."""
        from delta_cdc import job
        from delta_cdc.log.slices import prepared
        from delta_cdc.quiet import quietly

        self._rounds += 1
        options = self._told["storage_options"]
        parts = tuple(
            # A slice is named by its versions, and two parts may read the same ones of two tables.
            prepared(part, f"{self._folder}/{self._rounds}/{number}", options)
            if isinstance(part, ApplySpec)
            else part
            for number, part in enumerate(bundle.parts)
        )
        if self._rounds == 1:
            self._spark = self._open.enter_context(session("delta-cdc run", **self._confs(bundle)))
        with quietly():
            return job.run(
                self._spark,
                replace(bundle, parts=parts),
                storage_options=options,
                kafka_options=self._told["kafka_options"],
            )

    def _confs(self, bundle: BundleSpec) -> dict[str, Any]:
        from delta_cdc.spec import IngestSpec
        from delta_cdc.storage import google_key_confs, spark_storage

        uris = [uri for part in bundle.parts for uri in _locations(part)]
        storage = spark_storage(self._told["storage_options"], uris)
        os.environ.update(storage.environment)
        confs: dict[str, Any] = {**storage.confs, **storage.credentials}
        if storage.google_key is not None:
            # The folder is nobody else's.
            key = Path(self._folder) / "google-key.json"
            key.write_text(storage.google_key, encoding="utf-8")
            confs |= google_key_confs(str(key))
        kafka = any(isinstance(p, IngestSpec) and p.options.source_kind == "kafka" for p in bundle.parts)
        return {**confs, **(self._told["conf"] or {}), **({"kafka": True} if kafka else {})}


def _locations(part: Any) -> list[str]:
    names = ("source_uri", "target_uri", "log_uri")
    return [getattr(part, name) for name in names if hasattr(part, name)]


def _show(results: Sequence[PieceResult], *, as_json: bool) -> None:
    rows = [_row(result) for result in results]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from delta_cdc.grid import grid

    shown = [
        {**row, "counts": ", ".join(f"{n} {name}" for name, n in row["counts"].items() if n)} for row in rows
    ]
    print(grid([{name: value for name, value in row.items() if name != "error"} for row in shown]))
    for row in rows:
        if row["error"]:
            print(f"{row['pipeline']}: {row['error']}")


def _row(result: PieceResult) -> dict[str, Any]:
    applied, ingested = result.applied, result.ingested
    done = [one for one in (ingested, applied) if one is not None and one.applied]
    status = "failed" if result.error is not None else "applied" if done else "nothing"
    if done and applied is None and result.error is None:
        status = "ingested"
    counts: dict[str, int] = {}
    for one in done:
        counts |= one.counts
    watermark = applied.watermark if applied is not None else None
    return {
        "pipeline": result.pipeline,
        "result": status,
        "versions": str(applied.versions) if applied is not None and applied.versions else "",
        "watermark": watermark.version if watermark is not None else None,
        "counts": counts,
        "error": f"{type(result.error).__name__}: {result.error}" if result.error is not None else None,
    }
