"""The files that ``python docs/pictures`` writes, and what belongs in them."""

from __future__ import annotations

import re
from pathlib import Path

import diagrams
import plots

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "pictures"
#: Has the figures, and shows the plots of them.
BENCHMARKS, COSTS = DOCS / "contributing" / "benchmarks.md", DOCS / "explanation" / "performance.md"


def files() -> dict[Path, str]:
    """Return every file with its text: the pictures, and the page that says in words what its plots show."""
    drawn = {
        "overview": diagrams.overview(),
        "watermark": diagrams.watermark(),
        "scd": diagrams.scd(),
        "late-events": diagrams.late((DOCS / "explanation" / "late-events.md").read_text(encoding="utf-8")),
        "queries": diagrams.queries(),
        "group": diagrams.group(),
    }
    figures, page = (file.read_text(encoding="utf-8") for file in (BENCHMARKS, COSTS))
    for name, plotted in plots.PLOTS.items():
        plot = plotted(figures)
        drawn[name] = plot.svg()
        page = re.sub(
            rf"!\[[^\]]*\]\((\S*/{name}\.svg)\)", lambda link, alt=plot.alt: f"![{alt}]({link[1]})", page
        )
    return {FOLDER / f"{name}.svg": text for name, text in drawn.items()} | {COSTS: page}
