"""Read the file of confs that Spark's launcher uses in addition to its arguments: Java's properties format.

Standard library only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.launch.environment import spark_home

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*")
_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def spark_default(conf: str, confs: Mapping[str, Any], properties_file: str | None = None) -> str:
    """Return the value that a conf has before we set it; empty if it has no value.

    An argument or conf of ``spark-submit`` overrides the file's value, so a caller that sets one must include
    the user's value.

    :param conf: the conf's name
    :param confs: the user's confs; they override the file
    :param properties_file: the file that the user names; None is ``spark-defaults.conf``
    :raises InvalidConfiguration: the user's file cannot be read
    """
    value = confs[conf] if conf in confs else _read_confs(properties_file).get(conf)
    return "" if value is None else str(value)


def text_of(properties_file: str) -> str:
    """Return the text of a file that a user names.

    :raises InvalidConfiguration: it cannot be read
    """
    try:
        return _text(Path(properties_file))
    except OSError as error:
        raise InvalidConfiguration(
            f"properties_file {properties_file} cannot be read: {error.strerror}.",
            remedy="name a file that is on the worker.",
        ) from error


def _text(file: Path) -> str:
    """Return the text as Spark reads it: other bytes than UTF-8, as in a comment, are no error."""
    return file.read_text(encoding="utf-8", errors="replace")


def _read_confs(properties_file: str | None) -> dict[str, str]:
    if properties_file:
        return parsed(text_of(properties_file))
    folder = os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf"
    try:
        return parsed(_text(Path(folder) / "spark-defaults.conf"))
    except OSError:
        # The file is optional, for Spark as well.
        return {}


def parsed(text: str) -> dict[str, str]:
    """Read the text of a properties file as Java and Spark do: strip blanks around values."""
    values = {}
    for line in re.split(r"\r?\n|\r", _CONTINUED.sub(r"\1", text)):
        entry = line.lstrip()
        if entry and entry[0] not in "#!":
            match = _ENTRY.match(entry)
            assert match is not None
            values[_plain(match[1])] = _plain(match[2]).strip()
    return values


def _plain(text: str) -> str:
    return _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _LETTERS.get(match[2], match[2]), text
    )
