"""Plans which versions to move, and how: all decisions before Spark starts, from the logs alone."""

from __future__ import annotations
