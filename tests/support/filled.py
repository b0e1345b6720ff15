"""Targets that hold their source already, made without Spark: rows, seal and all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from delta_cdc.core import validation
from delta_cdc.core.spec import ApplySpec, new_seal
from delta_cdc.core.watermark import app_id
from delta_cdc.planning.apply import plan_apply
from delta_cdc.run.table_arguments import requests
from tests.support.logs import state_after

if TYPE_CHECKING:
    from collections.abc import Mapping


def fill(arguments: Mapping[str, Any]) -> None:
    """Load the target of a table (SCD type 1, rows as they are) from its source, as an apply does.

    If the target exists, apply the rows that were appended to the source since.
    """
    _, request = requests(arguments, run_id="filled")
    assert request is not None
    spec = plan_apply(request).spec
    assert isinstance(spec, ApplySpec)
    (step,) = spec.steps
    state = state_after(step, validation.described(replace(spec.options)))
    rows = DeltaTable(request.source).to_pyarrow_table()
    if step.kind == "apply":
        rows = rows.join(DeltaTable(request.target).to_pyarrow_table(), keys=["id"], join_type="left anti")
    versions = (step.starting_version, step.ending_version)
    counts = {"changes": rows.num_rows}
    seal = new_seal(spec, step, state, kind=step.kind, versions=versions, counts=counts)
    write_deltalake(
        request.target,
        rows,
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": seal.to_json()},
            app_transactions=[Transaction(app_id(spec.pipeline), seal.number)],
        ),
    )
