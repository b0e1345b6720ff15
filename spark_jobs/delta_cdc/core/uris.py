"""Normalise table locations: one spelling here, and one for Spark."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.storage_options import hadoop_uri

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
#: The name of an object has no such part.
_UP = re.compile(r"^(?!file:)[A-Za-z][A-Za-z0-9+.-]*://(?:.*/)?\.\.(?:/|\Z)", re.IGNORECASE | re.DOTALL)
#: A bucket or container alone.
_ROOT = re.compile(r"^(?!file:)[A-Za-z][A-Za-z0-9+.-]*://[^/]+/*\Z", re.IGNORECASE)
#: A location as Spark's SQL has it: ``delta.`/lake/t```.
_SQL_NAME = re.compile(r"^\w+\.`([^`]*/.*?)`?\Z", re.DOTALL)
_NAME = re.compile(r"^[^/\\\s]+\Z")
#: Other schemes of a storage -> its canonical scheme.
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_KNOWN = ("s3", "gs", "az", "adl", "azure", "abfss", "file")
#: Every scheme that can be read here, in all spellings.
KNOWN_SCHEMES = frozenset({*_KNOWN, *_SAME})


def canonical_uri(table: str) -> str:
    """Return the canonical location of a table: an absolute path, or a URI without a trailing slash.

    ``s3a://`` becomes ``s3://``, ``file:`` URIs become plain paths. Characters stay unchanged: Spark takes a
    location literally and does not decode ``%20``.

    :raises TableNameUnresolved: for a catalog name such as ``main.sales.orders``
    :raises InvalidConfiguration: for an empty location or a scheme that cannot be read without Spark
    """
    text = str(table).strip()
    if "\0" in text or _UP.search(text):
        raise InvalidConfiguration(
            f"The location {text!r} has a part that no table's location can have: a NUL, or .. in a URI.",
            remedy="write the location without it.",
        )
    if match := _SQL_NAME.match(text):
        raise InvalidConfiguration(
            f"The location {text} is written as in SQL.",
            remedy=f"give the location alone: {match[1].replace('``', '`')}.",
        )
    if "`" in text and "/" not in text:
        raise InvalidConfiguration(
            f"The name {text} has back-ticks.",
            remedy=f"write it without them: {text.replace('`', '')}.",
        )
    return file_uri(text)


def file_uri(text: str) -> str:
    """Do as :func:`canonical_uri` for the location of a file, whose name may end with a blank."""
    return _of_scheme(text) or _local(text)


@lru_cache(maxsize=4096)
def _of_scheme(text: str) -> str | None:
    """Do as :func:`canonical_uri` for a text with a scheme; return None for one without."""
    match = _SCHEME.match(text)
    if match is None:
        return None
    scheme = match.group(1).lower()
    scheme = _SAME.get(scheme, scheme)
    if scheme not in _KNOWN:
        raise InvalidConfiguration(
            f"The location {text} has the scheme {scheme}:, which cannot be read without Spark.",
            remedy=f"use a path, or a URI of one of {', '.join(_KNOWN)}.",
        )
    rest = text[match.end() :]
    if scheme == "file":
        return _local("/" + rest.lstrip("/"))
    return f"{scheme}://{rest.lstrip('/').rstrip('/')}"


def at_root(uri: str) -> bool:
    """Return whether a URI names a bucket or container, without a path in it."""
    return _ROOT.match(uri) is not None


def spark_uri(table: str) -> str:
    """Return the location for Spark's file systems: ``s3://`` becomes ``s3a://``."""
    return hadoop_uri(canonical_uri(table))


def local_path(uri: str) -> str | None:
    """Return the path of a table on the local file system; None for an object store."""
    return None if "://" in uri else uri


def short_name(table: str) -> str:
    """Return the last part of a location or name, for lines of a log that has named the table in full."""
    return table.rstrip("/").rpartition("/")[2] or table


def is_name(table: str) -> bool:
    """Return whether a table is given by a catalog name, not by a path or URI.

    :raises InvalidConfiguration: as :func:`canonical_uri`
    """
    try:
        canonical_uri(table)
    except TableNameUnresolved:
        return True
    return False


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError as error:
        raise InvalidConfiguration(
            f"{path} is no path: {error.strerror}.", remedy="correct the location."
        ) from None


def _local(text: str) -> str:
    if not text:
        raise InvalidConfiguration("A table's location is empty.", remedy="give a path or a URI.")
    if "/" not in text and _NAME.match(text) and not _exists(text):
        raise TableNameUnresolved(
            f"{text} is a catalog name, and only a path or URI can be read without Spark.",
            remedy="give the table's location (DESCRIBE DETAIL shows it). If AUTO CDC code has the name, "
            "convert the code: delta-cdc import takes locations as --source and --target.",
        )
    # Not resolve(): a table reached through a link keeps its given name.
    return os.path.abspath(text)  # noqa: PTH100
