"""SVG parts that all pictures share: colours for light and dark pages, text, boxes, arrows.

A picture is 640 wide with text of 14 or more, so that a phone shows it readably. It has its own ground,
because a page may be dark where the reader's system is light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 640
#: From the picture's edge to its content.
MARGIN = 16

#: What a colour stands for: Airflow, Delta tables, Spark, a fourth thing, anything else.
Colour = Literal["airflow", "delta", "spark", "other", "plain"]


@dataclass(frozen=True)
class Theme:
    """The colours of a light or a dark picture.

    :param edge: of the picture
    :param ink: of text
    :param soft: of less important text, and of lines
    :param boxes: fill and edge of each colour
    """

    ground: str
    edge: str
    ink: str
    soft: str
    boxes: dict[Colour, tuple[str, str]]

    def rules(self) -> list[str]:
        """Return the theme as CSS."""
        return [
            f".ground {{ fill: {self.ground}; stroke: {self.edge} }}",
            f"text {{ fill: {self.ink} }}",
            f".soft, .tip {{ fill: {self.soft} }}",
            f".arrow, .line {{ stroke: {self.soft} }}",
            *(f".{name} {{ fill: {fill}; stroke: {edge} }}" for name, (fill, edge) in self.boxes.items()),
            *(f".{name}-bar {{ fill: {edge} }}" for name, (_, edge) in self.boxes.items()),
        ]


LIGHT = Theme(
    *("#ffffff", "#c5cdd5", "#1a232c", "#4a5865"),
    boxes={
        "airflow": ("#e3eefb", "#4f82bd"),
        "delta": ("#e1f3e6", "#4f9a66"),
        "spark": ("#fdecd8", "#c07a28"),
        "other": ("#f0e6fa", "#8f6bbd"),
        "plain": ("#f3f5f7", "#8a96a3"),
    },
)
DARK = Theme(
    *("#14181e", "#3c4650", "#e8edf2", "#b3bfca"),
    boxes={
        "airflow": ("#1d3a5c", "#6ea3de"),
        "delta": ("#1c4029", "#6bbd84"),
        "spark": ("#4f3413", "#dda15a"),
        "other": ("#3b2757", "#b294dc"),
        "plain": ("#2a323b", "#8593a1"),
    },
)
_SANS = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def _style() -> str:
    return "\n".join(
        [
            "<style>",
            f"text {{ font-family: {_SANS} }}",
            f".mono {{ font-family: {_MONO} }}",
            ".bold { font-weight: 600 }",
            ".arrow, .line { fill: none; stroke-width: 1.6 }",
            ".dashed { stroke-dasharray: 5 4 }",
            *LIGHT.rules(),
            "@media (prefers-color-scheme: dark) {",
            *DARK.rules(),
            "}",
            "</style>",
        ]
    )


def text(x: float, y: float, content: str, look: str = "", *, size: float = 15, anchor: str = "start") -> str:
    """Return a line of text.

    :param y: of its baseline
    :param look: classes: ``bold``, ``mono``, ``soft``
    :param anchor: which part of the text lies at ``x``: ``start``, ``middle`` or ``end``
    """
    # Renderers differ in what they do with several spaces.
    content = content.replace("  ", "\u00a0\u00a0").replace("\u00a0 ", "\u00a0\u00a0")
    named = f' class="{look}"' if look else ""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{named}{placed}>{escape(content)}</text>'


def rectangle(x: float, y: float, width: float, height: float, look: str, *, radius: float = 8) -> str:
    """Return a rectangle.

    :param look: a colour, ``COLOUR-bar`` for its strong tone without an edge, or ``ground``; and ``dashed``
    """
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{look}"/>'


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    title: str,
    lines: Sequence[str],
    colour: Colour,
    *,
    mono: bool = False,
) -> str:
    """Return a titled box with lines of text.

    :param mono: the lines in the fixed-width font
    """
    look, size = ("soft mono", 14) if mono else ("soft", 15)
    written = [text(x + 14, y + 50 + 21 * at, line, look, size=size) for at, line in enumerate(lines) if line]
    return "\n".join(
        [rectangle(x, y, width, height, colour), text(x + 14, y + 26, title, "bold", size=16), *written]
    )


def line(points: Iterable[tuple[float, float]], *, look: str = "line") -> str:
    """Return a line from point to point."""
    path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
    tip = ' marker-end="url(#tip)"' if "arrow" in look else ""
    return f'<path d="{path}" class="{look}"{tip}/>'


def arrow(points: Iterable[tuple[float, float]], *, dashed: bool = False) -> str:
    """Return an arrow from point to point.

    :param dashed: it shows what is read from a log, or copied, and not a way of rows
    """
    return line(points, look="arrow dashed" if dashed else "arrow")


def picture(title: str, height: float, parts: Iterable[str]) -> str:
    """Return a whole SVG file.

    :param title: what it shows, for readers that do not see it
    """
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
                f'width="{WIDTH}" height="{height:g}" role="img">'
            ),
            f"<title>{escape(title)}</title>",
            _style(),
            (
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" class="tip"/></marker></defs>'
            ),
            rectangle(0.5, 0.5, WIDTH - 1, height - 1, "ground", radius=12),
            *parts,
            "</svg>",
            "",
        ]
    )
