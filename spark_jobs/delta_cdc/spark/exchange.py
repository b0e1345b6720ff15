"""Exchange the catalog names of two tables. Only names change: locations and rows stay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from delta_cdc.core import failpoints
from delta_cdc.core.errors import ConcurrentModification
from delta_cdc.core.properties import CATALOG_NAME
from delta_cdc.core.reasons import reason
from delta_cdc.core.shadow import Move, next_move
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import set_properties, string, table
from delta_cdc.core.uris import spark_uri
from delta_cdc.spark import catalog
from delta_cdc.spark.sessions import private_session, set_where_allowed

if TYPE_CHECKING:
    from delta_cdc.core.spec import ExchangeSpec

log = logging.getLogger(__name__)

#: Delta compares the columns of the old and the new location, and a shadow may have others.
_ANY_COLUMNS = "spark.databricks.delta.alterLocation.bypassSchemaCheck"
#: An exchange has at most three statements; more means that another program moves the names, too.
_MOST_MOVES = 4


def run(spark: SparkSession, spec: ExchangeSpec) -> JobResult:
    """Look the names up, and exchange them if the spec has the ids of their tables.

    Each statement changes one name. After a crash, the next run goes on at the state that the names have.

    :return: ``tables``: per name that exists ``{table, table_id, location}``; ``planned`` if the names
        were only looked up
    :raises PromotionRefused: another table has one of the names
    :raises ConcurrentModification: another program moves the names at the same time
    """
    with private_session(spark) as session:
        found = _found(session, spec)
        if not spec.original_id:
            return JobResult("planned", tables=tuple(found.values()))
        set_where_allowed(session, {_ANY_COLUMNS: "true"})
        _exchange(session, spec, found)
        found = _found(session, spec)
        _note_names(session, found)
    return JobResult("committed", tables=tuple(found.values()))


def _found(session: SparkSession, spec: ExchangeSpec) -> dict[str, dict[str, Any]]:
    rows = {}
    for name in spec.names.all:
        detail = catalog.existing_detail(session, name)
        if detail is not None:
            rows[name] = {"table": name, "table_id": detail["id"], "location": detail["location"]}
    return rows


def _exchange(session: SparkSession, spec: ExchangeSpec, found: dict[str, dict[str, Any]]) -> None:
    repoints, locations = True, {spec.original_id: spec.original_uri, spec.shadow_id: spec.shadow_uri}
    for _ in range(_MOST_MOVES + 1):
        ids = {name: row["table_id"] for name, row in found.items()}
        move = next_move(spec.names, ids, spec.original_id, spec.shadow_id, repoints=repoints)
        if move is None:
            return
        try:
            _made(session, move, locations)
        except Exception as error:
            is_first = repoints and move.name == spec.names.original
            if move.kind != "repoint" or not is_first:
                raise
            log.info(
                "the catalog does not give %s another location, so names are exchanged by renames: %s",
                move.name,
                reason(error),
            )
            repoints = False
        else:
            failpoints.reached("moved")
        found = _found(session, spec)
    raise ConcurrentModification(
        f"The names {spec.names.original} and {spec.names.shadow} are moved by another program, too.",
        remedy="run promote again.",
    )


def _made(session: SparkSession, move: Move, locations: dict[str, str]) -> None:
    if move.kind == "rename":
        session.sql(f"ALTER TABLE {table(move.name)} RENAME TO {table(move.to)}")
    else:
        location = locations[move.to]
        session.sql(f"ALTER TABLE {table(move.name)} SET LOCATION {string(location)}")
    log.info("%s: %s to %s", move.name, move.kind, move.to)


def _note_names(session: SparkSession, found: dict[str, dict[str, Any]]) -> None:
    """Let the tables record their new names: Airflow's cache of locations compares them.

    See :mod:`delta_cdc.spark.catalog`, and ``airflow_delta_cdc/names.py``.
    """
    for name, row in found.items():
        uri = spark_uri(row["location"])
        detail = catalog.existing_detail(session, uri)
        if detail is not None and detail["properties"].get(CATALOG_NAME) != name:
            session.sql(set_properties(uri, {CATALOG_NAME: name}))
