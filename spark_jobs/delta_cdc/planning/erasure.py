"""Plans the erasure of keys from the tables of pipelines, and reports where they can still be read.

Decides from the logs alone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.erasure import ledger_of
from delta_cdc.core.errors import (
    ColumnNotFound,
    DeltaCdcError,
    InvalidConfiguration,
    NotADeltaTable,
    TableNameUnresolved,
    TableNotFound,
)
from delta_cdc.core.properties import APPEND_ONLY
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.retention import FILE_RETENTION, LOG_RETENTION, milliseconds_of
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.delta_log.schema_changes import char_lengths
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.maintenance_commits import MOST_COMMITS, backwards
from delta_cdc.planning.plan import JobPlan
from delta_cdc.planning.quarantine import newest_seal
from delta_cdc.planning.vacuum import reached

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from delta_cdc.core.spec import EraseSpec, KeyPlace
    from delta_cdc.delta_log.table import TableState


log = logging.getLogger(__name__)

_DAY = 86_400_000
#: Why an erasure leaves them alone: an open batch that lost rows is read again.
_SINKS = (
    "Staging tables of your own sinks: delete the key's rows there after the commit of a batch. An open "
    "batch that lost rows is read again, with the key if older versions of the source have it."
)


#: The arguments of a pipeline that name its tables, as in :class:`Flow`.
TABLES = ("source", "log", "target", "staging")


@dataclass(frozen=True)
class Flow:
    """The tables of one pipeline.

    :param source: its source, a table, files or topics; None if it is unknown
    :param log: the change log that it ingests into; None without one
    :param target: the table that it applies to; None without one
    :param staging: its staging table; None without one
    :param shadow_of: the pipelines that it shadows: one of them may go on in its target
    """

    pipeline: str
    source: str | None = None
    log: str | None = None
    target: str | None = None
    staging: str | None = None
    shadow_of: tuple[str, ...] = ()

    @property
    def reads(self) -> str | None:
        """Return the table that its apply reads."""
        return self.log or self.source

    @property
    def writes(self) -> list[str]:
        """Return the tables that hold rows of its keys, and remember erased keys."""
        return [table for table in (self.log, self.target) if table is not None]


@dataclass(frozen=True)
class Place:
    """A table to erase keys from.

    :param what: what the table is, for people
    :param place: see :class:`~delta_cdc.core.spec.EraseSpec`
    :param owner: the target or change log that the table belongs to; for these, the table itself
    """

    table: str
    what: str
    pipeline: str
    owner: str
    place: KeyPlace = "rows"

    @property
    def remembers(self) -> bool:
        """Return whether the table remembers erased keys."""
        return self.table == self.owner


def with_downstream(chosen: Sequence[Flow], flows: Sequence[Flow]) -> tuple[Flow, ...]:
    """Return the chosen pipelines, their shadows, and all pipelines that read their tables, directly or not.

    :param flows: all pipelines that are known
    """
    found = list(chosen)
    while True:
        written = {_canonical(table) for one in found for table in one.writes}
        names = {one.pipeline for one in found}
        more = [
            one
            for one in flows
            if one not in found
            and (not names.isdisjoint(one.shadow_of) or (one.reads and _canonical(one.reads) in written))
        ]
        if not more:
            return tuple(found)
        found += more


@dataclass(frozen=True)
class Flows:
    """The pipelines that are known, and those whose tables are not.

    :param first: the chosen pipelines
    :param flows: all pipelines
    :param refused: a chosen pipeline -> why its tables are not known
    :param unknown: why the tables of other pipelines are not known
    """

    first: tuple[Flow, ...]
    flows: tuple[Flow, ...]
    refused: dict[str, DeltaCdcError]
    unknown: tuple[DeltaCdcError, ...]


def sorted_out(found: Sequence[tuple[str, Flow | DeltaCdcError]], *, chosen: Container[str]) -> Flows:
    """Return the pipelines that an erasure begins with, and all others.

    :param found: pipelines, each with its tables, or why they are not known. A name may come twice, with
        other tables
    :raises DeltaCdcError: the tables of no chosen pipeline are known
    """
    flows = [one for _, one in found if isinstance(one, Flow)]
    errors = [(name, one) for name, one in found if isinstance(one, DeltaCdcError)]
    first = tuple(flow for flow in flows if flow.pipeline in chosen)
    refused = {name: error for name, error in errors if name in chosen}
    if refused and not first:
        raise next(iter(refused.values()))
    unknown = tuple(error for name, error in errors if name not in chosen)
    return Flows(first, tuple(flows), refused, unknown)


def readers(flows: Iterable[Flow]) -> tuple[Consumer, ...]:
    """Return the pipelines with targets, as consumers of the tables that they read."""
    return tuple(
        Consumer(flow.pipeline, flow.reads, flow.target)
        for flow in flows
        if flow.reads is not None and flow.target is not None
    )


def _canonical(table: str) -> str | None:
    """Return one spelling of a table's location or catalog name; None for topics."""
    try:
        return canonical_uri(table)
    except TableNameUnresolved:
        return table.strip()
    except InvalidConfiguration:
        return None


