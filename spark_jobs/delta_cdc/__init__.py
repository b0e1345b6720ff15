"""Change data capture between Delta tables: the engine, independent of Airflow.

``from delta_cdc import apply_changes, VersionRange, TableVersion, errors``. Names are loaded at their first
use, because this package also travels to Spark drivers and into DAG files, where imports must be cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_cdc.api.changes import apply_changes, ingest_changes, plan_changes, read_changes
    from delta_cdc.api.erase import erase_key
    from delta_cdc.api.maintain import expire_events
    from delta_cdc.api.sink import commit_watermark
    from delta_cdc.api.verify import verify_table
    from delta_cdc.api.views import PublishedTables, create_views, read_published
    from delta_cdc.api.why import explain_row
    from delta_cdc.core import errors
    from delta_cdc.core.checks import Verification
    from delta_cdc.core.publication import Publication
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import TableVersion
    from delta_cdc.core.why import Answer
    from delta_cdc.launch.session import get_session
    from delta_cdc.run.outcomes import Outcome
    from delta_cdc.run.publication import publish_versions, published
    from delta_cdc.spark.changes.queries import named_in_plan

__all__ = [
    "Answer",
    "Outcome",
    "Publication",
    "PublishedTables",
    "TableVersion",
    "Verification",
    "VersionRange",
    "apply_changes",
    "commit_watermark",
    "create_views",
    "erase_key",
    "errors",
    "expire_events",
    "explain_row",
    "get_session",
    "ingest_changes",
    "named_in_plan",
    "plan_changes",
    "publish_versions",
    "published",
    "read_changes",
    "read_published",
    "verify_table",
]

_HOME = {
    "Answer": "delta_cdc.core.why",
    "Outcome": "delta_cdc.run.outcomes",
    "Publication": "delta_cdc.core.publication",
    "PublishedTables": "delta_cdc.api.views",
    "create_views": "delta_cdc.api.views",
    "publish_versions": "delta_cdc.run.publication",
    "published": "delta_cdc.run.publication",
    "read_published": "delta_cdc.api.views",
    "Verification": "delta_cdc.core.checks",
    "VersionRange": "delta_cdc.core.versions",
    "TableVersion": "delta_cdc.core.watermark",
    "apply_changes": "delta_cdc.api.changes",
    "commit_watermark": "delta_cdc.api.sink",
    "erase_key": "delta_cdc.api.erase",
    "expire_events": "delta_cdc.api.maintain",
    "explain_row": "delta_cdc.api.why",
    "get_session": "delta_cdc.launch.session",
    "ingest_changes": "delta_cdc.api.changes",
    "named_in_plan": "delta_cdc.spark.changes.queries",
    "plan_changes": "delta_cdc.api.changes",
    "read_changes": "delta_cdc.api.changes",
    "verify_table": "delta_cdc.api.verify",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("delta_cdc.core.errors")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
