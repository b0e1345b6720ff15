"""A model of Spark's job: the project's sealed steps, over a session that knows a handful of statements.

The order of a step (prepare, check, commit, complete), its seal and its retries are the project's own
(:class:`delta_cdc.spark.apply.engine.ApplySteps`); what Spark and Delta would do is modelled here.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.quarantine import SETTLED_BY
from delta_cdc.core.spec import BatchSpec, JobResult
from delta_cdc.core.validation import described
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply.engine import ApplySteps
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.sessions import LAST_COMMIT
from tests.simulator import aside, delta
from tests.simulator.ingest_frames import Column, Frame, parsed, value_of
from tests.simulator.oracle import is_invalid
from tests.simulator.store import AlreadyExists, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.core.watermark import Seal
    from tests.simulator.world import World

_APP, _NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_TEXT = "spark.databricks.delta.commitInfo.userMetadata"
_DETAIL = re.compile(r"DESCRIBE DETAIL delta\.`([^`]+)`")
_DELETE = re.compile(r"DELETE FROM delta\.`([^`]+)` WHERE (.+)")
_UPDATE = re.compile(r"UPDATE delta\.`([^`]+)` SET (\w+) = '(\w+)' WHERE (.+)")
#: What marks the rows that leave a quarantine, and what deletes them (spark.sealed.settling).
_MARK = re.compile(
    r"MERGE INTO delta\.`([^`]+)` AS q USING `(\w+)` AS s ON (.+) WHEN MATCHED THEN UPDATE SET settled_by = "
    r"filter\(array_union\(array\('(\w+)'\), coalesce\(q\.settled_by, array\(\)\)\), "
    r"\(one, at\) -> at < (\d+)\)"
)
_SETTLE = re.compile(r"DELETE FROM delta\.`([^`]+)` WHERE array_contains\(settled_by, '(\w+)'\)")
_PAST = re.compile(r"DESCRIBE HISTORY delta\.`([^`]+)` LIMIT (\d+)")


@dataclass
class Conf:
    """The confs of a session."""

    values: dict[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)


class Row(dict[str, Any]):
    """A row of a result."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self


@dataclass
class Rows:
    """The result of a statement."""

    rows: list[dict[str, Any]]

    def select(self, *names: str) -> Rows:
        return self

    def collect(self) -> list[Row]:
        return [Row(row) for row in self.rows]


#: The end of the name of a table -> the phase of the steps that write it, for faults and for coverage.
_PHASES = {"log": "log", "ingested": "record", "quarantine": "quarantine"}


