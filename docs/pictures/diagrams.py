"""The pictures that explain how something works."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from canvas import MARGIN, WIDTH, arrow, box, line, picture, rectangle, text

if TYPE_CHECKING:
    from canvas import Colour

_INSIDE = WIDTH - 2 * MARGIN


def overview() -> str:
    """Return the picture of one run: plan, one Spark application, confirm."""
    parts = [
        box(
            *(MARGIN, 16, _INSIDE, 92, "Airflow task: plan"),
            (
                "Source has v7, target holds v4: apply versions 5–7.",
                "Nothing new: done, without Spark and without a commit.",
            ),
            "airflow",
        ),
        box(
            *(MARGIN, 156, 166, 118, "Source table"),
            ("v5 insert #81", "v6 update #17", "v7 delete #42"),
            "delta",
            mono=True,
        ),
        box(
            *(206, 156, 232, 118, "One Spark application"),
            ("reads versions 5–7", "one row per key", "one MERGE, one commit"),
            "spark",
        ),
        box(
            *(462, 156, 162, 118, "Target table"),
            ("v3 rows and", "   watermark:", "   source v7"),
            "delta",
            mono=True,
        ),
        box(
            *(MARGIN, 322, _INSIDE, 92, "Airflow task: confirm and publish"),
            (
                "The target's log has the commit with watermark v7:",
                "publish range, counts and watermark (XCom, asset event).",
            ),
            "airflow",
        ),
        arrow([(99, 156), (99, 110)], dashed=True),
        text(108, 138, "log", "soft", size=14),
        arrow([(322, 108), (322, 154)]),
        text(331, 138, "range 5–7", "soft", size=14),
        arrow([(543, 156), (543, 110)], dashed=True),
        text(552, 138, "log: v4", "soft", size=14),
        arrow([(182, 215), (204, 215)]),
        arrow([(438, 215), (460, 215)]),
        arrow([(322, 274), (322, 320)]),
        text(331, 304, "result", "soft", size=14),
        arrow([(543, 274), (543, 320)], dashed=True),
        text(552, 304, "log: v7", "soft", size=14),
    ]
    title = (
        "A run: the task plans from both logs, one Spark application makes one commit with rows and "
        "watermark, and the task confirms it from the target's log."
    )
    return picture(title, 430, parts)


def watermark() -> str:
    """Return the picture of the commit that holds rows and watermark."""
    parts = [text(MARGIN, 38, "Source table: its commits", "bold", size=16)]
    for at in range(6):
        x, new = MARGIN + 103 * at, at == 5
        parts += [
            rectangle(x, 52, 93, 50, "plain dashed" if new else "delta"),
            text(x + 46.5, 73, f"v{at + 3}", "bold", anchor="middle"),
            text(x + 46.5, 93, "next run" if new else "applied", "soft", size=14, anchor="middle"),
        ]
    columns: tuple[tuple[str, tuple[str, ...], bool, Colour], ...] = (
        ("Rows", ("files that the", "MERGE added", "and removed"), False, "plain"),
        ("txn", ("delta-cdc/orders", "number 12"), True, "airflow"),
        ("userMetadata", ("source 6f1c…", "applied to v7"), True, "airflow"),
    )
    parts += [
        rectangle(MARGIN, 152, _INSIDE, 232, "delta"),
        text(MARGIN + 14, 178, "Target table: one commit is one file of its log", "bold", size=16),
        text(MARGIN + 14, 200, "_delta_log/00000000000000000003.json", "soft mono", size=14),
    ]
    for at, (title, lines, mono, colour) in enumerate(columns):
        parts.append(box(30 + 196 * at, 216, 188, 118, title, lines, colour, mono=mono))
    parts += [
        arrow([(474.5, 102), (474.5, 214)]),
        text(484, 134, "watermark", "soft", size=14),
        line([(226, 342), (226, 348), (610, 348), (610, 342)]),
        text(418, 368, "the seal", anchor="middle"),
        text(331, 412, "copied after the commit; may be lost", "soft", size=14),
        arrow([(320, 384), (320, 428)], dashed=True),
    ]
    for at, name in enumerate(("XCom", "asset event", "asset state store")):
        x = MARGIN + 206 * at
        parts += [
            rectangle(x, 430, 196, 44, "plain dashed"),
            text(x + 98, 457, name, "soft", anchor="middle"),
        ]
    title = (
        "One commit file of the target holds the rows and the seal: a transaction number, and the watermark, "
        "which is the last applied version of the source. Airflow has copies only."
    )
    return picture(title, 490, parts)


@dataclass(frozen=True)
class Change:
    """A change in a history.

    :param value: None for a delete
    """

    version: int
    operation: str
    key: int
    value: str | None


_HISTORY = (
    Change(1, "INSERT", 1, "Bern"),
    Change(2, "INSERT", 2, "Oslo"),
    Change(3, "UPDATE", 1, "Lyon"),
    Change(4, "DELETE", 2, None),
    Change(5, "INSERT", 3, "Rome"),
)


def scd() -> str:
    """Return the picture of what one history becomes as type 1 and as type 2."""
    versions: list[tuple[int, str, int, int | None]] = []
    for key in sorted({change.key for change in _HISTORY}):
        own = [change for change in _HISTORY if change.key == key]
        for now, then in zip(own, [*own[1:], None], strict=True):
            if now.value is not None:
                versions.append((key, now.value, now.version, then.version if then else None))
    current = [(key, value) for key, value, _, end in versions if end is None]
    history = [
        f"v{one.version}  {one.operation}  {one.key}" + (f"  {one.value}" if one.value else "")
        for one in _HISTORY
    ]
    height = 76 + 21 * len(versions)
    parts = [
        box(
            MARGIN, 16, _INSIDE, 42 + 21 * len(history), "Changes of the source", history, "plain", mono=True
        ),
        arrow([(128, 163), (128, 200)]),
        arrow([(440, 163), (440, 200)]),
        box(
            *(MARGIN, 202, 224, height, "Type 1: current rows"),
            ("id  city", *(f"{key:<4}{value}" for key, value in current)),
            "delta",
            mono=True,
        ),
        box(
            *(256, 202, 368, height, "Type 2: every version"),
            (
                "id  city  __START_AT  __END_AT",
                *(
                    f"{key:<4}{value:<6}{start:<12}{'NULL' if end is None else end}"
                    for key, value, start, end in versions
                ),
            ),
            "airflow",
            mono=True,
        ),
    ]
    title = (
        "Five changes of a source. Type 1 keeps the current row of each key that is not deleted. Type 2 "
        "keeps each version with its start and its end; the end of a current row is NULL."
    )
    return picture(title, 218 + height, parts)


def group() -> str:
    """Return the picture of the tasks of a group in Airflow."""
    applied = ("orders", "lines", "stock")
    parts = [
        box(
            *(MARGIN, 16, _INSIDE, 71, "detect_changes"),
            ("reads the logs of 65 tables: 3 have changes",),
            "airflow",
        ),
        arrow([(320, 87), (320, 123)]),
        text(329, 111, "if none has changes: no Spark", "soft", size=14),
        box(
            *(MARGIN, 125, _INSIDE, 71, "run_spark"),
            ("one Spark application, which makes one commit in each of the 3 targets",),
            "spark",
        ),
        box(
            *(MARGIN, 350, _INSIDE, 71, "publish"),
            ("publishes the versions of all targets that go together",),
            "airflow",
        ),
    ]
    for at, name in enumerate(applied):
        x = MARGIN + 206 * at
        parts += [
            arrow([(x + 98, 196), (x + 98, 236)]),
            box(x, 238, 196, 71, f"apply [{name}]", ("confirms the commit",), "airflow"),
            arrow([(x + 98, 309), (x + 98, 348)]),
        ]
    title = (
        "The tasks of a group: detect_changes reads all logs, run_spark does the work of tables with changes "
        "in one Spark application, a task apply for each of them confirms its commit, publish ends the run."
    )
    return picture(title, 437, parts)


def queries() -> str:
    """Return the picture of the four change queries: the history of their page, and what each answers."""
    history = (
        *("v2  UPDATE", "    1: a → a2", "", "v3  DELETE", "    2: b", "    INSERT", "    4: d", ""),
        *("v4  UPDATE", "    1: a2 → a3", "    DELETE", "    4: d", "", "v5  DELETE", "    3: c", ""),
        *("v6  INSERT", "    3: c2"),
    )
    answers: tuple[tuple[str, str, tuple[str, ...], Colour], ...] = (
        ("append_only", "what was inserted", ("insert  4: d", "insert  3: c2"), "delta"),
        ("upsert", "the newest row of each changed key", ("update  1: a3", "update  3: c2"), "airflow"),
        (
            *("min_delta", "the net effect"),
            ("delete  2: b", "update  1: a → a3", "update  3: c → c2"),
            "spark",
        ),
        (
            *("full_delta", "every change of every commit"),
            (
                "v2  update  1: a → a2",
                "v3  delete  2: b,  insert  4: d",
                "v4  update  1: a2 → a3,  delete  4: d",
                "v5  delete  3: c",
                "v6  insert  3: c2",
            ),
            "other",
        ),
    )
    parts = []
    y = MARGIN
    for name, meaning, lines, colour in answers:
        height = 67 + 21 * len(lines)
        parts.append(box(236, y, 388, height, name, ("", *lines), colour, mono=True))
        parts.append(text(250, y + 48, meaning, "soft"))
        y += height + 12
    parts.insert(0, box(MARGIN, MARGIN, 190, y - 12 - MARGIN, "Versions 2–6", history, "plain", mono=True))
    parts.append(arrow([(206, y / 2), (234, y / 2)]))
    title = "Five versions of a table, and the answers of append_only, upsert, min_delta and full_delta."
    return picture(title, y + 4, parts)


_EVENT = re.compile(r"\((\d+), (?:'(\w+)'|NULL), '([\w ]+)', (\d+)\)")
_ROW = re.compile(r"^\| +(\d+)\| *(\w+)\| +(\d+)\| +(\w+)\|$", re.M)
_PLACES: dict[str, Colour] = {"depot": "airflow", "lorry": "delta", "shop": "spark"}
_LEFT, _STEP, _LAST = 120, 12, 46


def late(page: str) -> str:
    """Return the picture of two late events.

    :param page: the text of the page about them: its two INSERTs are the events, its first two outputs the
        histories before and after
    """
    inserts = re.findall(r"^INSERT INTO .*?;$", page, re.M | re.S)
    outputs = [_ROW.findall(block) for block in re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)]
    before = [(found, False) for found in _EVENT.findall(inserts[0])]
    after = [(found, True) for found in _EVENT.findall(inserts[1])]
    parts = [
        *_panel(16, "Before: events come in order", outputs[0], before),
        *_panel(242, "After: two late events, and one that comes twice", outputs[1], before + after),
        *(_dot(MARGIN + 8, 462, late=False), text(MARGIN + 22, 467, "an event", "soft", size=14)),
        *(_dot(MARGIN + 118, 462, late=True), text(MARGIN + 132, 467, "a late event", "soft", size=14)),
        *(
            _cross(MARGIN + 256, 462),
            text(MARGIN + 270, 467, "handed over: a delete; no version is open", "soft", size=14),
        ),
    ]
    title = (
        "The history of two parcels before and after late events: a late event splits a version, or moves "
        "its start; an event that comes twice changes nothing."
    )
    return picture(title, 484, parts)


def _panel(
    y: float,
    title: str,
    rows: list[tuple[str, str, str, str]],
    events: list[tuple[tuple[str, str, str, str], bool]],
) -> list[str]:
    parts = [text(MARGIN, y + 22, title, "bold", size=16)]
    for at, parcel in enumerate(("1", "2")):
        top = y + 62 + 70 * at
        parts.append(text(MARGIN, top + 21, f"parcel {parcel}"))
        for key, place, start, end in rows:
            if key == parcel:
                parts += _version(top, place, start, end)
        for (key, place, _, when), late_one in events:
            if key == parcel:
                parts.append(_dot(_x(when), top - 10, late=late_one) if place else _cross(_x(when), top - 10))
    axis = y + 178
    parts.append(line([(_LEFT, axis), (_x(str(_LAST)), axis)]))
    for when in (10, 15, 20, 25, 30, 35, 40):
        parts.append(line([(_x(str(when)), axis), (_x(str(when)), axis + 5)]))
        parts.append(text(_x(str(when)), axis + 22, str(when), "soft", size=14, anchor="middle"))
    return parts


def _version(top: float, place: str, start: str, end: str) -> list[str]:
    left, right = _x(start), _x(str(_LAST) if end == "NULL" else end)
    return [
        rectangle(left, top, right - left - 2, 32, _PLACES[place], radius=4),
        text(left + 8, top + 21, place),
        *([text(right - 10, top + 21, "open", "soft", size=14, anchor="end")] if end == "NULL" else []),
    ]


def _x(when: str) -> float:
    return _LEFT + _STEP * (int(when) - 8)


def _dot(x: float, y: float, *, late: bool) -> str:
    look, radius = ("spark-bar", 6) if late else ("plain-bar", 4)
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius}" class="{look}"/>'


def _cross(x: float, y: float) -> str:
    return line([(x - 5, y - 5), (x + 5, y + 5)]) + line([(x - 5, y + 5), (x + 5, y - 5)])
