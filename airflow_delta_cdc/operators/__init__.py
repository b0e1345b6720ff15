"""Operators. Their import loads neither Spark, nor pandas, nor the log reader."""

from __future__ import annotations

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
