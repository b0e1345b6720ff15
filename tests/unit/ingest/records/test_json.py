"""Strict JSON, against Python's parser and the one of pydantic (another program, in Rust)."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pydantic_core
import pytest

from delta_cdc.ingest.record import Invalid, Number
from delta_cdc.ingest.records.json import (
    HALF_CHARACTER,
    MOST_DEPTH,
    NOT_JSON,
    NOT_UTF8,
    SEVERAL,
    TOO_DEEP,
    Decoder,
    of_file,
    value,
    without_prefix,
)

ENDS = "not JSON: it ends inside of a value"
TWICE = "not strict JSON: the name {} twice in an object"
CONTROL = "not strict JSON: a control character in a text"


def typed(found: Any) -> Any:
    """Return a value with the class of each of its parts."""
    if isinstance(found, dict):
        return [(name, typed(part)) for name, part in found.items()]
    if isinstance(found, list):
        return (list, [typed(part) for part in found])
    return (type(found), found)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b'{"a":1,"b":"x","c":null,"d":[true,false],"e":{}}', None),
        (b' \t\r\n{"a" : 1 } \r\n', {"a": 1}),
        ('{"ü":"\U0001f600"}'.encode(), {"ü": "\U0001f600"}),
        (b'{"a":"\\ud83d\\ude00\\\\ud800\\u0000"}', {"a": "\U0001f600\\ud800\0"}),
        (b'{"a":{"n":1},"b":{"n":1}}', {"a": {"n": 1}, "b": {"n": 1}}),
        (b'{"a":1,"A":2}', {"a": 1, "A": 2}), (b"", NOT_JSON), (b" \n", NOT_JSON), (b"[1]", NOT_JSON),
        (b"5", NOT_JSON), (b"null", NOT_JSON), (b'{"a":1', ENDS), (b'{"a":', ENDS), (b'{"a":"x', ENDS),
        (b"{", ENDS), (b'{"a":1}x', "not JSON: text after the object"),
        (b'{"a":1}{"b":2}', SEVERAL), (b'{"a":1} \r\n{', SEVERAL),
        (b'{"a":1}}', "not JSON: text after the object"),
        (b'{"a":1} \x00', "not JSON: text after the object"),
        (b"[1] 2", "not JSON: text after the value"), (b'{"a":1,"a":2}', TWICE.format("a")),
        (b'{"b":{"a":1,"\\u0061":1}}', TWICE.format("a")),
        (b'{"' + b"n" * 300 + b'":1,"' + b"n" * 300 + b'":1}', TWICE.format("n" * 100)),
        (b"{'a':1}", "not strict JSON: single quotes"), (b"{\"a\":'x'}", "not strict JSON: single quotes"),
        (b'{"a":"x\ty"}', CONTROL), (b'{"a":"x\x00y"}', CONTROL), (b'{"a\n":1}', CONTROL),
        (b'{"a":NaN}', "not strict JSON: NaN is no number"),
        (b'{"a":[Infinity]}', "not strict JSON: Infinity is no number"),
        (b'{"a":-Infinity}', "not strict JSON: -Infinity is no number"),
        (b'{"a":"\\ud800"}', HALF_CHARACTER), (b'{"\\uDC00":1}', HALF_CHARACTER),
        (b'{"a":"\\ude00\\ud83d"}', HALF_CHARACTER), (b'{"a":"\\ud83d\\ud83d\\ude00"}', HALF_CHARACTER),
        (b'{"a":"\\\\\\ud800"}', HALF_CHARACTER), (b'{"a":"\xff"}', NOT_UTF8),
        (b'{"a":"\xed\xa0\x80"}', NOT_UTF8), (b'{"a":"\xc0\x80"}', NOT_UTF8),
        (b'\xef\xbb\xbf{"a":1}', "not JSON: it begins with a byte order mark"),
        (b'{"a":01}', "not JSON: '1' at character 7"), (b'{"a":1,}', "not JSON: '}' at character 8"),
        (b'{"a" 1}', "not JSON: '1' at character 6"), (b'{"a":.5}', "not JSON: '.' at character 6"),
        (b'{"a":+1}', "not JSON: '+' at character 6"), (b'{"a":"\\x"}', "not JSON: "),
        (b'{"a":"\\u00g0"}', "not JSON: "), (b"\xc2\xa0{}", "not JSON: '\\xa0' at character 1"),
    ],
)  # fmt: skip
def test_records(raw: bytes, wanted: Any) -> None:
    found = Decoder()(raw)
    if not isinstance(wanted, str):
        assert found == (json.loads(raw) if wanted is None else wanted)
    else:
        assert isinstance(found, Invalid)
        # What a character is called differs between versions of Python.
        assert found.reason == wanted or (wanted == "not JSON: " and found.reason.startswith(wanted))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0), ("-1", -1), ("9" * 19, int("9" * 19)), ("-" + "9" * 19, -int("9" * 19)),
        ("1" + "0" * 19, Number("1" + "0" * 19)), ("-1" + "0" * 19, Number("-1" + "0" * 19)),
        ("1.0", Number("1.0")), ("1.10", Number("1.10")), ("1e400", Number("1e400")),
        ("-0.0", Number("-0.0")), ("1E-2147483648", Number("1E-2147483648")),
        ("9007199254740993.0", Number("9007199254740993.0")),
    ],
)  # fmt: skip
def test_numbers(text: str, wanted: Any) -> None:
    found = Decoder()(f'{{"a":{text}}}'.encode())
    assert typed(found) == typed({"a": wanted})
    assert typed(value(text.encode())) == typed(wanted)


@pytest.mark.parametrize("text", ["1" * 1_000_000, "0." + "1" * 1_000_000, "1e" + "9" * 1_000_000])
def test_a_number_of_a_million_digits_is_its_text(text: str) -> None:
    began = time.process_time()
    assert typed(Decoder()(f'{{"a":{text}}}'.encode())) == typed({"a": Number(text)})
    assert time.process_time() - began < 30


def test_levels() -> None:
    def nested(levels: int, inner: str = "1") -> bytes:
        return ('{"a":' * (levels - 1) + "{" + f'"b":{inner}' + "}" * levels).encode()

    assert isinstance(Decoder()(nested(MOST_DEPTH)), dict)
    assert Decoder()(nested(MOST_DEPTH + 1)) == Invalid(TOO_DEEP)
    assert Decoder()(nested(MOST_DEPTH, "[]")) == Invalid(TOO_DEEP)
    assert Decoder()(nested(3_000)) == Invalid(TOO_DEEP)
    # Brackets in texts, and beside each other, are no levels.
    text = json.dumps({"a": '[{\\"' * 2_000, "b": [[]] * 2_000})
    assert Decoder()(text.encode()) == json.loads(text)
    assert Decoder()(b'{"a":"' + b'\\"' * 1000 + b'","b":' + b"[" * 600) == Invalid(TOO_DEEP)
    assert value(b"[" * 100_000) == Invalid(TOO_DEEP)
    # Unclosed texts, whose end is searched once.
    began = time.process_time()
    assert isinstance(Decoder()(b'{"a":[' * 600 + b'"\\"' * 1_000_000), Invalid)
    assert time.process_time() - began < 30


def test_sizes() -> None:
    assert Decoder(most_bytes=10)(b'{"a":"bc"}') == {"a": "bc"}
    too_long = Invalid("it has 11 bytes, more than the limit of 10")
    assert Decoder(most_bytes=10)(b'{"a":"bcd"}') == too_long
    assert value(b'{"a":"bcd"}', most_bytes=10) == too_long
    limit = Invalid("it has 5 bytes, more than the limit of 4")
    assert of_file(b'["abc",12]', most_bytes=4) == [(b'"abc"', limit), (b"12", 12)]
    decode = Decoder(most_bytes=len(message(1, "x" * 10)))
    assert [isinstance(decode(message(1, "x" * size)), dict) for size in (10, 11)] == [True, False]
    reason = Decoder()(b'{"a":"' + b"x" * 16 * 1024 * 1024 + b'"}')
    assert reason == Invalid("it has 16777224 bytes, more than the limit of 16777216")


# -- damaged texts ------------------------------------------------------------------------------
SAMPLES = (
    b'{"id":1,"name":"a \\"b\\" c","v":-1.50e+3,"at":"2024-01-31T10:00:00Z","n":null,"t":true}',
    b'{"before":null,"after":{"id":7,"v":[1,2,{"x":"\\ud83d\\ude00"}]},"op":"c","ts_ms":1700000000000}',
    '{"ü":"ö","\\u00e4":[[],{},""],"k":12345678901234567890,"z":0.1}'.encode(),
    b'{"a":{"a":{"a":[false]}},"b":"\\\\","c":"\\/\\b\\f\\n\\r\\t"}',
    b'  {"schema":{"type":"struct"},"payload":{"id":1}}  ',
)
PIECES = (
    *(bytes([one]) for one in b"\"\\{}[],: \t\n\x00\x1f\x7f'-01.eE+"),
    *(b"NaN", b"Infinity", b"true", b"nul", b"\\u", b"\\ud800", b"\\udc00", b"\\u0041", b"\xff", b"\xc3"),
    *("ü".encode(), b"\xed\xa0\x80", b'"a":', b'"id":1,', b"//", b"/*", b"\xef\xbb\xbf"),
)


def damaged(chance: random.Random, sample: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            del data[at : at + chance.choice((1, 1, 2, 10))]
        elif kind == 1:
            data[at:at] = chance.choice(PIECES)
        elif kind == 2:
            data[at : at + 1] = chance.choice(PIECES)
        elif kind == 3:
            end = chance.randrange(len(data) + 1)
            data[at:at] = data[min(at, end) : max(at, end)][:20]
        else:
            del data[at:]
    return bytes(data)


class Twice(ValueError):
    pass


def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(members)) < len(members):
        raise Twice
    return dict(members)


def by_python(raw: bytes) -> Any:
    """Return what the rules say, by Python's own parser; None for what is refused."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(
            raw.decode(), object_pairs_hook=unique, parse_constant=refuse, parse_int=str, parse_float=str
        )
        json.dumps(found, ensure_ascii=False).encode()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_read_by_another(raw: bytes) -> bool:
    try:
        return isinstance(pydantic_core.from_json(raw, allow_inf_nan=False), dict)
    except ValueError:
        return False


