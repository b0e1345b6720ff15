"""Draw ``docs/overview.svg``: the way of one change from source to target.

Run ``python docs/picture.py`` after a change here, and commit both files; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

TARGET = Path(__file__).parent / "overview.svg"

_WIDTH, _HEIGHT = 960, 396
_INK, _SOFT, _LINE = "#1f2933", "#52606d", "#9aa5b1"
_FONT = "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\""
_MONO = "font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\""


@dataclass(frozen=True)
class Box:
    """A titled box with lines of text.

    :param mono: lines in the fixed-width font
    """

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...]
    fill: str
    edge: str
    mono: bool = False

    def draw(self) -> str:
        """Return the box as SVG."""
        parts = [
            (
                f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="8" '
                f'fill="{self.fill}" stroke="{self.edge}" stroke-width="1.5"/>'
            ),
            _text(self.x + 14, self.y + 26, self.title, size=15, weight=600),
        ]
        step = 18
        parts += [
            _text(self.x + 14, self.y + 48 + step * i, line, size=12.5, colour=_SOFT, mono=self.mono)
            for i, line in enumerate(self.lines)
        ]
        return "\n".join(parts)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    weight: int = 400,
    colour: str = _INK,
    mono: bool = False,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}" xml:space="preserve" {_MONO if mono else _FONT}>{escape(text)}</text>'
    )


def _arrow(points: list[tuple[int, int]], *, dashed: bool = False) -> str:
    path = "M" + " L".join(f"{x},{y}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{_SOFT}" stroke-width="1.6"{dash} marker-end="url(#tip)"/>'


def picture() -> str:
    """Return the whole SVG."""
    airflow = ("#eaf2fb", "#7ea6d4")
    delta = ("#e9f6ec", "#79b58a")
    spark = ("#fdf1e3", "#dca869")
    boxes = [
        Box(
            20,
            150,
            200,
            116,
            "Source table",
            ("v5  insert  #81", "v6  update  #17", "v7  delete  #42"),
            *delta,
            True,
        ),
        Box(
            740,
            150,
            200,
            116,
            "Target table",
            ("SCD type 1 or 2", "", "v3  rows", "    + watermark: v7"),
            *delta,
            True,
        ),
        Box(
            300,
            20,
            360,
            88,
            "Airflow task: plan",
            ("watermark v4, newest version v7  →  apply 5-7", "nothing new  →  done: no process, no commit"),
            *airflow,
        ),
        Box(
            300,
            150,
            360,
            116,
            "One Spark application",
            (
                "read the changes of versions 5-7",
                "reduce them to one row per key",
                "one MERGE, one commit: rows and watermark",
            ),
            *spark,
        ),
        Box(
            300,
            314,
            360,
            64,
            "Airflow task: confirm and publish",
            ("range, counts, watermark  →  XCom, asset event",),
            *airflow,
        ),
    ]
    arrows = [
        _arrow([(120, 150), (120, 64), (298, 64)], dashed=True),
        _arrow([(840, 150), (840, 64), (662, 64)], dashed=True),
        _arrow([(480, 108), (480, 148)]),
        _arrow([(480, 266), (480, 312)]),
        _arrow([(220, 210), (298, 210)]),
        _arrow([(660, 210), (738, 210)]),
        _arrow([(840, 266), (840, 346), (662, 346)], dashed=True),
    ]
    labels = [
        _text(130, 56, "log", size=12, colour=_SOFT),
        _text(690, 56, "log: watermark", size=12, colour=_SOFT),
        _text(690, 338, "log: watermark", size=12, colour=_SOFT),
        _text(232, 202, "changes", size=12, colour=_SOFT),
        _text(676, 202, "commit", size=12, colour=_SOFT),
        _text(492, 294, "result", size=12, colour=_SOFT),
        _text(492, 133, "range 5-7", size=12, colour=_SOFT),
    ]
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
                f'width="{_WIDTH}" height="{_HEIGHT}" role="img">'
            ),
            (
                "<title>A change on its way: the log is read, one Spark application commits rows and "
                "watermark together, the log confirms it.</title>"
            ),
            (
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                f'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{_SOFT}"/>'
                "</marker></defs>"
            ),
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="12" fill="#ffffff" stroke="{_LINE}"/>',
            *(box.draw() for box in boxes),
            *arrows,
            *labels,
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
