"""The committed pictures are what their script draws."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

_DOCS = Path(__file__).parents[3] / "docs"


def test_the_pictures_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("picture", _DOCS / "picture.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules["picture"] = script
    try:
        spec.loader.exec_module(script)
        drawn = script.pictures()
    finally:
        del sys.modules["picture"]
    assert len(drawn) == 2
    for file, text in drawn.items():
        assert file.read_text(encoding="utf-8") == text, "run python docs/picture.py"
        ET.fromstring(text)
