"""Oracle GoldenGate's JSON by operation and by row, and its delimited text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from tests.support.change_sets import Event, adapted, by_row, json_records, table_records

SCHEMA = "ID bigint, NAME string, PRICE decimal(38,10), BORN timestamp"
AT = "1969-11-05 18:45:36"


def place(pos: int, index: int = 1) -> str:
    return f"{pos:024d}/{index}"


def op(kind: str | None, pos: Any, **more: Any) -> str:
    """Return a record as the JSON formatter models an operation."""
    told = {
        "table": "SHOP.ORDERS",
        "op_type": kind,
        "op_ts": "1969-11-05 18:45:36.000000",
        "current_ts": "2024-10-05T10:15:51.267000",
        "pos": pos,
        "primary_keys": ["ID"],
        "tokens": {"R": "AAAW"},
        **more,
    }
    return json.dumps({name: value for name, value in told.items() if value is not ...}, ensure_ascii=False)


EMPTY: dict[str, Any] = {"ID": None, "NAME": None, "PRICE": None, "BORN": None}
FULL = {"ID": "1", "NAME": "ünï", "PRICE": -0.0000000001, "BORN": "0001-01-02 00:00:00.000001"}
ROW: dict[str, Any] = {
    "NAME": "ünï",
    "PRICE": Decimal("-1E-10"),
    "BORN": "0001-01-02 00:00:00.000001",
}
#: Case, record, events.
GOLDEN: list[tuple[str, str | None, list[Event]]] = [
    (
        "insert",
        op("I", "00000000000000002928", after=FULL),
        [
            Event(
                "upsert",
                {
                    **EMPTY,
                    "ID": 1,
                    "NAME": "ünï",
                    "PRICE": Decimal("-1E-10"),
                    "BORN": "0001-01-02 00:00:00.000001",
                },
                place(2928),
                ("BORN", "ID", "NAME", "PRICE"),
                None,
                AT,
            )
        ],
    ),
    (
        "update with what changed alone",
        op("U", "2929", before={"ID": "1", "NAME": "a"}, after={"ID": "1", "NAME": None}),
        [Event("upsert", {**EMPTY, "ID": 1}, place(2929), ("ID", "NAME"), None, AT)],
    ),
    (
        "update with flags",
        op("U", "2930", after={"ID": 1, "ID_isMissing": False, "NAME": None, "NAME_isMissing": True}),
        [Event("upsert", {**EMPTY, "ID": 1}, place(2930), ("ID",), None, AT)],
    ),
    (
        "delete with its key alone",
        op("D", "2931", before={"ID": "1"}),
        [Event("delete", {**EMPTY, "ID": 1}, place(2931), None, None, AT)],
    ),
    ("truncate", op("T", "2932"), [Event("truncate", {}, place(2932), None, None, AT)]),
    (
        "key change",
        op("U", "2933", before={"ID": "1", "NAME": "a", "BORN": None}, after={"ID": "2", "PRICE": "1.5"}),
        [
            Event("delete", {**EMPTY, "ID": 1, "NAME": "a"}, place(2933, 0), None, None, AT),
            Event(
                "upsert",
                {**EMPTY, "ID": 2, "NAME": "a", "PRICE": Decimal("1.5")},
                place(2933),
                ("BORN", "ID", "NAME", "PRICE"),
                None,
                AT,
            ),
        ],
    ),
    (
        "key change of a part of the row",
        op("U", "2933", before={"ID": "1", "NAME": "a"}, after={"ID": "2", "NAME": "a"}),
        [Event(error="a key change without the whole row")],
    ),
    (
        "key change, named",
        op("K", "2934", before={**FULL, "ID": "2"}, after={"ID": "3", "BORN_isMissing": True, "BORN": None}),
        [
            Event("delete", {**ROW, "ID": 2}, place(2934, 0), None, None, AT),
            Event("upsert", {**ROW, "ID": 3}, place(2934), ("BORN", "ID", "NAME", "PRICE"), None, AT),
        ],
    ),
    (
        "key change without its old key",
        op("K", "2935", after={"ID": "3"}),
        [Event(error="a key change without the image before it: its old key is unknown")],
    ),
    ("unknown operation", op("Q", "2936", after=FULL), [Event(error="unknown operation 'Q'")]),
    (
        "no image",
        op("I", "2937"),
        [Event(error="no value for after, or of a delete for before")],
    ),
    (
        "no place in the trail",
        op("I", ..., after=FULL),
        [Event(error="no value for pos, or no whole number in it")],
    ),
    (
        "a place that is no number",
        op("I", "a1", after=FULL),
        [Event(error="no value for pos, or no whole number in it")],
    ),
    (
        "a value that does not fit",
        op("I", "2938", after={**FULL, "PRICE": "1.00000000001"}),
        [Event(error="column PRICE is no decimal(38,10)")],
    ),
    (
        "cut in half",
        op("I", "2939", after=FULL)[:-30],
        [Event(error="not JSON")],
    ),
    ("an empty line", "", [Event("ignore")]),
    ("another table", op("I", "2940", after=FULL, table="SHOP.LINES"), [Event("ignore")]),
]


def shown(event: Event) -> Event:
    from dataclasses import replace

    row = dict(event.row)
    if row.get("BORN") is not None:
        row["BORN"] = row["BORN"].isoformat(sep=" ")
    error = event.error
    if error is not None and error.startswith("not JSON:"):
        # The reader says more behind the colon.
        error = "not JSON"
    return replace(event, row=row, error=error)


def test_golden_operations() -> None:
    records = json_records([line for _, line, _ in GOLDEN])
    options = {"table": "shop.orders"}
    # Keys are found however they are spelt.
    found = by_row(adapted(records, "goldengate", options, keys=["id"], schema=SCHEMA))
    wrong = {
        case: [shown(one) for one in found[at]]
        for at, (case, _, wanted) in enumerate(GOLDEN)
        if [shown(one) for one in found[at]] != wanted
    }
    assert wrong == {}


def test_types_that_nobody_declared() -> None:
    """The envelope is no column; flags are none either."""
    lines = [
        op("I", "1", after={"ID": 1, "ID_isMissing": False, "V": 1.5}),
        op("U", "2", after={"ID": 1, "W": "x", "NONE": None, "NONE_isMissing": True}),
    ]
    events = adapted(json_records(lines), "goldengate", {}, keys=["ID"])
    assert events.type == "struct<ID:bigint,V:double,W:string>"
    assert [by_row(events)[at][0].columns for at in range(2)] == [("ID", "V"), ("ID", "W")]


def test_rows() -> None:
    """Modelled by row, an operation has one image; a changed key cannot be told, unless it is named."""

    def row(kind: str, pos: str, **columns: Any) -> str:
        return json.dumps(
            {"table": "T", "op_type": kind, "op_ts": "2024-01-01 00:00:00", "pos": pos, **columns}
        )

    lines = [
        row("I", "00000000000000002928", ID="1", NAME="a", NAME_isMissing=False),
        row("U", "00000000000000002929", ID="1", NAME=None, NAME_isMissing=True),
        row("D", "00000000000000002930", ID="1"),
        row("T", "00000000000000002931"),
        row("K", "00000000000000002932", ID="2"),
        row("I", "00000000000000002933", ID="1", NAME="a")[:-4],
        row("U", "99999999999999999999", ID="1", NAME="é"),
    ]
    found = by_row(adapted(json_records(lines), "goldengate", {"model": "row"}, keys=["ID"]))
    assert [found[at][0].op for at in range(7)] == [
        "upsert",
        "upsert",
        "delete",
        "truncate",
        None,
        None,
        "upsert",
    ]
    assert [found[at][0].columns for at in (0, 1, 6)] == [("ID", "NAME"), ("ID",), ("ID", "NAME")]
    assert found[0][0].row == {"ID": "1", "NAME": "a"}
    assert found[4][0].error == "a key change without the image before it: its old key is unknown"
    assert found[5][0].error.startswith("not JSON: ")
    ordered = [found[at][0].sequence for at in (0, 1, 2, 3, 6)]
    assert ordered == sorted(ordered)


def test_delimited_text() -> None:
    rows = [
        ("I", "T", "2024-01-01 00:00:00.5", "x", "00000000000000002928", "1", "a"),
        ("D", "T", "2024-01-01 00:00:00.5", "x", "00000000000000002929", "1", None),
        ("x", "T", "2024-01-01 00:00:00.5", "x", "00000000000000002929", "1", None),
    ]
    columns = (
        "op_type string, table string, op_ts string, current_ts string, pos string, ID string, NAME string"
    )
    records = table_records(columns, rows)
    schema = columns.replace("ID string", "ID int")
    events = adapted(records, "goldengate", {}, keys=["ID"], schema=schema, format="csv")
    assert events.type == "struct<ID:int,NAME:string>"
    found = by_row(events)
    assert found[0] == [
        Event(
            "upsert", {"ID": 1, "NAME": "a"}, place(2928), ("ID", "NAME"), None, "2024-01-01 00:00:00.500000"
        )
    ]
    assert (found[1][0].op, found[2][0].error) == ("delete", "unknown operation 'x'")