class Session:
    """A private session.

    :param invalid: the rows that a step sets aside, with the versions that added them
    :param views: the rows of its temporary views
    :cvar settling: the phase of what marks and deletes rows that leave a quarantine
    """

    settling = "quarantine"

    def __init__(self, world: World) -> None:
        self.world = world
        self.conf = Conf()
        self.invalid: list[tuple[int, delta.Row]] = []
        self.views: dict[str, list[dict[str, Any]]] = {}
        self.catalog = SimpleNamespace(dropTempView=lambda name: self.views.pop(name, None))
        self.read = SimpleNamespace(format=lambda name: SimpleNamespace(load=self.rows_of))

    def columns_of(self, table: delta.Table) -> list[str]:
        """Return the names of the columns of a table whose rows are dicts."""
        return [*quarantine.COLUMNS, SETTLED_BY]

    def range(self, *bounds: int) -> Frame:
        return Frame(self, [{}], [])

    def rows_of(self, uri: str) -> Frame:
        """Return the rows of a table whose rows are dicts."""
        table, now = self.read_log(uri)
        if now.version < 0:
            raise delta.Missing(f"DELTA_TABLE_NOT_FOUND {uri}")
        rows: list[Any] = table.rows(now)
        columns = self.columns_of(table)
        if SETTLED_BY in columns:
            rows = [{SETTLED_BY: None, **row} for row in rows]
        return Frame(self, rows, columns)

    def valid(self, rows: list[delta.Row], version: int) -> list[delta.Row]:
        """Return rows without those of invalid keys, which are set aside."""
        if not self.world.sets_aside:
            return rows
        self.invalid += [(version, row) for row in rows if is_invalid(row[0])]
        return [row for row in rows if not is_invalid(row[0])]

    def read_log(self, uri: str) -> tuple[delta.Table, delta.Snapshot]:
        self.step("read_log")
        table = self.world.table(uri)
        self._refuse_torn(table)
        return table, table.snapshot()

    def _refuse_torn(self, table: delta.Table) -> None:
        """Fail as a reader of a file that ends too early; with a whole last line, Delta finds a hole."""
        if self.world.store.torn(f"{table.name}/_delta_log/"):
            raise NoAnswer("simulated: a commit file has only its beginning")

    def step(self, name: str) -> None:
        """Meet a step that may fail without having any effect."""
        fault = self.world.hub.step(name)
        throttled = self.world.hub.steps < self.world.store.throttled
        if throttled or fault in ("error", "lost", "short", "throttle"):
            raise NoAnswer(f"simulated: Spark got no answer to {name}")

    def sql(self, text: str) -> Rows:
        if (match := _DETAIL.fullmatch(text)) is not None:
            _, now = self.read_log(match[1])
            if now.version < 0:
                raise delta.Missing("DELTA_TABLE_NOT_FOUND")
            configuration = now.metadata.get("configuration", {})
            columns: list[str] = []
            return Rows(
                [
                    {
                        "id": now.metadata["id"],
                        "format": "delta",
                        "partitionColumns": columns,
                        "clusteringColumns": columns,
                        "tableFeatures": columns,
                        "properties": configuration,
                    }
                ]
            )
        if (match := _MARK.fullmatch(text)) is not None:
            uri, view, condition, mark, most = match.groups()
            chosen = _matching(condition, self.views[view])
            made = partial(_marked, mark=mark, most=int(most))
            self.alter(uri, chosen, "MERGE", made, phase=self.settling)
            return Rows([])
        if (match := _SETTLE.fullmatch(text)) is not None:
            uri, mark = match.groups()
            chosen = Column(lambda row: mark in (row.get(SETTLED_BY) or ()))
            self.alter(uri, chosen, "DELETE", lambda row: None, phase=self.settling)
            return Rows([])
        if (match := _DELETE.fullmatch(text)) is not None:
            self.alter(match[1], parsed(match[2]), "DELETE", lambda row: None)
            return Rows([])
        if (match := _UPDATE.fullmatch(text)) is not None:
            uri, name, value, condition = match.groups()
            self.alter(uri, parsed(condition), "UPDATE", lambda row: {**row, name: value})
            return Rows([])
        match = _PAST.fullmatch(text)
        assert match is not None, text
        table, now = self.read_log(match[1])
        if now.version < 0:
            raise delta.Missing("DELTA_TABLE_NOT_FOUND")
        oldest = max(len(table.cleaned) - 1, now.version - int(match[2]))
        versions = range(now.version, oldest, -1)
        return Rows(
            [
                {
                    "version": version,
                    "operation": table.info(version)["operation"],
                    "operationParameters": table.info(version)["operationParameters"],
                    "userMetadata": table.info(version).get("userMetadata"),
                }
                for version in versions
            ]
        )

    def hash_of(self, uri: str, version: int) -> str | None:
        self.step("hash")
        stored = self.world.store.visible(self.world.table(uri).key(version))
        return None if stored is None else hashlib.sha256(stored.content).hexdigest()

    def own_hash_of(self, uri: str, version: int, fingerprint: str) -> tuple[str | None, bool]:
        self.step("hash")
        stored = self.world.store.visible(self.world.table(uri).key(version))
        if stored is None:
            return None, True
        return hashlib.sha256(stored.content).hexdigest(), fingerprint.encode() in stored.content

    def exists(self, uri: str, version: int) -> bool:
        self.step("hash")
        return self.world.store.visible(self.world.table(uri).key(version)) is not None

    # -- a statement that writes ----------------------------------------------------------------------
    def write(
        self,
        uri: str,
        make: Callable[[delta.Table, delta.Snapshot], delta.Written],
        *,
        blind: bool = False,
        sealed: bool = True,
        creates: bool = False,
    ) -> None:
        """Run a statement, which commits with the confs of the session."""
        table, begun = self.read_log(uri)
        app, number = self.conf.get(_APP), int(self.conf.get(_NUMBER) or 0)
        extra: dict[str, Any] = {}
        if sealed and app is not None:
            if begun.txns.get(app, -1) >= number:
                # Delta skips the write silently.
                return
            extra = {"userMetadata": self.conf.get(_TEXT)}
        if begun.version < 0 and not creates:
            raise NoAnswer("DELTA_TABLE_NOT_FOUND")
        if begun.version < 0:
            # Spark makes the folder of the log before it writes data; on an object store, it is a marker.
            self.world.store.write(f"{table.name}/_delta_log", b"")
        operation, parameters, metrics, actions = make(table, begun)
        if table is self.world.target:
            aside.refuse(
                row for action in actions if "add" in action for row in table.read(action["add"]["path"])
            )
        self.step("write_data")
        if sealed and app is not None:
            stamp = self.world.hub.now
            actions = [{"txn": {"appId": app, "version": number, "lastUpdated": stamp}}, *actions]
        version = delta.attempt(
            table,
            begun,
            (operation, parameters, metrics, actions),
            blind=blind,
            extra=extra,
            create=self.create,
        )
        self.conf.set(LAST_COMMIT, str(version))

    def created(self, table: delta.Table, properties: dict[str, str]) -> list[delta.Action]:
        """Return the actions that create a table."""
        return table.created(self.world.new_id(), properties)

    def append(
        self, uri: str, rows: list[dict[str, Any]], properties: dict[str, str], *, may_exist: bool
    ) -> None:
        """Append rows to a table; the first write creates it."""

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            added: list[Any] = rows
            actions = [table.add(added)] if rows else []
            metrics = {"numOutputRows": len(rows), "numFiles": len(actions)}
            if begun.version < 0:
                actions = [*self.created(table, properties), *actions]
                return "WRITE", {"mode": "ErrorIfExists"}, metrics, actions
            if not may_exist:
                raise delta.Conflict(f"DELTA_PATH_EXISTS {uri}")
            return "WRITE", {"mode": "Append"}, metrics, actions

        with self.world.phase(_PHASES[self.world.table(uri).name.rpartition("__")[2]]):
            self.write(uri, make, blind=True, creates=True)

    def replace(self, uri: str, rows: list[dict[str, Any]], replaced: Column) -> None:
        """Write rows in place of those that a condition selects, and that fulfil it as well."""
        assert all(replaced.of(row) for row in rows), "DELTA_REPLACE_WHERE_MISMATCH"

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            actions: list[delta.Action] = []
            for path in begun.files:
                held: list[Any] = table.read(path)
                kept = [row for row in held if not replaced.of(row)]
                if len(kept) < len(held):
                    actions += [table.remove(path), *([table.add(kept)] if kept else [])]
            added: list[Any] = rows
            metrics = {"numOutputRows": len(rows)}
            return "WRITE", {"mode": "Overwrite"}, metrics, [*actions, table.add(added)]

        with self.world.phase(_PHASES["quarantine"]):
            self.write(uri, make)

    def alter(
        self,
        uri: str,
        chosen: Column,
        operation: str,
        made: Callable[[dict[str, Any]], Any],
        phase: str = _PHASES["quarantine"],
    ) -> None:
        """Delete or update the rows that a condition selects.

        :param made: returns a row in place of one; None for none
        """
        if not any(chosen.of(row) is True for row in self.rows_of(uri).rows):
            # Delta commits nothing.
            return

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            actions: list[delta.Action] = []
            for path in begun.files:
                held: list[Any] = table.read(path)
                new = [row if chosen.of(row) is not True else made(row) for row in held]
                if new != held:
                    kept = [row for row in new if row is not None]
                    actions += [table.remove(path), *([table.add(kept)] if kept else [])]
            return operation, {"predicate": "[]"}, {}, actions

        with self.world.phase(phase):
            self.write(uri, make, sealed=False)

    def _refuse_dropped(self, key: str) -> None:
        """Fail if the table was dropped: a log that begins in the middle is nothing that readers accept.

        Log cleanup waits longer than any process lives.
        """
        version = int(key.rpartition("/")[2].partition(".")[0])
        table = self.world.table(key.partition("/")[0])
        if version < len(table.cleaned) or (version and table.stored(version - 1) is None):
            raise NoAnswer("simulated: the table was dropped, or its log was cleaned")

    def create(self, key: str, content: bytes) -> None:
        """Create a commit file; the request may fail, or fail after it had its effect."""
        world = self.world
        fault = world.hub.step("commit")
        self._refuse_dropped(key)
        if fault in ("error", "short", "throttle") or world.hub.steps < world.store.throttled:
            raise NoAnswer("simulated: the commit was not written")
        if fault == "torn":
            world.store.tear = 2 + world.hub.steps % 90
        if not world.safe:
            # The store checks first, and replaces then.
            if key in world.store.objects:
                raise AlreadyExists(key)
            world.hub.step("commit_put")
            self._refuse_dropped(key)
            world.overwrites(key)
            world.store.write(key, content)
        else:
            world.store.create(key, content)
        world.committed(key, content)
        if fault == "lost":
            raise NoAnswer("simulated: no answer to the commit, which was written")
        if fault == "twice":
            # The client repeats the request, and its second answer is that the file exists.
            raise AlreadyExists(key)


