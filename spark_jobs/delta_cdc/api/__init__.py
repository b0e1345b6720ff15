"""The engine as functions, for a plain PySpark session with Delta."""

from __future__ import annotations
