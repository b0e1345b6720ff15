"""Airflow provider that moves changes from Delta table to Delta table exactly once."""

from __future__ import annotations

from delta_cdc._version import __version__

__all__ = ["__version__"]
