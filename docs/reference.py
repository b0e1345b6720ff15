"""Write ``docs/operators.md`` from the docstrings of the operators and sensors, and from the options' schema.

Run ``python docs/reference.py`` after a change of a docstring or an option, and commit both; a test
compares them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from delta_cdc.core.option_schema import APPLY, INGEST, READ, Option

TARGET = Path(__file__).parent / "operators.md"

_HEAD = """# Operators and sensors

Made by `docs/reference.py` from the docstrings and from `delta_cdc.core.option_schema`; edit those.

`${ENV}` in a path is filled in from the environment. Parameters marked *templated* take Jinja. For numbers,
an empty text and `None` mean "not given", so `"{{ params.ending_version }}"` works with an empty form field.
"""
#: Whose parameters are options.
_OPTIONS = {
    "DeltaApplyChangesOperator": APPLY,
    "DeltaIngestChangesOperator": INGEST,
    "DeltaReadChangesOperator": READ,
}
_PARAM = re.compile(r"^:param (\w+): (.*)$")


def classes() -> list[type]:
    """Return the public operators and sensors, and the base they share."""
    from airflow_delta_cdc import operators, sensors
    from airflow_delta_cdc.operators.base import DeltaCdcOperator

    public = [getattr(operators, name) for name in operators.__all__]
    return [*public, *(getattr(sensors, name) for name in sensors.__all__), DeltaCdcOperator]


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return a constructor's own parameters by name, without ``self`` and ``kwargs``."""
    # Airflow wraps every operator's constructor.
    found = inspect.signature(inspect.unwrap(cls.__init__)).parameters  # type: ignore[misc]
    return {name: p for name, p in found.items() if name not in ("self", "kwargs")}


def described(cls: type) -> tuple[str, dict[str, str], list[str]]:
    """Return a class's docstring as text, parameters by name, and errors."""
    text: list[str] = []
    fields: list[str] = []
    for line in (inspect.getdoc(cls) or "").splitlines():
        if line.startswith(":"):
            fields.append(line)
        elif fields:
            fields[-1] += " " + line.strip()
        else:
            text.append(line)
    params = {m[1]: m[2].strip() for m in map(_PARAM.match, fields) if m}
    raised = [line.removeprefix(":raises ").strip() for line in fields if line.startswith(":raises ")]
    options = _OPTIONS.get(cls.__name__, {})
    meanings = {name: _meaning(options[name]) for name in parameters(cls) if name in options} | params
    return "\n".join(text).strip(), meanings, raised


def _meaning(option: Option) -> str:
    return f"{option.doc}{' (templated)' if option.templated else ''}"


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(_section(cls) for cls in classes())])


def _section(cls: type) -> str:
    text, params, raised = described(cls)
    constructor = parameters(cls)
    title = "Common to all operators" if cls.__name__ == "DeltaCdcOperator" else f"{cls.__name__}"
    rows = [
        f"| `{name}` | {_default(constructor.get(name))} | {_markdown(meaning)} |"
        for name, meaning in params.items()
        if name != "kwargs"
    ]
    more = [f"\nFurther arguments: {_markdown(params['kwargs'])}."] if "kwargs" in params else []
    errors = [f"- {_error(line)}" for line in raised]
    lines = [
        f"## {title}\n",
        f"`from {_home(cls)} import {cls.__name__}`\n",
        _markdown(text),
        "\n| parameter | default | meaning |",
        "|---|---|---|",
        *rows,
        *more,
        *(["\nErrors:\n", *errors] if errors else []),
    ]
    return "\n".join(lines) + "\n"


def _home(cls: type) -> str:
    return cls.__module__ if cls.__name__ == "DeltaCdcOperator" else cls.__module__.rpartition(".")[0]


def _default(parameter: inspect.Parameter | None) -> str:
    """Return a default as code; empty if there is no default, or if it is taken from elsewhere."""
    if parameter is None:
        return ""
    if parameter.default is inspect.Parameter.empty:
        return "required"
    value: Any = parameter.default
    return f"`{value!r}`"


def _error(line: str) -> str:
    name, _, meaning = line.partition(": ")
    return f"`{name}`: {_markdown(meaning)}"


def _markdown(text: str) -> str:
    text = re.sub(r":(?:class|func|meth|data|mod):`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`").replace("|", "\\|")
    return text.replace("(templated)", "*(templated)*")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