class Steps(ApplySteps):
    """The steps of an apply, with rows that are computed here."""

    def logs(self, step: Step) -> list[str]:
        return []

    def prepare(self, step: Step) -> PreparedStep:
        session: Any = self.session
        session.invalid = []
        write = _WRITES[step.kind](session, self.spec, step)
        quarantined: Any = aside.entries(session, self.spec, step)
        return PreparedStep(write, {"late": 0} if step.read.has_rows else {}, quarantined=quarantined)

    def seal(self, step: Step, prepared: PreparedStep) -> Seal:
        made = super().seal(step, prepared)
        configuration = described(self.spec.options)
        return replace(made, state=replace(made.state, configuration=configuration))

    def complete(self, step: Step, prepared: PreparedStep, version: int) -> None:
        """Set the properties of a new table: a commit of its own."""
        session: Any = self.session
        if step.planned_on is not None and not self.spec.may_lack_layout:
            return
        _, now = session.read_log(self.spec.target_uri)
        wanted = {"delta.dataSkippingStatsColumns": "id", **self.spec.options.target_properties}
        if now.version < 0 or all(name in now.metadata["configuration"] for name in wanted):
            return

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            metadata = {**begun.metadata, "configuration": {**begun.metadata["configuration"], **wanted}}
            return "SET TBLPROPERTIES", {}, {}, [{"metaData": metadata}]

        session.write(self.spec.target_uri, make, sealed=False)


