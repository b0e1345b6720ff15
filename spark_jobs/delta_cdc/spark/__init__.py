"""Jobs that run inside Spark: read changes, apply, ingest, maintain and verify."""

from __future__ import annotations
