"""The one Spark application of a subcommand that runs a configuration."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.cli.common import session
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.locations import locations_of, reads_kafka
from delta_cdc.core.spec import ApplySpec, IngestSpec
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.planning.size import is_small
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from delta_cdc.config import Group, Table
    from delta_cdc.core.spec import BundleSpec, JobResult

#: Arguments of a group that configure its application; one Spark application can have one value of each.
_OF_THE_APPLICATION = ("storage_options", "kafka_options", "conf")
#: Attributes of a request that name a location.
_PLACES = ("source", "log", "target", "staging", "current")
#: Connections need Airflow; a file may use these arguments instead.
_INSTEAD_OF = {"delta_conn_id": "storage_options", "kafka_conn_id": "kafka_options"}


def told_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the settings of the one application of some groups: options of store and of Kafka, and confs.

    If a group relies on a connection, a message on standard error names the replacement.

    :raises InvalidConfiguration: the groups disagree
    """
    told: dict[str, Any] = {}
    for name in _OF_THE_APPLICATION:
        values = {json.dumps(group.settings.get(name), sort_keys=True) for group in groups}
        if len(values) > 1:
            raise InvalidConfiguration(
                f"The groups {', '.join(group.name for group in groups)} have different {name}.",
                remedy="run them one at a time, with --group.",
            )
        told[name] = groups[0].settings.get(name)
    for conn, options in _INSTEAD_OF.items():
        names = sorted({str(group.settings[conn]) for group in groups if group.settings.get(conn)})
        if names and not told[options]:
            sys.stderr.write(
                f"{conn} {', '.join(names)} is Airflow's and not looked up here: what the environment names "
                f"is used, unless the file gives {options}.\n"
            )
    return told


def refuse_templates(tables: Sequence[Table]) -> None:
    """Reject tables that cannot run without Airflow.

    :raises InvalidConfiguration: names those whose arguments hold templates
    """
    found = [table.pipeline for table in tables if "{{" in (text := str(table.arguments)) or "{%" in text]
    if found:
        raise InvalidConfiguration(
            f"Templates stand in the arguments of {', '.join(found)}, and only Airflow renders them.",
            remedy="name the others with --pipeline, or write values in their place.",
        )


class Application:
    """Spark in this process: starts with the first batch, and stops at the end of the block.

    It may run several batches; before the first, Spark is configured for all of them.

    :param told: settings, see :func:`told_of`; any may be missing
    :param asked: all requests to ingest, to apply or to verify
    """

    def __init__(self, told: Mapping[str, Any], asked: Iterable[Any] = ()) -> None:
        self._told = told
        self._asked = list(asked)
        self._open = ExitStack()
        self._rounds = 0

    def __enter__(self) -> Application:
        self._folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="delta-cdc-run-"))
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def execute(self, bundle: BundleSpec) -> JobResult:
        """Run a batch."""
        self._rounds += 1
        options = self._told.get("storage_options")
        parts = tuple(
            # A file manifest is named by its versions, and two parts may read the same ones of two tables.
            prepared(part, f"{self._folder}/{self._rounds}/{number}", options)
            if isinstance(part, ApplySpec)
            else part
            for number, part in enumerate(bundle.parts)
        )
        if self._rounds == 1:
            self._spark = self._open.enter_context(self._session(bundle))
        with quietly():
            return job.run(
                self._spark,
                replace(bundle, parts=parts),
                storage_options=options,
                kafka_options=self._told.get("kafka_options"),
            )

    def _session(self, first: BundleSpec) -> AbstractContextManager[SparkSession]:
        options = self._told.get("storage_options")
        named = [str(value) for one in self._asked for name in _PLACES if (value := getattr(one, name, None))]
        topics = [place for place in named if place.startswith("kafka:")]
        # An apply after an ingest, in a separate batch, may have any size.
        applied = {one.pipeline for one in self._asked if hasattr(one, "target")}
        ingested = [part for part in first.parts if isinstance(part, IngestSpec)]
        follows = any(part.after is None and part.pipeline in applied for part in ingested)
        return session(
            "delta-cdc run",
            locations=[*locations_of(first), *(place for place in named if place not in topics)],
            storage_options=options,
            quick_start=not follows and is_small(first, options),
            **({"kafka": True} if topics or reads_kafka(first) else {}),
            **(self._told.get("conf") or {}),
        )
