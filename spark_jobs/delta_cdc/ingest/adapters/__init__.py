"""Find the adapter that turns records of a vendor's or a user's format into events.

A user's adapter is a function ``events(record, options)`` (:mod:`delta_cdc.ingest.adapters.user`), or a
module with this function and two optional ones:

``check(options, *, keys, format, insert_only=False) -> dict``
    returns the options with their defaults, or raises :class:`~delta_cdc.core.errors.InvalidConfiguration`
``needs_rows(options) -> bool``
    returns whether records of files need their row number in the file (this has a small cost)

The planning side checks the options of the bundled adapters (:mod:`delta_cdc.core.adapters`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from delta_cdc.core import adapters
from delta_cdc.core.adapters import BUNDLED, unknown
from delta_cdc.core.errors import invalid
from delta_cdc.ingest.adapters.canal import Canal
from delta_cdc.ingest.adapters.debezium import Debezium
from delta_cdc.ingest.adapters.dms import Dms
from delta_cdc.ingest.adapters.goldengate import Goldengate
from delta_cdc.ingest.adapters.maxwell import Maxwell
from delta_cdc.ingest.adapters.mongodb import Mongodb
from delta_cdc.ingest.adapters.plain import Plain
from delta_cdc.ingest.adapters.user import User

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from delta_cdc.ingest.record import Adapter


def named(
    name: str,
    options: Mapping[str, Any],
    *,
    keys: Sequence[str],
    format: str,  # noqa: A002
    insert_only: bool = False,
    declared: Collection[str] = frozenset(),
) -> Adapter:
    """Return the adapter with a name. The last argument has the columns that ``schema`` types, in lower case.

    :param name: the name of a bundled one; or ``package.module`` with a function ``events``,
        ``package.module.function`` or ``package.module:function``
    :param options: its options, checked (:func:`check`)
    :param keys: the key columns
    :param format: the format of the records
    :param insert_only: records have no key and no order
    :raises InvalidConfiguration: no adapter has this name, or the adapter has no function for events
    """
    if name == "plain":
        return Plain(options, keys=keys, insert_only=insert_only, typed=declared)
    if name == "debezium":
        return Debezium(options, keys=keys, typed=declared)
    if name == "goldengate":
        return Goldengate(options, keys=keys, format=format)
    if name == "dms":
        return Dms(options, keys=keys)
    if name == "maxwell":
        return Maxwell(options, keys=keys)
    if name == "mongodb":
        return Mongodb(options, typed=declared)
    if name == "canal":
        return Canal(options, keys=keys)
    module, function = _find_user_function(name)
    needs = None if function != "events" else getattr(module, "needs_rows", None)
    needs_rows = bool(options.get("needs_rows") if needs is None else needs(dict(options)))
    return User(getattr(module, function), options, keys=keys, needs_rows=needs_rows)


def check(
    name: str,
    options: Mapping[str, Any],
    *,
    keys: Sequence[str],
    format: str,  # noqa: A002
    insert_only: bool = False,
) -> dict[str, Any]:
    """Return the options of an adapter with their defaults.

    :raises InvalidConfiguration: an option is wrong, or no adapter has this name
    """
    if name in BUNDLED:
        return adapters.check(name, options, keys=keys, format=format, insert_only=insert_only)
    module, function = _find_user_function(name)
    own = None if function != "events" else getattr(module, "check", None)
    if own is None:
        return dict(options)
    checked: dict[str, Any] = own(dict(options), keys=keys, format=format, insert_only=insert_only)
    return checked


# -- the user's own ---------------------------------------------------------------------------------
def _find_user_function(name: str) -> tuple[Any, str]:
    """Return the module of a user, and the name of its function."""
    if "." not in name and ":" not in name:
        raise unknown(f"adapter is {name!r}", name, BUNDLED, "the name")
    module, function = _located(name)
    if not callable(getattr(module, function, None)):
        raise invalid(
            f"adapter is {name!r}, and {module.__name__} has no function {function!r}",
            "write it as package.module.function; it takes (record, options) and returns events.",
        )
    return module, function


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
        "name a module or function that can be imported where the planning is done, on the Spark driver and "
        f"on the executors, or one of {', '.join(BUNDLED)}.",
    )
