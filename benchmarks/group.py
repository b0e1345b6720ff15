"""What one Spark application for all changed tables of a group saves over an application for each.

Of a group of small tables, some have changed. "group" is what a group's DAG does: a look at all tables
without Spark, then one ``spark-submit`` that works on several tables at a time. "each" is the ordinary way:
a ``spark-submit`` for each table that has changed, ``--at-once`` of them at a time; it gets a list of these
have changed, and looks at no others. Planning, proving and the applications' start are in both, and both run
the same engine with the same confs.

Both start from equal tables, get the same changes in each round, and must end with the same rows in every
table. Applications start as an operator's do: by the size of their work, from a class-data archive if there
is one. They take turns, in a new order each round.

    python benchmarks/group.py                       # 3, 10 and 65 of 65 tables: about an hour
    python benchmarks/group.py --changed 10 --repeats 5
    python benchmarks/group.py --small               # does it run?
    python benchmarks/group.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from arms import Arm, Disagreement, race
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from report import circumstances, conclude, shared_arguments
from summary import compared, markdown_table

from delta_cdc.core.spec import JobResult, sha256, to_json
from delta_cdc.launch.environment import child_environment, submit_binary
from delta_cdc.launch.session import INTERPRETED, embedded_confs, engine_zip
from delta_cdc.planning.size import SMALL, TINY, job_size
from delta_cdc.run import batch
from delta_cdc.run.batch import run_batch
from delta_cdc.run.loop import Services

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from report import Cells, Kept

    from delta_cdc.core.spec import BatchSpec
    from delta_cdc.run.batch import PipelineJob

#: What is aimed at, as a ratio of medians, for 10 changed tables.
AT_MOST, AIMED = 0.18, 10
TABLES, ROWS, CHANGES = 65, 1_000, 100
#: How many tables of a group are worked on at a time; a group's ``max_parallel_tables``.
PARALLEL = 8
_JOB = "import sys\n\nfrom delta_cdc.__main__ import main\n\nsys.exit(main())\n"


@dataclass
class Lake:
    """The tables of one arm.

    :param folder: where sources and targets lie
    :param number: how many there are
    """

    folder: Path
    number: int
    applications: int = 0
    round: int = field(default=0)

    def arguments(self, at: int) -> dict[str, Any]:
        """Return the arguments of a table."""
        source, target = str(self.source(at)), str(self.folder / f"target-{at}")
        return {"pipeline": f"table_{at}", "source": source, "target": target, "keys": ["id"]}

    def source(self, at: int) -> Path:
        """Return the path of a table's source."""
        return self.folder / f"source-{at}"

    def fill(self) -> None:
        """Make all sources, and load their targets."""
        for at in range(self.number):
            properties = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(str(self.source(at)), _rows(at, range(ROWS), 0), configuration=properties)
        self.together(range(self.number))

    def change(self, changed: Sequence[int]) -> None:
        """Change some sources; in the same round, those of every arm change in the same way."""
        self.round += 1
        for at in changed:
            dice = random.Random(f"{at} {self.round}")
            keys = dice.sample(range(ROWS + CHANGES * self.round // 2), CHANGES)
            table = DeltaTable(str(self.source(at)))
            merge = table.merge(
                _rows(at, keys, self.round), "t.id = s.id", source_alias="s", target_alias="t"
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
            DeltaTable(str(self.source(at))).delete(f"id % 97 = {self.round % 97}")

    # -- the two ways ---------------------------------------------------------------------------
    def together(self, changed: Sequence[int]) -> None:
        """Look at all tables, and have one application do what there is to do."""
        pipeline_jobs = [batch.pipeline_job(self.arguments(at), run_id="r") for at in range(self.number)]
        self._run(pipeline_jobs, at_least=len(changed))

    def one_by_one(self, changed: Sequence[int], at_once: int) -> None:
        """Have an application for each table."""
        with ThreadPoolExecutor(at_once) as pool:
            pipeline_jobs = [[batch.pipeline_job(self.arguments(at), run_id="r")] for at in changed]
            list(pool.map(lambda some: self._run(some, at_least=1), pipeline_jobs))

    def _run(self, pipeline_jobs: Sequence[PipelineJob], *, at_least: int) -> None:
        done = run_batch(
            pipeline_jobs,
            Services(execute=self._submit, say=lambda line: None),
            run_id="r",
            parallel=PARALLEL,
        )
        for one in done:
            if one.error is not None:
                raise one.error
        applied = sum(one.applied is not None and one.applied.applied for one in done)
        if applied != at_least:
            raise AssertionError(f"{applied} tables were applied, and {at_least} had changed")

    def _submit(self, spec: BatchSpec) -> JobResult:
        """Run a bundle by ``spark-submit``, as an operator without a connection does."""
        self.applications += 1
        with tempfile.TemporaryDirectory() as made:
            folder, text = Path(made), to_json(spec)
            (folder / "job.py").write_text(_JOB)
            (folder / "spec.json").write_text(text)
            size = job_size(spec)
            confs = embedded_confs(quick_start=size <= SMALL)
            if size <= TINY:
                confs |= INTERPRETED
            jars = confs.pop("spark.driver.extraClassPath")
            confs["spark.sql.warehouse.dir"] = str(folder / "warehouse")
            subprocess.run(
                [
                    str(submit_binary()),
                    *(part for name, value in confs.items() for part in ("--conf", f"{name}={value}")),
                    *("--driver-class-path", jars, "--py-files", str(engine_zip()), str(folder / "job.py")),
                    *("--spec", str(folder / "spec.json"), "--sha256", sha256(text)),
                    *("--result", str(folder / "result.json")),
                ],
                env=child_environment(),
                check=True,
                capture_output=True,
            )
            return JobResult.from_json((folder / "result.json").read_text())

    # -- what became of it ----------------------------------------------------------------------
    def answer(self, changed: Sequence[int]) -> str:
        """Return the rows of the changed targets, which are those of their sources."""
        found = []
        for at in changed:
            rows = [_read(Path(self.arguments(at)[name])) for name in ("source", "target")]
            if rows[0] != rows[1]:
                raise Disagreement(f"table {at}: the target is not what its source is")
            found.append(rows[1])
        return sha256(json.dumps(found))


def _rows(at: int, keys: Sequence[int], version: int) -> pa.Table:
    dice = random.Random(f"{at} {version} values")
    return pa.table(
        {
            "id": pa.array(list(keys), pa.int64()),
            "name": [f"row {key} of {at}, {version}" for key in keys],
            "amount": [round(dice.uniform(0, 1_000), 2) for _ in keys],
        }
    )


def _read(table: Path) -> list[list[Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(table)))
    found = pa.table(query.execute("SELECT id, name, amount FROM t ORDER BY id").read_all())
    return [list(row.values()) for row in found.to_pylist()]


def _timed(cpu: list[float], run: Callable[[], None]) -> Callable[[], None]:
    def measured() -> None:
        before = _cpu()
        run()
        cpu.append(_cpu() - before)

    return measured


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(
    kept: Kept, folder: Path, counts: Sequence[int], *, number: int, repeats: int, warm_ups: int, at_once: int
) -> None:
    """Measure cells one after the other.

    :param counts: how many tables have changed
    :param number: tables of the group
    :param at_once: applications that "each" runs at a time
    :raises Disagreement: where the arms gave different rows
    """
    group, each = Lake(folder / "group", number), Lake(folder / "each", number)
    for lake in (group, each):
        lake.fill()
    for count in counts:
        changed = sorted(random.Random(count).sample(range(number), count))
        arms = _cell(group, each, changed, repeats=repeats, warm_ups=warm_ups, at_once=at_once)
        kept.add(f"{count} of {number}", {"changed": count, "at_once": at_once, "arms": arms})


def _cell(
    group: Lake, each: Lake, changed: Sequence[int], *, repeats: int, warm_ups: int, at_once: int
) -> dict[str, Any]:
    ways: dict[str, tuple[Lake, Callable[[], None]]] = {
        "group": (group, lambda: group.together(changed)),
        "each": (each, lambda: each.one_by_one(changed, at_once)),
    }
    started = {name: lake.applications for name, (lake, _) in ways.items()}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    arms = [
        Arm(
            name,
            _timed(cpu[name], run),
            lambda lake=lake: lake.answer(changed),  # type: ignore[misc]
            prepare=lambda lake=lake: lake.change(changed),  # type: ignore[misc]
        )
        for name, (lake, run) in ways.items()
    ]
    race(f"{len(changed)} tables", arms, repeats, warm_ups=warm_ups)
    rounds = repeats + warm_ups
    return {
        arm.name: {
            "seconds": [round(second, 2) for second in arm.seconds],
            "cpu": [round(second, 2) for second in cpu[arm.name][warm_ups:]],
            "applications": (ways[arm.name][0].applications - started[arm.name]) // rounds,
        }
        for arm in arms
    }


def markdown(cells: Cells) -> str:
    """Return the table."""
    rows = []
    for name, cell in sorted(cells.items(), key=lambda one: one[1]["changed"]):
        group, each = cell["arms"]["group"], cell["arms"]["each"]
        most = AT_MOST if cell["changed"] == AIMED else None
        applications = f"{group['applications']}, {each['applications']}"
        rows.append((name, applications, cell["at_once"], *compared(group, each, most)))
    heading = [
        "changed tables",
        "applications: group, each",
        '"each" at a time',
        "group, s",
        "each, s",
        "group : each (95 %)",
        "aim",
        "CPU, group : each",
    ]
    return circumstances(cells.values()) + "\n" + markdown_table(heading, rows)


def main() -> int:
    """Measure and print; 1 where the arms gave different rows."""
    parser = shared_arguments("group", __doc__, small="2 of 3 tables, one round")
    parser.add_argument("--tables", type=int, default=TABLES, help="tables of the group, %(default)s")
    parser.add_argument(
        "--changed", type=int, nargs="+", default=[3, 10, 65], help="how many have changed, %(default)s"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, help='applications of "each" at a time, %(default)s'
    )
    asked = parser.parse_args()
    if asked.small:
        asked.tables, asked.changed, asked.repeats, asked.warm_ups = 3, [2], 1, 0
    return conclude(asked, partial(_measured, asked), markdown)


def _measured(asked: argparse.Namespace, kept: Kept) -> None:
    with tempfile.TemporaryDirectory() as folder:
        measure(
            kept,
            Path(folder),
            [count for count in asked.changed if count <= asked.tables],
            number=asked.tables,
            repeats=asked.repeats,
            warm_ups=asked.warm_ups,
            at_once=asked.at_once,
        )


if __name__ == "__main__":
    raise SystemExit(main())
