"""What is in the files of tables: Parquet files are decoded, because their pages are compressed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from delta_cdc.delta_log.table import DeltaLog, run_sync

if TYPE_CHECKING:
    from pathlib import Path


def decoded(path: Path) -> bytes:
    """Return the bytes of a file, and of a Parquet file also the text of each of its values.

    :raises pyarrow.ArrowInvalid: a writer that was killed left a part of a Parquet file
    """
    content = path.read_bytes()
    return content + repr(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else content


def holders(folder: Path, secret: str) -> list[str]:
    """Return the files below a folder that hold a text, whatever any Delta log says of them."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [str(path.relative_to(folder)) for path in files if secret.encode() in decoded(path)]


def current_files(table: Path, *, masked: bool = True) -> list[Path]:
    """Return the data files of a table's current version.

    :param masked: also those with rows behind deletion vectors, which an erasure leaves until a purge
    """
    log = DeltaLog(str(table))
    files = run_sync(log.files(run_sync(log.snapshot()).version))
    return [table / unquote(path) for path, vector, _ in files if masked or not vector]
