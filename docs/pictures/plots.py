"""Plots of the figures in ``docs/contributing/benchmarks.md``, for the page about costs.

They are drawn from the tables of that page, so that plots and tables cannot disagree. The text that
replaces a plot where it is not seen has the same figures.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from canvas import MARGIN, line, picture, rectangle, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OURS = "Delta CDC"
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
#: Where bars begin and end; a bar's figure stands behind it.
_FROM, _TO = 232, 556
#: Arms of the benchmark of applying changes, as a user calls them.
_ARMS = {
    "MERGE by hand": "MERGE by hand",
    "RANK and overwrite": "partitions written again",
    "full overwrite": "table written again",
    "mack": "mack",
    "delta-rs": "delta-rs (no Spark)",
}


@dataclass(frozen=True)
class Bar:
    """A bar with its figure.

    :param part: of the figure, drawn in another tone: what comes first
    """

    label: str
    value: float
    part: float = 0.0

    @property
    def ours(self) -> bool:
        return self.label.startswith(_OURS)


@dataclass(frozen=True)
class Plot:
    """A plot as the page has it.

    :param drawn: the parts of the SVG
    :param figures: what they say, in words
    """

    title: str
    height: float
    drawn: Sequence[str]
    figures: str

    @property
    def alt(self) -> str:
        """Return the text that stands for the plot."""
        return f"{self.title}: {self.figures}"

    def svg(self) -> str:
        """Return the SVG file."""
        return picture(self.alt, self.height, self.drawn)


def rows(page: str, section: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the first table of a section that has some columns.

    :param page: a page in Markdown
    :param section: its heading
    :param columns: names of columns
    :return: each row by column
    :raises LookupError: there is no such section, or no such table in it
    """
    found = re.search(rf"^#+ {re.escape(section)}$(.*?)(?=^#|\Z)", page, re.M | re.S)
    for table in re.findall(r"(?:^\|.*\n)+", found[1] if found else "", re.M):
        heading, _, *body = [_cells(one) for one in table.splitlines()]
        if set(columns) <= set(heading):
            return [dict(zip(heading, cells, strict=True)) for cells in body]
    raise LookupError(f"no table {columns} below {section!r}")


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def number(cell: str) -> float:
    """Return the figure of a cell: its first number, or the median where it has nothing but several."""
    found = re.findall(_NUMBER, cell)
    several = re.fullmatch(rf"{_NUMBER}(?:, {_NUMBER})+", cell) is not None
    return statistics.median(_float(one) for one in (found if several else found[:1]))


def _float(digits: str) -> float:
    return float(digits.replace(",", ""))


