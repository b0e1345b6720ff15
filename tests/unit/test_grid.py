"""Tables of text, as logs and terminals show them."""

from __future__ import annotations

from delta_cdc.core.text_table import grid, named_counts, width


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    rows = [
        {"table": "orders", "versions": "4-9", "rows": 12, "done": True},
        {"table": "orders_history", "versions": None, "rows": 1200, "done": False, "why": "late"},
    ]
    assert grid(rows).splitlines() == [
        "table           versions  rows  done  why",
        "--------------  --------  ----  ----  ----",
        "orders          4-9         12  yes",
        "orders_history            1200  no    late",
    ]


def test_named_columns_and_no_rows() -> None:
    assert grid([{"a": 1, "b": 2}], ["b"]).splitlines() == ["b", "-", "2"]
    assert grid([], ["a", "bc"]).splitlines() == ["a  bc", "-  --"]
    assert grid([]) == ""


def test_a_row_is_one_line_and_never_too_wide() -> None:
    shown = grid([{"sample": "a\nb\x1b[31m", "long": "x" * 100, "list": ["a", 1], "map": {"n": 2}}])
    header, rule, row = shown.splitlines()
    assert row == rf"a\nb\x1b[31m  {'x' * 59}…  a, 1  n 2"
    assert width(row) == len(row)
    assert header.split() == ["sample", "long", "list", "map"]
    assert set(rule) == {"-", " "}


def test_wide_characters_take_two_columns() -> None:
    lines = grid([{"name": "日本", "n": 1}, {"name": "abcde", "n": 2}]).splitlines()
    assert [width(line) for line in lines] == [8, 8, 8, 8]
    assert lines[2].endswith("日本   1")


def test_numbers_among_texts_stay_at_the_left() -> None:
    assert grid([{"v": 1}, {"v": "all"}]).splitlines() == ["v", "---", "1", "all"]


def test_a_caller_may_allow_wider_values() -> None:
    long = "x" * 61
    assert long not in grid([{"counts": long}])
    assert long in grid([{"counts": long}], widest=61)


def test_one_of_a_thing_is_singular() -> None:
    counts = {"events": 1, "files": 2, "inserted": 1, "rule:no_minors": 1, "rule:names": 1, "offsets": 0}
    assert named_counts(counts) == "1 event, 2 files, 1 inserted, 1 rule:no_minors, 1 rule:names, 0 offsets"
    assert named_counts({}) == ""
