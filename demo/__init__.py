"""The demo: TPC-H tables that change, the example DAGs in a real Airflow, and an independent check."""

from __future__ import annotations
