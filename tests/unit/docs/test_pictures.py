"""The committed pictures are what their code draws, their text is legible, and plots have the figures."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_DOCS = Path(__file__).parents[3] / "docs"
_FOLDER = _DOCS / "pictures"
_PICTURES = sorted(_FOLDER.glob("*.svg"))
_MODULES = ("canvas", "diagrams", "plots", "files")


@pytest.fixture(scope="module")
def code() -> Iterator[dict[str, ModuleType]]:
    """The modules of ``docs/pictures``, which find each other beside them."""
    sys.path.insert(0, str(_FOLDER))
    try:
        yield {name: import_module(name) for name in _MODULES}
    finally:
        sys.path.remove(str(_FOLDER))
        for name in _MODULES:
            sys.modules.pop(name, None)


def test_the_files_are_up_to_date(code: dict[str, ModuleType]) -> None:
    written = code["files"].files()
    for file, text in written.items():
        assert file.read_text(encoding="utf-8") == text, "run python docs/pictures"
    assert sorted(file for file in written if file.suffix == ".svg") == _PICTURES


@pytest.mark.parametrize("file", _PICTURES, ids=lambda file: file.stem)
def test_the_text_of_a_picture_lies_inside(file: Path) -> None:
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert len(texts) > 3
    for one in texts:
        look = one.get("class", "")
        # As wide as a wide font has it.
        letter = 0.61 if "mono" in look else 0.58 if "bold" in look else 0.54
        size = float(one.attrib["font-size"])
        width = letter * size * len(one.text or "")
        x = (
            float(one.attrib["x"])
            - {"start": 0, "middle": 0.5, "end": 1}[one.get("text-anchor", "start")] * width
        )
        assert size >= 14
        assert x > 0, one.text
        assert x + width < float(root.attrib["width"]), one.text
        assert 0 < float(one.attrib["y"]) < float(root.attrib["height"]) - 8, one.text


@pytest.mark.parametrize("theme", ["LIGHT", "DARK"])
def test_text_has_contrast(code: dict[str, ModuleType], theme: str) -> None:
    """At least 4.5, as the guidelines for accessible web content require."""
    colours = getattr(code["canvas"], theme)
    for ground in (colours.ground, *(fill for fill, _ in colours.boxes.values())):
        for text in (colours.ink, colours.soft):
            lighter, darker = sorted((_luminance(ground), _luminance(text)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (ground, text)


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_picture_is_on_a_page_and_described() -> None:
    shown = set()
    for page in _DOCS.rglob("*.md"):
        for alt, link in re.findall(r"!\[([^\]]*)\]\((\S+)\)", page.read_text(encoding="utf-8")):
            assert len(alt) > 10, f"{page.name}: {link}"
            shown.add((page.parent / link).resolve())
    assert set(_PICTURES) <= shown


_PAGE = """## Groups: one application for many tables

| arm | what it is |
|---|---|
| group | a look |

<!-- figures of benchmarks/group.py: begin -->
| changed tables | applications | group, s | each, s |
|---|---|---|---|
| 10 of 65 | 1, 10 | 40.0 | 1,180.5 |
| 3 of 65 | 1, 3 | 20.0 | 60.0, 50.0 |
<!-- figures of benchmarks/group.py: end -->

## The first MERGE
"""


def test_a_plot_has_the_figures_of_the_table(code: dict[str, ModuleType]) -> None:
    plot = code["plots"].group(_PAGE)
    assert plot.figures == (
        "3 of 65 tables have changed: Delta CDC (one for all) 20, one for each 55; "
        "10 of 65 tables have changed: Delta CDC (one for all) 40, one for each 1,180"
    )
    assert ">1,180<" in plot.svg()


def test_a_table_that_is_not_there_is_an_error(code: dict[str, ModuleType]) -> None:
    with pytest.raises(LookupError, match="The first MERGE"):
        code["plots"].start(_PAGE)


@pytest.mark.parametrize(
    ("cell", "figure"),
    [
        ("1,503", 1503.0),
        ("32 ms, **1 request**", 32.0),
        ("0.16 (0.12 – 0.21)", 0.16),
        ("162.5, 190.7", 176.6),
    ],
)
def test_the_figure_of_a_cell(code: dict[str, ModuleType], cell: str, figure: float) -> None:
    assert code["plots"].number(cell) == pytest.approx(figure)
