"""What a target must hold, from the source's rows and the bytes of the logs alone: no code of the project."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulator.delta import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulator.delta import Table

State = dict[int, int]
#: Kinds of steps whose commits move rows.
MOVING = ("load", "apply", "reset", "reload")


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
        )


@dataclass
class Past:
    """One life of a source: a state per version, by the hash of the version's commit file too."""

    states: list[State] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)


def expected(past: Past, kind: str, loaded: int, at: int) -> list[list[Any]]:
    """Return the rows of a target.

    :param kind: ``type1``, ``type2`` or ``append``
    :param loaded: the version that was loaded
    """
    states = past.states
    if kind == "type1":
        return _sorted([[key, value] for key, value in states[at].items()])
    if kind == "append":
        rows = [[key, value] for key, value in states[loaded].items()]
        for version in range(loaded + 1, at + 1):
            rows += [[k, v] for k, v in states[version].items() if states[version - 1].get(k) != v]
        return _sorted(rows)
    rows, opened = [], {key: [key, value, loaded, None] for key, value in states[loaded].items()}
    for version in range(loaded + 1, at + 1):
        for key in {*states[version - 1], *states[version]}:
            was, now = states[version - 1].get(key), states[version].get(key)
            if was == now:
                continue
            if was is not None:
                rows.append([*opened.pop(key)[:3], version])
            if now is not None:
                opened[key] = [key, now, version, None]
    return _sorted([*rows, *opened.values()])


def _sorted(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=str)


@dataclass(frozen=True)
class Chain:
    """The seals in effect at a version of a target.

    :param taint: why the rows are not those of the seals; "" if they are
    :param made: these seals and those before a reset, or before an overwrite: they were announced, too
    """

    seals: tuple[Sealed, ...] = ()
    taint: str = ""
    made: tuple[Sealed, ...] = ()

    @property
    def last(self) -> Sealed | None:
        return self.seals[-1] if self.seals else None


class Judge:
    """Follows a target's log, and checks each commit when it appears.

    :param pasts: the lives of the source
    :param kinds: pipeline -> kind of its target
    """

    def __init__(self, table: Table, pasts: Sequence[Past], kinds: dict[str, str]) -> None:
        self.table = table
        self.pasts = pasts
        self.kinds = kinds
        self.chains: list[Chain] = []
        self._tags: list[str] = []
        #: A commit file was overwritten. The rows may then be wrong, but no run may succeed.
        self.overwritten = False

    def look(self) -> None:
        """Check the commits that are new, or that were overwritten."""
        store = self.table.store.objects
        version = 0
        while (stored := store.get(self.table.key(version))) is not None:
            if version >= len(self._tags) or self._tags[version] != stored.e_tag:
                self.overwritten = self.overwritten or version < len(self._tags)
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
        for past in self.pasts:
            if sealed.watermark < len(past.hashes) and past.hashes[sealed.watermark] == sealed.hash:
                return past
        raise Violation(f"seal {sealed.number} names a version of no source: {sealed}")

    def _judged(self, version: int) -> Chain:
        try:
            return self._after(version)
        except (Violation, Missing) as error:
            if not self.overwritten:
                raise
            return Chain(taint=f"overwritten: {error}")

    def _after(self, version: int) -> Chain:
        before = self.chains[version - 1] if version else Chain()
        info = self.table.info(version)
        operation, parameters = info["operation"], info["operationParameters"]
        sealed = Sealed.of(self.table, version)
        if sealed is not None:
            return self._sealed(before, sealed)
        if operation == "RESTORE":
            return self.chains[int(parameters["version"])]
        if operation in ("WRITE", "CLONE", "CREATE OR REPLACE TABLE AS SELECT"):
            made = () if "REPLACE" in operation else before.made
            return Chain(taint=f"{operation} in version {version}", made=made)
        return before

    def _sealed(self, before: Chain, sealed: Sealed) -> Chain:
        version = sealed.version
        last = before.last
        if sealed.kind in ("load", "reset"):
            if sealed.kind == "load" and (before.seals or before.taint):
                raise Violation(f"version {version}: a load into a table with rows, {before}")
            chain = Chain((sealed,), made=(*before.made, sealed))
        else:
            planned = self.chains[sealed.planned_on] if 0 <= sealed.planned_on < version else Chain()
            if (before.taint, before.seals) != (planned.taint, planned.seals):
                # Delta lets an append through; the project has to notice it before it publishes.
                taint = f"version {version} was planned on {sealed.planned_on}"
                return Chain(taint=taint, made=(*before.made, sealed))
            if sealed.planned_in != self.table.snapshot(version).metadata["id"]:
                # No store and no transaction of Delta can refuse it; each later run has to.
                taint = f"version {version} was planned on table {sealed.planned_in}"
                return Chain(taint=taint, made=before.made)
            if before.taint:
                raise Violation(f"version {version}: a commit after {before.taint}")
            if last is None or last.pipeline != sealed.pipeline:
                raise Violation(f"version {version}: {sealed.pipeline} commits into the target of {last}")
            highest = self.table.snapshot(version - 1).txns["delta-cdc/" + sealed.pipeline]
            if sealed.number != highest + 1:
                raise Violation(f"version {version}: seal {sealed.number} follows seal {highest}")
            if sealed.kind == "apply" and sealed.start != last.watermark + 1:
                raise Violation(
                    f"version {version}: applies from {sealed.start}, and the watermark was {last.watermark}"
                )
            if sealed.watermark < last.watermark and sealed.kind != "reload":
                raise Violation(f"version {version}: the watermark goes back")
            chain = Chain((*before.seals, sealed), made=(*before.made, sealed))
        self._compare(chain, sealed)
        return chain

    def _compare(self, chain: Chain, sealed: Sealed) -> None:
        past = self.past_of(sealed)
        loaded = chain.seals[0].watermark
        wanted = expected(past, self.kinds[sealed.pipeline], loaded, sealed.watermark)
        found = self.table.rows(self.table.snapshot(sealed.version))
        if sorted(found, key=str) != wanted:
            raise Violation(
                f"version {sealed.version} ({sealed.kind}, watermark {sealed.watermark}): rows {found}, "
                f"the source has {wanted}"
            )
