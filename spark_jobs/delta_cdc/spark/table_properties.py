"""Turn on table features: change data feed, deletion vectors, row tracking, retention."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    ReservedColumnName,
    TableNotFound,
)
from delta_cdc.core.properties import feed_on
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import quote, set_properties, table
from delta_cdc.core.storage_options import hadoop_uri
from delta_cdc.spark import named_errors
from delta_cdc.spark.catalog import delta_detail, says_absent
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import is_lost, private_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.core.spec import EnableSpec

log = logging.getLogger(__name__)


def run(spark: SparkSession, spec: EnableSpec) -> JobResult:
    """Set the properties on every table that lacks one; check all tables before altering the first.

    Of named tables, an error of one is raised before the first one is altered. Of a schema, which may have
    tables of others, all other tables are altered first.

    :return: per table ``{table, table_id, location, changed}``; the log shows since when the feed is on
        (:func:`delta_cdc.planning.table_properties.described`)
    :raises TableNotFound: names the table
    :raises NotADeltaTable: a name is a view, or a table of another format
    :raises ReservedColumnName: a table has a column with a name of the change feed
    :raises ForbiddenConf: see :data:`delta_cdc.spark.changes.feed.FORBIDDEN_CONFS`
    :raises UnsafeLogStore: several drivers could lose commits to a table
    """
    with private_session(spark) as session:
        return _enabled(session, spec)


@dataclass
class _Failures:
    """The errors of tables.

    :param goes_on: an error of one table does not end the job
    """

    goes_on: bool
    errors: dict[str, DeltaCdcError] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Keep an error of a table for the end."""
        try:
            yield
        except Exception as error:
            if not self.goes_on or is_lost(error):
                raise
            self.errors[name] = named_errors.named(error, name)
            log.warning("%s was not altered: %s", name, self.errors[name])

    def report(self, schema: str, done: int) -> None:
        """Raise the errors of all tables as one; of its class, a retry may help if it may help one table."""
        if not self.errors:
            return
        first = max(self.errors.values(), key=lambda error: error.retryable)
        # Each message names its table.
        texts = " ".join(error.message for _, error in sorted(self.errors.items()))
        raise type(first)(
            f"{len(self.errors)} table(s) of {schema} were not altered; {done} are done. {texts}",
            remedy=f"{first.remedy} Or name the other tables in tables.",
        )


def _enabled(session: SparkSession, spec: EnableSpec) -> JobResult:
    feed.refuse_forbidden_confs(session)
    failures = _Failures(goes_on=not spec.tables)
    details = {name: _detail(session, name) for name in spec.tables} or _tables_of(
        session, str(spec.schema), failures
    )
    missing_by_table = {}
    for name, detail in details.items():
        with failures.of(name):
            if feed_on(spec.properties):
                _refuse_reserved(session, name)
            missing = {k: v for k, v in spec.properties.items() if detail["properties"].get(k) != v}
            if missing:
                refuse_unsafe_log_store(session, detail["location"], single_driver=spec.single_driver)
            missing_by_table[name] = missing
    results = []
    for name, missing in missing_by_table.items():
        with failures.of(name):
            if missing:
                session.sql(set_properties(hadoop_uri(name), missing))
                log.info("%s: set %s", name, ", ".join(f"{key} = {value}" for key, value in missing.items()))
            else:
                log.info("%s: nothing to do", name)
            results.append(
                {
                    "table": name,
                    "table_id": details[name]["id"],
                    "location": details[name]["location"],
                    "changed": bool(missing),
                }
            )
    failures.report(str(spec.schema), len(results))
    return JobResult(status="committed", tables=tuple(results))


def _refuse_reserved(session: SparkSession, name: str) -> None:
    columns = session.sql(f"SELECT * FROM {table(hadoop_uri(name))}").columns
    reserved = [column for column in columns if column.lower() in METADATA_COLUMNS]
    if reserved:
        raise ReservedColumnName(
            f"{name} has the column {', '.join(map(repr, reserved))}, a name that the change feed needs for "
            "itself, so the feed can't be turned on.",
            remedy="rename the column.",
        )


def _tables_of(session: SparkSession, schema: str, failures: _Failures) -> dict[str, dict[str, Any]]:
    """Return the Delta tables of a schema that can be read, each with :func:`delta_detail`."""
    quoted = ".".join(quote(part) for part in schema.split("."))
    try:
        rows = session.sql(f"SHOW TABLES IN {quoted}").collect()
    except Exception as error:
        if not says_absent(error):
            raise
        raise TableNotFound(
            f"The schema {schema} does not exist.", remedy="give an existing schema, or name the tables."
        ) from error
    details, other_tables = {}, []
    for name in (f"{schema}.{row['tableName']}" for row in rows if not row["isTemporary"]):
        with failures.of(name):
            try:
                details[name] = _detail(session, name)
            except (NotADeltaTable, TableNotFound):
                other_tables.append(name)
    if other_tables:
        log.info("Skipped, because they are not Delta tables: %s", ", ".join(sorted(other_tables)))
    if not details and not failures.errors:
        raise InvalidConfiguration(
            f"The schema {schema} has no Delta table.", remedy="name the tables by path, or another schema."
        )
    return details


def _detail(session: SparkSession, name: str) -> dict[str, Any]:
    return delta_detail(session, hadoop_uri(name), remedy="check the path or name.")
