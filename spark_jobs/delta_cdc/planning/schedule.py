"""Counts how often a schedule starts a run: a cron text of five fields, or a preset."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
#: The least and the greatest value of each field: minute, hour, day, month, day of the week.
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART = re.compile(r"(\*|\d{1,2}(?:-\d{1,2})?)(?:/(\d{1,2}))?", re.ASCII)
#: The longest time that is counted.
_MOST_DAYS = 400


def runs_between(schedule: str | None, start_ms: int, end_ms: int) -> int | None:
    """Return how many times a schedule fires after one time, up to another.

    The zone of the schedule is taken as UTC: it moves each run, but hardly changes their number.

    :param schedule: as in a configuration
    :param start_ms: epoch milliseconds, as ``end_ms``
    :return: None for other schedules: none at all, ``on_change``, cron texts with names
    """
    fields = _fields(schedule or "")
    if fields is None:
        return None
    minutes, hours, days, months, weekdays = fields
    moment = datetime.fromtimestamp(start_ms / 1000, tz=UTC)
    end = datetime.fromtimestamp(end_ms / 1000, tz=UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if end - day > timedelta(days=_MOST_DAYS):
        return None
    # As cron does: if both kinds of days are limited, one of them is enough.
    is_either = len(days) < 31 and len(weekdays) < 7
    count = 0
    while day <= end:
        by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month in months and (by_day or by_weekday if is_either else by_day and by_weekday):
            times = (day + timedelta(hours=hour, minutes=minute) for hour in hours for minute in minutes)
            count += sum(moment < time <= end for time in times)
        day += timedelta(days=1)
    return count


def _fields(text: str) -> list[frozenset[int]] | None:
    parts = _PRESETS.get(text.strip(), text).split()
    if len(parts) != len(_RANGES):
        return None
    fields = []
    for part, (least, greatest) in zip(parts, _RANGES, strict=True):
        values: set[int] = set()
        for piece in part.split(","):
            match = _PART.fullmatch(piece)
            if match is None:
                return None
            first, _, last = (f"{least}-{greatest}" if match[1] == "*" else match[1]).partition("-")
            # As cron does: a step makes a single number the beginning of a range.
            end = int(last or (greatest if match[2] else first))
            if int(first) < least or end > greatest or int(first) > end or match[2] == "0":
                return None
            values.update(range(int(first), end + 1, int(match[2] or 1)))
        fields.append(frozenset(values))
    fields[-1] = frozenset(value % 7 for value in fields[-1])
    return fields
