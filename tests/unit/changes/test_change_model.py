"""The model that the change queries are measured by gives the published answers itself."""

from __future__ import annotations

import pytest

from tests.support.change_model import ChangeRow, Table, applied, netted


def _numbers() -> Table:
    """Insert 1, 2, 3; update 1; delete 2 and insert 4; update 1 and delete 4; delete 3; insert 3 again."""
    table = Table(("id", "v"), ("id",))
    table.nothing("CREATE TABLE")
    table.change(inserts=[(1, "a"), (2, "b"), (3, "c")])
    one, two, three = table.rows
    table.change(updates={one: (1, "a2")})
    table.change(deletes=[two], inserts=[(4, "d")])
    four = max(table.rows)
    table.change(updates={one: (1, "a3")}, deletes=[four])
    table.change(deletes=[three])
    table.change(inserts=[(3, "c2")])
    return table


def test_one_history_four_answers() -> None:
    table = _numbers()
    told = table.full_delta(2, 6)
    assert [row for row in told if row[0] == "insert"] == [("insert", 3, (4, "d")), ("insert", 6, (3, "c2"))]
    assert sorted(row for _, _, row in table.upsert(2, 6)) == [(1, "a3"), (3, "c2")]
    assert sorted(table.min_delta(2, 6), key=repr) == [
        ("delete", None, (2, "b")),
        ("update_postimage", None, (1, "a3")),
        ("update_postimage", None, (3, "c2")),
        ("update_preimage", None, (1, "a")),
        ("update_preimage", None, (3, "c")),
    ]
    assert told == [
        ("update_preimage", 2, (1, "a")),
        ("update_postimage", 2, (1, "a2")),
        ("delete", 3, (2, "b")),
        ("insert", 3, (4, "d")),
        ("delete", 4, (4, "d")),
        ("update_preimage", 4, (1, "a2")),
        ("update_postimage", 4, (1, "a3")),
        ("delete", 5, (3, "c")),
        ("insert", 6, (3, "c2")),
    ]
    assert table.last_changes(2, 6) == {(1,): 4, (2,): 3, (3,): 6, (4,): 4}


def test_a_history_told_from_its_first_version() -> None:
    table = Table(("name", "fruit"), ("name",))
    table.change(inserts=[("jack", "apple"), ("sarah", "orange"), ("john", "pineapple")])
    jack, _, john = table.rows
    table.change(updates={jack: ("jack", "banana")})
    table.change(deletes=[john])
    inserted = [("insert", None, ("jack", "banana")), ("insert", None, ("sarah", "orange"))]
    assert sorted(table.upsert(0, 2)) == sorted(table.min_delta(0, 2)) == inserted
    assert sorted(table.upsert(1, 2)) == [("update_postimage", None, ("jack", "banana"))]
    assert ("delete", None, ("john", "pineapple")) in table.min_delta(1, 2)


def test_what_came_and_went_inside_the_range_is_nothing() -> None:
    table = _numbers()
    assert ("insert", None, (4, "d")) in table.min_delta(3, 3)
    assert all(row[0] != 4 for _, _, row in table.min_delta(3, 4))


def test_a_key_that_moves_is_a_delete_and_an_insert_by_key_and_an_update_by_row() -> None:
    table = Table(("id", "v"), ("id",))
    table.change(inserts=[(1, "a"), (2, "b")])
    one, two = table.rows
    table.change(updates={one: (2, "a"), two: (3, "b")})
    assert sorted(table.min_delta(1, 1), key=repr) == [
        ("delete", None, (1, "a")),
        ("insert", None, (3, "b")),
        ("update_postimage", None, (2, "a")),
        ("update_preimage", None, (2, "b")),
    ]
    by_row = [kind for kind, _, _ in table.min_delta_by_row_id(1, 1)]
    assert by_row == ["update_preimage", "update_postimage"] * 2


def test_an_exchange_tells_only_what_differs() -> None:
    table = Table(("id", "v"), ())
    table.change(inserts=[(1, "a"), (1, "a"), (2, "b")])
    table.exchange(table.rows, [(1, "a"), (2, "c")])
    told = [("delete", 1, (1, "a")), ("delete", 1, (2, "b")), ("insert", 1, (2, "c"))]
    assert sorted(table.full_delta(1, 1)) == told


def test_a_restore_brings_rows_back_that_row_ids_recognise() -> None:
    table = Table(("id", "v"), ("id",))
    table.change(inserts=[(1, "a"), (2, "b")])
    one, two = table.rows
    table.change(updates={one: (1, "z")}, deletes=[two])
    table.restore(0)
    assert table.bag(2) == table.bag(0)
    by_feed = [("delete", 2, (1, "z")), ("insert", 2, (1, "a")), ("insert", 2, (2, "b"))]
    assert sorted(table.full_delta(2, 2)) == by_feed
    assert table.full_delta(2, 2, by="row id") == [
        ("update_preimage", 2, (1, "z")),
        ("update_postimage", 2, (1, "a")),
        ("insert", 2, (2, "b")),
    ]
    with pytest.raises(AssertionError):
        table.last_changes(1, 2)


def test_a_filter_shows_a_row_that_leaves_it_as_deleted() -> None:
    table = Table(("id", "v"), ("id",))
    table.change(inserts=[(1, "in"), (2, "out"), (3, "out")])
    one, two, three = table.rows
    table.change(updates={one: (1, "out"), two: (2, "in"), three: (3, "out")})
    told = table.full_delta_by_key(1, 1, lambda row: row if row[1] == "in" else None)
    assert told == [("delete", 1, (1, "in")), ("insert", 1, (2, "in"))]
    assert sorted(table.min_delta(1, 1, lambda row: row if row[1] == "in" else None)) == [
        ("delete", None, (1, "in")),
        ("insert", None, (2, "in")),
    ]


def test_a_column_that_comes_later_is_null_before() -> None:
    table = Table(("id",), ("id",))
    table.change(inserts=[(1,)])
    table.add_column("w")
    table.change(updates={0: (1, 5)})
    assert table.full_delta(0, 2) == [
        ("insert", 0, (1, None)),
        ("update_preimage", 2, (1, None)),
        ("update_postimage", 2, (1, 5)),
    ]
    assert table.full_delta(0, 0) == [("insert", 0, (1,))]


@pytest.mark.parametrize(("starting", "ending"), [(s, e) for s in range(7) for e in range(s, 7)])
def test_laws(starting: int, ending: int) -> None:
    table = _numbers()
    before, after = table.bag(starting - 1, ending=ending), table.bag(ending)
    net = table.min_delta(starting, ending)
    assert applied(net, before) == applied(table.full_delta(starting, ending), before) == after
    for cut in range(starting, ending):
        parts = [table.min_delta(starting, cut), table.min_delta(cut + 1, ending)]
        assert sorted(netted(parts, table.key), key=repr) == sorted(net, key=repr)


def test_what_cannot_be_applied_is_noticed() -> None:
    changes: list[ChangeRow] = [("delete", 1, (1, "a"))]
    with pytest.raises(AssertionError, match="not there"):
        applied(changes, Table(("id",), ()).bag(-1))
