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


@pytest.mark.parametrize(
    "source",
    [
        "json.loads('1')",
        "map(json.loads, texts)",
        "json.load(file)",
        "json.JSONDecoder()",
        "from json import loads",
        "import json.scanner",
        "def f():\n    from json.decoder import JSONDecoder",
    ],
)
def test_one_module_parses_json(source: str) -> None:
    assert len(lint_engine.json_findings({"p.core.a": source})) == 1
    assert lint_engine.json_findings(dict.fromkeys(lint_engine.JSON_READERS, source)) == []
    assert lint_engine.json_findings({"p.core.a": "import json\njson.dumps(1)\njson.JSONDecodeError"}) == []


@pytest.mark.slow
def test_the_rules_hold() -> None:
    assert lint_engine.main() == 0