def as_texts(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: as_texts(part) for name, part in found.items()}
    if isinstance(found, list):
        return [as_texts(part) for part in found]
    return str(found) if type(found) in (int, Number) else found


def test_damaged_texts() -> None:
    """What is read is what Python reads; another reader refuses the same, except a name twice."""
    chance, decode = random.Random(38), Decoder()
    accepted = 0
    for _ in range(25_000):
        raw = damaged(chance, chance.choice(SAMPLES))
        found, wanted = decode(raw), by_python(raw)
        if isinstance(found, Invalid):
            assert wanted is None, raw
            assert found.reason
            found.reason.encode()
            assert not is_read_by_another(raw) or "twice" in found.reason, raw
        else:
            # int keeps no sign of zero.
            assert as_texts(found) == json.loads(json.dumps(wanted).replace('"-0"', '"0"')), raw
            assert is_read_by_another(raw), raw
            accepted += 1
    assert 2_000 < accepted < 20_000


# -- Kafka Connect ------------------------------------------------------------------------------
def schema(number: int) -> dict[str, Any]:
    fields = [{"type": "int32", "field": "id"}, {"type": "string", "field": f"v{number} \\ ü"}]
    return {"type": "struct", "fields": fields, "optional": False, "version": number}


def message(number: int, payload: Any, *, compact: bool = True) -> bytes:
    separators = (",", ":") if compact else (", ", ": ")
    return json.dumps({"schema": schema(number), "payload": payload}, separators=separators).encode()


