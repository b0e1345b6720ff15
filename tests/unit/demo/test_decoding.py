"""What ``test_decoding`` writes is read back as the values that PostgreSQL itself shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from demo.decoding import Change, NotUnderstood, Transaction, location, parsed, transactions

if TYPE_CHECKING:
    from demo.postgres import Postgres


@pytest.mark.parametrize(
    ("line", "change"),
    [
        pytest.param(
            "table public.t: INSERT: id[integer]:-1 n[numeric]:12.50 b[boolean]:true x[text]:null",
            Change("public.t", "INSERT", new={"id": "-1", "n": "12.50", "b": "true", "x": None}),
            id="bare values",
        ),
        pytest.param(
            "table public.t: INSERT: id[integer]:1 a[text]:'it''s ''''' b[text]:'' "
            "c[text]:'null' d[text]:' x'",
            Change("public.t", "INSERT", new={"id": "1", "a": "it's ''", "b": "", "c": "null", "d": " x"}),
            id="quotes",
        ),
        pytest.param(
            "table public.t: INSERT: a[text]:'one\ntwo b[text]:''x'' new-tuple: c[integer]:1' z[bit]:B'01'",
            Change(
                "public.t", "INSERT", new={"a": "one\ntwo b[text]:'x' new-tuple: c[integer]:1", "z": "01"}
            ),
            id="text of several lines that looks like columns",
        ),
        pytest.param(
            "table public.t: UPDATE: old-key: id[integer]:1 a[text]:'new-tuple: ' new-tuple: id[integer]:2 "
            "a[text]:unchanged-toast-datum",
            Change("public.t", "UPDATE", {"id": "1", "a": "new-tuple: "}, {"id": "2"}, ("a",)),
            id="another key, and a column that is not carried",
        ),
        pytest.param(
            "table public.t: INSERT: a[text]:'unchanged-toast-datum'",
            Change("public.t", "INSERT", new={"a": "unchanged-toast-datum"}),
            id="the same words as text",
        ),
        pytest.param(
            'table "odd. schema"."a ""table"": INSERT: ": UPDATE: "select"[integer[]]:\'{1,2}\' '
            '"x[text]:"[public."ty]pe"]:\'v\'',
            Change('odd. schema.a "table": INSERT: ', "UPDATE", new={"select": "{1,2}", "x[text]:": "v"}),
            id="names that need quotes",
        ),
        pytest.param(
            "table public.t: DELETE: id[integer]:7",
            Change("public.t", "DELETE", old={"id": "7"}),
            id="delete",
        ),
        pytest.param(
            "table public.t: DELETE: (no-tuple-data)", Change("public.t", "DELETE"), id="delete without a key"
        ),
    ],
)
def test_lines(line: str, change: Change) -> None:
    assert parsed(line) == [change]


def test_a_truncate_is_told_of_every_table() -> None:
    line = 'table public.a, public."b, public.c": TRUNCATE: restart_seqs cascade'
    assert parsed(line) == [Change("public.a", "TRUNCATE"), Change("public.b, public.c", "TRUNCATE")]


@pytest.mark.parametrize(
    "line",
    [
        "message: transactional: 1 prefix: , sz: 1 content:x",
        "table public.t: INSERT: id[integer]",
        "table public.t: INSERT: id[integer]:1 a[text]:'no end",
        "table public.t: INSERT: id[integer]:1 a[text]:'x'y",
        "table public.t: UPDATE: old-key: id[integer]:1",
    ],
)
def test_what_it_does_not_know_is_said(line: str) -> None:
    with pytest.raises(NotUnderstood):
        parsed(line)


def test_transactions_end_where_they_are_committed() -> None:
    rows = [
        ("0/10", "7", "BEGIN 7"),
        ("0/18", "7", "table public.t: DELETE: id[integer]:7"),
        ("1/20", "7", "COMMIT 7 (at 2026-01-31 12:00:00.5+00)"),
        ("1/30", "6", "BEGIN 6"),
        ("1/40", "6", "COMMIT 6"),
    ]
    deleted = Change("public.t", "DELETE", old={"id": "7"})
    assert list(transactions(rows)) == [
        Transaction(7, (1 << 32) + 0x20, "2026-01-31 12:00:00.5+00", (deleted,)),
        Transaction(6, (1 << 32) + 0x40, "", ()),
    ]
    assert location("16/B374D848") == 0x16B374D848
    with pytest.raises(NotUnderstood, match="no end"):
        list(transactions(rows[:2]))
    with pytest.raises(NotUnderstood, match="outside"):
        list(transactions(rows[1:]))


# -- against PostgreSQL itself --------------------------------------------------------------------
_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_TRICKY = st.sampled_from(
    [
        "'",
        "''",
        "\\",
        "\n",
        "null",
        "unchanged-toast-datum",
        "new-tuple: ",
        "x[text]:'y'",
        " ",
        "\\N",
        "\r\n\t",
    ]
)
_WORDS = st.lists(_TRICKY | _TEXT, max_size=4).map("".join)
#: Column -> its type, and literals of it; "" stands for a text that is long enough to be stored out of line.
_COLUMNS = {
    "words": ("text", _WORDS),
    "fixed": ("character(4)", st.text("ab '", max_size=4)),
    "odd name]:'": ("character varying(200)", _WORDS),
    "n": ("numeric", st.decimals(places=4, allow_nan=False, allow_infinity=False).map(str)),
    "f": ("double precision", st.sampled_from(["0", "-0", "1e300", "1.5", "NaN", "Infinity", "-Infinity"])),
    "yes": ("boolean", st.booleans().map(str)),
    "big": ("bigint", st.integers(-(2**63), 2**63 - 1).map(str)),
    "bits": ("bit varying", st.text("01", max_size=9)),
    "bytes": ("bytea", st.binary(max_size=6).map(lambda value: "\\x" + value.hex())),
    "names": (
        "text[]",
        st.lists(_WORDS, max_size=3).map(
            lambda words: (
                "{" + ",".join('"' + w.replace("\\", "\\\\").replace('"', '\\"') + '"' for w in words) + "}"
            )
        ),
    ),
    "at": ("timestamp with time zone", st.datetimes().map(lambda moment: moment.isoformat() + "+00")),
    "long": ("text", st.sampled_from(["", "x", "l'"]).map(lambda part: part * 3000)),
}
_ROW = st.tuples(*(st.none() | values for _, values in _COLUMNS.values()))


@pytest.fixture(scope="module")
def with_slot(running: Postgres) -> Postgres:
    columns = ", ".join(f"{_quoted(name)} {kind}" for name, (kind, _) in _COLUMNS.items())
    running.execute(
        f"CREATE TABLE every (id int PRIMARY KEY, {columns})",
        "ALTER TABLE every ALTER long SET STORAGE EXTERNAL",
        "ALTER TABLE every REPLICA IDENTITY FULL",
    )
    running.value("SELECT lsn FROM pg_create_logical_replication_slot('every', 'test_decoding')")
    return running


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def _changes(server: Postgres) -> list[Change]:
    rows = server.rows("SELECT lsn, xid, data FROM pg_logical_slot_get_changes('every', NULL, NULL)")
    return [change for transaction in transactions(rows) for change in transaction.changes]


def _shown(server: Postgres) -> list[dict[str, str | None]]:
    """Return the rows as PostgreSQL shows them; its plugin alone writes booleans in full."""
    names = ["id", *_COLUMNS]
    texts = ", ".join(_quoted(name) + ("::text" if name == "yes" else "") for name in names)
    return [
        dict(zip(names, row, strict=True)) for row in server.rows(f"SELECT {texts} FROM every ORDER BY id")
    ]


# Not shrunk: every try is a round of statements to a server.
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(rows=st.lists(_ROW, min_size=1, max_size=12))
def test_every_value_is_what_postgresql_shows(
    with_slot: Postgres, rows: list[tuple[str | None, ...]]
) -> None:
    server = with_slot
    values = ", ".join(f"({number}, {', '.join(map(_literal, row))})" for number, row in enumerate(rows))
    server.execute("DELETE FROM every", f"INSERT INTO every VALUES {values}")
    before = _shown(server)
    server.execute("UPDATE every SET id = id + 1000")
    after = _shown(server)
    server.execute("DELETE FROM every")
    changes = [change for change in _changes(server) if change.table == "public.every"]
    count = len(rows)
    inserted, updated, deleted = (
        changes[-3 * count : -2 * count],
        changes[-2 * count : -count],
        changes[-count:],
    )
    # PostgreSQL may take rows in another order, once it has used the space of old ones again.
    updated.sort(key=lambda change: int(str(change.old["id"])))
    deleted.sort(key=lambda change: int(str(change.old["id"])))
    assert [change.new for change in inserted] == before
    # Of a row that is gone, NULLs are left out.
    assert [change.old for change in updated] == [_filled(row) for row in before]
    assert [change.old for change in deleted] == [_filled(row) for row in after]
    assert [set(change.new) | set(change.unchanged) for change in updated] == [set(row) for row in after]
    for change, row in zip(updated, after, strict=True):
        assert change.new == {name: value for name, value in row.items() if name not in change.unchanged}
        assert change.unchanged == (("long",) if len(row["long"] or "") > 2000 else ())


def _filled(row: dict[str, str | None]) -> dict[str, str | None]:
    return {name: value for name, value in row.items() if value is not None}
