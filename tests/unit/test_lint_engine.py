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


_FOR_TYPES = "if TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    ("module", "source", "other", "line"),
    [
        ("core.a", "from p.spark import b", "spark.b", "1: core must not import p.spark.b"),
        (
            "core.a",
            f"{_FOR_TYPES}from p.planning.b import C",
            "planning.b",
            "2: core must not import p.planning.b",
        ),
        ("run.a", "from p.api import b", "api.b", "1: run must not import p.api.b"),
        (
            "cli.a",
            "def f():\n    from p.core.b import C",
            "core.b",
            "2: import of p.core.b inside a function",
        ),
    ],
)
def test_what_breaks_the_layers(module: str, source: str, other: str, line: str) -> None:
    sources = {f"p.{module}": source, f"p.{other}": ""}
    assert lint_engine.layer_findings("p", sources, lint_engine.LAYERS) == [f"p.{module}:{line}"]


@pytest.mark.parametrize("layer", ["ingest", "planning"])
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("from pyspark.sql import functions as F", "1: {} must not import pyspark.sql"),
        ("import pyspark", "1: {} must not import pyspark"),
        ("def f():\n    import pyspark.sql", "2: {} must not import pyspark.sql"),
        (f"{_FOR_TYPES}from pyspark.sql import SparkSession", "2: {} must not import pyspark.sql"),
    ],
)
def test_layers_without_spark(layer: str, source: str, line: str) -> None:
    found = lint_engine.spark_findings("p", {f"p.{layer}.a": source, "p.spark.b": source, "p.c": source})
    assert found == [f"p.{layer}.a:{line.format(layer)}"]


@pytest.mark.parametrize(
    ("sources", "modules"),
    [
        ({"p.a": "from p.b import C", "p.b": "import p.a"}, ["p.a", "p.b"]),
        ({"p.a": "from p import b", "p.b": "from p.a import C"}, ["p.a", "p.b"]),
        ({"p.a": "from p.b import C", "p.b": _FOR_TYPES + "from p.a import D"}, ["p.a", "p.b"]),
        (
            {"p.a": "from p.b import C", "p.b": "import p.c", "p.c": _FOR_TYPES + "from p import a"},
            ["p.a", "p.b", "p.c"],
        ),
        ({"p": "from p.a import C", "p.a": _FOR_TYPES + "from p import D"}, ["p", "p.a"]),
        ({"p.z": "import p.a", "p.a": "import p.b", "p.b": "import p.a"}, ["p.a", "p.b"]),
    ],
)
def test_a_circle_is_found_and_its_modules_are_named(sources: dict[str, str], modules: list[str]) -> None:
    (line,) = lint_engine.circle_findings("p", sources)
    circle = " -> ".join([*modules, modules[0]])
    assert line.startswith(f"{', '.join(modules)} import each other in a circle ({circle}): ")


def test_no_circle_and_two() -> None:
    none = {
        "p.a": "from p import b, c",
        "p.b": "import p.c\nimport q",
        "p.c": "import p.c",
        "q": "import p.a",
    }
    assert lint_engine.circle_findings("p", none) == []
    two = {"p.a": "import p.b", "p.b": "import p.a\nimport p.c", "p.c": "import p.d", "p.d": "import p.c"}
    assert len(lint_engine.circle_findings("p", two)) == 2


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