@pytest.mark.parametrize("compact", [True, False])
def test_messages_share_their_schema(compact: bool) -> None:
    decode = Decoder()
    first, second, other, third = (
        decode(message(number, {"id": at, "v": 1.5}, compact=compact))
        for at, number in enumerate((1, 1, 2, 1))
    )
    assert all(isinstance(found, dict) for found in (first, second, other, third))
    assert first["schema"] is second["schema"] is third["schema"]
    assert other["schema"] == schema(2)
    assert typed(second) == typed({"schema": schema(1), "payload": {"id": 1, "v": Number("1.5")}})
    assert list(second) == ["schema", "payload"]
    assert first is not second


@pytest.mark.parametrize(
    "last",
    [
        b'{"id":1}', b'{"id":1}}', b'{"id":1}} x', b'{"id":1,"id":2}}', b'{"id":NaN}}', b'"\\ud800"}',
        b'"\xff"}', b'"\x01"}', b'1,"payload":2}', b'1,"more":2}', b"null}", b"1 } \n", b"  1}", b"",
        b"[" * (MOST_DEPTH - 1) + b"]" * (MOST_DEPTH - 1) + b"}",
        b"[" * MOST_DEPTH + b"]" * MOST_DEPTH + b"}", b"[" * 3000,
    ],
)  # fmt: skip
def test_the_payload_alone_is_as_strict(last: bytes) -> None:
    begin = json.dumps({"schema": schema(1)})[:-1].encode() + b',"payload":'
    decode = Decoder()
    assert isinstance(decode(begin + b"1}"), dict)
    found, wanted = decode(begin + last), Decoder()(begin + last)
    assert (type(found), found) == (type(wanted), wanted)


