"""Seals are chained by the hash of the commit that each was planned on: what a walk finds, and what not."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import (
    CorruptLog,
    PipelineTakenOver,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    TargetReplaced,
    TargetWithoutWatermark,
)
from delta_cdc.core.spec import OptimizeSpec
from delta_cdc.core.watermark import Seal, TableVersion, app_id
from delta_cdc.delta_log.actions import Commit, CommitInfo, Txn
from delta_cdc.delta_log.replay import History
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.planning.reconcile import RecordedWatermark, own_commits, reconcile
from delta_cdc.planning.seal_chain import SealChain, replaces
from delta_cdc.planning.status import status_async
from tests.support.ingest_model import World
from tests.support.logs import LogTable, changed, seal
from tests.support.slow import slow_but
from tests.support.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def chained(table: LogTable, number: int, watermark: int, **changes: Any) -> int:
    """Write a seal that is planned on the newest commit."""
    newest = table.version
    planned = TableVersion(table.table_id, newest, table.sha256(newest))
    given = {name: changes.pop(name) for name in ("operation", "parameters", "rows") if name in changes}
    return table.write_seal(seal(number, watermark, planned_on=planned, **changes), **given)


@pytest.fixture
def target(tmp_path: Path) -> LogTable:
    """Versions 0 to 4 carry the seals 100 to 104, each planned on the one before."""
    made = LogTable(tmp_path / "target")
    made.write_seal(seal(100, 0, kind="load"))
    for number in range(101, 105):
        chained(made, number, number - 100)
    return made


def overwrite(table: LogTable, version: int, *, of: Seal | None = None, checkpointed: bool = False) -> None:
    """Put a commit with other rows in place of a version's commit, as a driver does that was frozen.

    :param of: the seal of the other commit; None: a plain append
    :param checkpointed: readers take the files from a checkpoint of this version or a later one
    """
    at, files = table.version, table.files[table.version]
    before = table.files.get(version - 1, frozenset())
    lost = table.files[version] - before
    table.version = version - 1
    if of is None:
        table.commit("WRITE", table.add(part=7), parameters={"mode": "Append"})
    else:
        table.write_seal(of, operation="WRITE", part=7)
    made = table.files[version] - before
    table.version, table.files[at] = at, files if checkpointed else (files - lost) | made


def look(table: LogTable, pipeline: str = "p") -> RecordedWatermark:
    recorded = reconcile(DeltaLog(table.uri), pipeline, thorough=True)
    assert recorded is not None
    return recorded


# -- what is found --------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "other",
    [
        lambda number: seal(number, 1, planned_on=TableVersion("id-1", 1)),
        lambda number: seal(700, 1, pipeline="q"),
        lambda number: None,
    ],
    ids=["the same seal", "another pipeline", "an append"],
)
def test_an_overwritten_commit(target: LogTable, version: int, other: Callable[[int], Seal | None]) -> None:
    intact = target.sha256(version)
    overwrite(target, version, of=other(100 + version))
    with pytest.raises(TargetHistoryChanged) as found:
        look(target)
    assert f"Version {version} of {target.uri} is not the commit that seal {101 + version}" in str(
        found.value
    )
    assert target.sha256(version)[:12] in str(found.value)
    assert intact[:12] in str(found.value)
    assert f"RESTORE the table to version {version - 1} " in found.value.remedy


def test_a_seal_number_that_comes_twice(target: LogTable) -> None:
    """Driver X commits seal 105 on the OPTIMIZE that the frozen driver Y then overwrites with its own 105."""
    before = TableVersion("id-1", 4, target.sha256(4))
    target.optimize()
    target.write_seal(seal(105, 5, planned_on=before))
    assert look(target).next_number == 106
    overwrite(target, 5, of=seal(105, 5, planned_on=before))
    with pytest.raises(TargetHistoryChanged, match="has seal 105 of pipeline p, and the later") as found:
        look(target)
    assert "RESTORE the table to version 4 " in found.value.remedy


def test_a_lost_seal_that_a_checkpoint_knows(target: LogTable) -> None:
    from deltalake import DeltaTable

    DeltaTable(target.uri).create_checkpoint()
    overwrite(target, 4, checkpointed=True)
    target.append()
    with pytest.raises(TargetHistoryChanged, match="103, but the log has its transaction 104") as found:
        look(target)
    assert "RESTORE the table to version 3 " in found.value.remedy
    target.restore(3)
    assert look(target).next_number == 105


def test_a_restore_that_hides_an_overwritten_commit(target: LogTable) -> None:
    """The frozen driver overwrites version 4 after a RESTORE undid it, which removed other files."""
    target.restore(3)
    assert look(target).next_number == 105
    overwrite(target, 4, of=seal(104, 4, planned_on=TableVersion("id-1", 3, target.sha256(3))))
    with pytest.raises(
        TargetHistoryChanged, match=r"Version 5 .* is a RESTORE to version 3, and 1 file"
    ) as found:
        look(target)
    assert "RESTORE the table to version 3 " in found.value.remedy
    target.restore(3)
    assert look(target).next_number == 105


@pytest.mark.parametrize("version", [3, 4], ids=["earlier", "its base"])
def test_a_reset_that_hides_an_overwritten_commit(target: LogTable, version: int) -> None:
    """It removed the files of the versions that it has read; those of the frozen driver stay."""
    chained(target, 105, 5, kind="reset", operation="WRITE", parameters={"mode": "Overwrite"})
    assert look(target).next_number == 106
    overwrite(target, version, of=seal(100 + version, version))
    with pytest.raises(
        TargetHistoryChanged, match=r"Version [45] .*(is not the commit that seal 105|is a reset)"
    ):
        look(target)


def test_rows_that_others_append_during_a_reset_are_theirs(target: LogTable) -> None:
    """As before: only some isolation levels of Delta let such an append through."""
    planned = TableVersion("id-1", 4, target.sha256(4))
    old = target.removes()
    target.append()
    kept = target.files[5] - target.files[4]
    target.write_seal(seal(105, 5, kind="reset", planned_on=planned), operation="WRITE", removed=old)
    assert kept < target.files[6]
    assert look(target).next_number == 106


def test_a_restore_without_metadata_over_a_replacement(target: LogTable) -> None:
    """The seals before it are those of the other table, and no strays."""
    target.replace_table("id-2")
    target.restore(4, metadata=False)
    with pytest.raises(TargetReplaced):
        look(target)


def test_a_job_of_a_table_that_was_dropped(tmp_path: Path) -> None:
    """Its transaction goes on behind the newest version of the table that another pipeline made there."""
    table = LogTable(tmp_path / "target", table_id="id-2")
    table.write_seal(seal(900, 0, kind="load", pipeline="q"))
    planned = TableVersion("id-1", 0, "0" * 64)
    table.write_seal(seal(101, 1, planned_on=planned, fingerprint="f:101"))
    for pipeline in "pq":
        with pytest.raises(TargetChangedUnderneath, match=r"Version 1 of .* job of pipeline p") as found:
            look(table, pipeline)
        assert "RESTORE the table to version 0" in found.value.remedy
    with pytest.raises(TargetChangedUnderneath, match="was here before"):
        run_sync(own_commits(DeltaLog(table.uri), "p", ["f"], after=-1))
    table.restore(0)
    assert look(table, "q").next_number == 901
    with pytest.raises(TargetWithoutWatermark):
        look(table)


def test_a_commit_is_published_only_if_the_one_before_it_is_the_planned_one(target: LogTable) -> None:
    planned = TableVersion("id-1", 4, target.sha256(4))
    # So many that the walk to the commit does not read the version that it was planned on.
    for _ in range(6):
        target.optimize()
    target.write_seal(seal(105, 5, planned_on=planned, fingerprint="f:105"))
    ((made, _),) = run_sync(own_commits(DeltaLog(target.uri), "p", ["f"], after=10))
    assert made.number == 105
    overwrite(target, 4)
    with pytest.raises(TargetHistoryChanged, match=r"Version 4 .* is not the commit that seal 105 "):
        run_sync(own_commits(DeltaLog(target.uri), "p", ["f"], after=10))


def test_every_walk_compares(target: LogTable) -> None:
    overwrite(target, 3, of=seal(103, 1, planned_on=TableVersion("id-1", 2)))
    log = DeltaLog(target.uri)
    for walk in (
        own_commits(log, "p", ["f"], after=2),
        status_async("p", target.uri),
        plan_optimize(OptimizeSpec(run_id="", table_uri=target.uri)),
    ):
        with pytest.raises(TargetHistoryChanged, match="Version 3 "):
            run_sync(walk)


# -- what is no difference ------------------------------------------------------------------------
def test_seals_without_a_hash_are_accepted(tmp_path: Path) -> None:
    """An earlier release wrote them."""
    made = LogTable(tmp_path / "t")
    made.write_seal(seal(100, 0, kind="load"))
    made.write_seal(seal(101, 1, planned_on=TableVersion("id-1", 0)))
    chained(made, 102, 2)
    overwrite(made, 0, of=seal(100, 1, kind="load"))
    assert look(made).next_number == 103


def test_what_a_quarantine_has_of_its_targets_seals(target: LogTable, tmp_path: Path) -> None:
    """A seal beside the target was planned on the target, whose versions are others."""
    beside = LogTable(tmp_path / "beside", table_id="id-2").create()
    for _ in range(4):
        beside.append()
    made = seal(105, 5, planned_on=TableVersion("id-1", 4, target.sha256(4)))
    beside.write_seal(made)
    run_sync(plan_optimize(OptimizeSpec(run_id="", table_uri=beside.uri)))
    leaked = seal(999, 9, planned_on=TableVersion("id-1", 3, "another"))
    target.optimize(user_metadata=leaked.to_json())
    assert look(target).next_number == 105, "nor is a userMetadata that leaked a seal"


# -- the ways out ---------------------------------------------------------------------------------
def broken(target: LogTable) -> None:
    overwrite(target, 3, of=seal(103, 1, planned_on=TableVersion("id-1", 2)))
    with pytest.raises(TargetHistoryChanged):
        look(target)


def test_a_restore_leads_out(target: LogTable) -> None:
    broken(target)
    target.restore(2)
    recorded = look(target)
    assert recorded.seal is not None
    assert (recorded.seal.number, recorded.next_number) == (102, 105)
    chained(target, 105, 3)
    assert look(target).next_number == 106
    # And back to what is not intact.
    target.restore(4)
    with pytest.raises(TargetHistoryChanged):
        look(target)


def test_a_reset_leads_out(target: LogTable) -> None:
    broken(target)
    chained(target, 105, 9, kind="reset", operation="WRITE", parameters={"mode": "Overwrite"})
    assert look(target).next_number == 106
    chained(target, 106, 9)
    assert look(target).next_number == 107


def test_a_reset_is_planned_and_other_modes_are_not(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    for number, watermark in enumerate((1, 2, 3), 100):
        tables.sealed(watermark, number)
    assert tables.apply().steps[0].kind == "apply"
    overwrite(tables.target, 1, of=seal(101, 1, source=tables.source))
    for given in (
        {},
        {"mode": "reload"},
        {"mode": "repair", "repair_keys": "id = 1"},
        {"take_over_from": "q"},
    ):
        with pytest.raises(TargetHistoryChanged):
            tables.apply(**given)
    (step,) = tables.apply(mode="reset").steps
    assert (step.kind, step.seal_number) == ("reset", 103)
    assert step.planned_on == TableVersion("id-1", 2, tables.target.sha256(2))


def test_a_pipeline_that_has_ended_does_not_come_back_by_a_reset(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    for number, watermark in enumerate((1, 2, 3), 100):
        tables.sealed(watermark, number, **({"successor": "q"} if number == 102 else {}))
    overwrite(tables.target, 1)
    for given in ({}, {"mode": "reset"}):
        with pytest.raises(PipelineTakenOver):
            tables.apply(**given)


@pytest.mark.parametrize("version", [4, 5, 99, "x", -1])
def test_a_restore_to_nowhere_is_damage(target: LogTable, version: object) -> None:
    """No walk goes on for ever, or ends in an error without a name."""
    target.append()
    text = json.dumps({"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": version}}})
    target.file(5).write_text(text)
    if version == 4:
        assert look(target).next_number == 105
        return
    with pytest.raises(CorruptLog, match="a RESTORE to version"):
        look(target)


# -- staging and ingest ---------------------------------------------------------------------------
def staged(tables: Tables) -> None:
    """Stage a batch in two parts, the second planned on the first."""
    tables.sealed(2)
    tables.staging.create()
    tables.staged(101, 3, 4)
    at = tables.staging.version
    first = TableVersion("st", at, tables.staging.sha256(at))
    made = seal(102, 5, source=tables.source, start=3, kind="read", planned_on=first)
    configuration = {"batch": "changes", "adds": True, "ending": 5}
    tables.staging.write_seal(changed(made, configuration=configuration), parameters={"mode": "Append"})


def test_staging_is_compared(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    staged(tables)
    asks: tuple[Callable[[], Any], ...] = (tables.read, lambda: tables.apply(staging=tables.staging.uri))
    for ask in asks:
        ask()
    overwrite(tables.staging, 1)
    for ask in asks:
        with pytest.raises(TargetHistoryChanged, match="Version 1 of ") as found:
            ask()
        assert "RESTORE" not in found.value.remedy
    # The version with the batch stays what it is.
    tables.staging.restore(0)
    for ask in asks:
        with pytest.raises(TargetHistoryChanged):
            ask()
    shutil.rmtree(tables.staging.uri)
    assert [step.kind for step in tables.read().steps] == ["apply"]


def test_an_ingest_is_compared(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "abc":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    overwrite(world.log, 1)
    with pytest.raises(TargetHistoryChanged, match="Version 1 of "):
        world.plan()
    world.log.restore(0)
    assert world.plan().spec is not None


# -- random histories against a plain model -------------------------------------------------------
@dataclass
class Written:
    """A random log in memory."""

    draw: random.Random
    commits: list[Commit] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def commit(self, operation: str, *, by: Seal | None = None, **parameters: Any) -> Commit:
        version = len(self.commits)
        info = CommitInfo(operation, parameters, user_metadata=by.to_json() if by is not None else None)
        txns = () if by is None else (Txn(app_id(by.pipeline), by.number),)
        sha256 = hashlib.sha256(self.draw.randbytes(8)).hexdigest()
        return Commit(version, sha256, info=info, txns=txns)

    def add(self, made: Commit, table_id: str | None = None) -> None:
        self.commits.append(made)
        self.ids.append(table_id or self.ids[-1])

    def seal(self, number: int, pipeline: str, planned: int) -> Seal:
        hashed = self.commits[planned].sha256 if self.draw.random() < 0.9 else None
        on = TableVersion(self.ids[planned], planned, hashed)
        return seal(number, 0, pipeline=pipeline, planned_on=on)

    def go_on(self) -> None:
        """Do what any of the writers of an honest table does."""
        version, draw = len(self.commits), self.draw
        kind = draw.choice(("seal",) * 6 + ("append", "OPTIMIZE", "restore", "overwrite", "replace", "reset"))
        if kind in ("seal", "reset"):
            pipeline = draw.choice("ppq")
            number = self.numbers[pipeline] = self.numbers.get(pipeline, 100) + draw.choice((1, 1, 3))
            # Others may commit between planning and the commit.
            made = self.seal(number, pipeline, max(0, version - draw.choice((1, 1, 1, 2, 3))))
            mode = {"mode": "Overwrite"} if kind == "reset" else {}
            self.add(self.commit("WRITE" if kind == "reset" else "MERGE", by=made, **mode))
        elif kind == "restore":
            back = draw.randrange(version)
            self.add(self.commit("RESTORE", version=back), self.ids[back])
        elif kind == "replace":
            self.add(self.commit("REPLACE TABLE"), f"id-{version}")
        else:
            mode = "Overwrite" if kind == "overwrite" else "Append"
            self.add(self.commit("OPTIMIZE" if kind == "OPTIMIZE" else "WRITE", mode=mode))

    def spoil(self) -> None:
        """Overwrite, forge or put back some commits."""
        for _ in range(self.draw.choice((1, 1, 2))):
            version = self.draw.randrange(len(self.commits))
            old = self.commits[version]
            kind = self.draw.choice(("same", "append", "restore", "overwrite", "seal"))
            if kind == "same":
                made = replace(old, sha256=hashlib.sha256(self.draw.randbytes(8)).hexdigest())
            elif kind == "restore":
                made = self.commit("RESTORE", version=self.draw.randrange(len(self.commits)))
            elif kind == "seal":
                by = self.seal(self.draw.randrange(100, 110), "p", self.draw.randrange(len(self.commits)))
                made = self.commit("MERGE", by=by)
            else:
                made = self.commit("WRITE", mode="Overwrite" if kind == "overwrite" else "Append")
            self.commits[version] = replace(made, version=version)


@cache
def sealed_on(text: str | None) -> tuple[str, int, TableVersion] | None:
    """Return pipeline, number, and what a seal was planned on."""
    by = Seal.from_json(text)
    return None if by is None or by.step.planned_on is None else (by.pipeline, by.number, by.step.planned_on)


def lineage(commits: list[Commit]) -> list[int]:
    """Return the versions in effect in the newest one, forward from the first."""
    of: list[list[int]] = []
    for commit in commits:
        operation, parameters = commit.info.operation, commit.info.operation_parameters
        before = of[-1] if of else []
        if operation == "RESTORE":
            back = parameters["version"]
            before = of[back] if back < commit.version else []
        elif operation == "REPLACE TABLE" or (operation == "WRITE" and parameters.get("mode") == "Overwrite"):
            before = []
        of.append([*before, commit.version])
    return of[-1]


def differs(log: Written, read: set[int]) -> bool:
    """Return whether two commits in effect that were read do not fit together: the plain model."""
    effective: list[int] = []
    for version in reversed(lineage(log.commits)):
        if version not in read:
            break
        effective.append(version)
    seals = {v: sealed_on(log.commits[v].info.user_metadata) for v in effective}
    chain = {v: by for v, by in seals.items() if by is not None and by[2].table_id == log.ids[-1]}
    for version, (pipeline, number, planned) in chain.items():
        # What replaced all rows was planned on a version that is no longer in effect.
        seen = read if replaces(log.commits[version]) else effective
        hashes = [log.commits[v].sha256 for v in seen if v == planned.version < version]
        if planned.commit_hash is not None and hashes not in ([], [planned.commit_hash]):
            return True
        earlier = [by for v, by in chain.items() if v < version and by[0] == pipeline]
        if any(by[1] >= number for by in earlier):
            return True
    return False


def finds(log: Written, read: set[int]) -> bool:
    async def find(version: int) -> Commit | None:
        return log.commits[version]

    async def compared() -> None:
        history = History(find)
        await history.read(sorted(read))
        SealChain(history, len(log.commits) - 1, uri="t", table_id=log.ids[-1]).compare()

    try:
        run_sync(compared())
    except TargetHistoryChanged:
        return True
    return False


@pytest.mark.parametrize("seed", slow_but(range(50), 0, 1))
def test_random_histories(seed: int) -> None:
    """Of 200 per seed, no honest one is refused, and a spoiled one if and only if a compared pair differs."""
    draw = random.Random(seed)
    found = 0
    for _ in range(200):
        log = Written(draw)
        log.add(log.commit("CREATE TABLE"), "id-0")
        for _ in range(draw.randrange(1, 16)):
            log.go_on()
        every = set(range(len(log.commits)))
        assert not differs(log, every)
        # A cleanup removes the oldest; a walk need not read all of the others.
        read = set(range(draw.choice((0, 0, draw.randrange(len(log.commits)))), len(log.commits)))
        assert not finds(log, every)
        log.spoil()
        assert finds(log, read) == differs(log, read)
        found += differs(log, read)
    assert found > 20
