"""A disk that fails, as the readers and writers in Python see it: by chance from a seed, or at one operation.

The functions of obstore, and those of ``os``, are replaced for the files below one folder. The JVM has
``java/FaultyDisk.java``.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import obstore
from obstore.exceptions import GenericError
from obstore.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: ``io``: the device fails (EIO). ``denied``: no right (EACCES). ``full``: no space (ENOSPC), only writes.
#: ``renamed``: EIO after a rename was done. ``stale``: a listing without its newest file. ``torn``: the
#: beginning of the newest commit.
Kind = Literal["io", "denied", "full", "renamed", "stale", "torn"]
KINDS: tuple[Kind, ...] = ("io", "denied", "full", "renamed")
#: What no disk does whose files come whole and are listed at once, as those of our log store.
LAGGING: tuple[Kind, ...] = ("stale", "torn")

_ERRORS: dict[Kind, tuple[int, str]] = {
    "io": (errno.EIO, "Input/output error"),
    "renamed": (errno.EIO, "Input/output error"),
    "denied": (errno.EACCES, "Permission denied"),
    "full": (errno.ENOSPC, "No space left on device"),
}
_FITTING: dict[str, tuple[Kind, ...]] = {
    "head": ("io", "denied"),
    "get": ("io", "denied", "torn"),
    "stat": ("io", "denied"),
    "list": ("io", "denied", "stale"),
    "write": ("io", "denied", "full"),
    "rename": ("io", "denied", "full", "renamed"),
}


class FaultyDisk:
    """The files below a folder.

    :param decide: gets operation, file, and the faults that fit
    """

    def __init__(self, root: Path, decide: Callable[[str, Path, tuple[Kind, ...]], Kind | None]) -> None:
        self.root = root
        self.decide = decide
        self.struck: list[tuple[str, Kind]] = []

    def fault(self, operation: str, path: Any) -> Kind | None:
        """Return what happens to an operation."""
        try:
            file = Path(os.fsdecode(path))
        except TypeError:
            # A file that is open already.
            return None
        if not file.is_relative_to(self.root):
            return None
        kind = self.decide(operation, file, _FITTING[operation])
        if kind is not None:
            self.struck.append((operation, kind))
        return kind

    def check(self, operation: str, path: Any) -> Kind | None:
        """Raise the error of an operation in Python, if it gets one."""
        kind = self.fault(operation, path)
        if kind in ("io", "denied", "full"):
            code, text = _ERRORS[kind]
            raise OSError(code, text, os.fspath(path))
        return kind

    @contextmanager
    def installed(self) -> Iterator[FaultyDisk]:
        """Let the operations fail within a block."""
        with (
            mock.patch.multiple(obstore, **self._of_obstore()),
            mock.patch.multiple(os, **self._of_python()),
        ):
            yield self

    def _of_obstore(self) -> dict[str, Any]:
        real = {name: getattr(obstore, name) for name in ("head_async", "get_async", "head", "get")}

        def answered(operation: str, store: Any, name: str) -> Kind | None:
            if not isinstance(store, LocalStore):
                return None
            path = Path(str(store.prefix), name)
            kind = self.fault(operation, path) if os.path.lexists(path) else None
            if kind == "torn" and not _is_newest(path):
                self.struck.pop()
                return None
            if kind in _ERRORS:
                code, text = _ERRORS[kind]
                raise GenericError(
                    f"Generic LocalFileSystem error: Unable to open file {path}: {text} (os error {code})"
                )
            return kind

        async def head(store: Any, name: str) -> Any:
            answered("head", store, name)
            return await real["head_async"](store, name)

        async def get(store: Any, name: str, *, options: Any = None) -> Any:
            kind = answered("get", store, name)
            answer = await real["get_async"](store, name, options=options)
            return await _Torn.of(answer) if kind == "torn" and options is None else answer

        def blocking(operation: str) -> Any:
            def call(store: Any, name: str, **given: Any) -> Any:
                answered("head", store, name)
                return real[operation](store, name, **given)

            return call

        return {"head_async": head, "get_async": get, "head": blocking("head"), "get": blocking("get")}

    def _of_python(self) -> dict[str, Any]:
        stat, scandir, replace, mkdir = os.stat, os.scandir, os.replace, os.mkdir

        def scanned(path: Any = ".") -> Any:
            kind = self.check("list", path)
            found = scandir(path)
            return _Stale(found) if kind == "stale" else found

        def stated(path: Any, *given: Any, **more: Any) -> os.stat_result:
            self.check("stat", path)
            return stat(path, *given, **more)

        def replaced(source: Any, target: Any, **given: Any) -> None:
            kind = self.check("rename", target)
            replace(source, target, **given)
            if kind == "renamed":
                code, text = _ERRORS[kind]
                raise OSError(code, text, os.fspath(target))

        def made(path: Any, *given: Any, **more: Any) -> None:
            self.check("write", path)
            mkdir(path, *given, **more)

        return {"scandir": scanned, "stat": stated, "replace": replaced, "mkdir": made}


def _is_newest(file: Path) -> bool:
    """Return whether a file is the newest commit of a log."""
    if file.parent.name != "_delta_log":
        return False
    names = [name for name in os.listdir(file.parent) if name.endswith(".json")]  # noqa: PTH208
    return file.name == max(names, default="")


class _Stale:
    """A listing without its newest file."""

    def __init__(self, found: Any) -> None:
        with found:
            entries = list(found)
        newest = max(entries, key=lambda entry: (entry.stat().st_mtime_ns, entry.name), default=None)
        self._entries = iter([entry for entry in entries if entry is not newest])

    def __enter__(self) -> _Stale:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def close(self) -> None:
        """Do nothing: the directory is closed."""


class _Torn:
    """The first lines of a file, as the answer of obstore."""

    def __init__(self, meta: Any, content: bytes) -> None:
        self.meta, self._content = {**meta, "size": len(content)}, content
        self.range = (0, len(content))

    @classmethod
    async def of(cls, answer: Any) -> _Torn:
        content = bytes(await answer.bytes_async())
        return cls(answer.meta, content[: content.rfind(b"\n", 0, len(content) * 2 // 3) + 1])

    async def bytes_async(self) -> bytes:
        return self._content

    async def stream(self, min_chunk_size: int) -> Any:
        yield self._content