def places(flows: Iterable[Flow]) -> list[Place]:
    """Return the tables of pipelines, each once: targets and change logs first."""
    owners: list[Place] = []
    others: list[Place] = []
    for flow in flows:
        if flow.log is not None:
            log = spark_uri(flow.log)
            owners.append(Place(log, "change log", flow.pipeline, log))
            others.append(Place(quarantine_of(log), "quarantine of records", flow.pipeline, log, "records"))
        if flow.target is not None:
            target = spark_uri(flow.target)
            owners.append(Place(target, "target", flow.pipeline, target))
            others.append(Place(quarantine_of(target), "quarantine", flow.pipeline, target, "keys"))
            if flow.staging is not None:
                others.append(Place(spark_uri(flow.staging), "staging", flow.pipeline, target))
    unique = {place.table: place for place in reversed([*owners, *others])}
    return list(reversed(unique.values()))


async def lengths_of_chars(
    flows: Iterable[Flow], storage_options: dict[str, str] | None = None
) -> list[dict[str, int]]:
    """Return the lengths of the CHAR columns of each table that pipelines read (:mod:`core.char_columns`).

    A source that cannot be read has no column: it may be gone, and the erasure does not need it.
    """
    found: list[dict[str, int]] = []
    for table in sorted({table for flow in flows if (table := flow.reads and _canonical(flow.reads))}):
        try:
            state = await DeltaLog(table, storage_options).snapshot()
            found.append(char_lengths(state.schema_string))
        except DeltaCdcError as error:
            log.info("no CHAR column of %s is known: %s", table, error.message)
    return [lengths for lengths in found if lengths]


# -- the plan of one table --------------------------------------------------------------------------
async def plan_erase(
    spec: EraseSpec, place: Place, storage_options: dict[str, str] | None = None
) -> JobPlan[EraseSpec, dict[str, Any]]:
    """Plan the erasure of keys from one table. Starts no process and writes nothing.

    :raises InvalidConfiguration: the columns are not the table's key, or the table is append-only
    :raises ColumnNotFound: the table has no such column
    :raises TableNotFound: a target or change log does not exist
    """
    log = DeltaLog(place.table, storage_options)
    outcome = {"what": place.what, "deleted": 0}
    try:
        state = await log.snapshot()
    except (TableNotFound, NotADeltaTable):
        if place.remembers:
            raise
        return JobPlan(None, outcome, ("there is no such table",))
    columns = {name.lower() for name in state.schema_columns}
    missing = sorted({name for key in spec.keys for name in key if name.lower() not in columns})
    if place.remembers:
        await _refuse(log, state, place, spec)
        if missing:
            raise ColumnNotFound(
                f"{log.uri} has no column {', '.join(missing)} (it has {', '.join(state.schema_columns)}).",
                remedy="name the key columns of this table; erase tables with other key columns by a "
                "command of their own.",
                argument="key",
            )
    elif missing and place.place == "rows":
        note = f"not searched: it has no column {', '.join(missing)}. Apply the staged batch, then run again"
        empty = await asyncio.to_thread(lambda: state.is_empty)
        return JobPlan(None, outcome, () if empty else (note,))
    planned = replace(
        spec,
        table_uri=place.table,
        owner=place.owner,
        place=place.place,
        remembers=place.remembers,
        table_id=state.table_id,
    )
    return JobPlan(planned, outcome)


