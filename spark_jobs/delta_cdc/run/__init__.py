"""The flows: each plans its work, runs the job, confirms the commit in the written table's log, and
publishes."""

from __future__ import annotations
