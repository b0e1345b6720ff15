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
