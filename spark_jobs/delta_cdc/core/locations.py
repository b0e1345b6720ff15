"""Return the locations that a job reads and writes, so that its Spark starts with access to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.spec import (
    ApplySpec,
    ApplyStep,
    BatchSpec,
    CareSpec,
    CommitSpec,
    EnableSpec,
    IngestSpec,
    LoadStep,
    ReadSpec,
    ResolveSpec,
    VerifySpec,
)

if TYPE_CHECKING:
    from delta_cdc.core.spec import Spec


def locations_of(spec: Spec) -> list[str]:
    """Return the locations that a job reads and writes."""
    if isinstance(spec, BatchSpec):
        return [location for part in spec.parts for location in locations_of(part)]
    if isinstance(spec, IngestSpec):
        source = [] if spec.options.source_kind == "kafka" else [spec.source_uri]
        then = [spec.after.target] if spec.after is not None else []
        return [*source, spec.log_uri, *then]
    if isinstance(spec, ApplySpec):
        staged = [
            step.staging.uri
            for step in spec.steps
            if isinstance(step, LoadStep | ApplyStep) and step.staging is not None
        ]
        return [spec.source_uri, spec.target_uri, *staged]
    if isinstance(spec, ReadSpec):
        return [spec.source_uri, spec.staging_uri]
    if isinstance(spec, CommitSpec):
        return [spec.staging_uri]
    if isinstance(spec, CareSpec):
        return [spec.table_uri]
    if isinstance(spec, VerifySpec):
        current = [spec.current.uri] if spec.current is not None else []
        return [spec.target_uri, *([spec.source_uri] if spec.source_uri is not None else []), *current]
    if isinstance(spec, ResolveSpec):
        return [target.location for target in spec.targets if target.location]
    return list(spec.tables) if isinstance(spec, EnableSpec) else []


def reads_kafka(spec: Spec) -> bool:
    """Return whether a job reads topics."""
    parts = spec.parts if isinstance(spec, BatchSpec) else (spec,)
    return any(isinstance(part, IngestSpec) and part.options.source_kind == "kafka" for part in parts)
