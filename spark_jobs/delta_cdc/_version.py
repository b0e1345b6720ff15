"""The one place the version is written down; it travels to the driver with the engine."""

from __future__ import annotations

__version__ = "0.1.0"
