"""Faster constructors of frozen dataclasses, with the same results.

Python's own one calls ``object.__setattr__`` for each field, and a world makes thousands of values of forty
fields. Only the command replaces them, for the life of its process; tests keep Python's.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, is_dataclass
from typing import Any

#: The values that a constructor gets if a field with a factory is left out.
_LEFT_OUT: Any = object()
#: How dataclasses names the constructors that it makes.
_MADE = "__create_fn__.<locals>.__init__"
_PACKAGES = ("delta_cdc", "tests.simulator")


def replace_constructors() -> int:
    """Replace the constructors of all frozen dataclasses that are loaded; return their number."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_PACKAGES)]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    replaced = [cls for cls in found if is_plain(cls)]
    for cls in replaced:
        cls.__init__ = constructor_of(cls)  # type: ignore[misc]
    return len(replaced)


def is_plain(cls: type) -> bool:
    """Return whether a class is a frozen dataclass with its fields in ``__dict__``, all of them arguments."""
    if not is_dataclass(cls) or "__slots__" in vars(cls) or "__init__" not in vars(cls):
        return False
    frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    kinds = {str(one._field_type) for one in cls.__dataclass_fields__.values()}  # type: ignore[attr-defined]
    is_made = cls.__init__.__code__.co_qualname == _MADE  # type: ignore[misc]
    given = all(one.init for one in cls.__dataclass_fields__.values())
    return bool(frozen) and is_made and given and not any("INITVAR" in kind for kind in kinds)


def constructor_of(cls: Any) -> Any:
    """Return a constructor that takes and checks the same arguments, and makes the same values."""
    fields: list[Field[Any]] = [
        one for one in cls.__dataclass_fields__.values() if "CLASSVAR" not in str(one._field_type)
    ]
    names: dict[str, Any] = {"_set": object.__setattr__, "_left_out": _LEFT_OUT}
    plain, by_keyword, values = [], [], []
    for one in fields:
        name = one.name
        argument, value = name, name
        if one.default is not MISSING:
            names[f"_default_{name}"] = one.default
            argument = f"{name}=_default_{name}"
        elif one.default_factory is not MISSING:
            names[f"_made_{name}"] = one.default_factory
            argument = f"{name}=_left_out"
            value = f"_made_{name}() if {name} is _left_out else {name}"
        (by_keyword if one.kw_only else plain).append(argument)
        values.append(f"{name!r}: {value}")
    arguments = ", ".join(["self", *plain, *(["*", *by_keyword] if by_keyword else [])])
    after = "\n    self.__post_init__()" if hasattr(cls, "__post_init__") else ""
    text = f"def __init__({arguments}):\n    _set(self, '__dict__', {{{', '.join(values)}}}){after}\n"
    exec(text, names)
    return names["__init__"]
