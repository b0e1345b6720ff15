"""What a target must hold, from the source's rows and the bytes of the logs alone: no code of the project."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from delta_cdc.core.quarantine import SETTLING
from tests.simulator.delta import Missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulator.delta import Table

State = dict[int, int]
#: A target with a quarantine refuses a value that is not above this one.
REFUSED = -1_000
#: Kinds of steps whose commits move rows.
MOVING = ("load", "apply", "reset", "reload", "repair")


class Violation(AssertionError):
    """A rule was broken without an error of the project."""


@dataclass(frozen=True)
class Sealed:
    """A sealed commit, as its commit file has it."""

    version: int
    pipeline: str
    number: int
    kind: str
    start: int
    end: int
    watermark: int
    hash: str | None
    table_id: str
    planned_on: int
    planned_in: str
    planned_hash: str | None
    successor: str | None = None
    settles: bool = False

    @classmethod
    def of(cls, table: Table, version: int) -> Sealed | None:
        actions = table.actions(version)
        text = table.info(version).get("userMetadata")
        txns = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
        if text is None or not txns:
            return None
        seal = json.loads(text)
        step, state = seal["step"], seal["state"]
        if txns.get("delta-cdc/" + seal["pipeline"]) != seal["number"]:
            raise Violation(f"version {version} of {table.name}: seal and transaction differ")
        return cls(
            version,
            seal["pipeline"],
            seal["number"],
            step["kind"],
            step["starting_version"],
            step["ending_version"],
            state["applied_to"]["version"],
            state["applied_to"].get("commit_hash"),
            state["applied_to"]["table_id"],
            (step.get("planned_on") or {}).get("version", -1),
            (step.get("planned_on") or {}).get("table_id", ""),
            (step.get("planned_on") or {}).get("commit_hash"),
            seal.get("successor"),
            SETTLING in state["configuration"],
        )


@dataclass
class Past:
    """One life of a source: a state per version, by the hash of the version's commit file too."""

    states: list[State] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)


def expected(past: Past, kind: str, seals: Sequence[Sealed]) -> list[list[Any]]:
    """Return the rows of a target.

    :param kind: ``type1``, ``type2``, ``append`` or ``log``
    :param seals: those in effect; the first one is that of the load, a reset, or a reload of all rows
    """
    states, at = past.states, seals[-1].watermark
    if kind == "type1":
        return _sorted([[key, value] for key, value in states[at].items()])
    loaded = seals[0].watermark
    if kind == "log":
        return _sorted(list(_events(past, seals)))
    if kind == "append":
        rows = [[key, value] for key, value in states[loaded].items()]
        for version in range(loaded + 1, at + 1):
            rows += [[k, v] for k, v in states[version].items() if states[version - 1].get(k) != v]
        return _sorted(rows)
    rows, opened = [], {key: [key, value, loaded, None] for key, value in states[loaded].items()}
    for before, version in _moves(seals):
        for key in {*states[before], *states[version]}:
            was, now = states[before].get(key), states[version].get(key)
            if was == now:
                continue
            if was is not None:
                rows.append([*opened.pop(key)[:3], version])
            if now is not None:
                opened[key] = [key, now, version, None]
    return _sorted([*rows, *opened.values()])


def _events(past: Past, seals: Sequence[Sealed]) -> Iterator[list[Any]]:
    """Yield the events that the pipelines of a source append to a log: rows of the load, and each change."""
    first = seals[0]
    for key, value in past.states[first.watermark].items():
        yield [key, value, "upsert", first.pipeline, first.watermark]
    for sealed in seals[1:]:
        for version in range(sealed.start, sealed.end + 1) if sealed.kind == "apply" else ():
            before, now = past.states[version - 1], past.states[version]
            for key, value in now.items():
                if before.get(key) != value:
                    yield [key, value, "upsert", sealed.pipeline, version]
            for key in before.keys() - now.keys():
                yield [key, None, "delete", sealed.pipeline, version]


def _moves(seals: Sequence[Sealed]) -> Iterator[tuple[int, int]]:
    """Yield which version follows which in a history: a reload compares two versions, an apply each with the
    next one."""
    at = seals[0].watermark
    for sealed in seals[1:]:
        if sealed.kind == "reload":
            yield at, sealed.watermark
        else:
            yield from ((version - 1, version) for version in range(at + 1, sealed.watermark + 1))
        at = sealed.watermark


def is_invalid(key: int) -> bool:
    """Return whether the rows of a key are set aside."""
    return key % 3 == 2


