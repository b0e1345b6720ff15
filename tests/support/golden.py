"""Golden files: readable files under ``tests/golden`` that hold what the code makes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "golden"
UPDATE = "UPDATE_GOLDEN"
#: What differs between two runs or two machines, and what the files hold instead.
_UNSTABLE = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<hash>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r'"changed \d+"'), '"changed <time>"'),
    (re.compile(r'("timestamp": )"[^"]*"'), r'\1"<time>"'),
    (re.compile(r'("(?:seconds|work|start)": )(?:\{[^{}]*\}|[\d.]+(?:e-\d+)?)'), r'\1"<seconds>"'),
)


def stable(text: str, folder: Path) -> str:
    """Return a text without the path of the test's folder, without hashes, random ids and the time."""
    text = text.replace(str(folder), "/lake")
    for pattern, instead in _UNSTABLE:
        text = pattern.sub(instead, text)
    return text


def as_json(value: Any, folder: Path) -> str:
    """Return a value as a golden file holds it: JSON with sorted keys, :func:`stable`."""
    return stable(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False), folder) + "\n"


def check(name: str, text: str) -> None:
    """Compare a text with a golden file; where ``UPDATE_GOLDEN=1`` is set, write the file instead.

    :param name: of the file, inside of ``tests/golden``
    """
    file = FOLDER / name
    if os.environ.get(UPDATE) == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    known = file.read_text(encoding="utf-8") if file.exists() else ""
    assert text == known, f"{file.name} differs; if the change is meant, run again with {UPDATE}=1"
