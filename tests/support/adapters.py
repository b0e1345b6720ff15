"""Adapters made of a user's options, and the events of a record."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest import adapters
from delta_cdc.ingest.record import Event, Invalid, Position, Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from delta_cdc.ingest.types import Type

#: Where a record may come from.
MESSAGE, LINE = Position(topic="t", partition=0, offset=42), Position("/in/f.json", 7)
#: The events of a record that is left out.
IGNORED = [Event("ignore", {})]


def made(name: str, options: dict[str, Any] | None = None, **facts: Any) -> Any:
    """Return an adapter of checked options.

    :param facts: ``keys``, ``format``, ``insert_only``, and ``typed``: the columns that a schema types
    """
    typed = facts.pop("typed", frozenset())
    facts = {"keys": ("id",), "format": "json", "insert_only": False, **facts}
    return adapters.named(name, adapters.check(name, options or {}, **facts), declared=typed, **facts)


def events(adapter: Any, value: Any, key: Any = None, position: Position = MESSAGE, **headers: bytes) -> Any:
    """Return the events of a record as a list, or why it has none. The value stays as it is."""
    found = adapter.events(Record(deepcopy(value), position, key, headers))
    return found if isinstance(found, Invalid) else list(found)


def sequences(adapter: Any, found: Any, types: dict[str, Type], log: Type | None = None) -> list[Any]:
    """Return the values of the events' sequences."""
    make = adapter.sequence(types, log).value
    return [make(event.sequence) for event in found]


def broken(draw: Random, value: Any, odd: Sequence[Any], share: float, names: Sequence[str] = ()) -> Any:
    """Return JSON with about this share of its parts replaced, and some left out or renamed."""
    if draw.random() < share:
        return draw.choice(odd)
    if isinstance(value, dict):
        kept = {name: broken(draw, part, odd, share, names) for name, part in value.items()}
        moved = [name for name in kept if draw.random() < share / 4]
        return {name: part for name, part in kept.items() if name not in moved} | {
            draw.choice(names): kept[name] for name in moved if names
        }
    return [broken(draw, part, odd, share, names) for part in value] if isinstance(value, list) else value


def check(found: Any, wanted: Any) -> None:
    """Require events, or with a text a reason that begins with it."""
    if isinstance(wanted, str):
        assert isinstance(found, Invalid), found
        assert found.reason.startswith(wanted)
    else:
        assert found == wanted