def test_a_name_of_the_payload_inside_of_the_schema() -> None:
    decode = Decoder()
    raw = b'{"schema":{"parameters":{"payload":1},"a":"\\"payload\\""},"payload":%d}'
    assert [decode(raw % number) for number in (1, 2)] == [json.loads(raw % number) for number in (1, 2)]


def test_damaged_messages() -> None:
    """The stateful decoder gives what a new one gives."""
    chance, decode = random.Random(7), Decoder()
    payloads = [json.loads(sample) for sample in SAMPLES]
    shared = 0
    for _ in range(6_000):
        raw = message(chance.randrange(4), chance.choice(payloads), compact=chance.random() < 0.8)
        if chance.random() < 0.7:
            raw = damaged(chance, raw)
        found = decode(raw)
        assert typed(found) == typed(Decoder()(raw)), raw
        shared += isinstance(found, dict)
    assert shared > 1_000


def test_very_many_schemas() -> None:
    decode = Decoder()
    first = decode(message(-1, 0))
    assert isinstance(first, dict)
    for number in range(500):
        assert decode(message(number, number)) == {"schema": schema(number), "payload": number}
        assert decode(message(number, -number)) == {"schema": schema(number), "payload": -number}
    # The oldest are forgotten.
    again = decode(message(-1, 0))
    assert isinstance(again, dict)
    assert again == first
    assert again["schema"] is not first["schema"]


# -- whole files -------------------------------------------------------------------------------------
AFTER, AFTER_OBJECT = (Invalid(f"not JSON: text after the {what}") for what in ("array", "object"))


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"", []), (b" \n", []), (b"[]", []), (b" [ ] ", []),
        (b'[{"a":1},{"a":2}]', [(b'{"a":1}', {"a": 1}), (b'{"a":2}', {"a": 2})]),
        (b'\xef\xbb\xbf[ {"a":1} ,\n 5 ]\n', [(b'{"a":1}', {"a": 1}), (b"5", 5)]),
        (b'{"a":1}', [(b'{"a":1}', {"a": 1})]), (b' {"a":1} ', [(b'{"a":1}', {"a": 1})]),
        (b'{"a":1}\n{"a":2}', [(b'{"a":1}', {"a": 1}), (b'{"a":2}', {"a": 2})]),
        (b'\xef\xbb\xbf {"a":1}{\n\t"a" : {"b":2}\r\n}\n', [
            (b'{"a":1}', {"a": 1}), (b'{\n\t"a" : {"b":2}\r\n}', {"a": {"b": 2}})]),
        (b'{"a":1,"a":2}{"a":"\\ud800"}{"a":NaN} {}', [(b'{"a":1,"a":2}', Invalid(TWICE.format("a"))),
         (b'{"a":"\\ud800"}', Invalid(HALF_CHARACTER)),
         (b'{"a":NaN}', Invalid("not strict JSON: NaN is no number")), (b"{}", {})]),
        (b'{"a":1}{"a":', [(b'{"a":1}', {"a": 1}), (b'{"a":', Invalid(ENDS))]),
        (b'{"a":1}\n{"a":01}{}', [
            (b'{"a":1}', {"a": 1}), (b'{"a":01}{}', Invalid("not JSON: '1' at character 7"))]),
        *((b'{"a":1} ' + rest, [(b'{"a":1}', {"a": 1}), (rest, AFTER_OBJECT)])
          for rest in (b',{"a":2}', b"[1]", b"x", b"}", b"5")),
        (b'{"a":1}\xff{}', [(b'{"a":1}', {"a": 1}), (b"\xff{}", Invalid(NOT_UTF8))]),
        (b'{"a":1}{"a":"\xff"}', [(b'{"a":1}', {"a": 1}), (b'{"a":"\xff"}', Invalid(NOT_UTF8))]),
        (b"[1,{2},3]", [(b"1", 1), (b"{2},3]", Invalid("not JSON: '2' at character 2"))]),
        (b"[1,2 3]", [(b"1", 1), (b"2 3]", Invalid("not JSON: '3' at character 3"))]),
        (b"[1,2", [(b"1", 1), (b"2", Invalid(ENDS))]), (b"[1,", [(b"1", 1), (b"", Invalid(ENDS))]),
        (b"[", [(b"", Invalid(ENDS))]),
        (b"[1,]", [(b"1", 1), (b"]", Invalid("not JSON: ']' at character 1"))]),
        (b"[1] [2]", [(b"1", 1), (b" [2]", AFTER)]), (b"[] x", [(b" x", AFTER)]),
        (b'[{"a":1,"a":2},NaN,"\\ud800",4]', [(b'{"a":1,"a":2}', Invalid(TWICE.format("a"))),
         (b"NaN", Invalid("not strict JSON: NaN is no number")), (b'"\\ud800"', Invalid(HALF_CHARACTER)),
         (b"4", 4)]),
        (b'["\xc3\xbc","\xff",3]', [(b'"\xc3\xbc"', "ü"), (b'"\xff",3]', Invalid(NOT_UTF8))]),
        (b"[1]\xff", [(b"1", 1), (b"\xff", Invalid(NOT_UTF8))]),
        (b"[1,\xff2]", [(b"1", 1), (b"\xff2]", Invalid(NOT_UTF8))]),
    ],
)  # fmt: skip
def test_whole_files(raw: bytes, wanted: Any) -> None:
    assert of_file(raw) == wanted


