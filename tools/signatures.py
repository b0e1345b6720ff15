"""Write texts that follow from other texts: parameters that are options, and the engine's names.

An option is defined in ``spark_jobs/delta_cdc/core/options.py``. Editors, type checkers and Airflow's
``default_args`` read signatures as text, so this tool writes the text between two markers::

    # -- options: APPLY
    keys: Sequence[str] | str | None = None,
    # -- end

In an operator, the same name marks the assignments of the parameters. In a function, it marks the entries of
the dict of its arguments. In ``airflow_delta_cdc/engine.py``, ``# -- names`` marks the entries of ``NAMES``:
the names that the file imports for type checkers.

    python tools/signatures.py            # write
    python tools/signatures.py --check    # exit with 1 if a file is not current
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta_cdc.arguments import attributes
from delta_cdc.core import options
from delta_cdc.core.option import GROUPS, Kind, Option, kinds, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
FILES = (
    "airflow_delta_cdc/engine.py",
    "airflow_delta_cdc/operators/apply.py",
    "airflow_delta_cdc/operators/ingest.py",
    "airflow_delta_cdc/operators/read.py",
    "spark_jobs/delta_cdc/api/changes.py",
)
_REGION = re.compile(
    r"^(?P<indent> *)# -- (?P<what>options|assigned|given): (?P<table>[A-Z_]+)"
    r"(?: without (?P<left_out>[\w, ]+))?\n"
    r"(?:.*\n)*?"
    r"^ *# -- end\n",
    re.MULTILINE,
)
_NAMES = re.compile(r"^(?P<indent> *)# -- names\n(?:.*\n)*?^ *# -- end\n", re.MULTILINE)
#: Parameters whose names hide something.
_HIDING = {"format": "  # noqa: A002 - the option's name everywhere"}


def written(path: str, text: str) -> str:
    """Return the text of a file with the regions as they should be.

    :param path: of the file, which tells operators from functions
    """
    text = _REGION.sub(lambda match: _region(match, is_operator=path.startswith("airflow")), text)
    return _NAMES.sub(lambda match: _names(match["indent"], text), text)


def _names(indent: str, text: str) -> str:
    """Return the region of the names that a text imports from the engine, in the order of the imports.

    :param indent: of its lines
    """
    entries = [
        f'{indent}"{alias.asname or alias.name}": ("{node.module}", "{alias.name}"),'
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delta_cdc.")
        for alias in node.names
    ]
    return "\n".join([f"{indent}# -- names", *entries, f"{indent}# -- end", ""])


def _region(match: re.Match[str], *, is_operator: bool) -> str:
    table: Mapping[str, Option] = getattr(options, match["table"])
    left_out = {name.strip() for name in (match["left_out"] or "").split(",")}
    names = [name for name in parameters(table) if name not in left_out]
    first, *_, last = match[0].splitlines()
    if match["what"] == "assigned":
        lines = [
            f"self.{attribute} = {name}" for attribute, name in zip(attributes(names), names, strict=True)
        ]
    elif match["what"] == "given":
        lines = [f'"{name}": {name},' for name in names]
    else:
        lines = list(_parameters(table, names, is_operator=is_operator))
    return "\n".join([first, *(f"{match['indent']}{line}" for line in lines), last, ""])


def _parameters(table: Mapping[str, Option], names: list[str], *, is_operator: bool) -> Iterator[str]:
    every = kinds(table)
    for name in names:
        one = table.get(name)
        is_templated = is_operator and (name in GROUPS or (one is not None and one.templated))
        annotation = _annotation(every[name], is_templated=is_templated or name in GROUPS)
        if one is not None and one.required:
            yield f"{name}: {annotation},{_HIDING.get(name, '')}"
            continue
        default = one.default if one is not None else None
        optional = " | None" if default is None else ""
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        yield f"{name}: {annotation}{optional} = {shown},{_HIDING.get(name, '')}"


def _annotation(kind: Kind, *, is_templated: bool) -> str:
    """Return the type of a parameter; a template is a text."""
    parts = kind.annotation.split(" | ")
    return kind.annotation if not is_templated or "str" in parts else f"{kind.annotation} | str"


def main(arguments: list[str]) -> int:
    """Write or check all files."""
    stale = []
    for name in FILES:
        file = ROOT / name
        text = file.read_text(encoding="utf-8")
        current = written(name, text)
        if current == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            file.write_text(current, encoding="utf-8")
    print(f"signatures: {', '.join(stale) or 'all current'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
