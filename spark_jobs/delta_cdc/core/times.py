"""Reads times as people write them: in arguments, in the form of a run, in configuration files.

Pendulum reads them; Airflow installs it. A Spark driver elsewhere has no pendulum and gets ISO 8601.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from pendulum import DateTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A time and the name of its zone. Without digits in front, pendulum takes words (``now``) as well.
_TIME = re.compile(r"(\d.*?)(?<!\s)(?:\s++([A-Za-z][\w+/-]++))?")


def moment(name: str, value: Any) -> DateTime | None:
    """Read a time.

    :param name: the argument's name, for the message
    :param value: ISO 8601 with an offset, or followed by the name of a zone; or a datetime. None, ``""`` and
        ``"None"`` mean not given. Where clocks change, a zone can show a time twice or never: the bound of a
        range is then the one of its two possible moments with which the range is longer
    :raises InvalidConfiguration: for any other value, including times without an offset or a zone
    """
    import pendulum

    text = arguments.text(name, value)
    if text is None:
        return None
    match = _TIME.fullmatch(text.strip())
    # The name of a folder of zones, such as Europe, is an error of the operating system.
    with suppress(ValueError, OSError):
        stamp, zone = match.groups() if match else ("", None)
        parsed = pendulum.parse(stamp, exact=True, tz=None)
        if isinstance(parsed, pendulum.DateTime) and (parsed.tzinfo is None) == (zone is not None):
            return parsed if zone is None else _in_zone(parsed, zone, is_end=name.startswith("ending"))
    raise InvalidConfiguration(
        f"{name} is {text!r}, which is not a time with an offset or a zone.",
        remedy="write it with an offset, as 2026-01-31T18:00:00+00:00, or with a zone, as "
        "2026-01-31T18:00:00 Europe/Berlin.",
        argument=name,
    )


def _in_zone(local: DateTime, zone: str, *, is_end: bool) -> DateTime:
    """Return the moment when a zone shows a time; of two, the earlier one, or for an end the later one."""
    import pendulum

    moments = [local.replace(tzinfo=pendulum.timezone(zone), fold=fold) for fold in (0, 1)]
    return (max if is_end else min)(moments, key=datetime.timestamp)


def iso(name: str, value: Any) -> str | None:
    """Return the time that :func:`moment` reads as ISO 8601 with its offset; None where it is not given."""
    time = moment(name, value)
    # Not pendulum's own form, which writes Z for +00:00.
    return None if time is None else datetime.isoformat(time)


def start(name: str, value: str) -> DateTime:
    """Read a time as :func:`moment` does, or a date, which begins at midnight in UTC.

    :raises InvalidConfiguration: also for an empty text
    """
    text = arguments.required(name, value)
    time = moment(name, f"{text}T00:00:00Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else text)
    assert time is not None
    return time


def epoch_ms(name: str, text: str) -> int:
    """Convert a time with offset (ISO 8601) to epoch milliseconds, rounded down.

    :param name: the argument's name, for the message
    :raises InvalidConfiguration: for anything else, including times without an offset
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidConfiguration(
            f"{name} is {text!r}.",
            remedy="write it as ISO 8601 with an offset, for instance 2026-01-31T18:00:00+00:00.",
            argument=name,
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)
