"""Operators, each loaded at first use. Their import loads neither Spark, nor pandas, nor the log reader."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta_cdc.operators.apply import DeltaApplyChangesOperator
    from airflow_delta_cdc.operators.commit import DeltaCommitWatermarkOperator
    from airflow_delta_cdc.operators.enable import DeltaEnableChangeDataFeedOperator
    from airflow_delta_cdc.operators.erase import DeltaEraseOperator
    from airflow_delta_cdc.operators.expire import DeltaExpireEventsOperator
    from airflow_delta_cdc.operators.ingest import DeltaIngestChangesOperator
    from airflow_delta_cdc.operators.optimize import DeltaOptimizeOperator
    from airflow_delta_cdc.operators.read import DeltaReadChangesOperator
    from airflow_delta_cdc.operators.vacuum import DeltaVacuumOperator
    from airflow_delta_cdc.operators.verify import DeltaVerifyOperator
    from airflow_delta_cdc.operators.why import DeltaWhyOperator

#: The module of each operator. A DAG file names few of them, and is parsed every few seconds.
_MODULES = {
    "DeltaApplyChangesOperator": "apply",
    "DeltaCommitWatermarkOperator": "commit",
    "DeltaEnableChangeDataFeedOperator": "enable",
    "DeltaEraseOperator": "erase",
    "DeltaExpireEventsOperator": "expire",
    "DeltaIngestChangesOperator": "ingest",
    "DeltaOptimizeOperator": "optimize",
    "DeltaReadChangesOperator": "read",
    "DeltaVacuumOperator": "vacuum",
    "DeltaVerifyOperator": "verify",
    "DeltaWhyOperator": "why",
}

__all__ = [
    "DeltaApplyChangesOperator",
    "DeltaCommitWatermarkOperator",
    "DeltaEnableChangeDataFeedOperator",
    "DeltaEraseOperator",
    "DeltaExpireEventsOperator",
    "DeltaIngestChangesOperator",
    "DeltaOptimizeOperator",
    "DeltaReadChangesOperator",
    "DeltaVacuumOperator",
    "DeltaVerifyOperator",
    "DeltaWhyOperator",
]

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name):
        """Return an operator."""
        if name not in _MODULES:
            raise AttributeError(f"{__name__} has no {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
