"""The table of the matrix: what ran is written, and what did not run stays."""

from __future__ import annotations

from delta_cdc.core.spark_versions import PAIRS
from tools.matrix.__main__ import environments, written

PAGE = "Before.\n<!-- spark starts -->\n<!-- spark ends -->\nAfter.\n"


def test_a_column_for_each_environment_in_their_order() -> None:
    newest, older = (one.title for one in environments()[:2])
    assert len([one for one in environments() if one.kind == "spark"]) == len(PAIRS)
    page = written(PAGE, "spark", {older: {"Python": "3.13.0", "a": "yes", "b": "**fails**"}})
    page = written(page, "spark", {newest: {"Python": "3.12.1", "a": "yes"}})
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in page.splitlines() if "|" in row]
    assert rows[0] == ["", newest, older]
    assert rows[2:] == [["Python", "3.12.1", "3.13.0"], ["a", "yes", "yes"], ["b", "", "**fails**"]]
    assert page.startswith("Before.\n")
    assert page.endswith("\nAfter.\n")
    again = written(page, "spark", {older: {"Python": "3.13.0", "a": "yes", "b": "refused by name"}})
    assert "**fails**" not in again
    assert "refused by name" in again


def test_an_environment_installs_one_pair_alone() -> None:
    for one in environments():
        spark = [text for text in one.requirements if text.startswith(("pyspark", "delta-spark"))]
        assert len(spark) == 3
        assert all("==" in text for text in spark)