def _matching(condition: str, rows: list[dict[str, Any]]) -> Column:
    """Return the ON of a MERGE: comparisons with constants, and with columns of the source."""
    parts = condition.split(" AND ")
    constant = parsed(" AND ".join(one.replace("q.", "") for one in parts if " s." not in one))
    pairs = [
        (one.split(" ")[0].removeprefix("q."), one.rpartition(" s.")[2].strip("`"))
        for one in parts
        if " s." in one
    ]
    theirs = {value_of([row[of] for _, of in pairs]) for row in rows}
    return Column(lambda row: constant.of(row) and value_of([row[name] for name, _ in pairs]) in theirs)


def _marked(row: dict[str, Any], mark: str, most: int) -> dict[str, Any]:
    marks = [mark, *(one for one in row.get(SETTLED_BY) or () if one != mark)]
    return {**row, SETTLED_BY: marks[:most]}


def execute(world: World, spec: Any) -> JobResult:
    """Do what the driver does with a spec, or with a batch."""
    if isinstance(spec, BatchSpec):
        return JobResult("committed", parts=tuple(execute(world, part) for part in spec.parts))
    try:
        world.hub.step("start")
        session: Any = Session(world)
        return Steps(session, spec).run()
    except DeltaCdcError as error:
        return JobResult("failed", message=str(error), error=error.to_dict())
    except (NoAnswer, delta.Missing, delta.Conflict) as error:
        return JobResult("failed", message=f"{type(error).__name__}: {error}")


# -- rows -----------------------------------------------------------------------------------------------
Write = "Callable[[], object]"


def _is_history(spec: ApplySpec) -> bool:
    return spec.options.stored_as_scd_type == 2


def _kind(spec: ApplySpec) -> str:
    """Return the kind of the target, as far as its columns depend on it."""
    return "log" if spec.options.writes_events else "type2" if _is_history(spec) else ""


def _event(spec: ApplySpec, row: delta.Row, version: int, op: str = "upsert") -> delta.Row:
    return [row[0], row[1], op, spec.pipeline, version]


