"""Sensors."""

from __future__ import annotations

from airflow_delta_cdc.sensors.version import DeltaVersionSensor

__all__ = ["DeltaVersionSensor"]
