"""The model that every layer shares: errors, options, watermarks. Standard library only."""

from __future__ import annotations
