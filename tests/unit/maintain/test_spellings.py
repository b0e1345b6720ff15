"""How records of a key may spell it, without a JVM."""

from __future__ import annotations

import base64
import json
import random

import pytest

from delta_cdc.core.spellings import Kind, folded, spellings
from tests.support.spelled_records import OF_KEYS, mentions


@pytest.mark.parametrize(("text", "kind", "record"), OF_KEYS)
def test_a_record_of_the_key_is_found(text: str, kind: Kind, record: str) -> None:
    assert mentions(record, text, kind)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_in_json_within_json(depth: int) -> None:
    for text in ('Müller "&" Söhne', "😀\\ünd/", "a\nb\tc", "C:\\users\\u0041", "Ωmega"):
        for ascii_only in (True, False):
            record = text
            for _ in range(depth):
                record = json.dumps({"before": None, "after": {"name": record}}, ensure_ascii=ascii_only)
            assert mentions(record, text, "text"), record
            assert mentions("".join(f"\\u{ord(one):04X}" for one in "Key 17"), "Key 17", "text")


def test_base64_at_each_place() -> None:
    draw = random.Random(1)
    for _ in range(300):
        text = "".join(draw.choice("abcXYZ019-ä") for _ in range(draw.randint(7, 20)))
        around = draw.randbytes(draw.randint(0, 9)), draw.randbytes(draw.randint(0, 9))
        record = json.dumps({"payload": base64.b64encode(around[0] + text.encode() + around[1]).decode()})
        assert mentions(record, text, "text"), (record, text)


def test_other_records_are_not_found() -> None:
    assert not mentions('{"id": 18, "note": "abc"}', "17", "number")
    assert not mentions('{"id": 117, "at": 1704067200, "of": "a170"}', "17", "number"), "of other digits"
    assert not mentions('{"at": 1197820}', "2024-02-29", "date")
    assert not mentions('{"name": "Meier"}', "Maier", "text")
    assert all(one.text for one in spellings("", "text"))
    assert folded("\\ud800 \\uD83D") == "ud800 ud83d", "half of a pair is no character"
