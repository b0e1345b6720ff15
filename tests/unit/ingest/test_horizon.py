"""A lateness horizon that maintenance moves while a batch is planned: what is late is judged anew."""

from __future__ import annotations

from dataclasses import replace

from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.spark.ingest.engine import _other_horizon
from delta_cdc.spark.sealed.commit import TableState
from tests.unit.airflow.test_operator_storage import ingest_spec


def seen(**properties: str) -> TableState:
    return TableState("id", 3, is_laid_out=False, properties=properties)


def test_a_horizon_that_moved_since_planning() -> None:
    spec = ingest_spec("/landing", "/log")
    assert _other_horizon(spec, seen()) is None
    assert "from None to 30" in str(_other_horizon(spec, seen(**{LATENESS_HORIZON: "30"})))
    planned = replace(spec, horizon="30")
    assert _other_horizon(planned, seen(**{LATENESS_HORIZON: "30"})) is None
    assert "from 30 to 40" in str(_other_horizon(planned, seen(**{LATENESS_HORIZON: "40"})))
    assert "from 30 to None" in str(_other_horizon(planned, seen()))
