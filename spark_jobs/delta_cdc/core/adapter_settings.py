"""Options of an adapter: their names, their values, and the errors for wrong ones.

Standard library only: the planning side checks options before any Spark starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from delta_cdc.core.validation import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delta_cdc.core.errors import InvalidConfiguration


@dataclass(frozen=True)
class Setting:
    """One option.

    :param kind: the type of its value: a key of :data:`KINDS`
    :param default: its value where it is not given
    :param choices: the allowed values; for a mapping, those of its entries; () allows any
    """

    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()


def _texts(value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else tuple(value)
    if not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise TypeError
    return items


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _mapping(value: Any) -> dict[str, str]:
    found = dict(value)
    if not found or not all(isinstance(text, str) and text for pair in found.items() for text in pair):
        raise TypeError
    return found


#: Types of options: the wording for errors, and the function that converts a value.
KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("a text", _text),
    "texts": ("a text, or a list of texts", _texts),
    "flag": ("true or false", _flag),
    "mapping": ("a mapping of texts to texts", _mapping),
}


def checked(adapter: str, options: Mapping[str, Any], known: Mapping[str, Setting]) -> dict[str, Any]:
    """Return all options of an adapter, with defaults.

    :raises InvalidConfiguration: an option is unknown (the nearest name is given), or has a wrong value
    """
    for name in options:
        if name not in known:
            raise unknown(f"adapter_options of {adapter!r} has {name!r}", name, known, "an option")
    return {
        # The job repeats the planner's check, and JSON turns tuples into lists.
        name: setting.default
        if options.get(name) is None or options[name] in (setting.default, [])
        else _value(adapter, name, options[name], setting)
        for name, setting in known.items()
    }


def _value(adapter: str, name: str, value: Any, setting: Setting) -> Any:
    told, make = KINDS[setting.kind]
    try:
        made = make(value)
    except (TypeError, ValueError) as error:
        raise invalid(
            f"{name} of the adapter {adapter!r} is {value!r}", f"{name} is {told}, and not empty."
        ) from error
    if setting.choices:
        for text in _chosen(made):
            if text not in setting.choices:
                raise unknown(
                    f"{name} of the adapter {adapter!r} is {text!r}", text, setting.choices, "a value"
                )
    return made


def _chosen(made: Any) -> Iterable[str]:
    if isinstance(made, dict):
        return made.values()
    return (made,) if isinstance(made, str) else tuple(made)


def unknown(what: str, name: str, known: Iterable[str], of: str) -> InvalidConfiguration:
    """Build the error for an unknown name."""
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    told = f"did you mean {near[0]!r}? It" if near else "it"
    return invalid(f"{what}, which is not {of} of it", f"{told} is one of {', '.join(names)}.")


def required(adapter: str, name: str, why: str) -> InvalidConfiguration:
    """Build the error for an option that is missing."""
    return invalid(
        f"adapter_options of {adapter!r} has no {name!r}", f"{why[0].lower()}{why[1:]}: give {name}."
    )
