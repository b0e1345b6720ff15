"""Valid records of every adapter and format, damaged at random, and what a strict parser makes of them.

The oracle is Python's ``json`` and ``csv``. It knows nothing of Spark: what an adapter is to make of a parsed
record is said here once more, in plain Python.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

COLUMNS = ("id", "name", "note")
#: What the oracle says of a record that is quarantined, and of one that is left out.
QUARANTINED, IGNORED = "quarantined", "ignored"
_TEXTS = (
    "",
    "x",
    "a,b",
    'say "hi"',
    '"',
    "ünï",
    "😀",
    "\\",
    "\\n",
    "two\nlines",
    "a\r\nb",
    "{}",
    "[1]",
    "null",
)
#: Bytes and texts that parsers trip over.
_ODD = (
    b"}",
    b"]",
    b"{",
    b"[",
    b",",
    b":",
    b'"',
    b'""',
    b"\\",
    b"\\ud800",
    b"\\uDC00x",
    b"\xff",
    b"\xc3",
    b"\x00",
)
_TAILS = (
    b"}",
    b"}}",
    b"]",
    b"}]",
    b"}, 7",
    b"} garbage",
    b" ",
    b",",
    b'"',
    b'}{"id":"9"}',
    b'}}{"id":"9"}',
    b"\t",
)

Event = dict[str, Any]
Verdict = list[Event] | str


@dataclass(frozen=True)
class Kind:
    """An adapter with a format: how its records are written, and what they mean.

    :param make: writes a record (without its line break) from its number and a source of chance
    :param read: returns what a parsed record means, from its members (JSON) or its values (CSV)
    """

    name: str
    adapter: str
    format: str
    options: dict[str, Any]
    schema: str
    make: Callable[[int, random.Random], str]
    read: Callable[[Any], Verdict]
    format_options: dict[str, str] = field(default_factory=dict)
    header: str = ""

    def file(self, records: int, chance: random.Random, damage: float = 0.5) -> bytes:
        """Return a file of records, of which about a half are damaged."""
        lines = [self.header.encode()] if self.header else []
        for number in range(records):
            line = self.make(number, chance).encode()
            for _ in range(chance.randint(1, 3) if chance.random() < damage else 0):
                line = damaged(line, chance)
            lines.append(line)
        return b"\n".join(lines) + b"\n"

    def verdicts(self, data: bytes) -> Iterator[tuple[int, Verdict]]:
        """Return what each record of a file is, with the number of its first line."""
        parsed = _json_records(data) if self.format == "json" else _csv_records(data)
        for row, record in parsed:
            if isinstance(record, str) or (self.header and row == 0):
                yield row, record if isinstance(record, str) else IGNORED
                continue
            yield row, self.read(record)


def damaged(line: bytes, chance: random.Random) -> bytes:
    """Return a record with bytes inserted, cut, swapped or appended."""
    at = chance.randrange(len(line) + 1)
    how = chance.randrange(6)
    if how == 0:
        return line[:at] + chance.choice(_ODD) + line[at:]
    if how == 1:
        return line[:at] + bytes([chance.randrange(256)]) + line[at:]
    if how == 2:
        return line[:at] + line[at + chance.randint(1, 8) :]
    if how == 3:
        other = chance.randrange(len(line) + 1)
        first, last = min(at, other), max(at, other)
        return (
            line[:first]
            + line[last : last + 1]
            + line[first + 1 : last]
            + line[first : first + 1]
            + line[last + 1 :]
        )
    if how == 4:
        return line[:at]
    return line + chance.choice(_TAILS)


# -- parsing ------------------------------------------------------------------------------------
class _NoRecord(ValueError):
    pass


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _NoRecord("a name twice")
    return found


def _constant(name: str) -> Any:
    raise _NoRecord(name)


def _json_records(data: bytes) -> Iterator[tuple[int, Any]]:
    # Bytes are split at CR, LF and CR LF, and nowhere else: so does Spark.
    for row, line in enumerate(data.splitlines()):
        if not line.strip(b" "):
            yield row, IGNORED
            continue
        try:
            found = json.loads(line.decode(), object_pairs_hook=_members, parse_constant=_constant)
            # A lone surrogate cannot be written as UTF-8.
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            yield row, QUARANTINED
            continue
        yield row, found if isinstance(found, dict) else QUARANTINED


def _csv_records(data: bytes) -> Iterator[tuple[int, Any]]:
    lines = data.decode(errors="surrogateescape").split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    reader, row = csv.reader(iter(lines), strict=True), 0
    while row < len(lines):
        try:
            found = next(reader)
        except csv.Error as error:
            rows = range(row, reader.line_num) if "unexpected end" in str(error) else [row]
            yield from ((at, QUARANTINED) for at in rows if lines[at].rstrip("\n") not in ("", "\r"))
        else:
            whole = "".join(lines[row : reader.line_num])
            # RFC 4180 knows no NUL; bytes that are no UTF-8 are no text.
            if "\0" in whole or any("\udc80" <= mark <= "\udcff" for mark in whole):
                yield row, QUARANTINED
            elif found:
                yield row, found
        row = reader.line_num


# -- what records mean --------------------------------------------------------------------------
def _text(value: Any) -> Any:
    """Return a scalar as it becomes a text; what has parts is compared by its parts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def _operation(value: Any, known: dict[str, str]) -> str | None:
    text = _text(value)
    return known.get(text.strip(" ").lower()) if isinstance(text, str) else None


