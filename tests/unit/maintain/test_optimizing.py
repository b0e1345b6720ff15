"""Whether an OPTIMIZE would do anything, by the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import maintenance_tags
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.spec import OptimizeSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.optimize import plan_optimize
from delta_cdc.spark.maintain.optimize import statement
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.planning.plan import JobPlan


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    """A table of three files."""
    made = LogTable(tmp_path / "t").create()
    for _ in range(3):
        made.append()
    return made


def plan(table: LogTable, **asked: Any) -> JobPlan[OptimizeSpec, dict[str, Any]]:
    return run_sync(plan_optimize(OptimizeSpec(run_id="", table_uri=table.uri, **asked)))


def optimize(table: LogTable, text: str | None = None, **parameters: Any) -> int:
    given = {"predicate": "[]", "zOrderBy": "[]", "auto": "false", **parameters}
    return table.commit(
        "OPTIMIZE",
        # Two files: with one, compaction would have nothing to do.
        *[table.add(data_change=False, part=part) for part in (0, 1)],
        *table.removes(data_change=False),
        parameters=given,
        user_metadata=text,
    )


def test_small_files_are_a_reason(table: LogTable) -> None:
    planned = plan(table)
    assert planned.spec == OptimizeSpec(run_id="", table_uri=table.uri)
    table.optimize()
    # One file is left, so that compaction has nothing to do; ordering along columns has.
    assert plan(table).spec is None
    assert plan(table, zorder_by=("id",)).spec is not None


def test_an_empty_table(tmp_path: Path) -> None:
    assert plan(LogTable(tmp_path / "t").create()).notes[0] == "the table is empty"


def test_one_file_in_each_partition(tmp_path: Path) -> None:
    made = LogTable(tmp_path / "t").create()

    def add(part: str, number: int) -> dict[str, Any]:
        action = made.add(part=number)
        action["add"]["path"] = f"p={part}/{action['add']['path']}"
        return action

    made.commit("WRITE", add("a", 0), add("b", 1))
    assert "one in each partition" in plan(made).notes[0]
    made.commit("WRITE", add("a", 0))
    assert plan(made).spec is not None


@pytest.mark.parametrize(
    ("parameters", "asked", "same"),
    [
        ({"zOrderBy": '["id"]'}, {"zorder_by": ("id",)}, True),
        ({"zOrderBy": '["id","name"]'}, {"zorder_by": ("id",)}, False),
        ({"predicate": '["(\'id = 1)"]', "zOrderBy": '["id"]'}, {"zorder_by": ("id",)}, False),
        ({"auto": "true", "zOrderBy": '["id"]'}, {"zorder_by": ("id",)}, False),
        ({"isFull": "false"}, {"full": True}, False),
        ({"isFull": "true"}, {"full": True}, True),
        ({}, {"where": "id = 1"}, False),
    ],
)
def test_what_others_did(
    table: LogTable, parameters: dict[str, str], asked: dict[str, Any], same: bool
) -> None:
    version = optimize(table, **parameters)
    planned = plan(table, **asked)
    assert (planned.spec is None) == same
    if same:
        assert f"version {version}" in planned.notes[0]
    table.append()
    assert plan(table, **asked).spec is not None


def test_what_we_did_is_told_by_its_mark(table: LogTable) -> None:
    asked: dict[str, Any] = {"where": "id = 1", "zorder_by": ("name",)}
    spec = plan(table, **asked).spec
    assert spec is not None
    optimize(
        table,
        maintenance_tags.written("optimize", **spec.tag),
        predicate='["(\'id = 1)"]',
        zOrderBy='["name"]',
    )
    assert plan(table, **asked).spec is None
    assert plan(table, zorder_by=("name",)).spec is not None
    assert plan(table, **{**asked, "where": "id = 2"}).spec is not None
    table.commit("VACUUM START")
    assert plan(table, **asked).spec is None, "it writes no file"
    table.set_properties(**{"delta.targetFileSize": "1"})
    assert plan(table, **asked).spec is not None


def test_masked_rows_are_a_reason_to_purge(table: LogTable) -> None:
    assert plan(table, purge=True).notes[0] == "no row is masked"
    action = table.add()
    action["add"]["deletionVector"] = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 2,
    }
    table.commit("DELETE", action)
    assert plan(table, purge=True).spec is not None


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({}, "OPTIMIZE delta.`/t`"),
        ({"full": True}, "OPTIMIZE delta.`/t` FULL"),
        ({"where": "p = 1"}, "OPTIMIZE delta.`/t` WHERE p = 1"),
        (
            {"where": "p = 1", "zorder_by": ("a", "b`")},
            "OPTIMIZE delta.`/t` WHERE p = 1 ZORDER BY (`a`, `b```)",
        ),
        ({"purge": True}, "REORG TABLE delta.`/t` APPLY (PURGE)"),
        ({"purge": True, "where": "p = 1"}, "REORG TABLE delta.`/t` WHERE p = 1 APPLY (PURGE)"),
    ],
)
def test_the_statement(asked: dict[str, Any], text: str) -> None:
    assert statement(OptimizeSpec(run_id="r", table_uri="/t", **asked)) == text


@pytest.mark.parametrize(
    "asked",
    [
        {"purge": True, "zorder_by": ("id",)},
        {"purge": True, "full": True},
        {"full": True, "where": "id = 1"},
        {"full": True, "zorder_by": ("id",)},
    ],
)
def test_what_does_not_go_together(table: LogTable, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfiguration):
        plan(table, **asked)
