"""Check what ruff cannot see: names the engine must not touch, because Spark Connect does not have them.

Prints one line per finding; exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parent.parent / "spark_jobs" / "delta_cdc"

#: Attributes that exist in classic mode only.
BANNED_ATTRIBUTES = {"_jvm", "_jsparkSession", "_jdf", "_sc", "sparkContext", "rdd"}
#: Airflow, because the arrows between the packages go one way; Delta's Python package, because it needs a
#: server plugin over Connect.
BANNED_PACKAGES = {"airflow", "airflow_delta_cdc", "delta"}


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


def main() -> int:
    """Check the whole engine."""
    found = [
        line
        for path in sorted(ENGINE.rglob("*.py"))
        for line in findings(path.read_text(), str(path.relative_to(ENGINE.parent.parent)))
    ]
    print("\n".join(found) or "engine: nothing that Spark Connect lacks", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
