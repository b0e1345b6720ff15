"""Say which files of a batch are read, and which are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest import formats

if TYPE_CHECKING:
    from delta_cdc.core.options import IngestOptions
    from delta_cdc.core.spec import IngestSpec, SourceFile


def declared(options: IngestOptions) -> T.StructType | None:
    """Return the columns that the option ``schema`` defines; None without this option.

    :raises InvalidConfiguration: the text names no columns
    """
    if not options.schema:
        return None
    schema = T.StructType.fromDDL(options.schema)
    if not isinstance(schema, T.StructType):
        raise InvalidConfiguration(
            f"schema {options.schema!r} names no columns.",
            remedy='write it as Spark does: "id INT, v STRING".',
        )
    return schema


def readable(spec: IngestSpec) -> list[SourceFile]:
    """Return the files of a batch that Spark can read."""
    unreadable_uris = {file.uri for file, _ in unreadable(spec)}
    return [file for file in spec.files if not file.missing and file.uri not in unreadable_uris]


def unreadable(spec: IngestSpec) -> list[tuple[SourceFile, str]]:
    """Return the files that are unreadable as a whole, each with the reason."""
    options = spec.options
    is_whole = options.source_kind == "files" and formats.is_whole(options.format, options.format_options)
    most = formats.MOST_BYTES_OF_A_FILE if is_whole else None
    reasons = [(file, file.unreadable or _skip_reason(file, most)) for file in spec.files if not file.missing]
    return [(file, reason) for file, reason in reasons if reason]


def _skip_reason(file: SourceFile, most: int | None) -> str:
    """Return why a file cannot be read, by its name and size; "" if it can.

    :param most: the most bytes
    """
    uri = file.uri
    if most is not None and file.size > most:
        return f"it has {formats.TOO_LARGE}"
    name = uri.rsplit("/", 1)[-1]
    if name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"):
        return "Spark reads no file of such a name; rename it"
    if uri.startswith("/") and ":" in name:
        return "Hadoop's local file system reads no name with a colon; rename it"
    return ""
