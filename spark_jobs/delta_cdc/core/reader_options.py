"""Options of file formats (``format_options``) that an ingest accepts, and their values."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Options that describe how values are written, most of them as Spark's readers name them. Others of Spark
#: would change which records exist, or hide unreadable ones.
_CSV = (
    "sep delimiter encoding charset quote escape comment header lineSep multiLine locale timeZone "
    "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue missingValue emptyValue "
    "dateFormat timestampFormat timestampNTZFormat charToEscapeQuoteEscaping unescapedQuoteHandling"
)
_ALLOWED = {
    "json": "lineSep encoding charset multiLine",
    "csv": _CSV,
    "parquet": "datetimeRebaseMode int96RebaseMode",
    "avro": "",
}


def check_format_options(file_format: str, options: Mapping[str, str]) -> None:
    """Refuse reader options that are unknown, or that would lose or duplicate records.

    :raises InvalidConfiguration: names the option, and the nearest valid one
    """
    allowed = {name.lower(): name for name in _ALLOWED[file_format].split()}
    for name in options:
        if name.lower() not in allowed:
            near = difflib.get_close_matches(name.lower(), allowed, n=1, cutoff=0.5)
            hint = f"did you mean {allowed[near[0]]}? " if near else ""
            listed = f"These can: {', '.join(sorted(allowed.values()))}." if allowed else "leave it out."
            raise InvalidConfiguration(
                f"format_options: {name!r} cannot be given for {file_format}.",
                remedy=f"{hint}{listed}",
                argument="format_options",
            )


def option(options: Mapping[str, str], *names: str) -> str | None:
    """Return a reader option by any of its names, compared without case."""
    values = {name.lower(): value for name, value in options.items()}
    return next((values[name.lower()] for name in names if name.lower() in values), None)


def is_true(options: Mapping[str, str], name: str) -> bool:
    """Return whether a reader option is on."""
    return (option(options, name) or "false").lower() == "true"