def _shown(value: float) -> str:
    """Return a figure with three digits, or all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bars(title: str, unit: str, groups: Iterable[tuple[str, Sequence[Bar]]], *, note: str = "") -> Plot:
    """Return a plot of bars in groups.

    :param unit: of the figures
    :param groups: headings with their bars
    :param note: what the two tones of a bar mean
    """
    groups = [(heading, own) for heading, own in groups if own]
    most = max(bar.value for _, own in groups for bar in own)
    parts, figures = _head(title, f"{unit}; less is better"), []
    y = 74.0
    for heading, own in groups:
        if heading:
            parts.append(text(MARGIN, y + 14, heading, "bold"))
            y += 26
        for bar in own:
            parts += _bar(y, bar, (_TO - _FROM) / most)
            y += 25
        y += 12
        figures.append(
            (f"{heading}: " if heading else "") + ", ".join(f"{b.label} {_shown(b.value)}" for b in own)
        )
    if note:
        parts.append(text(MARGIN, y + 6, note, "soft", size=14))
        y += 22
    return Plot(f"{title}, {unit}", y + 4, parts, "; ".join(figures))


def _head(title: str, unit: str) -> list[str]:
    return [text(MARGIN, 34, title, "bold", size=16), text(MARGIN, 56, unit, "soft", size=14)]


def _bar(y: float, bar: Bar, scale: float) -> list[str]:
    width = max(bar.value * scale, 1.5)
    look = "airflow-bar" if bar.ours else "plain-bar"
    parts = [
        text(_FROM - 8, y + 14, bar.label, "bold" if bar.ours else "", size=14, anchor="end"),
        rectangle(_FROM, y, width, 19, look, radius=2),
        text(_FROM + width + 6, y + 14, _shown(bar.value), "bold" if bar.ours else "", size=14),
    ]
    if bar.part:
        parts.insert(2, rectangle(_FROM, y, bar.part * scale, 19, "other-bar", radius=2))
    return parts


@dataclass(frozen=True)
class Compared:
    """A ratio with its interval.

    :param label: what was measured, in two lines
    """

    label: tuple[str, str]
    value: float
    low: float
    high: float


def _compared(label: tuple[str, str], cell: str) -> Compared:
    value = number(cell)
    interval = re.search(rf"\(({_NUMBER})–({_NUMBER})\)", cell)
    # A single round has no interval.
    low, high = (_float(interval[1]), _float(interval[2])) if interval else (value, value)
    return Compared(label, value, low, high)


def ratios(title: str, meaning: str, points: Sequence[Compared]) -> Plot:
    """Return a plot of ratios: a dot on a line for each, and an upright line at 1.

    :param meaning: of a ratio below 1
    """
    most = max(1.4, *(point.high for point in points))

    def at(value: float) -> float:
        # Labels are wider than those of bars.
        return _FROM + 40 + (_TO - _FROM - 40) * value / most

    bottom = 84 + 46 * len(points)
    parts = [*_head(title, meaning)]
    for tick in (0.0, 0.5, 1.0):
        parts.append(line([(at(tick), 74), (at(tick), bottom)], look="line" if tick == 1 else "line dashed"))
        parts.append(text(at(tick), bottom + 18, f"{tick:g}", "soft", size=14, anchor="middle"))
    for index, point in enumerate(points):
        y = 100 + 46 * index
        parts += [
            text(MARGIN, y, point.label[0], size=14),
            text(MARGIN, y + 18, point.label[1], "soft", size=14),
            rectangle(at(point.low), y - 1, max(at(point.high) - at(point.low), 2), 8, "airflow", radius=4),
            f'<circle cx="{at(point.value):.4g}" cy="{y + 3:g}" r="6" class="airflow-bar"/>',
            text(_TO + 14, y + 8, f"{point.value:.2f}", "bold", size=14),
        ]
    figures = "; ".join(f"{point.label[0]} ({point.label[1]}) {point.value:.2f}" for point in points)
    return Plot(title, bottom + 34, parts, figures)


def idle(page: str) -> Plot:
    """Return the plot of a look at a log that has nothing new."""
    names = {
        _OURS: "`newest_version(after=N)`",
        "listing of the log": "listing",
        "deltalake kept open": "deltalake, handle kept and updated",
        "deltalake opened": "deltalake, opened",
    }
    found = rows(page, "A poll over a store 30 ms away", "log", *names.values())
    return bars(
        "A look at a table without new commits, store 30 ms away",
        "milliseconds",
        [
            (
                f"a log of {row['log'].partition(', ')[0]}",
                [Bar(label, number(row[column])) for label, column in names.items()],
            )
            for row in found
        ],
    )


@dataclass
class _Cell:
    """A cell of the benchmark of applying changes.

    :param name: as ``benchmarks/apply.py`` makes it: type, rows, changed keys, and the rest
    """

    name: str
    arms: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        return self.name.removeprefix("scd").split("-")

    @property
    def size(self) -> tuple[int, int]:
        """Return rows and changed keys."""
        return int(float(self.words[1])), int(float(self.words[2]))

    @property
    def label(self) -> tuple[str, str]:
        """Return the cell in words: its sizes, and what is changed."""
        total, changed = self.size
        spread, mix, *more = self.words[3:]
        kinds = {
            "updates": "updates",
            "mixed": "updates, deletes",
            "inserts": "inserts",
            "nothing": "no difference",
        }
        extra = {"depth20": "20 versions per key", "log": "from events"}
        return (
            f"type {self.words[0]}: {_count(changed)} of {_count(total)} rows",
            ", ".join(
                [
                    kinds[mix],
                    *(extra[word] for word in more),
                    *(["side by side"] if spread == "clustered" else []),
                ]
            ),
        )

    def bars(self) -> list[Bar]:
        """Return the seconds of all arms."""
        ours = number(next(iter(self.arms.values()))["ours, s"])
        others = [
            Bar(label, number(self.arms[arm]["theirs, s"]))
            for arm, label in _ARMS.items()
            if arm in self.arms
        ]
        return [Bar(_OURS, ours), *others]


def _count(number: int) -> str:
    return f"{number // 10**6} million" if number >= 10**6 else f"{number:,}"


def _cells_of_apply(page: str) -> list[_Cell]:
    found: dict[str, _Cell] = {}
    for row in rows(
        page, "Applying changes", "cell", "ours, s", "against", "theirs, s", "ours : theirs (95 %)"
    ):
        name = row["cell"].strip("`")
        found.setdefault(name, _Cell(name)).arms[row["against"]] = row
    return list(found.values())


def size(page: str) -> Plot:
    """Return the plot of the same changes in a small and in a large table."""
    cells = [one for one in _cells_of_apply(page) if one.words[2:] == ["1e2", "uniform", "updates"]]
    groups = [(f"a table of {_count(cell.size[0])} rows", cell.bars()) for cell in cells]
    return bars("100 rows change, current rows (type 1)", "seconds", groups)


def history(page: str) -> Plot:
    """Return the plot of the same changes in a short and in a long history."""
    cells = [one for one in _cells_of_apply(page) if one.name.startswith("scd2-1e6-1e4-uniform-updates")]
    groups = [
        ("20 versions of each key" if "depth20" in one.words else "one version of each key", one)
        for one in cells
    ]
    title = "10,000 changes of 1 million rows with history (type 2)"
    return bars(title, "seconds", [(heading, cell.bars()) for heading, cell in groups])


def merge(page: str) -> Plot:
    """Return the plot of an apply against a MERGE by hand."""
    points = [
        _compared(cell.label, cell.arms["MERGE by hand"]["ours : theirs (95 %)"])
        for cell in _cells_of_apply(page)
        if "MERGE by hand" in cell.arms
    ]
    return ratios(
        "Time of an apply divided by that of a MERGE by hand",
        "left of the line: Delta CDC is faster; the bar is the interval of 95 %",
        points,
    )


def ingest(page: str) -> Plot:
    """Return the plot of files that become current rows."""
    found = rows(page, "Ingesting change sets", "events", "rows of the target", "ours, s", "by hand, s")
    groups = [
        (
            _runs(row["events"]),
            [Bar(_OURS, number(row["ours, s"])), Bar("stream by hand", number(row["by hand, s"]))],
        )
        for row in found
    ]
    return bars("JSON events become a log and current rows", "seconds", groups)


def _runs(events: str) -> str:
    """Return in words what ``10 × 1,000 in 2 files`` means."""
    count, _, each = events.partition(" × ")
    return f"{count} run{'s, each' if count != '1' else ''} of {each.replace(' in ', ' events in ')}"


def group(page: str) -> Plot:
    """Return the plot of one application for many tables against one for each."""
    found = rows(page, "Groups: one application for many tables", "changed tables", "group, s", "each, s")
    groups = [
        (
            f"{row['changed tables']} tables have changed",
            [
                Bar(f"{_OURS} (one for all)", number(row["group, s"])),
                Bar("one for each", number(row["each, s"])),
            ],
        )
        for row in sorted(found, key=lambda row: number(row["changed tables"]))
    ]
    return bars("Spark applications for a group of 65 tables", "seconds", groups)


def start(page: str) -> Plot:
    """Return the plot of the first MERGE in a fresh process."""
    names = {
        "plain": "plain PySpark",
        "ours": f"{_OURS} (quick JVM)",
        "ours, full": f"{_OURS} (full JVM)",
    }
    session, end = "to the session, s", "to the end of the MERGE, s"
    by_way = {row["way"]: row for row in rows(page, "The first MERGE", "way", session, end)}
    found = [
        Bar(label, number(by_way[way][end]), part=number(by_way[way][session]))
        for way, label in names.items()
        if way in by_way
    ]
    title = "From the start of a process to its first MERGE"
    return bars(title, "seconds", [("", found)], note="violet: until Spark has started")


def pipeline(page: str) -> Plot:
    """Return the plot of a pipeline of five steps in Airflow."""
    names = {
        "stock": "one application per step",
        "stock-tuned": "the same with tuning",
        "embedded": f"{_OURS} (in the worker)",
        "connect": f"{_OURS} (Connect)",
    }
    by_arm = {row["arm"]: row for row in rows(page, "A pipeline of five steps in Airflow", "arm", "a run, s")}
    found = [Bar(label, number(by_arm[arm]["a run, s"])) for arm, label in names.items() if arm in by_arm]
    return bars("A run of a pipeline with five steps", "seconds", [("", found)])


#: Each plot by the name of its file.
PLOTS = {
    "plot-idle": idle,
    "plot-size": size,
    "plot-history": history,
    "plot-merge": merge,
    "plot-ingest": ingest,
    "plot-group": group,
    "plot-start": start,
    "plot-pipeline": pipeline,
}
