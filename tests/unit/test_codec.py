"""The codec: any value comes back as it was; any other JSON is a named error with the path of the field."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_cdc.core import codec
from delta_cdc.core.codec import UNWRITTEN, UnreadableJson
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.spec import (
    AnySpec,
    ApplySpec,
    BatchSpec,
    EnableSpec,
    ExpireSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    VerifySpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Square:
    side: int
    kind: Literal["square"] = "square"


@dataclass(frozen=True)
class Circle:
    radius: float
    kind: Literal["circle", "disc"] = "circle"


@dataclass(frozen=True)
class Drawing:
    shape: Square | Circle
    name: str
    points: tuple[tuple[int, str], ...] = ()
    names: str | tuple[str, ...] = ""
    start: str | dict[str, int] = "none"
    inner: Drawing | None = None
    shapes: tuple[Square | Circle, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    by_name: dict[str, str | None] = field(default_factory=dict)
    secret: str = field(default="", metadata=UNWRITTEN)


INTEGERS = st.integers(-(2**63), 2**63 - 1)
#: What JSON holds, as Python reads it.
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def _drawings(inner: st.SearchStrategy[Drawing | None]) -> st.SearchStrategy[Drawing]:
    shapes = st.builds(Square, INTEGERS) | st.builds(
        Circle, st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["circle", "disc"])
    )
    return st.builds(
        Drawing,
        shapes,
        st.text(),
        st.lists(st.tuples(INTEGERS, st.text()), max_size=2).map(tuple),
        st.text() | st.lists(st.text(), max_size=2).map(tuple),
        st.text() | st.dictionaries(st.text(), INTEGERS, max_size=2),
        inner,
        st.lists(shapes, max_size=2).map(tuple),
        st.dictionaries(st.text(), JSON, max_size=2),
        st.dictionaries(st.text(), st.none() | st.text(), max_size=2),
    )


DRAWINGS = _drawings(st.none() | _drawings(st.none()))
PLAIN = {int: INTEGERS, str: st.text(max_size=5), bool: st.booleans(), type(None): st.none()}
#: What a session writes and another process reads.
WRITTEN = (
    ApplyRequest,
    ApplySpec,
    BatchSpec,
    ReadSpec,
    EnableSpec,
    ExpireSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    VerifySpec,
)


@settings(max_examples=40, deadline=None)
@given(DRAWINGS)
def test_a_value_comes_back_as_it_was(drawing: Drawing) -> None:
    text = codec.dumps(drawing)
    assert codec.loads(Drawing, text) == drawing
    assert codec.dumps(codec.loads(Drawing, text)) == text


@pytest.mark.parametrize("type_", WRITTEN, ids=lambda type_: type_.__name__)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_what_crosses_processes_comes_back_as_it_was(type_: type, data: st.DataObject) -> None:
    value = data.draw(_values(type_))
    assert codec.loads(type_, codec.dumps(value)) == value
    if "job" in type_.__dataclass_fields__:
        assert codec.loads(AnySpec, codec.dumps(value)) == value


def _values(type_: type) -> st.SearchStrategy[Any]:
    """Return values of a type: those of each field by its hint, plain JSON for ``Any``, few of each."""
    from typing import Union, get_args, get_origin, get_type_hints

    def of(hint: Any, depth: int) -> st.SearchStrategy[Any]:
        origin, args = get_origin(hint), get_args(hint)
        if hint is Any:
            return JSON
        if origin is Literal:
            return st.sampled_from(args)
        if origin is tuple:
            if args[1:] != (...,):
                return st.tuples(*[of(arg, depth) for arg in args])
            return st.just(()) if depth > 2 else st.lists(of(args[0], depth + 1), max_size=2).map(tuple)
        if origin is dict:
            return st.dictionaries(st.text(), of(args[1], depth), max_size=2)
        if origin is Union or type(hint).__name__ == "UnionType":
            flat = [arg for arg in args if depth <= 2 or not hasattr(arg, "__dataclass_fields__")]
            return st.one_of(*[of(arg, depth + 1) for arg in flat or args])
        if hasattr(hint, "__dataclass_fields__"):
            hints = get_type_hints(hint)
            chosen = {
                name: of(hints[name], depth + 1)
                for name, one in hint.__dataclass_fields__.items()
                if not one.metadata.get("unwritten")
            }
            return st.builds(hint, **chosen)
        return {**PLAIN, float: st.floats(allow_nan=False, allow_infinity=False)}[hint]

    return of(type_, 0)


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *[place for key, item in items for place in _places(item, (*path, key))]]


@settings(max_examples=100, deadline=None)
@given(DRAWINGS, st.data())
def test_any_damage_is_the_named_error(drawing: Drawing, draw: st.DataObject) -> None:
    """A damaged text may still be a drawing, by chance; it is never another exception."""
    data = json.loads(codec.dumps(drawing))
    *way, last = draw.draw(st.sampled_from(_places(data)[1:]))
    holder = data
    for key in way:
        holder = holder[key]
    damage: Callable[[], Any] = draw.draw(
        st.sampled_from([lambda: holder.pop(last), lambda: holder.__setitem__(last, draw.draw(JSON))])
    )
    damage()
    text = json.dumps(data)
    cut = draw.draw(st.integers(0, len(text)))
    for one in (text, text[:cut], draw.draw(st.text())):
        try:
            found = codec.loads(Drawing, one)
        except UnreadableJson:
            continue
        assert codec.loads(Drawing, codec.dumps(found)) == found


GOOD = codec.encoded(Drawing(Square(1), "n", points=((1, "a"),), inner=Drawing(Circle(0.5), "m")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nam": "x"}, "nam is unknown (Drawing)"),
        ({"name": None}, "name is None, not str"),
        ({"shape": {"side": 1}}, "shape.kind is missing"),
        ({"shape": {"side": 1, "kind": "cube"}}, "shape.kind is 'cube', not one of circle, disc, square"),
        ({"shape": {"side": True, "kind": "square"}}, "shape.side is True, not int"),
        ({"shape": {"kind": "square"}}, "shape.side is missing (Square)"),
        ({"points": [[1, "a"], [1]]}, "points[1] is [1], not a list of 2"),
        ({"points": [["1", "a"]]}, "points[0][0] is '1', not int"),
        ({"start": {"a": "1"}}, "start.a is '1', not int"),
        ({"by_name": {"a": 1}}, "by_name.a is 1, not str or NoneType"),
        ({"inner": {**GOOD["inner"], "name": 7}}, "inner.name is 7, not str"),
        ({"secret": "s"}, "secret is unknown (Drawing)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_names_the_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnreadableJson) as caught:
        codec.decoded(Drawing, {**GOOD, **change})
    assert str(caught.value) == said


def test_a_field_that_stays_here_is_not_written() -> None:
    text = codec.dumps(Drawing(Square(1), "n", secret="hidden"))
    assert "hidden" not in text
    assert codec.loads(Drawing, text).secret == ""


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\ud800", "null", "3", "[]"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UnreadableJson):
        codec.loads(Drawing, text)


def test_the_text_of_a_value_is_always_the_same() -> None:
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    texts = {codec.dumps(Drawing(Square(1), "n", more=more)) for more in (one, other)}
    assert len(texts) == 1


def test_a_union_that_nothing_tells_apart_is_refused() -> None:
    with pytest.raises(TypeError, match="no field distinguishes Drawing, Square"):
        codec.decoded(Drawing | Square, {"side": 1})


# -- texts of other writers -----------------------------------------------------------------------
@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        (b'"\xc3\xa9"', "é"),
        ('"\\ud83d\\ude00"', "😀"),
        ('["\\ud800", 1e400]', ["?", float("inf")]),
        ('{"\\udc00": 1}', {"?": 1}),
        ('"\udc80"', "?"),
        ('"\\u0000"', "\0"),
        ("[" * 256 + "]" * 256, None),
        ("[" + ",".join(["{}"] * 5_000) + "]", [{}] * 5_000),
        ('"' + "[" * 5_000 + '"', "[" * 5_000),
    ],
)
def test_a_text_of_another_writer(text: str | bytes, value: Any, patient: bool) -> None:
    found = codec.parsed(text, patient=patient)
    assert found == (json.loads(text) if value is None else value)
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        (b"\xff", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ("NaN", "NaN is no JSON"),
        ('{"a": -Infinity}', "-Infinity is no JSON"),
        ("1" * 5_000, "not JSON"),
        ("[" * 257 + "]" * 257, "more than 256 levels"),
        ('{"a":' * 257 + "1" + "}" * 257, "more than 256 levels"),
        ("[" + "{}," * 300 + "[" * 300 + "]" * 300 + "]", "more than 256 levels"),
        ("[" * 100_000, "more than 256 levels"),
        ("1" + " " * 100, "101 bytes, more than the limit of 100"),
    ],
)
def test_a_text_that_cannot_be_read(text: str | bytes, why: str, patient: bool) -> None:
    most = 100 if text[1:2] == " " else codec.MOST_BYTES
    with pytest.raises(UnreadableJson, match=re.escape(why)):
        codec.parsed(text, most_bytes=most, patient=patient)


@pytest.mark.parametrize(
    ("type_", "data"),
    [(int, 2**63), (int, -(2**63) - 1), (float, 10**400), (float, float("inf")), (float, float("nan"))],
)
def test_a_number_that_no_other_program_has(type_: type, data: Any) -> None:
    with pytest.raises(UnreadableJson, match=r"64 bits|finite"):
        codec.decoded(type_, data)
