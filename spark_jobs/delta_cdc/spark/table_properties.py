"""Turn on table features: change data feed, deletion vectors, row tracking, retention."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from delta_cdc.core.errors import InvalidConfiguration, NotADeltaTable, ReservedColumnName, TableNotFound
from delta_cdc.core.properties import feed_on
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import quote, set_properties, table
from delta_cdc.core.storage_options import hadoop_uri
from delta_cdc.spark.catalog import delta_detail, says_absent
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import private_session

if TYPE_CHECKING:
    from delta_cdc.core.spec import EnableSpec

log = logging.getLogger(__name__)


def run(spark: SparkSession, spec: EnableSpec) -> JobResult:
    """Set the properties on every table that lacks one; check all tables before altering the first.

    All errors below are raised before the first table is altered.

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


def _enabled(session: SparkSession, spec: EnableSpec) -> JobResult:
    feed.refuse_forbidden_confs(session)
    details = {name: _detail(session, name) for name in spec.tables} or _tables_of(session, str(spec.schema))
    if feed_on(spec.properties):
        for name in details:
            _refuse_reserved(session, name)
    missing_by_table = {
        name: {k: v for k, v in spec.properties.items() if detail["properties"].get(k) != v}
        for name, detail in details.items()
    }
    for name, missing in missing_by_table.items():
        if missing:
            refuse_unsafe_log_store(session, details[name]["location"], single_driver=spec.single_driver)
    results = []
    for name, detail in details.items():
        missing = missing_by_table[name]
        if missing:
            session.sql(set_properties(hadoop_uri(name), missing))
            log.info("%s: set %s", name, ", ".join(f"{key} = {value}" for key, value in missing.items()))
        else:
            log.info("%s: nothing to do", name)
        results.append(
            {
                "table": name,
                "table_id": detail["id"],
                "location": detail["location"],
                "changed": bool(missing),
            }
        )
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


def _tables_of(session: SparkSession, schema: str) -> dict[str, dict[str, Any]]:
    """Return the Delta tables of a schema, each with :func:`delta_detail`."""
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
        try:
            details[name] = _detail(session, name)
        except (NotADeltaTable, TableNotFound):
            other_tables.append(name)
    if other_tables:
        log.info("Skipped, because they are not Delta tables: %s", ", ".join(sorted(other_tables)))
    if not details:
        raise InvalidConfiguration(
            f"The schema {schema} has no Delta table.", remedy="name the tables by path, or another schema."
        )
    return details


def _detail(session: SparkSession, name: str) -> dict[str, Any]:
    return delta_detail(session, hadoop_uri(name), remedy="check the path or name.")
