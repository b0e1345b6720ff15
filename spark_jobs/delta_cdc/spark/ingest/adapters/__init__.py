"""Find the adapter that converts records of a vendor's or a custom format to events of the change log.

A custom adapter is a function ``events(records, context)`` that returns the events
(:mod:`delta_cdc.core.change_log`), or a module with this function and two optional functions:

``check(options, *, keys, format, insert_only=False) -> dict``
    returns the options with their defaults, or raises :class:`~delta_cdc.core.errors.InvalidConfiguration`
``needs_rows(options) -> bool``
    returns whether records of files need their row number in the file (this has a small cost)

The planning side checks the options of the bundled adapters (:mod:`delta_cdc.core.adapters`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from delta_cdc.core import adapters
from delta_cdc.core.adapters import BUNDLED, unknown
from delta_cdc.core.validation import invalid
from delta_cdc.spark.ingest.adapters import debezium, dms, goldengate, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.change_log import Context

_EVENTS = {
    "plain": plain.events,
    "debezium": debezium.events,
    "dms": dms.events,
    "goldengate": goldengate.events,
}


@dataclass(frozen=True)
class Adapter:
    """An adapter.

    :param check: completes the user's options
    :param needs_rows: whether ``_position.row`` must be filled for files
    :param events: converts records to events
    """

    check: Callable[..., dict[str, Any]]
    needs_rows: Callable[[dict[str, Any]], bool]
    events: Callable[[DataFrame, Context], DataFrame]


def named(name: str) -> Adapter:
    """Return the adapter with a name.

    :param name: ``plain``, ``debezium``, ``dms``, ``goldengate``; or ``package.module`` with a function
        ``events``, ``package.module.function`` or ``package.module:function``
    :raises InvalidConfiguration: no adapter has this name, or the adapter has no function for events
    """
    if name in BUNDLED:
        return Adapter(partial(adapters.check, name), partial(adapters.needs_rows, name), _EVENTS[name])
    if "." not in name and ":" not in name:
        raise unknown(f"adapter is {name!r}", name, BUNDLED, "the name")
    return _adapter_of(name, *_located(name))


def _located(name: str) -> tuple[Any, str]:
    """Import a module of the user. Return the module and the name of its function."""
    module, _, function = name.partition(":")
    if function:
        return _imported(name, module), function
    try:
        return importlib.import_module(name), "events"
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error
    module, _, function = name.rpartition(".")
    return _imported(name, module), function


def _imported(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> Exception:
    return invalid(
        f"adapter is {name!r}, which cannot be imported ({type(error).__name__}: {error})",
        "name a module or function that can be imported where the planning is done and on the Spark driver, "
        f"or one of {', '.join(BUNDLED)}.",
    )


def _adapter_of(name: str, module: Any, function: str) -> Adapter:
    events = getattr(module, function, None)
    if not callable(events):
        raise invalid(
            f"adapter is {name!r}, and {module.__name__} has no function {function!r}",
            "write it as package.module.function; it takes (records, context) and returns events.",
        )
    is_function = function != "events"
    return Adapter(
        _unchanged if is_function else getattr(module, "check", _unchanged),
        _no_rows if is_function else getattr(module, "needs_rows", _no_rows),
        events,
    )


def _unchanged(options: dict[str, Any], **_: Any) -> dict[str, Any]:
    return dict(options)


def _no_rows(options: dict[str, Any]) -> bool:
    """Return the option ``needs_rows``, for an adapter without a function ``needs_rows``."""
    return bool(options.get("needs_rows"))
