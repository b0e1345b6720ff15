"""The lint of the engine finds what it is there to find."""

from __future__ import annotations

import pytest

from tools import lint_engine


@pytest.mark.parametrize(
    "source",
    [
        "spark._jvm.x()",
        "spark.sparkContext",
        "frame._jsparkSession",
        "getattr(spark, '_jvm')",
        "from delta.tables import DeltaTable",
        "import airflow.sdk",
        "from airflow_delta_cdc import operators",
        "def f():\n    import delta",
    ],
)
def test_banned(source: str) -> None:
    assert len(lint_engine.findings(source, "x.py")) == 1


@pytest.mark.parametrize(
    "source", ["spark.sql('x')", "import delta_cdc.errors", "from pyspark.sql import SparkSession"]
)
def test_allowed(source: str) -> None:
    assert lint_engine.findings(source, "x.py") == []
