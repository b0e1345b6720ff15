"""Write a configuration as YAML that the reader of configurations reads back as the same values."""

from __future__ import annotations

import errno
import math
import os
from typing import TYPE_CHECKING, Any

import yaml

from delta_cdc.config.tree import scalar
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The maximum length of a line, where a text does not need more.
WIDTH = 110


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet.

    :raises InvalidConfiguration: it exists, or cannot be written
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _not_written(path, error.strerror) from error


def require_new(path: Path) -> None:
    """Check early what :func:`write_new` needs, before long work.

    :raises InvalidConfiguration: the file exists, or has no folder
    """
    if path.exists() or path.is_symlink():
        raise _not_written(path, os.strerror(errno.EEXIST))
    if not path.parent.is_dir():
        raise _not_written(path, os.strerror(errno.ENOENT))


def _not_written(path: Path, cause: str | None) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{path} cannot be written: {cause}.", remedy="name a new file in a folder that exists."
    )


def yaml_of(content: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order of its keys.

    A text that the reader of configurations would take for another value gets quotes.
    """
    return str(yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH))


def yaml_key(name: str) -> str:
    """Return a name as the key of a mapping, in one line, of any length and with any characters."""
    text = yaml.dump(name, Dumper=_Dumper, allow_unicode=True, width=math.inf)
    return str(text).splitlines()[0]


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes lists of plain values in one line, and quotes texts that look like other values."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values each time: the reader refuses aliases."""
        return True


def _text(dumper: _Dumper, value: str) -> Any:
    is_plain = scalar(value) == value and isinstance(scalar(value), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else "'")


def _list(dumper: _Dumper, value: list[Any]) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
