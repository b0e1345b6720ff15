"""The table of the matrix: what ran is written, and what did not run stays."""

from __future__ import annotations

import pytest

from delta_cdc.core.spark_versions import PAIRS, Pair, numbers, pair_of
from tools.matrix.__main__ import environments, written

PAGE = "Before.\n<!-- spark starts -->\n<!-- spark ends -->\nAfter.\n"


def test_a_column_for_each_environment_in_their_order() -> None:
    newest, older = (one.title for one in environments()[:2])
    releases = [spark for pair in PAIRS for spark in (pair.spark, pair.newer) if spark]
    assert [one.title.split()[1] for one in environments() if one.kind == "spark"] == [
        f"{one}," for one in releases
    ]
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
        spark = [
            text for text in (*one.requirements, *one.alone) if text.startswith(("pyspark", "delta-spark"))
        ]
        assert all("==" in text for text in spark)
        # Two distributions share a folder: they have one version, or there is one of them.
        of_spark = {text.partition("==")[2] for text in spark if text.startswith("pyspark")}
        assert len(of_spark) == 1


@pytest.mark.parametrize("pair", [one for one in PAIRS if one.newer], ids=str)
def test_a_newer_patch_release_is_of_its_pair(pair: Pair) -> None:
    assert pair_of(pair.newer, pair.delta) is pair
    assert numbers(pair.newer) > numbers(pair.spark)