def test_a_deep_element_of_an_of_file() -> None:
    def deep(levels: int) -> bytes:
        return b"[" * levels + b"]" * levels

    last = b"[1," + deep(MOST_DEPTH) + b"]"
    data = b'[{"a":"],["},' + deep(MOST_DEPTH) + b"," + last + b",3]"
    (_, first), (_, second), (rest, third) = of_file(data)
    assert first == {"a": "],["}
    assert isinstance(second, list)
    assert (rest, third) == (last + b",3]", Invalid(TOO_DEEP))
    some, many = (b'{"a":' * levels + b"1" + b"}" * levels for levels in (MOST_DEPTH, MOST_DEPTH + 1))
    (_, first), (_, second), (rest, third) = of_file(b'{"a":"}{"}\n' + some + b" " + many + b"{}")
    assert first == {"a": "}{"}
    assert isinstance(second, dict)
    assert (rest, third) == (many + b"{}", Invalid(TOO_DEEP))
    # The levels of each element count for itself.
    assert len(of_file(b'{"a":{}}\n' * 200_000)) == 200_000


def test_random_objects_one_after_the_other() -> None:
    chance = random.Random(4)
    for _ in range(2_000):
        parts = [damaged(chance, chance.choice(SAMPLES)).strip(b" \t\r\n") for _ in range(3)]
        if not all(part.startswith(b"{") for part in parts):
            continue
        raw = chance.choice([b"", b"\n", b" \r\n\t"]).join(parts)
        found = of_file(raw)
        good = next((at for at, part in enumerate(parts) if isinstance(value(part), Invalid)), 3)
        assert [typed(item) for _, item in found[:good]] == [typed(value(part)) for part in parts[:good]]
        assert [part for part, _ in found[:good]] == parts[:good]
        assert good < 3 or len(found) == 3
        # Nothing is lost but blanks between the parts.
        for part, _ in found:
            assert raw.lstrip(b" \t\r\n").startswith(part)
            raw = raw.lstrip(b" \t\r\n")[len(part) :]
        assert not raw.strip(b" \t\r\n")


def test_arrays_of_random_elements() -> None:
    chance = random.Random(3)
    for _ in range(2_000):
        parts = [damaged(chance, chance.choice(SAMPLES)).strip(b" \t\r\n") for _ in range(3)]
        found = of_file(b"[" + b" , ".join(parts) + b"]")
        good = next((at for at, part in enumerate(parts) if isinstance(value(part), Invalid)), 3)
        assert [typed(item) for _, item in found[:good]] == [typed(value(part)) for part in parts[:good]]
        assert [part for part, _ in found[:good]] == parts[:good]
        assert good == 3 or isinstance(found[good][1], Invalid) or b"," in parts[good]


# -- prefixes of registries ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b'\0\0\0\0\x07{"a":1}', b'{"a":1}'),
        (b'\0\0\0\0\0\0\0\0\x07{"a":1}', b'{"a":1}'),
        (b'\0\0\0\0\0\0\0{\x07{"a":1}', b'{"a":1}'),
        (b"\0", b""),
        (b"", b""),
    ],
)
def test_without_prefix(raw: bytes, wanted: bytes) -> None:
    assert without_prefix(raw) == wanted
