"""A source with its target: what is checked of what runs publish, and of what clean runs leave."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tests.simulator.delta import Table
from tests.simulator.oracle import MOVING, Judge, Past, Sealed, Violation, is_invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulator.store import Store

_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}
#: The named errors that a clean run may end with after an accident, until a reset.
_EXCUSED = {
    "source_gone": {"SourceTableReplaced", "SourceHistoryChanged", "VersionsExpired"},
    "vacuumed": {"VersionsExpired"},
    # Without the watermark's commit, a table with another id is another table.
    "source_cleaned": {"VersionsExpired", "SourceTableReplaced"},
    "target_gone": set(),
    "target_put_back": {"TargetHistoryChanged"},
    "target_cleaned": {"WatermarkExpired"},
    # Also if the restored version has the same rows.
    "restored": {"TargetChangedUnderneath"},
    # Of a log with events of other sources: for others, see _AFTER_TAINT.
    "rewritten": set(),
    "overwritten": {"TargetHistoryChanged", "TargetChangedUnderneath", "TargetReplaced"},
}
_AFTER_TAINT = {"TargetReplaced", "TargetRecreated", "TargetChangedUnderneath", "TargetWithoutWatermark"}


class Lane:
    """A source and its target.

    :param kind: the target's kind: ``type1``, ``type2`` or ``append``
    :param pipelines: those that write the target: the one that loads it, and others
    :param target: a log, to which several sources are appended; None: a table of its own
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        pipelines: tuple[str, ...],
        suffix: str = "",
        target: Table | None = None,
    ) -> None:
        self.kind = kind
        self.pipelines = pipelines
        self.source = Table(store, f"source{suffix}")
        self.target = Table(store, f"target{suffix}") if target is None else target
        self.pasts: list[Past] = []
        self.judge = Judge(self.target, self.pasts, kind, pipelines)
        self.damage: set[str] = set()
        #: The versions and the events that the target had when it was last put back from a copy.
        self._kept = (-1, 0)
        #: The seals of commits that were overwritten.
        self._lost: set[int] = set()

    def put_back(self, events: int) -> None:
        """Note that the target was put back from a copy of its files: seals of later versions are new ones.

        :param events: how many events were stored before
        """
        self._kept = self.target.newest, events

    def undo(self) -> None:
        """Note that the target goes back behind a replay: the quarantine has its rows no more."""
        if any(one.kind == "repair" for chain in self.judge.chains for one in chain.made):
            self.judge.is_aside_lost = True

    def lose(self, version: int) -> None:
        """Note that a commit of the target is overwritten: the number of its seal may be given again."""
        lost = Sealed.of(self.target, version)
        self._lost |= {lost.number} if lost is not None else set()

    @property
    def owner(self) -> str:
        """Return the pipeline that writes the target now."""
        last = self.judge.now.owned
        return self.pipelines[0] if last is None else last.successor or last.pipeline

    @property
    def predecessor(self) -> str | None:
        """Return the pipeline whose target the owner has begun to take over."""
        last = self.judge.now.owned
        return last.pipeline if last is not None and last.successor else None

    def excused(self) -> set[str]:
        """Return the errors that a clean run may end with."""
        excused = {name for damage in self.damage for name in _EXCUSED[damage]}
        if self.kind == "log" and self.damage:
            # A job, also of another source, that was planned on the table before has appended to this one, or
            # has set its properties.
            excused |= {"TargetChangedUnderneath", "TargetReplaced"}
        return excused | (_AFTER_TAINT if self.judge.now.taint else set())

    @property
    def is_behind(self) -> bool:
        """Return whether the source has changes after the watermark."""
        last, states = self.judge.now.last, self.pasts[-1].states
        after = range(last.watermark + 1, len(states)) if last is not None else ()
        return any(states[version] != states[version - 1] for version in after)

    # -- rules ------------------------------------------------------------------------------------------
    def check_published(self, pipeline: str, published: dict[str, Any]) -> None:
        """What was published must be what is sealed."""
        self.judge.look()
        if published["seal"] is None or "overwritten" in self.damage:
            return
        number, version = published["seal"], published["version"]
        found = [
            sealed
            for chain in self.judge.chains
            if (sealed := chain.last) is not None and sealed.pipeline == pipeline
            if (sealed.number, sealed.watermark) == (number, version)
        ]
        # A target that was made again has another log.
        if self.damage & {"target_gone", "target_put_back"}:
            return
        if not found:
            raise Violation(f"published seal {number} with watermark {version}, which no commit has")
        if published["applied"]:
            self._check_counts(pipeline, published)

    def _check_counts(self, pipeline: str, published: dict[str, Any]) -> None:
        """Range and counts must be those of some sealed commits together."""
        chain = self.judge.chains[published["target_version"]]
        moving = [one for one in chain.made if one.kind in MOVING and one.pipeline == pipeline][-8:]
        wanted = published["starting_version"], published["ending_version"], _plain(published["counts"])
        sizes = range(1, len(moving) + 1)
        for some in (some for size in sizes for some in combinations(moving, size)):
            ranged = [one for one in some if one.kind != "load"] or some
            counts: Counter[str] = Counter()
            for one in some:
                counts.update(self._counts_of(one.version))
            start, end = min(one.start for one in ranged), max(one.end for one in ranged)
            # Nothing has the counts of a commit that was cleaned before it was published.
            is_gone = any(one.version < len(self.target.cleaned) for one in some) and not wanted[2]
            if (start, end, {} if is_gone else _plain(counts)) == wanted:
                return
        raise Violation(f"published {wanted}, and the seals are {[(s.kind, s.start, s.end) for s in moving]}")

    def _counts_of(self, version: int) -> dict[str, int]:
        metrics = self.target.info(version)["operationMetrics"]
        names = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metric in metrics}
        return names or {"inserted": int(metrics.get("numOutputRows", 0))}

    def check_announced(self, pipeline: str, events: list[dict[str, Any]]) -> None:
        """Each seal in effect must be announced, unless log cleanup deleted its commit.

        :param events: all that were ever stored
        """
        table_id = self.target.snapshot().metadata["id"]
        of_table = [
            (position, event)
            for position, event in enumerate(events)
            if event["pipeline"] == pipeline and event["target_table_id"] == table_id
        ]
        kept, before = self._kept
        last, old = self.judge.now.last, [event["seal"] for position, event in of_table if position < before]
        # A known gap: an event from before the table was put back has the number of one of its new
        # seals, and nothing else of it is compared. The seals up to that number then count as announced.
        given_again = old[-1] if last is not None and old and old[-1] <= last.number else -1
        if self.kind == "log" and kept >= 0:
            # An event of such a commit may even be stored later.
            return
        for sealed in self.judge.now.seals:
            if sealed.kind not in MOVING or sealed.pipeline != pipeline:
                continue
            # After a RESTORE that undid the load of a job of a dropped log, the numbers begin below.
            if self.kind == "log" and last is not None and sealed.number > last.number:
                continue
            # The same gap: an event may have announced the number for a commit that was overwritten.
            if sealed.number in self._lost or (sealed.version > kept and sealed.number <= given_again):
                continue
            first = before if sealed.version > kept else 0
            found = [event for position, event in of_table if position >= first]
            if sealed.version >= len(self.target.cleaned) and not any(_covers(one, sealed) for one in found):
                raise Violation(f"seal {sealed.number} ({sealed.kind} to {sealed.watermark}) not announced")

    def check_clean(self, pipeline: str) -> None:
        """After a clean run, the target must have what the source has."""
        chain, past = self.judge.now, self.pasts[-1]
        if chain.taint or chain.last is None or chain.last.pipeline != pipeline:
            raise Violation(f"after a clean run, the target is {chain}")
        if self.judge.past_of(chain.last) is not past or self.is_behind:
            raise Violation(f"after a clean run, the watermark is {chain.last}, the source {past.states[-1]}")
        rows = sorted(self.judge.mine(self.target.rows(self.target.snapshot())), key=str)
        wanted = self.judge.wanted(past, chain.seals)
        if self.judge.replays:
            # Nothing is set aside any more, and all was replayed, unless the quarantine was damaged.
            self.judge.check_kept(rows, past, chain.last, replayed=True)
            rows = [row for row in rows if not is_invalid(row[0])]
        if rows != wanted:
            raise Violation(f"after a clean run, the target has {rows}, the source {wanted}")


def _plain(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in ("inserted", "updated", "deleted") if counts.get(name)}


def _covers(event: dict[str, Any], sealed: Sealed) -> bool:
    if event["seal"] < sealed.number:
        return False
    if sealed.kind != "apply":
        return True
    first, last = event["starting_version"], event["ending_version"]
    return first is not None and first <= sealed.start and sealed.end <= last
