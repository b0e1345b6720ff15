"""Read how long a table keeps its log and its removed files, and build the errors for expired versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.core.errors import InvalidConfiguration, VersionsExpired
from delta_cdc.core.text_table import plural

if TYPE_CHECKING:
    from collections.abc import Mapping


FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
#: Delta's defaults.
_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}

#: The remedy for expired versions, whether a plan, a read of a log, or Spark detects them.
VERSIONS_EXPIRED_REMEDY = (
    'run the apply once with mode="reload", which makes the target equal to the source as it is now '
    '(on_versions_expired "reload" in policies does so automatically; a target without keys needs '
    'mode="reset"); without a target, start at a later version. To avoid this error, raise '
    f"{LOG_RETENTION} and {FILE_RETENTION} of the source beyond the longest pause of its readers."
)

#: The remedy for a missing commit file between others, which only an accident explains.
LOG_GAP_REMEDY = (
    "restore the file from a backup; or, if a newer checkpoint makes the newest version readable, run "
    'the apply once with mode="reload", which makes the target equal to the source as it is now.'
)

_DAY = 86_400_000
#: A thousand years, in milliseconds: a date after that much time exists.
_LONGEST = 1_000 * 365 * _DAY
_PART = re.compile(r"(?<!\d)(-?\d{1,18})\s++([a-z]+?)s?(?=\s|$)")
_MONTHS = re.compile(r"[0-9]\s+(month|year)s?\b")
_UNITS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


def expired(message: str, *, or_else: str = "") -> VersionsExpired:
    """Build the error for versions of a source that can no longer be read.

    :param message: which versions, and how this was detected
    :param or_else: a better remedy, if it is possible, as the beginning of a sentence
    """
    return VersionsExpired(message, remedy=f"{or_else}{VERSIONS_EXPIRED_REMEDY}")


def text_of(name: str, configuration: Mapping[str, str]) -> str:
    """Return a retention property's value, or Delta's default."""
    return configuration.get(name, _DEFAULTS[name])


def milliseconds_of(name: str, configuration: Mapping[str, str]) -> int:
    """Return a retention property in milliseconds.

    :raises InvalidConfiguration: the value cannot be read, or is negative
    """
    milliseconds = interval_ms(text_of(name, configuration))
    if milliseconds < 0:
        raise InvalidConfiguration(
            f"The table property {name} is {text_of(name, configuration)!r}, a negative interval.",
            remedy="set it as Delta does, for instance to 'interval 7 days'.",
        )
    return milliseconds


def unreadable_retention(configuration: Mapping[str, str]) -> str | None:
    """Return the retention of files with which Delta itself cannot read a table; None if it can.

    ``ALTER TABLE`` refuses months and years. Other writers do not; then each of Delta's queries fails with an
    assertion that does not name the property.
    """
    text = text_of(FILE_RETENTION, configuration)
    return text if _MONTHS.search(text.lower()) else None


def interval_ms(text: str) -> int:
    """Read one of Delta's intervals (``interval 1 week``, ``2 days 12 hours``) in milliseconds.

    :raises InvalidConfiguration: for anything else, including months: Delta has no such retention
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    unparsed = _PART.sub("", rest).strip()
    if not parts or unparsed or any(unit not in _UNITS for _, unit in parts):
        raise InvalidConfiguration(
            f"The interval {text!r} of a table property is not readable.",
            remedy="write it as Delta does, for instance 'interval 7 days'.",
        )
    return min(sum(int(number) * _UNITS[unit] for number, unit in parts) // 1000, _LONGEST)


def extended(configuration: Mapping[str, str], age_ms: int) -> dict[str, str]:
    """Return the retention properties with which a reader that is this late loses nothing.

    Files are kept for twice the age, and a day: so the reader has as much time again.

    :param configuration: the table's properties
    :param age_ms: the age of the oldest version that the reader has not read
    """
    days = -(-2 * age_ms // _DAY) + 1
    properties = {FILE_RETENTION: f"interval {days} days"}
    if milliseconds_of(LOG_RETENTION, configuration) < days * _DAY:
        # Delta refuses a log that is kept for a shorter time than the files.
        properties[LOG_RETENTION] = f"interval {days} days"
    return properties


def readable(milliseconds: int) -> str:
    """Return a duration as readable text."""
    hours = milliseconds / 3_600_000
    if hours >= 24:
        return f"{hours / 24:.1f} days"
    return f"{hours:.1f} hours" if hours >= 1 else plural(round(milliseconds / 60_000), "minute")
