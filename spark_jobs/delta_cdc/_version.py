"""The only definition of the version; it travels to the driver with the engine."""

from __future__ import annotations

__version__ = "0.1.0"
