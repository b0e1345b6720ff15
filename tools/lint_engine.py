"""Check what ruff cannot see: layers and circles of engine and provider, names that Spark Connect lacks.

Prints one line per finding; exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "spark_jobs" / "delta_cdc"
PROVIDER = ROOT / "airflow_delta_cdc"

#: The layer of a module that is in no other one.
EDGE = "edge"
#: A layer is a folder, or a module beside the folders; each with the layers that it may import. What is in
#: none of them is an edge, and may import them all.
Layers = Mapping[str, tuple[str, ...]]
#: Of the engine. Edges: ``api``, ``cli``, ``config``, ``doctor`` and the modules beside them.
LAYERS: Layers = {
    "core": (),
    "delta_log": ("core",),
    "ingest": ("core",),
    "planning": ("core", "delta_log", "ingest"),
    "spark": ("core", "ingest"),
    "launch": ("core",),
    "run": ("core", "delta_log", "planning"),
}
#: Of the provider. Edges: the DAG factory, the command line and the doctor.
_BASE = ("engine", "lazy", "arguments", "failures", "masking", "compat")
_SHARED = (*_BASE, "assets", "hooks", "announced", "backup", "kafka", "metrics", "lineage", "links")
PROVIDER_LAYERS: Layers = {
    "engine": (),
    "lazy": (),
    "compat": (),
    "arguments": (),
    "retry": ("compat",),
    "failures": (),
    "masking": (),
    "approval": ("compat", "masking"),
    "form": _BASE,
    "assets": _BASE,
    "announced": (*_BASE, "assets"),
    "backup": (*_BASE, "assets"),
    "hooks": _BASE,
    "metrics": (),
    "links": (*_BASE, "assets"),
    "lineage": (*_BASE, "assets"),
    "kafka": (*_BASE, "hooks"),
    "triggers": (*_BASE, "assets", "hooks"),
    "runtime": (*_BASE, "hooks"),
    "names": _SHARED,
    "files": _SHARED,
    # These three serve operators: they import the base class of all, for types.
    "lookups": (*_SHARED, "operators", "names"),
    "jobs": (*_SHARED, "operators", "lookups"),
    "publishing": (*_SHARED, "approval", "operators", "jobs"),
    "operators": (*_SHARED, "approval", "runtime", "names", "lookups", "files", "jobs", "publishing"),
    "sensors": (*_SHARED, "names", "triggers"),
    "decorators": (*_SHARED, "runtime", "operators"),
    "groups": (*_SHARED, "approval", "operators", "jobs", "publishing", "form"),
}
#: What the provider may import of the engine where it does not go through ``airflow_delta_cdc.engine``: what
#: is cheap.
CHEAP = ("delta_cdc.core", "delta_cdc._version")
#: Attributes that exist in classic mode only.
BANNED_ATTRIBUTES = {"_jvm", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd"}
#: Airflow, because the arrows between the packages go one way; Delta's Python package, because it needs a
#: server plugin over Connect.
BANNED_PACKAGES = {"airflow", "airflow_delta_cdc", "delta"}
#: The layers that run without Spark: on workers of Airflow, and in ``delta-cdc decode``.
SPARKLESS = ("ingest", "planning")
#: The modules that may call Python's JSON parser: they have the limits. The probe imports nothing of ours.
JSON_READERS = ("delta_cdc.core.codec", "delta_cdc.ingest.records.json", "delta_cdc.doctor.probe")
_PARSES_JSON = ("json.loads", "json.load", "json.JSONDecoder", "json.decoder", "json.scanner")


def findings(source: str, name: str) -> list[str]:
    """Return one line for each banned name in a module's source.

    :param source: text of the module
    :param name: what to call the module in the lines
    """
    return [
        f"{name}:{node.lineno}: {what}"
        for node in ast.walk(ast.parse(source, name))
        if isinstance(node, ast.Attribute | ast.Import | ast.ImportFrom | ast.Call)
        for what in _banned(node)
    ]


def _banned(node: ast.Attribute | ast.Import | ast.ImportFrom | ast.Call) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [f"attribute {node.attr}"] if node.attr in BANNED_ATTRIBUTES else []
    if isinstance(node, ast.Call):
        return _banned_call(node)
    modules = (
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    )
    return [f"import of {module}" for module in modules if module.partition(".")[0] in BANNED_PACKAGES]


def _banned_call(node: ast.Call) -> list[str]:
    if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
        return []
    name = node.args[1]
    banned = isinstance(name, ast.Constant) and name.value in BANNED_ATTRIBUTES
    return [f"attribute {name.value} through getattr"] if banned and isinstance(name, ast.Constant) else []


def layer_findings(package: str, sources: dict[str, str], layers: Layers) -> list[str]:
    """Return one line for each import against the layers, and each import inside a function.

    Imports for types count, too.

    :param package: the package, whose own imports are looked at
    :param sources: text of each module by its dotted name
    :param layers: the layers of the package
    """
    found: list[str] = []
    for name, source in sources.items():
        tree = ast.parse(source, name)
        in_functions = _inside(tree, ast.FunctionDef | ast.AsyncFunctionDef)
        for node, module in _own_imports(tree, package, sources):
            where = f"{name}:{node.lineno}"
            if id(node) in in_functions:
                found.append(f"{where}: import of {module} inside a function")
            own = _layer(name, layers)
            if _layer(module, layers) not in (own, *layers.get(own, (*layers, EDGE))):
                found.append(f"{where}: {own} must not import {module}")
    return found


def spark_findings(package: str, sources: dict[str, str]) -> list[str]:
    """Return one line for each import of pyspark in a layer that runs without Spark.

    Imports for types, and imports inside functions, count, too.

    :param package: the package
    :param sources: text of each module by its dotted name
    """
    return [
        f"{name}:{node.lineno}: {_layer(name, LAYERS)} must not import {module}"
        for name, source in sources.items()
        if name.partition(".")[0] == package and _layer(name, LAYERS) in SPARKLESS
        for node, module in _own_imports(ast.parse(source, name), "pyspark", {})
    ]


def circle_findings(package: str, sources: dict[str, str]) -> list[str]:
    """Return one sentence for each circle of imports between the modules of a package.

    Imports for types count, too: modules that need each other's types cannot be understood one by one.

    :param package: the package, whose own imports are looked at
    :param sources: text of each module by its dotted name
    """
    imported = {
        name: {
            module
            for _, module in _own_imports(ast.parse(source, name), package, sources)
            if module in sources and module != name
        }
        for name, source in sources.items()
    }
    return [
        f"{', '.join(circle[:-1])} import each other in a circle ({' -> '.join(circle)}): "
        "move what they share to a module below them"
        for circle in _circles(imported)
    ]


def dear_findings(sources: dict[str, str]) -> list[str]:
    """Return one line for each import of the engine by which importing a module of the provider gets dear.

    Imports for types are never executed, and one inside a function goes round the list in
    ``airflow_delta_cdc.engine``.

    :param sources: text of each module of the provider by its dotted name
    """
    return [
        f"{name}:{node.lineno}: import of {module} beside airflow_delta_cdc.engine"
        for name, source in sources.items()
        for tree in [ast.parse(source, name)]
        for types in [_for_types(tree)]
        for node, module in _own_imports(tree, "delta_cdc", {})
        if id(node) not in types and not module.startswith(CHEAP)
    ]


def private_findings(sources: dict[str, str]) -> list[str]:
    """Return one line for each private attribute of another object that a module uses.

    Airflow's hooks and operators give no word on theirs. Our subclasses of them use their own, by ``self``.

    :param sources: text of each module by its dotted name
    """
    return [
        f"{name}:{node.lineno}: {ast.unparse(node)} is private"
        for name, source in sources.items()
        for node in ast.walk(ast.parse(source, name))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) not in ("self", "cls", "super()", "sys")
    ]


def json_findings(sources: dict[str, str]) -> list[str]:
    """Return one line for each use of Python's JSON parser outside of the module that has the limits.

    :param sources: text of each module by its dotted name
    """
    return [
        f"{name}:{node.lineno}: {what} beside delta_cdc.core.codec.parsed"
        for name, source in sources.items()
        if name not in JSON_READERS
        for node in ast.walk(ast.parse(source, name))
        for what in _json_parsers(node)
    ]


def _json_parsers(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        named = [ast.unparse(node)]
    elif isinstance(node, ast.ImportFrom):
        named = [f"{node.module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        named = [alias.name for alias in node.names]
    else:
        named = []
    return [what for what in named if what.startswith(_PARSES_JSON) and what != "json.JSONDecodeError"]


def _for_types(tree: ast.AST) -> set[int]:
    return {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }


def _inside(tree: ast.AST, kinds: type | object) -> set[int]:
    return {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, kinds)  # type: ignore[arg-type]
        for node in ast.walk(outer)
    }


def _own_imports(
    tree: ast.AST, package: str, modules: dict[str, str]
) -> list[tuple[ast.Import | ast.ImportFrom, str]]:
    found: list[tuple[ast.Import | ast.ImportFrom, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.append((node, full if full in modules else str(node.module)))
        elif isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names if alias.name.partition(".")[0] == package]
    return found


def _layer(module: str, layers: Layers) -> str:
    folder = [*module.split("."), ""][1]
    return folder if folder in layers else EDGE


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return circles of a graph, at least one for each group of modules that import each other.

    :param graph: each module with those that it imports
    :return: the modules of each circle in the order of their imports; the last one is the first one again
    """
    found: list[list[str]] = []
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in done:
            for following in sorted(graph[name]):
                walk(following, [*path, name])
            done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return found


def _sources(folder: Path) -> dict[str, str]:
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text()
        for path in sorted(folder.rglob("*.py"))
    }


def main() -> int:
    """Check the whole engine, and the layers of the provider."""
    found = [
        line
        for path in sorted(ENGINE.rglob("*.py"))
        for line in findings(path.read_text(), str(path.relative_to(ROOT)))
    ]
    provider = _sources(PROVIDER)
    engine = _sources(ENGINE)
    found += layer_findings("delta_cdc", engine, LAYERS) + circle_findings("delta_cdc", engine)
    found += spark_findings("delta_cdc", engine) + json_findings({**engine, **provider})
    found += layer_findings("airflow_delta_cdc", provider, PROVIDER_LAYERS)
    found += circle_findings("airflow_delta_cdc", provider)
    found += dear_findings(provider) + private_findings(provider)
    print(
        "\n".join(found) or "engine: layers hold, no circle, nothing that Spark Connect lacks",
        flush=True,
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
