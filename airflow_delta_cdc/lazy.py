"""Modules of the provider that only a run needs: the parsing of a DAG file must not load them.

A module that uses one of them imports it for type checkers, and gets a :class:`Lazy` at run time::

    if TYPE_CHECKING:
        from airflow_delta_cdc import publishing
    else:
        publishing = Lazy("airflow_delta_cdc.publishing")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is loaded when one of its attributes is used.

    :param module: its dotted name
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)
