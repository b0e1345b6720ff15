"""Turning table features on: change data feed, deletion vectors, row tracking, retention."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from delta_cdc.apply.commit import look, private_session
from delta_cdc.errors import InvalidConfiguration, NotADeltaTable, ReservedColumnName, TableNotFound
from delta_cdc.spec import JobResult
from delta_cdc.sql import quote, string, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.spec import EnableSpec

log = logging.getLogger(__name__)

CHANGE_FEED = "delta.enableChangeDataFeed"


def run(spark: SparkSession, spec: EnableSpec) -> JobResult:
    """Set the properties on every table that lacks one; all tables are looked at before the first is altered.

    :return: per table ``{table, table_id, first_readable_version, changed}``
    :raises TableNotFound, NotADeltaTable: naming the table; nothing has been altered then
    """
    session = private_session(spark)
    names = spec.tables or _tables_of(session, str(spec.schema))
    details = {name: _detail(session, name) for name in names}
    done = []
    for name, detail in details.items():
        missing = {k: v for k, v in spec.properties.items() if detail["properties"].get(k) != v}
        if missing:
            listed = ", ".join(f"{string(key)} = {string(value)}" for key, value in missing.items())
            _alter(session, name, listed)
            log.info("%s: set %s", name, listed)
        else:
            log.info("%s: nothing to do", name)
        done.append(
            {
                "table": name,
                "table_id": detail["id"],
                "first_readable_version": first_readable_version(session, name),
                "changed": bool(missing),
            }
        )
    return JobResult(status="committed", tables=tuple(done))


def _alter(session: SparkSession, name: str, listed: str) -> None:
    try:
        session.sql(f"ALTER TABLE {table(name)} SET TBLPROPERTIES ({listed})")
    except Exception as error:
        if "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS" in str(error):
            raise ReservedColumnName(
                f"{name} has columns with the change feed's own names (_change_type, _commit_version, "
                "_commit_timestamp), so its feed can't be turned on.",
                remedy="rename these columns of the table.",
            ) from error
        raise


def _tables_of(session: SparkSession, schema: str) -> tuple[str, ...]:
    quoted = ".".join(quote(part) for part in schema.split("."))
    try:
        rows = session.sql(f"SHOW TABLES IN {quoted}").collect()
    except Exception as error:
        raise TableNotFound(
            f"The schema {schema} does not exist.", remedy="give an existing schema, or name the tables."
        ) from error
    names = [f"{schema}.{row['tableName']}" for row in rows if not row["isTemporary"]]
    found = tuple(name for name in names if _is_delta(session, name))
    left_out = sorted(set(names) - set(found))
    if left_out:
        log.info("not Delta tables, left out: %s", ", ".join(left_out))
    if not found:
        raise InvalidConfiguration(
            f"The schema {schema} has no Delta table.", remedy="name the tables by path, or another schema."
        )
    return found


def _is_delta(session: SparkSession, name: str) -> bool:
    try:
        _detail(session, name)
    except (NotADeltaTable, TableNotFound):
        return False
    return True


def _detail(session: SparkSession, name: str) -> dict[str, Any]:
    try:
        row = session.sql(f"DESCRIBE DETAIL {table(name)}").collect()[0].asDict()
    except Exception as error:
        text = str(error)
        if any(part in text for part in ("VIEW", "EXPECT_TABLE_NOT_VIEW", "NOT_A_DELTA", "MISSING_DELTA")):
            raise NotADeltaTable(
                f"{name} is not a Delta table.", remedy="name a Delta table, or convert it to Delta first."
            ) from error
        raise TableNotFound(f"{name} does not exist.", remedy="check the path or name.") from error
    if row["format"] != "delta":
        raise NotADeltaTable(
            f"{name} is a {row['format']} table, not a Delta table.", remedy="convert it to Delta first."
        )
    return row


def first_readable_version(session: SparkSession, name: str) -> int:
    """Return the version since which the change feed is on without a break, as far as history tells."""
    history = session.sql(f"DESCRIBE HISTORY {table(name)}")
    rows = history.select("version", "operation", "operationParameters").orderBy("version").collect()
    first = rows[0]["version"]
    for row in rows:
        properties = str((row["operationParameters"] or {}).get("properties", ""))
        if f'"{CHANGE_FEED}":"true"' in properties.replace(" ", ""):
            first = row["version"]
    return int(first)


__all__ = ["first_readable_version", "look", "run"]