def check_set_aside(table: Table, past: Past, sealed: Sealed) -> None:
    """What a commit left out of the target must be in quarantine, under its seal, once.

    :raises Violation: rows are missing, or are there twice, or are of no version of the range
    """
    rows: list[Any] = table.rows(table.snapshot())
    mine = [row for row in rows if row["pipeline"] == sealed.pipeline]
    found = Counter(tuple(json.loads(row["raw"])) for row in mine if row["seal"] == sealed.number)
    now = {item for item in past.states[sealed.watermark].items() if is_invalid(item[0])}
    allowed: set[tuple[int, int]] = set(now)
    if sealed.kind == "apply":
        before = set(past.states[sealed.start - 1].items())
        states = past.states[sealed.start : sealed.end + 1]
        allowed = {item for state in states for item in state.items() if is_invalid(item[0])}
        now -= before
    elif sealed.kind != "load":
        # A reload leaves out what an earlier seal has set aside.
        now -= {tuple(json.loads(row["raw"])) for row in mine if row["seal"] < sealed.number}
    where = f"version {sealed.version} ({sealed.kind} {sealed.start}-{sealed.end}, seal {sealed.number})"
    if missing := now - set(found):
        raise Violation(f"{where}: the quarantine lacks {missing}")
    own = {tuple(json.loads(row["raw"])) for row in mine if _is_shorter(row, sealed)}
    twice = {row for row, count in found.items() if count > 1 and not _came_twice(past, sealed, row)}
    if wrong := (own - allowed) | twice:
        raise Violation(f"{where}: the quarantine has {wrong} of {dict(found)}")


def _is_shorter(row: Any, sealed: Sealed) -> bool:
    """Return whether a row was set aside for a part of the range of a seal.

    A try for the same or another range that died, or that the target refused, leaves its rows.
    """
    first, last = row["starting_version"], row["ending_version"]
    is_inside = sealed.start <= first and last <= sealed.end and (first, last) != (sealed.start, sealed.end)
    return bool(row["seal"] == sealed.number and is_inside)


def _came_twice(past: Past, sealed: Sealed, row: tuple[int, int]) -> bool:
    """Return whether a row came, went and came again within a range."""
    states = past.states[max(sealed.start - 1, 0) : sealed.end + 1]
    key, value = row
    return sum(two.get(key) == value != one.get(key) for one, two in pairwise(states)) > 1


def _sorted(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=str)


@dataclass(frozen=True)
class Chain:
    """The seals in effect at a version of a target.

    :param taint: why the rows are not those of the seals; "" if they are
    :param made: these seals and those before a reset, or before an overwrite: they were announced, too
    :param owned: the newest seal, even if its rows are gone: its pipeline, or its successor, owns the table
    """

    seals: tuple[Sealed, ...] = ()
    taint: str = ""
    made: tuple[Sealed, ...] = ()
    owned: Sealed | None = None

    @property
    def last(self) -> Sealed | None:
        return self.seals[-1] if self.seals else None


