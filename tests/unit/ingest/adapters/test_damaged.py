"""Damaged records of plain, DMS and GoldenGate against a model: any member has any value, or is missing.

Damaged bytes, also of CSV, are in ``tests/unit/ingest/test_mutated_records.py``.
"""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import pytest

from delta_cdc.ingest.record import Invalid, Record
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import STRING
from tests.support.adapters import made
from tests.support.mutated import COLUMNS, IGNORED, KINDS, QUARANTINED, Kind

SEED = 20261126
DAMAGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 10**18, "", " ", "x", "I", "d ", "12", "00012", "1" * 40),
    *([], [1], {}, {"a": 1}),
)
META = {"plain": ("op", "seq"), "dms": ("Op", "seq"), "goldengate": ("op_type", "pos", "before", "after")}
TYPES = dict.fromkeys(COLUMNS, STRING)


def text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def verdict_of(adapter: Any, found: Any) -> Any:
    """Return what became of a record, as the model says it.

    The rim finds names in another case, and new rows that are not whole.
    """
    if isinstance(found, Invalid):
        return QUARANTINED
    shown = []
    for event in found:
        if event.op == "ignore":
            return IGNORED
        lower = [name for name in event.row if name.lower() in COLUMNS and name not in COLUMNS]
        sequence = adapter.sequence(TYPES, None).value(event.sequence)
        lacks = event.whole and not set(COLUMNS) <= set(event.row)
        if lower or lacks or isinstance(sequence, Invalid):
            return QUARANTINED
        one = {"op": event.op, "sequence": sequence}
        if event.op != "truncate":
            one["row"] = {name: text_of(event.row.get(name)) for name in COLUMNS}
        if event.op == "upsert":
            one["columns"] = sorted(name for name in event.row if name in COLUMNS)
        shown.append(one)
    return shown


def is_stricter(kind: Kind, value: Any) -> bool:
    """Return whether the adapter knows better than the model.

    A truncate has no rows, a delete has one, and an image is an object, also if it is not used. Members that
    describe the event may be spelt in another case.
    """
    meta = META[kind.adapter]
    lower = {name.lower() for name in meta}
    if any(name.lower() in lower and name not in meta for name in value):
        return True
    if kind.adapter != "goldengate":
        return False
    before, after, op = value.get("before"), value.get("after"), text_of(value.get("op_type"))
    if any(image is not None and not isinstance(image, dict) for image in (before, after)):
        return True
    op = op.strip(" ").lower() if isinstance(op, str) else ""
    return op == "t" or (op == "d" and after is not None)


def compared(kind: Kind, adapter: Any, value: Any, wanted: Any) -> int:
    copy = deepcopy(value)
    found = adapter.events(Record(value))
    if is_stricter(kind, copy):
        return 0
    assert verdict_of(adapter, found) == wanted, copy
    return 1


JSON_KINDS = [kind for kind in KINDS if kind.adapter != "debezium" and kind.format == "json"]


@pytest.mark.parametrize("kind", JSON_KINDS, ids=lambda kind: kind.name)
def test_values_of_json(kind: Kind) -> None:
    chance = random.Random(f"{SEED}-{kind.name}-values")
    adapter, decode, compared_count = made(kind.adapter, kind.options), Decoder(), 0
    for number in range(4_000):
        value = decode(kind.make(number, chance).encode())
        assert isinstance(value, dict)
        for _ in range(chance.randint(0, 2)):
            images = [value, *(part for part in value.values() if isinstance(part, dict) and part)]
            image = chance.choice(images)
            name = chance.choice(list(image))
            if chance.random() < 0.3:
                del image[name]
            else:
                image[name] = deepcopy(chance.choice(DAMAGE))
        compared_count += compared(kind, adapter, value, kind.read(deepcopy(value)))
    assert compared_count > 2_000
