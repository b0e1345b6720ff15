"""What the options of a format mean for reading its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.errors import invalid
from delta_cdc.core.reader_options import check_format_options, is_true
from delta_cdc.ingest.records.csv import Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The most bytes of a file that is read as a whole.
MOST_BYTES_OF_A_FILE = 1024 * 1024 * 1024
TOO_LARGE = "more than 1 GiB, and such a file is read as a whole; deliver smaller files"
#: Formats without text.
_BINARY = ("parquet", "avro")


def check(
    format: str,  # noqa: A002 - the option's name everywhere
    options: Mapping[str, str],
    *,
    has_schema: bool,
) -> None:
    """Refuse options that are unknown, or that no file can be read with.

    :param has_schema: whether the option ``schema`` names the columns
    :raises InvalidConfiguration: names the option
    """
    check_format_options(format, options)
    if format == "csv" and not (has_schema or is_true(options, "header")):
        raise invalid(
            "format is 'csv', and neither schema nor a header names the columns",
            "set schema to all columns of the files, in their order. If the first line of each file is its "
            'header, set format_options to {"header": "true"}.',
            "schema",
        )
    if format not in _BINARY:
        Dialect.of(_shared(format, options))


def is_whole(format: str, options: Mapping[str, str]) -> bool:  # noqa: A002
    """Return whether a file is read as a whole: it is one value, or binary, or its encoding has no lines."""
    if format == "avro" or (format == "json" and is_true(options, "multiLine")):
        return True
    return format not in _BINARY and Dialect.of(_shared(format, options)).is_whole


def dialect_of(format: str, options: Mapping[str, str]) -> Dialect:  # noqa: A002
    """Return encoding and line breaks of files, and for CSV how values are written."""
    return Dialect.of(_shared(format, options))


def _shared(format: str, options: Mapping[str, str]) -> Mapping[str, str]:  # noqa: A002
    """Return the options that a dialect knows."""
    if format == "csv":
        return options
    return {name: value for name, value in options.items() if name.lower() != "multiline"}
