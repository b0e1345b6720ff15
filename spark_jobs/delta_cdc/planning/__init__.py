"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations
