"""Change data capture between Delta tables: everything that is true without Airflow.

``from delta_cdc import apply_changes, VersionRange, Watermark, errors``. Names are loaded when they are first
used, because this package also travels to Spark drivers and into DAG files, where imports must cost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_cdc import errors
    from delta_cdc.api import apply_changes, ingest_changes, plan_changes, read_changes
    from delta_cdc.changes.queries import named_in_plan
    from delta_cdc.flow import ApplyResult, IngestResult
    from delta_cdc.maintain.api import expire_events
    from delta_cdc.sink import commit_watermark
    from delta_cdc.verify.api import verify_table
    from delta_cdc.verify.flow import Verification
    from delta_cdc.versions import VersionRange
    from delta_cdc.watermark import Watermark

__all__ = [
    "ApplyResult",
    "IngestResult",
    "Verification",
    "VersionRange",
    "Watermark",
    "apply_changes",
    "commit_watermark",
    "errors",
    "expire_events",
    "ingest_changes",
    "named_in_plan",
    "plan_changes",
    "read_changes",
    "verify_table",
]

_HOME = {
    "ApplyResult": "delta_cdc.flow",
    "IngestResult": "delta_cdc.flow",
    "Verification": "delta_cdc.verify.flow",
    "VersionRange": "delta_cdc.versions",
    "Watermark": "delta_cdc.watermark",
    "apply_changes": "delta_cdc.api",
    "commit_watermark": "delta_cdc.sink",
    "expire_events": "delta_cdc.maintain.api",
    "ingest_changes": "delta_cdc.api",
    "named_in_plan": "delta_cdc.changes.queries",
    "plan_changes": "delta_cdc.api",
    "read_changes": "delta_cdc.api",
    "verify_table": "delta_cdc.verify.api",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("delta_cdc.errors")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
