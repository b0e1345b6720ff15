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
    "source", ["spark.sql('x')", "import delta_cdc.core.errors", "from pyspark.sql import SparkSession"]
)
def test_allowed(source: str) -> None:
    assert lint_engine.findings(source, "x.py") == []


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        (
            {"p.core.a": "from p.spark import b", "p.spark.b": ""},
            "p.core.a:1: core must not import p.spark.b",
        ),
        (
            {
                "p.core.a": "if TYPE_CHECKING:\n    from p.planning.b import C",
                "p.planning.b": "",
            },
            "p.core.a:2: core must not import p.planning.b",
        ),
        (
            {"p.run.a": "from p.api import b", "p.api.b": ""},
            "p.run.a:1: run must not import p.api.b",
        ),
        (
            {"p.cli.a": "def f():\n    from p.core.b import C", "p.core.b": ""},
            "p.cli.a:2: import of p.core.b inside a function",
        ),
        (
            {"p.core.a": "from p.core.b import C", "p.core.b": "import p.core.a"},
            "imports in a circle: p.core.a -> p.core.b -> p.core.a",
        ),
    ],
)
def test_what_breaks_the_layers(sources: dict[str, str], line: str) -> None:
    assert lint_engine.layer_findings("p", sources, lint_engine.LAYERS) == [line]


def test_what_keeps_the_layers() -> None:
    sources = {
        "p.core.a": "import json\nif TYPE_CHECKING:\n    from p.core.b import D",
        "p.core.b": "from p.core.a import C",
        "p.spark.c": "def f():\n    import pyspark\nfrom p.core import a",
        "p.cli": "from p.spark import c\nfrom p.config import d",
        "p.config.d": "from p.core.b import D",
    }
    assert lint_engine.layer_findings("p", sources, lint_engine.LAYERS) == []


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        (
            {"p.assets": "from p.operators.a import b", "p.operators.a": ""},
            "p.assets:1: assets must not import p.operators.a",
        ),
        (
            {"p.groups.a": "from p import dags", "p.dags": ""},
            "p.groups.a:1: groups must not import p.dags",
        ),
        (
            {"p.dags": "def f():\n    from p.groups import a", "p.groups.a": ""},
            "p.dags:2: import of p.groups.a inside a function",
        ),
    ],
)
def test_what_breaks_the_layers_of_the_provider(sources: dict[str, str], line: str) -> None:
    assert lint_engine.layer_findings("p", sources, lint_engine.PROVIDER_LAYERS) == [line]


@pytest.mark.parametrize(
    "source", ["from delta_cdc.run.apply import run_apply", "def f():\n    from delta_cdc import job"]
)
def test_the_provider_imports_what_is_dear_through_its_list_alone(source: str) -> None:
    (line,) = lint_engine.dear_findings({"airflow_delta_cdc.a": source})
    assert line.endswith(" beside airflow_delta_cdc.engine")


def test_private_attributes_of_others_are_left_alone() -> None:
    source = "class A:\n    def f(self):\n        return self._x, self.__class__, hook._conf"
    found = lint_engine.private_findings({"airflow_delta_cdc.a": source})
    assert found == ["airflow_delta_cdc.a:3: hook._conf is private"]


def test_what_the_provider_may_import_of_the_engine() -> None:
    source = (
        "from delta_cdc._version import __version__\nfrom delta_cdc.core.errors import DeltaCdcError\n"
        "if TYPE_CHECKING:\n    from delta_cdc.run.apply import run_apply"
    )
    assert lint_engine.dear_findings({"airflow_delta_cdc.a": source}) == []


@pytest.mark.slow
def test_the_rules_hold() -> None:
    assert lint_engine.main() == 0