def _source_rows(session: Session, spec: ApplySpec, step: Step) -> list[delta.Row]:
    session.step("read_source")
    if step.at < 0 or step.read.is_empty:
        return []
    table = session.world.table(spec.source_uri)
    session._refuse_torn(table)
    rows = session.valid(table.rows(table.travel(step.at)), step.at)
    if spec.options.writes_events:
        return [_event(spec, row, step.at) for row in rows]
    return [[*row, step.at, None] for row in rows] if _is_history(spec) else rows


def _load(session: Session, spec: ApplySpec, step: Step) -> Callable[[], object]:
    rows = _source_rows(session, spec, step)

    def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
        metrics = {"numOutputRows": len(rows), "numFiles": 1}
        actions = [table.add(sorted(rows, key=str))] if rows else []
        is_new = begun.version < 0
        created = table.created(session.world.new_id(), {}, _kind(spec)) if is_new else []
        if step.kind == "reset":
            removed = [table.remove(path) for path in begun.files]
            return "WRITE", {"mode": "Overwrite"}, metrics, [*created, *removed, *actions]
        if is_new:
            return "WRITE", {"mode": "ErrorIfExists"}, metrics, [*created, *actions]
        if step.planned_on is None:
            raise delta.Conflict("DELTA_PATH_EXISTS")
        return "WRITE", {"mode": "Append"}, metrics, actions

    return lambda: session.write(spec.target_uri, make, creates=True)


def _changes(session: Session, spec: ApplySpec, step: Step) -> list[tuple[int, list[delta.Row], set[int]]]:
    """Return version, new rows, and keys that were removed or replaced, of each version that is read."""
    session.step("read_source")
    table = session.world.table(spec.source_uri)
    session._refuse_torn(table)
    found: list[tuple[int, list[delta.Row], set[int]]] = []
    for one in step.read.ranges:
        if one.net:
            before, after = (
                {row[0]: row for row in table.rows(table.travel(version))}
                for version in (one.starting_version - 1, one.ending_version)
            )
            added = [row for key, row in after.items() if before.get(key) != row]
            removed = {key for key, row in before.items() if after.get(key) != row}
            found.append(_without_invalid(session, one.ending_version, added, removed))
            continue
        versions = range(one.starting_version, one.ending_version + 1)
        table.travel(one.starting_version)
        found += [_without_invalid(session, version, *changes_of(table, version)) for version in versions]
    return found


def _without_invalid(
    session: Session, version: int, added: list[delta.Row], removed: set[int]
) -> tuple[int, list[delta.Row], set[int]]:
    """Return changes without rows that are set aside; the target keeps the older row of their keys."""
    valid = session.valid(added, version)
    return version, valid, removed - ({row[0] for row in added} - {row[0] for row in valid})


def changes_of(table: delta.Table, version: int) -> tuple[list[delta.Row], set[int]]:
    """Return the new rows of a version, and the keys that it removed or replaced, as the change feed has
    them."""
    actions = table.actions(version)
    feed = [action["cdc"]["path"] for action in actions if "cdc" in action]
    if feed:
        events = [row for path in feed for row in table.read(path)]
        added = [row[1:] for row in events if row[0] in ("insert", "update_postimage")]
        return added, {row[1] for row in events if row[0] in ("delete", "update_preimage")}
    changing = [
        (kind, action[kind]["path"])
        for action in actions
        for kind in ("add", "remove")
        if action.get(kind, {}).get("dataChange")
    ]
    before = [row for kind, path in changing if kind == "remove" for row in table.read(path)]
    after = [row for kind, path in changing if kind == "add" for row in table.read(path)]
    return [row for row in after if row not in before], {row[0] for row in before if row not in after}


def _apply(session: Session, spec: ApplySpec, step: Step) -> Callable[[], object]:
    changes = _changes(session, spec, step)
    if spec.options.writes_events:
        events = [_event(spec, row, version) for version, added, _ in changes for row in added]
        for version, added, removed in changes:
            gone = removed - {row[0] for row in added}
            events += [_event(spec, [key, None], version, "delete") for key in sorted(gone)]
        return lambda: _append(session, spec.target_uri, events, _kind(spec))
    if spec.options.insert_only:
        rows = [row for _, added, _ in changes for row in added]

        return lambda: _append(session, spec.target_uri, rows)

    def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
        now = table.rows(begun)
        keys = {row[0] for _, added, _ in changes for row in added} | {
            key for _, _, removed in changes for key in removed
        }
        history = _is_history(spec)
        new = _history(now, changes, keys) if history else _current(now, changes, keys)
        old = [row for row in now if row[0] in keys]
        return _merged(table, begun, old, new, keys)

    return lambda: session.write(spec.target_uri, make)


