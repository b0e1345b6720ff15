"""One piece of work from end to end: plan, run, confirm from the written table's log, publish."""

from __future__ import annotations