async def _refuse(log: DeltaLog, state: TableState, place: Place, spec: EraseSpec) -> None:
    if state.configuration.get(APPEND_ONLY, "").lower() == "true":
        raise InvalidConfiguration(
            f"{state.uri} has {APPEND_ONLY}, so Delta cannot delete rows from it.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}'), then run again.",
        )
    seal = await newest_seal(log, state.version, place.pipeline)
    if seal is None:
        return
    ingest = validation.ingest_options_of(seal)
    keys = validation.options_of(seal).keys if ingest is None else ingest.keys
    wanted = sorted(key.lower() for key in keys)
    for key in spec.keys:
        if wanted and sorted(name.lower() for name in key) != wanted:
            raise InvalidConfiguration(
                f"The key of {state.uri} has the columns {', '.join(keys)}, and the key to erase has "
                f"{', '.join(sorted(key))}.",
                remedy="name all key columns, and no other one; erase tables with other key columns by a "
                "command of their own.",
                argument="key",
            )


# -- the report -------------------------------------------------------------------------------------
async def remains(table: str, storage_options: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what of a table may still show rows that were deleted from it.

    :return: ``version`` and ``files`` of its current state; ``masked``: how many of these files hold rows
        behind deletion vectors; ``old_versions_until``: when VACUUM may delete the last file of an older
        version that may hold such rows, and ``statistics_until``: when log cleanup may delete the last commit
        with bounds of their columns, which is that of version ``statistics_version`` (ISO 8601; "" if nothing
        is left, and None for the version)
    """
    log = DeltaLog(table, storage_options)
    state = await log.snapshot()
    files, masked = await asyncio.to_thread(lambda: (state.num_files, state.num_masked_files))
    removed = await _last_removal(log, state)
    until: dict[str, Any] = {"old_versions_until": "", "statistics_until": "", "statistics_version": None}
    if removed is not None:
        version, moment, is_vacuumed = removed
        # Log cleanup counts whole days of UTC: it keeps a commit until the end of its day and the retention.
        ended = -(-moment // _DAY) * _DAY
        until["statistics_until"] = _time(ended + milliseconds_of(LOG_RETENTION, state.configuration))
        until["statistics_version"] = version
        if not is_vacuumed:
            until["old_versions_until"] = _time(moment + milliseconds_of(FILE_RETENTION, state.configuration))
    return {"version": state.version, "files": files, "masked": masked, **until}


async def _last_removal(log: DeltaLog, state: TableState) -> tuple[int, int, bool] | None:
    """Return version and time of the last commit that removed files, and whether a VACUUM deleted them."""
    vacuumed_to, has_ended = None, False
    async for commit in backwards(log, state.version, MOST_COMMITS, table_id=state.table_id):
        has_ended = has_ended or commit.info.operation == "VACUUM END"
        # A VACUUM that was killed has only a start, and files that it did not delete.
        done_to = reached(commit) if has_ended else None
        if done_to is not None:
            has_ended = False
            vacuumed_to = max(done_to, vacuumed_to or done_to)
        if commit.n_removes or commit.has_cdc:
            is_vacuumed = vacuumed_to is not None and vacuumed_to >= commit.timestamp
            return commit.version, commit.timestamp, is_vacuumed
    return None


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds")


def outside_reach(flows: Sequence[Flow], unknown: Iterable[DeltaCdcError] = ()) -> list[str]:
    """Return what an erasure cannot reach, one text each.

    :param unknown: see :class:`Flows`
    """
    written = {_canonical(table) for flow in flows for table in flow.writes}
    sources = sorted(
        {flow.source for flow in flows if flow.source and _canonical(flow.source) not in written}
    )
    ledgers = ", ".join(dict.fromkeys(ledger_of(table) for flow in flows for table in flow.writes))
    found = [f"The source {source}: erase the key there too." for source in sources]
    found += [
        f"{error.message} If that pipeline reads these tables, erase the key there too: {error.remedy}"
        for error in unknown
    ]
    return [
        *found,
        "Copies: backups, clones, exports, replicas of the storage, and the older versions that it keeps.",
        "Consumers that are not in the configuration, and the tables that they write.",
        _SINKS,
        "Logs of Spark and Airflow, and Airflow's database, which has the arguments of its runs.",
        "Samples of differences between a target and its shadow, in the log of the shadow and in XComs.",
        f"The ledgers keep a keyed hash of the key, and not the key: {ledgers}.",
    ]
