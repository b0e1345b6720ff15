"""The user's own adapter: how it is found, what it may return, and what happens if it raises."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest import adapters
from delta_cdc.ingest.record import Event, Invalid, Number, Position, Record
from delta_cdc.ingest.records.json import key_value
from delta_cdc.ingest.types import LONG, STRING, Type, decimal
from delta_cdc.ingest.values import Encoding
from tests.support.adapters import made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MINE = """\
from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.records.json import key_value


def events(record, options):
    row = record.value
    if "id" not in row:
        return Invalid("no id")
    return Event("upsert", row, sequence=row["version"])


def broken(record, options):
    return record.value["id"] + 1


def takes_too_few(record):
    return []


def endless(record, options):
    return endless(record, options)


def keyed(record, options):
    key = key_value(record.key)
    return key if isinstance(key, Invalid) else Event("delete", key, sequence=record.position.offset)


def deep(record, options):
    import json
    return json.loads(record.value["text"])
"""
WHOLE = """\
def events(record, options):
    return []


def check(options, *, keys, format, insert_only=False):
    return {**options, "seen": [list(keys), format, insert_only]}


def needs_rows(options):
    return options["numbered"]
"""


@pytest.fixture
def of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "own_of_user"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "mine.py").write_text(MINE)
    (folder / "whole.py").write_text(WHOLE)
    (folder / "broken.py").write_text("import no_such_module_anywhere\n")
    (folder / "raises.py").write_text("raise KeyError('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("own_of_user")]:
        del sys.modules[name]


def returning(value: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what becomes of a record if the user's function returns a value."""
    monkeypatch.setattr(sys.modules[__name__], "given", lambda record, options: value, raising=False)
    return made(f"{__name__}.given").events(Record({}))


@pytest.mark.usefixtures("of_a_user")
@pytest.mark.parametrize("name", ["own_of_user.mine", "own_of_user.mine.events", "own_of_user.mine:events"])
def test_a_function_on_a_record(name: str) -> None:
    adapter = made(name)
    assert adapter.events(Record({"id": 1, "version": 7})) == (Event("upsert", {"id": 1, "version": 7}, 7),)
    assert adapter.events(Record({})) == Invalid("no id")
    assert adapter.events(Record({"id": 1})) == Invalid(
        "the adapter raised KeyError: 'version', line 9 of mine.py"
    )
    assert adapter.events(Record(None)) == (Event("ignore", {}),)
    assert not adapter.needs_rows
    assert not adapter.describes("id")
    assert adapter.encodings({"id": LONG}) == {}
    assert adapter.reads == {"id"}
    assert made(name, {"needs_rows": True, "reads": "Version"}).needs_rows
    assert made(name, {"reads": ["Version"]}).reads == {"id", "version"}


@pytest.mark.usefixtures("of_a_user")
@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\x07", b"\0\0\0\0\0\0\0\0\x07"])
def test_a_key_stays_as_its_bytes_and_a_function_reads_its_json(prefix: bytes) -> None:
    """Bytes of another format may begin as the prefix of a registry does, so only the adapter knows."""
    adapter = made("own_of_user.mine.keyed", {"tombstones": "delete"})
    tombstone = Record(None, Position(None, None, "t", 0, 5), prefix + b'{"id":1}')
    assert adapter.events(tombstone) == (Event("delete", {"id": 1}, 5),)
    assert key_value((7).to_bytes(8, "big")) == Invalid("not JSON: '\\x00' at character 1")