def _number(value: Any) -> str | None:
    text = _text(value)
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,20}([/:][0-9]{1,20})*", text, re.ASCII):
        return None
    return "/".join(part.zfill(20) for part in re.split("[/:]", text))


def _digits(value: Any, width: int) -> str | None:
    text = _text(value)
    if not isinstance(text, str) or not re.fullmatch(rf" *0*[0-9]{{1,{width}}} *", text, re.ASCII):
        return None
    return text.strip(" ").zfill(width)[-width:]


def _misspelt(row: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(name not in names and name.lower() in names for name in row)


def _event(op: str | None, row: Any, sequence: str | None, carried: Any = None) -> Verdict:
    if op is None or sequence is None:
        return QUARANTINED
    event: Event = {"op": op, "sequence": sequence}
    if op != "truncate":
        event["row"] = {name: _text(row.get(name)) for name in COLUMNS}
    if op == "upsert":
        event["columns"] = sorted(name for name in (row if carried is None else carried) if name in COLUMNS)
    return [event]


_USUAL = {"i": "upsert", "insert": "upsert", "u": "upsert", "update": "upsert", "upsert": "upsert"}
_USUAL |= {"d": "delete", "delete": "delete"}


def _plain_json(found: dict[str, Any]) -> Verdict:
    if _misspelt(found, (*COLUMNS, "op", "seq")):
        return QUARANTINED
    return _event(_operation(found.get("op"), _USUAL), found, _number(found.get("seq")))


def _plain_csv(found: list[str]) -> Verdict:
    if len(found) != 5:
        return QUARANTINED
    op, seq, *values = found
    row = dict(zip(COLUMNS, values, strict=True))
    return _event(_operation(op, _USUAL), row, _number(seq))


def _dms(known: dict[str, str], op: Any, row: dict[str, Any], sequence: Any) -> Verdict:
    number = _digits(sequence, 35)
    return _event(_operation(op, known), row, None if number is None else f"1/{number}")


_DMS = {"i": "upsert", "u": "upsert", "d": "delete"}


def _dms_json(found: dict[str, Any]) -> Verdict:
    if _misspelt(found, (*COLUMNS, "Op", "seq")) or "op" in {name.lower() for name in found if name != "Op"}:
        return QUARANTINED
    return _dms(_DMS, found.get("Op"), found, found.get("seq"))


def _dms_csv(found: list[str]) -> Verdict:
    if len(found) != 5:
        return QUARANTINED
    op, seq, *values = found
    return _dms(_DMS, op, dict(zip(COLUMNS, values, strict=True)), seq)


_GOLDENGATE = {"i": "upsert", "u": "upsert", "d": "delete", "t": "truncate", "k": "key_change"}


def _goldengate_row(found: list[str]) -> Verdict:
    if len(found) != 5:
        return QUARANTINED
    op, number = _operation(found[0], _GOLDENGATE), _digits(found[1], 24)
    if op == "key_change":
        return QUARANTINED
    row = dict(zip(COLUMNS, found[2:], strict=True))
    return _event(op, row, None if number is None else f"{number}/1")


def _images(
    before: Any,
    after: Any,
    op: str | None,
    sequences: tuple[str, str] | None,
    is_key_change: bool = False,
    may_lack: bool = False,
) -> Verdict:
    """Return the events of an image before and one after, where a changed key is two events.

    The row of a new key has what the image before has and the one after lacks.

    :param may_lack: an image may lack columns that the table has: then the new row is not known
    :param sequences: of the delete of the old key, and of the event itself
    """
    olds = [
        {name.lower(): value for name, value in image.items()} if isinstance(image, dict) else {}
        for image in (before, after)
    ]
    old, new = (image.get("id") for image in olds)
    changed = old is not None and new is not None and _text(old) != _text(new)
    if op == "upsert" and after is None:
        # The image before is the old row.
        return QUARANTINED
    row = before if op == "delete" and before is not None else after
    if row is not None and (not isinstance(row, dict) or _misspelt(row, COLUMNS)):
        return QUARANTINED
    if is_key_change and old is None:
        return QUARANTINED
    if row is None and op in ("upsert", "delete"):
        return QUARANTINED
    if changed and op == "upsert":
        row = {**{name: before[name] for name in before if name.lower() not in olds[1]}, **after}
        if _misspelt(row, COLUMNS) or (may_lack and not set(COLUMNS) <= set(row)):
            return QUARANTINED
    this = _event(op, row if row is not None else {}, None if sequences is None else sequences[1])
    if not changed or sequences is None or isinstance(this, str):
        return this
    if _misspelt(before, COLUMNS):
        return QUARANTINED
    gone = _event("delete", before, sequences[0])
    assert not isinstance(gone, str)
    return [*gone, *this]


def _goldengate_json(found: dict[str, Any]) -> Verdict:
    op = _operation(found.get("op_type"), _GOLDENGATE)
    is_key_change, number = op == "key_change", _digits(found.get("pos"), 24)
    op = "upsert" if is_key_change else op
    sequences = None if number is None else (f"{number}/0", f"{number}/1")
    return _images(found.get("before"), found.get("after"), op, sequences, is_key_change, may_lack=True)


_DEBEZIUM = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete", "t": "truncate", "m": IGNORED}


def _debezium(found: dict[str, Any]) -> Verdict:
    op = _operation(found.get("op"), _DEBEZIUM)
    before, after = found.get("before"), found.get("after")
    if found.get("op") == "d":
        after = None
    if op == IGNORED:
        return IGNORED
    if op is None:
        return QUARANTINED
    number = _number(found.get("ts_ms"))
    return _images(before, after, op, None if number is None else (number, number))


def _unwrapped(found: dict[str, Any]) -> Verdict:
    if _misspelt(found, COLUMNS):
        return QUARANTINED
    op = _operation(found.get("__op"), _DEBEZIUM)
    if op == IGNORED:
        return IGNORED
    return _event(op, found, _number(found.get("__ts_ms")))


# -- how records are written --------------------------------------------------------------------
def _row(number: int, chance: random.Random, carries_all: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": str(number),
        "name": chance.choice(_TEXTS),
        "note": chance.choice([*_TEXTS, None]),
    }
    if not carries_all and chance.random() < 0.2:
        del row[chance.choice(["name", "note"])]
    return row


def _dumped(value: dict[str, Any], chance: random.Random) -> str:
    return json.dumps(value, ensure_ascii=chance.random() < 0.5)


def _joined(values: list[Any], chance: random.Random) -> str:
    """Return values as a line of CSV, by RFC 4180; texts are quoted more often than they need to be."""
    written = []
    for value in values:
        text = "" if value is None else str(value)
        needs_it = any(mark in text for mark in ',"\n\r')
        is_quoted = needs_it or chance.random() < 0.2
        written.append('"' + text.replace('"', '""') + '"' if is_quoted else text)
    return ",".join(written)


def _writes_json(
    wrapped: Callable[[int, dict[str, Any], random.Random], dict[str, Any]],
) -> Callable[[int, random.Random], str]:
    return lambda number, chance: _dumped(wrapped(number, _row(number, chance), chance), chance)


def _writes_csv(ops: str) -> Callable[[int, random.Random], str]:
    def make(number: int, chance: random.Random) -> str:
        row = _row(number, chance, carries_all=True)
        return _joined([chance.choice(ops), number, *row.values()], chance)

    return make


def _envelope(number: int, row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    op = chance.choice("crud")
    before = None if op in "cr" else {**row, "id": chance.choice([row["id"], "old"])}
    return {
        "op": op,
        "ts_ms": number,
        "source": {"db": "d"},
        "before": before,
        "after": None if op == "d" else row,
    }


def _operation_record(number: int, row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    op = chance.choice("IUDK")
    before = (
        None if op == "I" else {**row, "id": chance.choice([row["id"], "old"]) if op != "D" else row["id"]}
    )
    after = None if op == "D" else row
    return {"table": "T", "op_type": op, "pos": str(number), "before": before, "after": after}


_PLAIN = {"operation_column": "op", "sequence_by": "seq"}
_TEXT_COLUMNS = ", ".join(f"{name} STRING" for name in COLUMNS)
_OF_CSV = f"op STRING, seq STRING, {_TEXT_COLUMNS}"
KINDS = (
    Kind(
        "plain-json",
        "plain",
        "json",
        _PLAIN,
        _TEXT_COLUMNS,
        _writes_json(lambda number, row, chance: {"op": chance.choice("IUD"), "seq": number, **row}),
        _plain_json,
    ),
    Kind(
        "plain-csv",
        "plain",
        "csv",
        _PLAIN,
        _TEXT_COLUMNS,
        _writes_csv("IUD"),
        _plain_csv,
        {"header": "true"},
        "op,seq,id,name,note",
    ),
    Kind(
        "dms-json",
        "dms",
        "json",
        {"change_sequence": "seq"},
        _TEXT_COLUMNS,
        _writes_json(lambda number, row, chance: {"Op": chance.choice("IUD"), "seq": number, **row}),
        _dms_json,
    ),
    Kind(
        "dms-csv",
        "dms",
        "csv",
        {"change_sequence": "seq"},
        _OF_CSV.replace("op ", "Op "),
        _writes_csv("IUD"),
        _dms_csv,
    ),
    Kind(
        "goldengate-json",
        "goldengate",
        "json",
        {},
        _TEXT_COLUMNS,
        _writes_json(_operation_record),
        _goldengate_json,
    ),
    Kind(
        "goldengate-csv",
        "goldengate",
        "csv",
        {},
        f"op_type STRING, pos STRING, {_TEXT_COLUMNS}",
        _writes_csv("IUD"),
        _goldengate_row,
    ),
    Kind(
        "debezium",
        "debezium",
        "json",
        {"sequence_by": "ts_ms"},
        _TEXT_COLUMNS,
        _writes_json(_envelope),
        _debezium,
    ),
    Kind(
        "debezium-unwrapped",
        "debezium",
        "json",
        {"sequence_by": "ts_ms", "unwrapped": True},
        _TEXT_COLUMNS,
        _writes_json(lambda number, row, chance: {**row, "__op": chance.choice("crud"), "__ts_ms": number}),
        _unwrapped,
    ),
)