def _current(
    now: list[delta.Row], changes: list[tuple[int, list[delta.Row], set[int]]], keys: set[int]
) -> list[delta.Row]:
    rows = {row[0]: row for row in now if row[0] in keys}
    for _, added, removed in changes:
        for key in removed:
            rows.pop(key, None)
        rows.update({row[0]: row for row in added})
    return list(rows.values())


def _history(
    now: list[delta.Row], changes: list[tuple[int, list[delta.Row], set[int]]], keys: set[int]
) -> list[delta.Row]:
    rows = [list(row) for row in now if row[0] in keys]
    for version, added, removed in changes:
        for row in rows:
            if row[3] is None and (row[0] in removed or any(row[0] == new[0] for new in added)):
                row[3] = version
        rows += [[*row, version, None] for row in added]
    return rows


def _merged(
    table: delta.Table, begun: delta.Snapshot, old: list[delta.Row], new: list[delta.Row], keys: set[int]
) -> delta.Written:
    before, after = {row[0] for row in old}, {row[0] for row in new}
    metrics = {
        "numTargetRowsInserted": len(after - before),
        "numTargetRowsUpdated": len(after & before),
        "numTargetRowsDeleted": len(before - after),
    }
    return "MERGE", {"predicate": "id"}, metrics, table.replaced(new, keys, begun)


def _reload(session: Session, spec: ApplySpec, step: Step) -> Callable[[], object]:
    return _brought_to_source(session, spec, step)


def _repair(session: Session, spec: ApplySpec, step: Step) -> Callable[[], object]:
    if step.read.quarantined:
        return _brought_to_source(session, spec, step, aside.keys(session, spec, step))
    changes = _changes(session, spec, step)
    session.invalid = []
    keys = {row[0] for _, added, _ in changes for row in added}
    return _brought_to_source(session, spec, step, keys | {key for _, _, gone in changes for key in gone})


def _brought_to_source(
    session: Session, spec: ApplySpec, step: Step, chosen: set[int] | None = None
) -> Callable[[], object]:
    """Bring the rows of keys to the source as of the step; a row that is set aside leaves the older one.

    A history gets another open row; what the project's job computes of its closed rows is not modelled.

    :param chosen: the keys; None: all
    """
    rows = _source_rows(session, spec, step)
    if chosen is not None:
        rows = [row for row in rows if row[0] in chosen]
        session.invalid = [(version, row) for version, row in session.invalid if row[0] in chosen]
    stays = {row[0] for _, row in session.invalid}

    def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
        old = [
            row for row in table.rows(begun) if row[0] not in stays and (chosen is None or row[0] in chosen)
        ]
        if _is_history(spec):
            values = {row[0]: row[1] for row in rows}
            before = {row[0]: row[1] for row in old if row[3] is None}
            changed = {key for key in {*values, *before} if values.get(key) != before.get(key)}
            added = [[key, values[key]] for key in sorted(changed & values.keys())]
            old = [row for row in old if row[0] in changed]
            new = _history(old, [(step.at, added, changed & before.keys())], changed)
            return _merged(table, begun, old, new, changed)
        return _merged(table, begun, old, rows, {row[0] for row in (*old, *rows)})

    return lambda: session.write(spec.target_uri, make)


def _seal_alone(session: Session, spec: ApplySpec, step: Step) -> Callable[[], object]:
    return lambda: _append(session, spec.target_uri, [], _kind(spec))


def _append(session: Session, uri: str, rows: list[delta.Row], kind: str = "") -> None:
    """Append rows; Spark makes a new table if the table was dropped meanwhile."""

    def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
        added = [table.add(rows)] if rows else []
        created = table.created(session.world.new_id(), {}, kind) if begun.version < 0 else []
        metrics = {"numOutputRows": len(rows), "numFiles": len(added)}
        return "WRITE", {"mode": "Append"}, metrics, [*created, *added]

    session.write(uri, make, blind=True, creates=True)


_WRITES: dict[str, Callable[[Session, ApplySpec, Step], Callable[[], object]]] = {
    "load": _load,
    "reset": _load,
    "apply": _apply,
    "reload": _reload,
    "repair": _repair,
    "renew": _seal_alone,
    "take_over": _seal_alone,
}
