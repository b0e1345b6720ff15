"""Draw ``docs/overview.svg`` (the way of one change) and ``docs/queries.svg`` (the four queries).

Run ``python docs/picture.py`` after a change here, and commit all three files; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

_DOCS = Path(__file__).parent

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
    title = (
        "A change on its way: the log is read, one Spark application commits rows and watermark together, "
        "the log confirms it."
    )
    return _svg(title, _HEIGHT, [*(box.draw() for box in boxes), *arrows, *labels])


def queries() -> str:
    """Return the picture of the four change queries: the history of their page, and what each answers."""
    history = Box(
        20,
        20,
        250,
        336,
        "Versions 2-6 of a table",
        (
            *("v2  UPDATE  1: a  → a2", "", "v3  DELETE  2: b", "    INSERT  4: d", ""),
            *("v4  UPDATE  1: a2 → a3", "    DELETE  4: d", "", "v5  DELETE  3: c", "", "v6  INSERT  3: c2"),
        ),
        "#f4f6f8",
        _LINE,
        True,
    )
    answers = [
        ("append_only", "what was inserted", ("insert  4: d", "insert  3: c2"), ("#e9f6ec", "#79b58a")),
        (
            "upsert",
            "the newest row of each changed key",
            ("update  1: a3", "update  3: c2"),
            ("#eaf2fb", "#7ea6d4"),
        ),
        (
            *("min_delta", "the net effect"),
            ("delete  2: b", "update  1: a → a3", "update  3: c → c2"),
            ("#fdf1e3", "#dca869"),
        ),
        (
            *("full_delta", "every change of every commit"),
            (
                "v2  update  1: a → a2",
                "v3  delete  2: b, insert 4: d",
                "v4  update  1, delete 4",
                "v5, v6  delete and insert 3",
            ),
            ("#f3ecfa", "#a78bc9"),
        ),
    ]
    parts = [history.draw()]
    for at, (name, meaning, lines, (fill, edge)) in enumerate(answers):
        x, y = 340 + 310 * (at % 2), 20 + 174 * (at // 2)
        parts.append(Box(x, y, 290, 162, name, ("", "", *lines), fill, edge, True).draw())
        parts.append(_text(x + 14, y + 50, meaning, size=12.5, colour=_SOFT))
    parts.append(_arrow([(270, 188), (336, 188)]))
    title = "Five versions of a table, and the answers of append_only, upsert, min_delta and full_delta."
    return _svg(title, 376, parts)


def _svg(title: str, height: int, parts: list[str]) -> str:
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
                f'width="{_WIDTH}" height="{height}" role="img">'
            ),
            f"<title>{title}</title>",
            (
                '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                f'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{_SOFT}"/>'
                "</marker></defs>"
            ),
            f'<rect width="{_WIDTH}" height="{height}" rx="12" fill="#ffffff" stroke="{_LINE}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def pictures() -> dict[Path, str]:
    """Return every picture that this script draws, by its file."""
    return {_DOCS / "overview.svg": picture(), _DOCS / "queries.svg": queries()}


if __name__ == "__main__":
    for file, drawn in pictures().items():
        file.write_text(drawn, encoding="utf-8")