@pytest.mark.usefixtures("of_a_user")
@pytest.mark.parametrize(
    ("function", "value", "reason"),
    [
        ("broken", {"id": "a"}, 'TypeError: can only concatenate str (not "int") to str, line 13 of mine.py'),
        ("broken", None, "TypeError: 'NoneType' object is not subscriptable, line 13 of mine.py"),
        ("deep", {"text": "{"}, "JSONDecodeError: Expecting property name"),
        ("deep", {"text": "{"}, ", line 31 of mine.py"),
        ("endless", {}, "RecursionError: maximum recursion depth exceeded"),
        ("takes_too_few", {}, "TypeError: takes_too_few() takes 1 positional argument but 2 were given"),
    ],
)
def test_what_it_raises_makes_that_record_invalid(function: str, value: Any, reason: str) -> None:
    found = made(f"own_of_user.mine.{function}", {"tombstones": "delete"}).events(Record(value))
    assert isinstance(found, Invalid)
    assert found.reason.startswith("the adapter raised ")
    assert reason in found.reason
    assert len(found.reason) < 400


def test_an_error_without_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class Long(Exception):
        def __str__(self) -> str:
            return "a\nb\ud800" * 1_000_000

    for error, reason in ((Odd(), "Odd: (without a text)"), (Long(), "Long: a b?a b?a b?")):

        def given(record: Any, options: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(sys.modules[__name__], "given", given, raising=False)
        found = made(f"{__name__}:given").events(Record({}))
        assert found.reason.startswith(f"the adapter raised {reason}")
        assert found.reason.endswith("of test_user.py")


@pytest.mark.usefixtures("of_a_user")
def test_a_module_with_its_own_check() -> None:
    adapter = made("own_of_user.whole", {"numbered": True})
    assert adapter.needs_rows
    assert adapter.events(Record({})) == []
    checked = adapters.check("own_of_user.whole", {"a": 1}, keys=("id",), format="csv", insert_only=True)
    assert checked == {"a": 1, "seen": [["id"], "csv", True]}
    assert adapters.check("own_of_user.whole.events", {"a": 1}, keys=("id",), format="csv")["seen"]
    assert adapters.check("own_of_user.mine.broken", {"a": 1}, keys=("id",), format="csv") == {"a": 1}


@pytest.mark.usefixtures("of_a_user")
@pytest.mark.parametrize("find", [adapters.check, adapters.named])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_package.adapter", "cannot be imported"),
        ("no_such_package:adapter", "cannot be imported"),
        ("own_of_user.mine.evnts", "has no function 'evnts'"),
        ("own_of_user:VALUE", "has no function 'VALUE'"),
        ("own_of_user", "which is not the name"),
        ("delta_cdc.core.change_log", "has no function 'events'"),
        ("own_of_user.broken", "no_such_module_anywhere"),
        ("own_of_user.raises", "KeyError"),
        ("own_of_user.raises.function", "KeyError"),
        ("debesium", "did you mean 'debezium'"),
        ("maxwel", "did you mean 'maxwell'"),
    ],
)
def test_names_that_are_nothing(find: Callable[..., Any], name: str, reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=reason):
        find(name, {}, keys=("id",), format="json")


