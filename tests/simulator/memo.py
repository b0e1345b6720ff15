"""Results of pure functions of the project, kept while a world runs: it plans the same work many times.

Only functions without requests and without steps are kept, each by its whole input, so no check changes. The
results are frozen values. :func:`forgotten` is called when a defect is planted.
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from delta_cdc.core import change_log, codec, rules, spec, validation
from delta_cdc.core.watermark import Seal
from delta_cdc.delta_log import checkpoint, log_files, table
from delta_cdc.planning import apply, modes
from tests.simulator.patches import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.requests import Storage

    _Batches = Iterator[list[tuple[str, dict[str, Any]]]]

_MOST = 20_000
_seals: dict[str | None, Seal | None] = {}
_lines: dict[tuple[bytes, ...], list[Any]] = {}
_rows: dict[tuple[bytes, tuple[str, ...]], list[Any]] = {}
_commits: dict[tuple[int, bytes, int], Commit | None] = {}
#: By functions and identities of frozen values: the values, so that no other has their identity; the result.
_found: dict[tuple[Any, ...], tuple[Any, Any]] = {}
_ALL: tuple[dict[Any, Any], ...] = (_seals, _lines, _rows, _commits, _found)


def forgotten() -> None:
    """Forget all results."""
    for results in _ALL:
        results.clear()


def _by_identity(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that keeps its results, and the arguments, so that no other object gets their id."""
    found: dict[int, tuple[Any, Any]] = {}

    def kept(value: Any) -> Any:
        known = found.get(id(value))
        if known is None:
            known = found[id(value)] = value, function(value)
        return known[1]

    return kept


def _once(function: Callable[..., Any], *key: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that keeps its results over all worlds; an error is raised again.

    :param key: for each argument, returns what stands for it
    """

    def once(*given: Any) -> Any:
        known = (function, *[of(one) for of, one in zip(key, given, strict=False)])
        found = _found.get(known)
        if found is None:
            found = _found[known] = given, function(*given)
        return found[1]

    return once


def _description(properties: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the properties by which a source describes itself."""
    return tuple([properties.get(name) for name in change_log.DESCRIPTION])


def _seal_of(plain: Callable[[str | None], Seal | None]) -> Callable[[str | None], Seal | None]:
    def seal(text: str | None) -> Seal | None:
        if text not in _seals:
            _seals[text] = plain(text)
        return _seals[text]

    return seal


def _parsed(plain: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def parsed(lines: Sequence[bytes], *, first: int = 1) -> list[Any]:
        key = tuple(lines)
        known = _lines.get(key)
        if known is None:
            known = _lines[key] = plain(lines, first=first)
        return known

    return parsed


def _folded(plain: Callable[..., Commit | None]) -> Callable[..., Commit | None]:
    def folded(version: int, content: bytes, modified: int, enough: Any = None) -> Commit | None:
        if enough is not None:
            return plain(version, content, modified, enough)
        key = version, content, modified
        if key not in _commits:
            _commits[key] = plain(version, content, modified)
        return _commits[key]

    return folded


def _batches(plain: Callable[..., _Batches]) -> Callable[..., _Batches]:
    def batches(storage: Storage, name: str, content: bytes | None, columns: tuple[str, ...]) -> _Batches:
        if content is None:
            return plain(storage, name, content, columns)
        if (content, columns) not in _rows:
            _rows[content, columns] = list(plain(storage, name, content, columns))
        # A copy, because the reader changes what it gets.
        return iter(deepcopy(_rows[content, columns]))

    return batches


@contextmanager
def kept() -> Iterator[None]:
    """Keep results during the block."""
    if max(map(len, _ALL)) > _MOST:
        forgotten()
    with replaced(
        (checkpoint, {"_parquet_batches": _batches(checkpoint._parquet_batches)}),
        (Seal, {"from_json": _seal_of(Seal.from_json)}),
        (
            log_files,
            {"parse_lines": _parsed(log_files.parse_lines), "fold_whole": _folded(log_files.fold_whole)},
        ),
        (codec, {"identity": _by_identity(codec.identity)}),
        (
            validation,
            {
                "described": _by_identity(validation.described),
                "check_drift": _once(validation.check_drift, id, id, str, str, id),
            },
        ),
        (spec, {"sha256": _once(spec.sha256, str)}),
        (rules, {"check_options": _once(rules.check_options, id)}),
        (change_log, {"completed": _once(change_log.completed, id, _description)}),
        (apply, {"leaf_paths": _once(apply.leaf_paths, str)}),
        (modes, {"leaf_paths": _once(modes.leaf_paths, str)}),
        (table, {"read_schema": _once(table.read_schema, str)}),
    ):
        yield
