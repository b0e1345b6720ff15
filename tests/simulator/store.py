"""An object store in memory, as obstore shows it to the log's reader and as Spark's clients see it.

``head_async``, ``get_async``, ``list`` and ``get_range_async`` of obstore are replaced while a world runs, so
everything above them is the project's own code. Each request is a step of the hub.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from obstore.exceptions import GenericError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.simulator.hub import Hub

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Stored:
    """An object.

    :param shown: the step from which requests of obstore see it; Spark sees it at once
    """

    content: bytes
    modified: int
    e_tag: str
    shown: int = 0


class AlreadyExists(Exception):
    """The key exists, and the request may not replace it."""


class NoAnswer(Exception):
    """The request failed, as far as its client knows."""


@dataclass
class Store:
    """A bucket.

    :param lag: how many steps pass until readers of the plain files see a new commit: only of a log store
        that keeps its commits in a second place (Delta's store with DynamoDB)
    """

    hub: Hub
    lag: int = 0
    objects: dict[str, Stored] = field(default_factory=dict)
    _count: int = 0

    # -- without a request: for those who watch the world, and for writers whose steps do not matter ------
    def write(self, key: str, content: bytes, *, lagging: bool = False) -> None:
        self._count += 1
        shown = self.hub.steps + self.lag if lagging and self.lag else 0
        self.objects[key] = Stored(content, self.hub.now, f'"{self._count}"', shown)

    def create(self, key: str, content: bytes) -> None:
        """Create an object that must not exist: atomic."""
        if key in self.objects:
            raise AlreadyExists(key)
        self.write(key, content, lagging=True)

    # -- obstore ------------------------------------------------------------------------------------------
    def visible(self, key: str) -> Stored | None:
        stored = self.objects.get(key)
        return None if stored is None or stored.shown > self.hub.steps else stored

    def request(self, kind: str) -> str | None:
        """Send a request that reads: its fault may be an error, or a body that breaks off."""
        fault = self.hub.step(kind)
        if fault in ("error", "lost"):
            raise GenericError(f"simulated: no answer to {kind}")
        return fault

    async def head(self, key: str) -> dict[str, Any]:
        self.request("head")
        return _meta(key, self._found(key))

    async def get(self, key: str) -> Answer:
        short = self.request("get")
        found = self._found(key)
        return Answer(_meta(key, found), found.content, short == "short")

    async def get_range(self, key: str, *, start: int, length: int) -> bytes:
        self.request("get")
        return self._found(key).content[start : start + length]

    async def list(self, prefix: str | None, *, offset: str | None = None) -> AsyncIterator[list[Any]]:
        self.request("list")
        names = sorted(key for key in self.objects if key.startswith(prefix or ""))
        yield [
            _meta(key, found)
            for key in names
            if (offset is None or key > offset) and (found := self.visible(key)) is not None
        ]

    def _found(self, key: str) -> Stored:
        found = self.visible(key)
        if found is None:
            raise FileNotFoundError(key)
        return found


@dataclass
class Answer:
    """What ``get_async`` returns."""

    meta: dict[str, Any]
    content: bytes
    short: bool

    async def bytes_async(self) -> bytes:
        if self.short:
            raise GenericError("simulated: the connection broke within the body")
        return self.content

    async def stream(self, min_chunk_size: int) -> AsyncIterator[bytes]:
        yield await self.bytes_async()


def _meta(key: str, stored: Stored) -> dict[str, Any]:
    return {
        "path": key,
        "size": len(stored.content),
        "last_modified": _EPOCH + timedelta(milliseconds=stored.modified),
        "e_tag": stored.e_tag,
    }
