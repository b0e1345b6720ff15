"""Results of pure functions of the project, kept while a world runs: it plans the same work many times.

Only functions without requests and without steps are kept, each by its whole input, so no check changes. The
results are frozen values. :func:`forgotten` is called when a defect is planted.
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from unittest import mock

from delta_cdc.core import codec, validation
from delta_cdc.core.watermark import Seal
from delta_cdc.delta_log import actions, checkpoint, log_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delta_cdc.delta_log.requests import Storage

_MOST = 20_000
_seals: dict[str | None, Seal | None] = {}
_lines: dict[tuple[bytes, ...], list[Any]] = {}
_rows: dict[tuple[bytes, tuple[str, ...]], list[Any]] = {}


def forgotten() -> None:
    """Forget all results."""
    _seals.clear()
    _lines.clear()
    _rows.clear()


def _by_identity(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that keeps its results, and the arguments, so that no other object gets their id."""
    found: dict[int, tuple[Any, Any]] = {}

    def kept(value: Any) -> Any:
        known = found.get(id(value))
        if known is None:
            known = found[id(value)] = value, function(value)
        return known[1]

    return kept


@contextmanager
def kept() -> Iterator[None]:
    """Keep results during the block."""
    if max(len(_seals), len(_lines), len(_rows)) > _MOST:
        forgotten()
    plain_seal, plain_lines = Seal.from_json, actions.parse_lines
    plain_batches = checkpoint._parquet_batches

    def seal(text: str | None) -> Seal | None:
        if text not in _seals:
            _seals[text] = plain_seal(text)
        return _seals[text]

    def parsed(lines: Sequence[bytes], *, first: int = 1) -> list[Any]:
        key = tuple(lines)
        known = _lines.get(key)
        if known is None:
            known = _lines[key] = plain_lines(lines, first=first)
        return known

    def batches(
        storage: Storage, name: str, content: bytes | None, columns: tuple[str, ...]
    ) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        if content is None:
            return plain_batches(storage, name, content, columns)
        if (content, columns) not in _rows:
            _rows[content, columns] = list(plain_batches(storage, name, content, columns))
        # A copy, because the reader changes what it gets.
        return iter(deepcopy(_rows[content, columns]))

    with (
        mock.patch.object(checkpoint, "_parquet_batches", batches),
        mock.patch.object(Seal, "from_json", seal),
        mock.patch.object(log_files, "parse_lines", parsed),
        mock.patch.object(codec, "identity", _by_identity(codec.identity)),
        mock.patch.object(validation, "described", _by_identity(validation.described)),
    ):
        yield
