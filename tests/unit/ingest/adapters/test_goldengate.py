"""The adapter ``goldengate``: JSON by operation and by row, and delimited text."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.record import Event, Number
from delta_cdc.ingest.types import LONG, STRING
from tests.support import adapters
from tests.support.adapters import IGNORED, check, events

AT = -4_857_264_000_000
OP_TS = "1969-11-05 18:45:36.000000"
UNKNOWN_OLD = "a key change without the image before it: its old key is unknown"
NO_IMAGE = "no value for after, or of a delete for before"
NO_POS = "no value for pos, or no whole number in it"
made = partial(adapters.made, "goldengate", keys=("ID",))


def op(kind: Any, pos: Any = "00000000000000002928", **more: Any) -> dict[str, Any]:
    return {"table": "S.T", "op_type": kind, "op_ts": OP_TS, "pos": pos, **more}


def place(pos: int, index: int = 1) -> str:
    return f"{pos:024d}/{index}"


FULL = {"ID": 1, "V": "a"}
#: Case, record, events.
OPERATIONS: list[tuple[str, dict[str, Any], Any]] = [
    ("insert", op("I", after=FULL), [Event("upsert", FULL, place(2928), AT)]),
    ("update with what changed alone", op("U", "7", before=FULL, after={"ID": 1, "V": None}),
     [Event("upsert", {"ID": 1, "V": None}, place(7), AT)]),
    ("flags",
     op("U", 7, after={"ID": 1, "ID_isMissing": False, "V": None, "V_isMissing": True, "W_ISMISSING": "t"}),
     [Event("upsert", {"ID": 1}, place(7), AT)]),
    ("a flag of another case than its column", op("U", 7, after={"ID": 1, "v": 2, "V_isMissing": 1}),
     [Event("upsert", {"ID": 1}, place(7), AT)]),
    ("a flag that is a word", op("U", 7, after={"ID": 1, "V_isMissing": "x"}),
     "column V_isMissing is no boolean"),
    ("a flag that is null", op("U", 7, after={**FULL, "V_isMissing": None}),
     [Event("upsert", FULL, place(7), AT)]),
    ("delete", op("D", 7, before={"ID": 1}), [Event("delete", {"ID": 1}, place(7), AT)]),
    ("delete, of its row after", op("D", 7, after={"ID": 1}), [Event("delete", {"ID": 1}, place(7), AT)]),
    ("truncate", op("T", 7), [Event("truncate", {}, place(7), AT)]),
    ("truncate, whatever it has", op("T", 7, before=7, after=FULL), [Event("truncate", {}, place(7), AT)]),
    ("key change", op("U", 7, before={"ID": "1", "V": "a"}, after={"ID": "2", "V": "b"}),
     [Event("delete", {"ID": "1", "V": "a"}, place(7, 0), AT),
     Event("upsert", {"ID": "2", "V": "b"}, place(7), AT, whole=True)]),
    ("key change, filled from before, where after lacks it or calls it missing", op("K", 7,
     before={"ID": 1, "V": "a", "W": None, "X": 5, "X_isMissing": True},
     after={"ID": 2, "W": "w", "V": None, "V_isMissing": True}),
     [Event("delete", {"ID": 1, "V": "a", "W": None}, place(7, 0), AT),
     Event("upsert", {"ID": 2, "W": "w", "V": "a"}, place(7), AT, whole=True)]),
    ("the same key, named", op("K", 7, before={"ID": "1"}, after=FULL),
     [Event("upsert", FULL, place(7), AT)]),
    ("no old key", op("K", 7, after=FULL), UNKNOWN_OLD),
    ("no old key in the image", op("K", 7, before={"V": "a"}, after=FULL), UNKNOWN_OLD),
    ("a null old key in the image", op("K", 7, before={"ID": None}, after=FULL), UNKNOWN_OLD),
    ("an old key that is missing", op("K", 7, before={"ID": 1, "ID_isMissing": True}, after=FULL),
     UNKNOWN_OLD),
    ("no new key", op("K", 7, before=FULL), NO_IMAGE), ("no image", op("I", 7), NO_IMAGE),
    ("no new row", op("U", 7, before=FULL), NO_IMAGE), ("no old row", op("D", 7), NO_IMAGE),
    ("an image that is a text", op("I", 7, after="x"), "after is no object"),
    ("an old image that is a list", op("U", 7, before=[1], after=FULL), "before is no object"),
    ("unknown operation", op("Q", 7, after=FULL), "unknown operation 'Q'"),
    ("no operation", {"pos": 7, "after": FULL}, "unknown operation ''"),
    ("no place", op("I", None, after=FULL), NO_POS),
    ("a place that is no number", op("I", "a1", after=FULL), NO_POS),
    ("a place with a fraction", op("I", Number("1.5"), after=FULL), NO_POS),
    ("a place beyond", op("I", "1" * 25, after=FULL), NO_POS),
    ("another time", {**op("I", 7, after=FULL), "op_ts": "x"}, [Event("upsert", FULL, place(7), None)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "wanted"), [case[1:] for case in OPERATIONS], ids=[c[0] for c in OPERATIONS]
)
def test_operations(record: dict[str, Any], wanted: Any) -> None:
    adapter = made()
    assert adapter.sequence({"ID": LONG}, None).type == STRING
    check(events(adapter, record), wanted)


def test_tables_and_operations_of_the_user() -> None:
    adapter = made({"table": "s.t", "operations": {"X": "key_change", "Q": "ignore"}})
    assert len(events(adapter, op("X", 7, before={"ID": 1}, after={"ID": 2}))) == 2
    assert events(adapter, op("Q", 7, after=FULL))[0].op == "ignore"
    for other in ("S.U", None, 5):
        assert events(adapter, {**op("?", "?"), "table": other}) == IGNORED


#: Case, record, row of the event or reason.
ROWS: list[tuple[str, dict[str, Any], Any]] = [
    ("insert", op("I", ID=1, V="a", V_isMissing=False, csn=5, xid="x", tokens={"R": 1}), [("upsert", FULL)]),
    ("missing", op("U", ID=1, V=None, V_isMissing=True), [("upsert", {"ID": 1})]),
    ("delimited text", op("U", ID="1", V="", V_isMissing="true"), [("upsert", {"ID": "1"})]),
    ("absent", op("U", ID="1"), [("upsert", {"ID": "1"})]),
    ("null", op("U", ID="1", V=None), [("upsert", {"ID": "1", "V": None})]),
    ("delete", op("D", ID=1), [("delete", {"ID": 1})]), ("truncate", op("T"), [("truncate", {})]),
    ("fields in another case", {"OP_TYPE": "I", "POS": 7, "Current_Ts": 1, "ID": 1}, [("upsert", {"ID": 1})]),
    ("key change", op("K", ID=1), UNKNOWN_OLD),
    ("a flag that is a word", op("I", ID=1, V_isMissing="maybe"), "column V_isMissing is no boolean"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "wanted"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_rows(record: dict[str, Any], wanted: Any) -> None:
    found = events(made({"model": "row"}), record)
    check([(event.op, event.row) for event in found] if isinstance(found, list) else found, wanted)


def test_the_model_says_what_describes_the_event() -> None:
    by_row = made({"model": "row", "sequence_column": "csn"})
    (event,) = events(by_row, op("I", "x", csn=7, ID=1))
    assert (event.row, event.sequence) == ({"ID": 1}, place(7))
    names = ("OP_TYPE", "pos", "csn", "ID_ISMISSING", "_isMissing", "ID", "after")
    assert [name for name in names if by_row.describes(name)] == list(names[:4])
    assert [name for name in names if made().describes(name)] == ["ID_ISMISSING"]
    assert by_row.reads == {"op_type", "table", "op_ts", "csn"}
    with pytest.raises(InvalidConfiguration, match="isMissing"):
        made(format="parquet").sequence({"ID": LONG, "V_isMissing": STRING}, None)
    made(format="csv").sequence({"ID": LONG, "V_isMissing": STRING}, None)
    made(format="parquet").sequence({"ID": LONG}, None)


def test_the_order_of_texts_is_the_order_of_places() -> None:
    chance = random.Random(20261126)
    adapter = made()
    places = [chance.choice([chance.randint(0, 10**24 - 1), chance.randint(0, 500)]) for _ in range(2_000)]
    texts = {}
    for pos in places:
        before, after = {"ID": 1}, {"ID": 2}
        old, new = events(
            adapter, op("U", f"{pos:020d}" if pos < 10**20 else str(pos), before=before, after=after)
        )
        texts[pos, 0], texts[pos, 1] = old.sequence, new.sequence
    assert sorted(texts, key=texts.__getitem__) == sorted(texts)