class Judge:
    """Follows a target's log, and checks each commit when it appears.

    :param pasts: the lives of the source
    :param kind: of the target
    :param pipelines: those of the source; others may append to a log as well
    """

    def __init__(self, table: Table, pasts: Sequence[Past], kind: str, pipelines: Sequence[str]) -> None:
        self.table = table
        self.pasts = pasts
        self.kind = kind
        self.pipelines = pipelines
        self.chains: list[Chain] = []
        self._tags: list[str] = []
        self._seen = -1
        #: A commit file was overwritten. The rows may then be wrong, but no run may succeed.
        self.overwritten = False
        #: A known gap: no seal in effect has the hash of the overwritten commit, because the commit that
        #: follows it has no seal, or was planned on an earlier one.
        self.hidden = False
        #: The quarantine, if the target has one.
        self.aside: Table | None = None
        self.is_aside_lost = False
        #: The rule changes that sets rows aside, and the quarantine is replayed.
        self.replays = False

    def mine(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return the rows of the source; those of a log name the pipeline that appended them."""
        return [row for row in rows if row[3] in self.pipelines] if self.kind == "log" else rows

    def _is_of_others(self, sealed: Sealed | None) -> bool:
        return self.kind == "log" and sealed is not None and sealed.pipeline not in self.pipelines

    def wanted(self, past: Past, seals: Sequence[Sealed]) -> list[list[Any]]:
        """Return the rows of the target, without those that are set aside."""
        if self.aside is None:
            return expected(past, self.kind, seals)
        states = [{k: v for k, v in state.items() if not is_invalid(k)} for state in past.states]
        return expected(Past(states, past.hashes), self.kind, seals)

    def look(self) -> None:
        """Check the commits that are new, or that were overwritten."""
        store = self.table.store.objects
        if self._seen == store.changes:
            return
        self._seen = store.changes
        version = 0
        while (stored := self.table.stored(version)) is not None:
            if version >= len(self._tags) or self._tags[version] != stored.e_tag:
                if version < len(self._tags):
                    self.overwritten = True
                    self.hidden = self.hidden or self._hides(version + 1)
                del self._tags[version:], self.chains[version:]
                self._tags.append(stored.e_tag)
                self.chains.append(self._judged(version))
            version += 1
        del self._tags[version:], self.chains[version:]

    @property
    def now(self) -> Chain:
        self.look()
        return self.chains[-1] if self.chains else Chain()

    def past_of(self, sealed: Sealed) -> Past:
        # The newest first: a source that was put back from a copy has a part of its past.
        for past in reversed(self.pasts):
            if sealed.watermark < len(past.hashes) and past.hashes[sealed.watermark] == sealed.hash:
                return past
        raise Violation(f"seal {sealed.number} names a version of no source: {sealed}")

    def _judged(self, version: int) -> Chain:
        try:
            return self._after(version)
        except (Violation, Missing) as error:
            if not self.overwritten:
                raise
            owned = Sealed.of(self.table, version) or (self.chains[version - 1].owned if version else None)
            return Chain(taint=f"overwritten: {error}", owned=owned)

    def _hides(self, version: int) -> bool:
        if self.table.stored(version) is None:
            return False
        sealed = Sealed.of(self.table, version)
        # The next run looks at the files of a RESTORE, and of a reset.
        if sealed is None:
            return bool(self.table.info(version)["operation"] != "RESTORE")
        return sealed.kind != "reset" and sealed.planned_on < version - 1

    def _after(self, version: int) -> Chain:
        before = self.chains[version - 1] if version else Chain()
        info = self.table.info(version)
        operation, parameters = info["operation"], info["operationParameters"]
        sealed = Sealed.of(self.table, version)
        if self._is_of_others(sealed):
            return before
        if sealed is not None:
            return replace(self._sealed(before, sealed), owned=sealed)
        if operation == "RESTORE":
            return self.chains[int(parameters["version"])]
        if self.kind == "log" and not before.seals:
            # The events of a source come after whatever is in the log.
            return before
        if operation in ("WRITE", "CLONE", "CREATE OR REPLACE TABLE AS SELECT"):
            made = () if "REPLACE" in operation else before.made
            return Chain(taint=f"{operation} in version {version}", made=made, owned=before.owned)
        return before

    def _sealed(self, before: Chain, sealed: Sealed) -> Chain:
        version = sealed.version
        last = before.last
        if sealed.kind in ("load", "reset"):
            if sealed.planned_in not in ("", self.table.snapshot(version).metadata["id"]):
                # The table was dropped and made again while the job stood still: as for other steps, below.
                return Chain(
                    taint=f"version {version} was planned on table {sealed.planned_in}", made=before.made
                )
            if self.kind == "log" and "planned on" in before.taint:
                # Two tries of a first load, of which one was planned on an earlier table: no run may go on.
                return replace(before, made=(*before.made, sealed))
            is_first = not (before.seals or before.taint) or not self.table.snapshot(version - 1).files
            # What another writer left in a log may be events of another source.
            is_first = is_first or (self.kind == "log" and not before.seals)
            if sealed.kind == "load" and not is_first:
                raise Violation(f"version {version}: a load into a table with rows, {before}")
            chain = Chain((sealed,), made=(*before.made, sealed))
        elif sealed.kind == "reload" and (before.taint or last is None or self._leaves(before, sealed)):
            # All rows are compared with the source, whoever wrote them.
            if replace(self._planned(sealed), owned=before.owned) != before:
                return self._misplanned(before, sealed)
            chain = Chain((sealed,), made=(*before.made, sealed))
        else:
            planned = self._planned(sealed)
            # A take-over reads the seal after the version, which may be an older one: it moves no rows.
            # A restore before its commit takes rows back: later runs have to refuse it.
            is_true = last is not None and sealed.watermark == last.watermark
            compared = sealed.kind != "take_over" or before.taint or not is_true
            if compared and (before.taint, before.seals) != (planned.taint, planned.seals):
                return self._misplanned(before, sealed)
            if not self._is_planned_here(sealed):
                # The table was put back from a copy while the job ran: each later run has to refuse it.
                taint = f"version {version} was planned on another version {sealed.planned_on}"
                return Chain(taint=taint, made=before.made)
            if sealed.planned_in != self.table.snapshot(sealed.version).metadata["id"]:
                # No store and no transaction of Delta can refuse it; each later run has to.
                taint = f"version {sealed.version} was planned on table {sealed.planned_in}"
                return Chain(taint=taint, made=before.made)
            self._follow(before, sealed)
            chain = Chain((*before.seals, sealed), made=(*before.made, sealed))
        self._compare(chain, sealed)
        return chain

    def _follow(self, before: Chain, sealed: Sealed) -> None:
        """Check that a seal continues the seals before it."""
        version, last = sealed.version, before.last
        if before.taint:
            raise Violation(f"version {version}: a commit after {before.taint}")
        owner = None if last is None else last.successor or last.pipeline
        if last is None or owner != sealed.pipeline or (last.successor and sealed.kind != "take_over"):
            raise Violation(f"version {version}: {sealed.pipeline} commits into the target of {last}")
        highest = self.table.snapshot(version - 1).txns.get("delta-cdc/" + sealed.pipeline, -1)
        if sealed.number <= highest or (not last.successor and sealed.number != highest + 1):
            raise Violation(f"version {version}: seal {sealed.number} follows seal {highest}")
        if sealed.kind == "apply" and sealed.start != last.watermark + 1:
            raise Violation(
                f"version {version}: applies from {sealed.start}, and the watermark was {last.watermark}"
            )
        if sealed.watermark < last.watermark and sealed.kind != "reload":
            raise Violation(f"version {version}: the watermark goes back")

    def _planned(self, sealed: Sealed) -> Chain:
        return self.chains[sealed.planned_on] if 0 <= sealed.planned_on < sealed.version else Chain()

    def _is_planned_here(self, sealed: Sealed) -> bool:
        if sealed.planned_hash is None:
            return True
        base = self.table.stored(sealed.planned_on) if sealed.planned_on < sealed.version else None
        return base is not None and hashlib.sha256(base.content).hexdigest() == sealed.planned_hash

    def _misplanned(self, before: Chain, sealed: Sealed) -> Chain:
        """Return a target whose commit was planned on other rows.

        Delta lets an append through; the project has to notice it before it publishes.
        """
        taint = f"version {sealed.version} was planned on {sealed.planned_on}"
        return Chain(taint=taint, made=(*before.made, sealed))

    def _leaves(self, before: Chain, sealed: Sealed) -> bool:
        """Return whether a reload compares the rows with another source than before."""
        return before.last is not None and self.past_of(before.last) is not self.past_of(sealed)

    def _compare(self, chain: Chain, sealed: Sealed) -> None:
        past = self.past_of(sealed)
        wanted = self.wanted(past, chain.seals)
        found = self.mine(self.table.rows(self.table.snapshot(sealed.version)))
        if self.replays:
            self.check_kept(found, past, sealed)
            self._check_settled(chain, sealed)
            found = [row for row in found if not is_invalid(row[0])]
        if sorted(found, key=str) != wanted:
            raise Violation(
                f"version {sealed.version} ({sealed.kind}, watermark {sealed.watermark}): rows {found}, "
                f"the source has {wanted}"
            )
        if self.aside is not None and not self.is_aside_lost and sealed.kind in MOVING and not self.replays:
            check_set_aside(self.aside, past, sealed)

    def _check_settled(self, chain: Chain, sealed: Sealed) -> None:
        """What an earlier replay took out of the quarantine is gone by the next commit, whatever died."""
        replays = [one.number for one in chain.seals if one.settles and one.number < sealed.number]
        if not replays or self.aside is None or self.is_aside_lost:
            return
        rows: list[Any] = self.aside.rows(self.aside.snapshot()) if self.aside.newest >= 0 else []
        if rest := [row for row in rows if row["pipeline"] == sealed.pipeline and row["seal"] < replays[-1]]:
            raise Violation(f"version {sealed.version}: seal {replays[-1]} replayed {rest}")

    def check_kept(
        self, found: list[list[Any]], past: Past, sealed: Sealed, *, replayed: bool = False
    ) -> None:
        """Each row that the rule may set aside must be in the target, or in quarantine.

        :param replayed: it must be in the target; after a replay, no earlier step has a row in quarantine
        """
        assert self.aside is not None
        rows: list[Any] = self.aside.rows(self.aside.snapshot()) if self.aside.newest >= 0 else []
        if replayed:
            rest = [row for row in rows if row["pipeline"] == sealed.pipeline]
            if sealed.kind == "repair" and any(row["seal"] < sealed.number for row in rest):
                raise Violation(f"after a replay, the quarantine has {rest}")
            rows = []
        now = [row for row in found if len(row) == 2 or row[3] is None]
        held = {tuple(json.loads(row["raw"])) for row in rows} | {(row[0], row[1]) for row in now}
        state = past.states[sealed.watermark]
        where = f"version {sealed.version} ({sealed.kind} {sealed.start}-{sealed.end}, seal {sealed.number})"
        lost = {item for item in state.items() if is_invalid(item[0])} - held
        if lost and not self.is_aside_lost:
            raise Violation(f"{where}: {lost} is neither in the target nor in quarantine")
        keys = [row[0] for row in now if is_invalid(row[0])]
        if len(keys) > len(set(keys)) or not set(keys) <= set(state):
            raise Violation(f"{where}: the target has the keys {keys} of {state}")
