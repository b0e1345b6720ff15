"""Airflow provider that moves changes from Delta table to Delta table exactly once."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
