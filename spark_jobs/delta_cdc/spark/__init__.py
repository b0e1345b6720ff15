"""What runs inside Spark: reading changes, applying, ingesting, maintaining and verifying."""

from __future__ import annotations