# -- what it returns --------------------------------------------------------------------------------
GOOD = {
    "id": 1,
    "v": [1, {"a": None}],
    "n": Number("1e5"),
    "d": Decimal(1),
    "t": datetime(2024, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize(
    "value",
    [
        Event("upsert", GOOD, 1),
        [Event("delete", {"id": 1}, 1), Event("upsert", GOOD, 2, whole=True)],
        (Event("truncate", {}, "7"),),
        [],
        Event("ignore", {}),
        Event("upsert", {"id": b"x"}, None, 5, ["id"], encodings={"id": Encoding(LONG)}),
        Invalid("as it says"),
    ],
)
def test_what_may_be_returned(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = returning(value, monkeypatch)
    assert found == ((value,) if isinstance(value, Event) else value)


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the adapter returned NoneType instead of an event, a list of events, or Invalid"),
        ({"id": 1}, "the adapter returned dict instead of an event, a list of events, or Invalid"),
        ((event for event in list[Any]()), "the adapter returned generator instead of an event"),
        ([Event("upsert", {}), {}], "the adapter returned dict instead of an event"),
        ([Event("upsert", {}), Invalid("this one")], "this one"),
        (Event("insert", {}), "the adapter returned the operation insert, not one of upsert, delete"),
        (Event(None, {}), "the adapter returned the operation None"),  # type: ignore[arg-type]
        (Event("upsert", None), "the adapter returned NoneType instead of a dict"),  # type: ignore[arg-type]
        (Event("upsert", {1: 2}), "the adapter returned int instead of a text as the name"),  # type: ignore[dict-item]
        (Event("upsert", {"\ud800": 2}), "the adapter returned str instead of a text as the name"),
        (Event("upsert", {"v": {1, 2}}), "the adapter returned set as the value of column v"),
        (Event("upsert", {"v": [{"a": object()}]}), "the adapter returned object as the value of column v"),
        (Event("upsert", {"v": {1: 2}}), "the adapter returned a dict whose keys are no texts as the value"),
        (Event("upsert", {"v": CIRCLE}), "the adapter returned more than 1,000,000 values"),
        (Event("upsert", {}, 1, "now"), "the adapter returned a source_timestamp"),  # type: ignore[arg-type]
        (Event("upsert", {}, 1, 10**18), "the adapter returned a source_timestamp"),
        (Event("upsert", {}, 1, True), "the adapter returned a source_timestamp"),
        (Event("upsert", {}, 1, None, "id"), "the adapter returned str instead of a list of texts"),
        (Event("upsert", {}, 1, None, [1]), "the adapter returned list instead of a list of texts"),  # type: ignore[list-item]
        (Event("upsert", {}, 1, encodings={"id": LONG}), "the adapter returned dict instead of encodings"),
        (Invalid(None), "None"),  # type: ignore[arg-type]
    ],
)
def test_what_may_not_be_returned(value: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = returning(value, monkeypatch)
    assert isinstance(found, Invalid)
    assert found.reason.startswith(reason)


# -- its sequences ----------------------------------------------------------------------------------
NO_ORDER = Invalid("the sequence of the event is no text, whole number, date or time, or a tuple of these")


@pytest.mark.usefixtures("of_a_user")
@pytest.mark.parametrize(
    ("options", "log", "value", "wanted"),
    [
        ({}, None, 7, 7), ({}, None, None, None),
        ({}, None, "x",
         Invalid("the sequence of the event is no bigint (for others, give adapter_options sequence_type)")),
        ({}, LONG, "x", Invalid("the sequence of the event is no bigint")),
        ({}, decimal(20, 0), 7, Decimal(7)),
        ({"sequence_type": "integer"}, None, 2**40, Invalid),
        ({"sequence_type": "decimal(38,0)"}, None, 2**100, Decimal(2**100)),
        ({"sequence_type": "string"}, None, "x", "x"), ({"sequence_type": "string"}, None, None, None),
        ({"sequence_type": "string"}, None, 7, f"{7:020d}"),
        ({"sequence_type": "string"}, None, -1, f"-{10**20 - 2:020d}"),
        ({}, STRING, (date(2024, 1, 2), "a", 7), f"2024-01-02/a/{7:020d}"),
        ({}, STRING, datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02 00:00:00.000000"),
        ({}, STRING, Decimal(7), f"{7:038d}"), ({}, STRING, Decimal("7.5"), NO_ORDER),
        ({}, STRING, True, NO_ORDER), ({}, STRING, 2**70, NO_ORDER), ({}, STRING, 1.5, NO_ORDER),
        ({}, STRING, (1, None), NO_ORDER), ({}, STRING, (), NO_ORDER), ({}, STRING, "\ud800", NO_ORDER),
        ({}, STRING, object(), NO_ORDER),
    ],
)  # fmt: skip
def test_sequences(options: dict[str, Any], log: Type | None, value: Any, wanted: Any) -> None:
    sequencer = made("own_of_user.mine", options).sequence({}, log)
    found = sequencer.value(value)
    assert isinstance(found, Invalid) if wanted is Invalid else found == wanted
    assert type(found) is not bool
