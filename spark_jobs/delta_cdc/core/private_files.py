"""Files with secrets that a worker passes to its driver. The driver deletes them as soon as it has read them.

A worker that is killed cannot delete them. So they must not be needed for longer than the start of Spark.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: The environment variable of the driver that lists the paths of these files.
VARIABLE = "DELTA_CDC_PRIVATE_FILES"
_texts: dict[str, str] = {}


def take() -> None:
    """Read the files that the worker passed to this process, and delete them. Spark has started."""
    for path in filter(None, os.environ.pop(VARIABLE, "").split(os.pathsep)):
        # What cannot be read here fails where its text is needed, under its own name.
        with suppress(OSError, UnicodeDecodeError):
            _texts[path] = Path(path).read_text(encoding="utf-8")
        with suppress(OSError):
            Path(path).unlink()


def text_of(path: str) -> str:
    """Return the text of a file, also of one that :func:`take` has deleted.

    :raises OSError: the file cannot be read
    """
    return _texts[path] if path in _texts else Path(path).read_text(encoding="utf-8")
