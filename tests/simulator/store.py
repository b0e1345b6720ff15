"""An object store in memory, as obstore shows it to the log's reader and as Spark's clients see it.

``head_async``, ``get_async``, ``list`` and ``put_async`` of obstore are replaced while a
world runs, so everything above them is the project's own code. Each request is a step of the hub.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.simulator.hub import Hub

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Stored:
    """An object.

    :param shown: the step from which requests of obstore see it; Spark sees it at once
    :param whole: the step from which a reader sees all of it, and before which only ``beginning`` bytes
    """

    content: bytes
    modified: int
    e_tag: str
    shown: int = 0
    whole: int = 0
    beginning: int = 0


class AlreadyExists(Exception):
    """The key exists, and the request may not replace it."""


class NoAnswer(Exception):
    """The request failed, as far as its client knows."""


class Objects(dict[str, Stored]):
    """The objects by their keys, with the number of changes so far: who has seen it need not look again."""

    changes = 0

    def __setitem__(self, key: str, stored: Stored) -> None:
        self.changes += 1
        super().__setitem__(key, stored)

    def __delitem__(self, key: str) -> None:
        self.changes += 1
        super().__delitem__(key)

    def pop(self, key: str, default: Any = None) -> Any:
        """Remove an object, if it is there."""
        self.changes += 1
        return super().pop(key, default)


@dataclass
class Store:
    """A bucket.

    :param lag: how many steps pass until readers of the plain files see a new commit: only of a log store
        that keeps its commits in a second place (Delta's store with DynamoDB)
    """

    hub: Hub
    lag: int = 0
    objects: Objects = field(default_factory=Objects)
    #: Until this step, every request fails.
    throttled: int = 0
    #: The next commit file is torn for this many steps.
    tear: int = 0
    _count: int = 0
    #: From this step on, no file is torn.
    _all_whole: int = 0
    #: What the last listings found, by prefix: the number of changes then, and the names.
    _names: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    #: What requests return of objects beside their bytes, by their keys.
    _metas: dict[str, tuple[Stored, dict[str, Any]]] = field(default_factory=dict)

    # -- without a request: for those who watch the world, and for writers whose steps do not matter ------
    def write(self, key: str, content: bytes, *, lagging: bool = False) -> None:
        self._count += 1
        shown = self.hub.steps + self.lag if lagging and self.lag else 0
        stored = Stored(content, self.hub.now, f'"{self._count}"', shown)
        if lagging and self._all_whole > self.hub.steps:
            # Who commits a version has read the one before, so its file is whole by then.
            prefix = key.rpartition("/")[0]
            torn = [(other, one) for other, one in self.objects.items() if one.whole > self.hub.steps]
            for other, one in torn:
                if other.startswith(prefix):
                    self.objects[other] = replace(one, whole=0)
        if lagging and self.tear:
            self._all_whole = max(self._all_whole, self.hub.steps + self.tear)
            stored = replace(stored, whole=self.hub.steps + self.tear, beginning=self._first_bytes(content))
            self.tear = 0
        self.objects[key] = stored

    def create(self, key: str, content: bytes) -> None:
        """Create an object that must not exist: atomic."""
        if key in self.objects:
            raise AlreadyExists(key)
        self.write(key, content, lagging=True)

    def _first_bytes(self, content: bytes) -> int:
        """Return how many bytes of a torn file are seen: any number, and often whole lines."""
        at = (self.tear * 7919 + self._count) % max(1, len(content))
        return content.rfind(b"\n", 0, at) + 1 if self.tear % 3 else at

    def torn(self, prefix: str) -> bool:
        """Return whether a file is torn now."""
        steps = self.hub.steps
        return steps < self._all_whole and any(
            one.whole > steps for key, one in self.objects.items() if key.startswith(prefix)
        )

    # -- obstore ------------------------------------------------------------------------------------------
    def visible(self, key: str) -> Stored | None:
        stored = self.objects.get(key)
        if stored is None or stored.shown > self.hub.steps:
            return None
        if stored.whole > self.hub.steps:
            return replace(stored, content=stored.content[: stored.beginning])
        return stored

    def request(self, kind: str) -> str | None:
        """Send a request: its fault may be an error, or a body that breaks off."""
        fault = self.hub.step(kind)
        refused = fault in ("error", "throttle") or (fault == "lost" and kind != "put")
        if refused or self.hub.steps < self.throttled:
            raise GenericError(f"simulated: no answer to {kind}")
        return fault

    async def head(self, key: str) -> dict[str, Any]:
        self.request("head")
        return self._meta(key, self._found(key))

    async def get(self, key: str, part: tuple[int, int] | None = None) -> Answer:
        short = self.request("get")
        found = self._found(key)
        start, end = part or (0, len(found.content))
        content = found.content[start:end]
        return Answer(self._meta(key, found), content, short == "short", (start, start + len(content)))

    async def list(self, prefix: str | None, *, offset: str | None = None) -> AsyncIterator[list[Any]]:
        stale = self.request("list") == "stale"
        yield [self._meta(key, found) for key, found in self.listed(prefix or "", offset, stale=stale)]

    def listed(self, prefix: str, offset: str | None, *, stale: bool) -> list[tuple[str, Stored]]:
        """Return the objects of a listing.

        :param stale: the newest object is missing, and often some more
        """
        changes, names = self._names.get(prefix, (-1, []))
        if changes != self.objects.changes:
            names = sorted([key for key in self.objects if key.startswith(prefix)])
            self._names[prefix] = self.objects.changes, names
        seen = [
            (key, found)
            for key in names
            if (offset is None or key > offset) and (found := self.visible(key)) is not None
        ]
        if not stale:
            return seen
        newest = sorted((found.modified, key) for key, found in seen)[-1 - self.hub.steps % 3 :]
        return [one for one in seen if one[0] not in {key for _, key in newest}]

    async def put(self, key: str, content: Any, *, mode: Any = "overwrite") -> None:
        """Write an object, under the condition of its mode."""
        fault = self.request("put")
        found = self.objects.get(key)
        if mode == "create" and found is not None:
            raise AlreadyExistsError(key)
        if isinstance(mode, dict) and (found is None or found.e_tag != mode["e_tag"]):
            raise PreconditionError(key)
        self.write(key, content if isinstance(content, bytes) else content.read())
        if fault == "lost":
            raise GenericError("simulated: no answer to put, which was written")

    def _meta(self, key: str, stored: Stored) -> dict[str, Any]:
        known = self._metas.get(key)
        if known is None or known[0] is not stored:
            known = self._metas[key] = stored, _meta(key, stored)
        return known[1]

    def _found(self, key: str) -> Stored:
        found = self.visible(key)
        if found is None:
            raise FileNotFoundError(key)
        return found


@dataclass
class Folder:
    """A store rooted at a folder, as obstore opens a table on a disk."""

    store: Store
    prefix: str

    async def head(self, key: str) -> dict[str, Any]:
        return self._named(await self.store.head(self.prefix + key))

    async def get(self, key: str, part: tuple[int, int] | None = None) -> Answer:
        answer = await self.store.get(self.prefix + key, part)
        answer.meta = self._named(answer.meta)
        return answer

    def _named(self, meta: dict[str, Any]) -> dict[str, Any]:
        # A disk has no tags.
        return {**meta, "path": meta["path"].removeprefix(self.prefix), "e_tag": None}


@dataclass
class Answer:
    """What ``get_async`` returns."""

    meta: dict[str, Any]
    content: bytes
    short: bool
    range: tuple[int, int]

    async def bytes_async(self) -> bytes:
        if self.short:
            raise GenericError("simulated: the connection broke within the body")
        return self.content

    async def stream(self, min_chunk_size: int) -> AsyncIterator[bytes]:
        yield await self.bytes_async()


@lru_cache(maxsize=20_000)
def _moment(modified: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=modified)


def _meta(key: str, stored: Stored) -> dict[str, Any]:
    return {
        "path": key,
        "size": len(stored.content),
        "last_modified": _moment(stored.modified),
        "e_tag": stored.e_tag,
    }
