"""Write files atomically: readers see the whole file or none. Standard library only."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """Yield a file to write into. At the end it replaces ``path``; after an error it is deleted.

    :param path: a file on this machine, existing or not; its folder is created
    :param mode: the file's permissions; by default only this user can read it
    :raises OSError: the file cannot be written, or cannot replace ``path``
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic only within one file system.
    handle, draft = tempfile.mkstemp(prefix=".", suffix=".draft", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(draft).chmod(mode)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)
