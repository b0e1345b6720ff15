"""A table's log: newest version, commits, and the state at a version."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from delta_cdc.errors import (
    LogGap,
    NotADeltaTable,
    TableNotFound,
    UnsupportedTable,
    VersionsExpired,
)
from delta_cdc.log.actions import Commit, parse_commit
from delta_cdc.log.store import canonical_uri, local_path, open_store, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from deltalake import DeltaTable
    from obstore.store import ObjectStore

T = TypeVar("T")
_COMMIT = re.compile(r"^_delta_log/(\d{20})\.json$")
_LOG_ENTRY = re.compile(r"^_delta_log(/|$)")
_DATA_FILE = re.compile(r"(^|/)part-[^/]+\.parquet$")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CATALOG_MANAGED = ("catalogManaged", "catalogOwned-preview")
_CONCURRENT = 16


@dataclass(frozen=True)
class TableState:
    """A table at one version.

    :param created_time: epoch milliseconds, as ``metaData.createdTime`` has it
    :param features: reader and writer features together
    """

    uri: str
    table_id: str
    version: int
    configuration: dict[str, str]
    schema_columns: tuple[str, ...]
    schema_string: str
    partition_columns: tuple[str, ...]
    created_time: int | None
    features: tuple[str, ...]
    num_files: int
    _count_rows: Callable[[], int] = field(repr=False, compare=False, default=lambda: 0)

    @property
    def is_empty(self) -> bool:
        """Return whether the table holds no row (counted only where there are files)."""
        return self.num_files == 0 or self._count_rows() == 0


class DeltaLog:
    """Reads one table's log. Every method is asynchronous; :func:`run_sync` gives them a plain face.

    :param table: path or URI
    :param storage_options: credentials and client options, as delta-rs names them
    """

    def __init__(self, table: str, storage_options: dict[str, str] | None = None) -> None:
        self.uri = canonical_uri(table)
        self._options = storage_options
        self._store: ObjectStore | None = None
        self._opened: DeltaTable | None = None
        self._link: tempfile.TemporaryDirectory[str] | None = None

    async def newest_version(self, after: int | None = None) -> int:
        """Return the newest version; with ``after``, one existence request when nothing is newer.

        :raises TableNotFound: where nothing is at the location
        :raises NotADeltaTable: where files are there, but no commit
        """
        if after is None:
            return (await self._versions())[-1]
        while await self._exists(after + 1):
            after += 1
        return after

    async def commit(self, version: int) -> Commit:
        """Return one commit.

        :raises VersionsExpired: where the log was cleaned beyond it
        :raises LogGap: where it is missing between others
        """
        found = await self.find(version)
        if found is None:
            raise await self._missing(version)
        return found

    async def find(self, version: int) -> Commit | None:
        """Return one commit, or None where its file is not there."""
        import obstore

        store = self._root()
        if store is None or version < 0:
            return None
        try:
            result = await obstore.get_async(store, _path(version))
        except FileNotFoundError:
            return None
        content = (await result.bytes_async()).to_bytes()
        modified = int(result.meta["last_modified"].timestamp() * 1000)
        try:
            return parse_commit(version, content, modified=modified)
        except (ValueError, KeyError) as error:
            raise UnsupportedTable(
                f"The commit file of version {version} of {self.uri} is not readable ({error!r}).",
                remedy="check the table with DESCRIBE HISTORY; a damaged log has to be repaired first.",
            ) from error

    async def commits(self, versions: range) -> tuple[Commit, ...]:
        """Return the commits of a range, ascending, read concurrently.

        :raises VersionsExpired: where the log was cleaned beyond one of them
        :raises LogGap: where one is missing between others
        """
        gate = asyncio.Semaphore(_CONCURRENT)

        async def one(version: int) -> Commit | None:
            async with gate:
                return await self.find(version)

        found = await asyncio.gather(*[one(version) for version in versions])
        for version, commit in zip(versions, found, strict=True):
            if commit is None:
                # The first one that is missing, whichever answer came first.
                raise await self._missing(version)
        return tuple(commit for commit in found if commit is not None)

    async def oldest_version(self) -> int:
        """Return the oldest version whose commit file is still there."""
        return (await self._versions())[0]

    async def snapshot(self, version: int | None = None) -> TableState:
        """Return the table as of a version (default: newest).

        :raises TableNotFound: where nothing is at the location
        :raises NotADeltaTable: where files are there, but no commit
        :raises VersionsExpired: where the version cannot be rebuilt any more
        :raises UnsupportedTable: for catalog-managed tables and unknown reader features
        """
        return await asyncio.to_thread(self._state, version)

    async def transaction(self, app_id: str) -> int | None:
        """Return the version an application recorded last, as of the newest version (or the one opened last
        by :meth:`snapshot` without a version)."""
        if self._opened is None:
            await self.snapshot()
        assert self._opened is not None
        found: int | None = await asyncio.to_thread(self._opened.transaction_version, app_id)
        return found

    async def files(self, version: int) -> frozenset[tuple[str, int]]:
        """Return the active files of a version, each with the number of its rows that are masked."""
        return await asyncio.to_thread(self._files, version)

    # -- inside -----------------------------------------------------------------------------------
    def _root(self) -> ObjectStore | None:
        if self._store is None:
            self._store = open_store(self.uri, self._options)
        return self._store

    async def _exists(self, version: int) -> bool:
        import obstore

        store = self._root()
        if store is None:
            return False
        try:
            await obstore.head_async(store, _path(version))
        except FileNotFoundError:
            return False
        return True

    async def _versions(self) -> list[int]:
        names = await self._names("_delta_log/")
        found = sorted(int(m.group(1)) for m in map(_COMMIT.match, names) if m)
        if not found:
            raise await self._absent()
        return found

    async def _names(self, prefix: str | None) -> list[str]:
        import obstore

        store = self._root()
        if store is None:
            return []
        names: list[str] = []
        async for batch in obstore.list(store, prefix):
            names.extend(entry["path"] for entry in batch)
        return names

    async def _absent(self) -> TableNotFound | NotADeltaTable:
        if await self.left_over():
            return TableNotFound(
                f"There is no Delta table at {self.uri}.",
                remedy="check the location, or create the table.",
            )
        return NotADeltaTable(
            f"There are files at {self.uri}, but no Delta log.",
            remedy="name a Delta table's root folder, or CONVERT TO DELTA first; delete what a crash of a "
            "first load left there.",
        )

    async def left_over(self) -> bool:
        """Return whether the location holds nothing but what a crash before version 0 leaves behind."""
        path = local_path(self.uri)
        if path is not None:
            return await asyncio.to_thread(_local_left_over, Path(path))
        return _stored_left_over(await self._names(None))

    async def _missing(self, version: int) -> LogGap | VersionsExpired:
        versions = await self._versions()
        if version < versions[0]:
            return VersionsExpired(
                f"Version {version} of {self.uri} was cleaned from the log (the oldest is {versions[0]}).",
                remedy="load the target anew, and raise delta.logRetentionDuration on the table.",
            )
        return LogGap(
            f"The commit file of version {version} of {self.uri} is missing (the newest is {versions[-1]}).",
            remedy="bring the file back from a backup, or load the target anew.",
        )

    def _open(self, version: int | None) -> DeltaTable:
        from deltalake import DeltaTable

        path = local_path(self.uri)
        if path is None:
            return DeltaTable(quoted(self.uri), version=version, storage_options=self._options)
        return DeltaTable(self._plain(path), version=version)

    def _plain(self, path: str) -> str:
        """Return a path that delta-rs can open.

        It decodes an escape such as ``%41`` in a local path twice, so such a table's log is read through a
        link in a folder of its own, which lives as long as this object: handles read it again.
        """
        if not _ESCAPE.search(path):
            return path
        if self._link is None:
            self._link = tempfile.TemporaryDirectory(prefix="delta-cdc-")
            (Path(self._link.name) / "_delta_log").symlink_to(Path(path) / "_delta_log")
        return self._link.name

    def _state(self, version: int | None) -> TableState:
        table = self._opened_table(version)
        metadata, protocol = table.metadata(), table.protocol()
        features = tuple(sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}))
        self._refuse(features)
        schema_string = table.schema().to_json()
        if version is None:
            self._opened = table
        return TableState(
            uri=self.uri,
            table_id=str(metadata.id),
            version=table.version(),
            configuration=dict(metadata.configuration),
            schema_columns=tuple(entry["name"] for entry in json.loads(schema_string)["fields"]),
            schema_string=schema_string,
            partition_columns=tuple(metadata.partition_columns),
            created_time=metadata.created_time,
            features=features,
            num_files=len(table.file_uris()),
            _count_rows=lambda: _rows(table),
        )

    def _opened_table(self, version: int | None) -> DeltaTable:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        path = local_path(self.uri)
        if path is not None and not Path(path).is_dir():
            raise run_sync(self._absent())
        try:
            return self._open(version)
        except (TableNotFoundError, FileNotFoundError) as error:
            raise run_sync(self._why(version)) from error
        except (DeltaError, OSError, ValueError) as error:
            raise run_sync(self._unopened(version, error)) from error

    async def _why(self, version: int | None) -> Exception:
        try:
            versions = await self._versions()
        except (TableNotFound, NotADeltaTable) as absent:
            return absent
        at = versions[-1] if version is None else version
        return VersionsExpired(
            f"Version {at} of {self.uri} cannot be rebuilt from the log; the oldest commit is {versions[0]}.",
            remedy="load the target anew, and raise delta.logRetentionDuration on the table.",
        )

    async def _unopened(self, version: int | None, error: Exception) -> Exception:
        try:
            versions = await self._versions()
        except (TableNotFound, NotADeltaTable) as absent:
            return absent
        protocol = await self._newest_protocol(versions)
        if protocol is not None:
            try:
                self._refuse(protocol)
            except UnsupportedTable as refused:
                return refused
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "feature" in text.lower() or "unsupported" in text.lower():
            return UnsupportedTable(
                f"The table {self.uri} uses a feature that cannot be read here: {text}.",
                remedy="drop the feature from the table, or use a newer release of this package.",
            )
        holes = sorted(set(range(versions[0], versions[-1] + 1)) - set(versions))
        if holes:
            return await self._missing(holes[-1])
        if version is not None and version not in versions:
            return await self._missing(version)
        at = versions[-1] if version is None else version
        return VersionsExpired(
            f"Version {at} of {self.uri} cannot be rebuilt: {text}.",
            remedy="check the table with DESCRIBE HISTORY; load the target anew where the log was cleaned.",
        )

    async def _newest_protocol(self, versions: list[int]) -> tuple[str, ...] | None:
        for version in reversed(versions):
            commit = await self.find(version)
            if commit is not None and commit.protocol is not None:
                return commit.protocol.reader_features + commit.protocol.writer_features
        return None

    def _refuse(self, features: tuple[str, ...]) -> None:
        for feature in _CATALOG_MANAGED:
            if feature in features:
                raise UnsupportedTable(
                    f"The table {self.uri} is managed by its catalog (feature {feature}): its log does not "
                    "tell which commits count.",
                    remedy="use a table that is not catalog-managed.",
                )

    def _files(self, version: int) -> frozenset[tuple[str, int]]:
        table = self._opened_table(version)
        masked = {}
        for batch in table.deletion_vectors():
            paths, vectors = (
                batch.column("filepath").to_pylist(),
                batch.column("selection_vector").to_pylist(),
            )
            for path, keep in zip(paths, vectors, strict=True):
                masked[_name(str(path))] = len(keep) - sum(keep)
        return frozenset((_name(uri), masked.get(_name(uri), 0)) for uri in table.file_uris())


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: here, or in a thread of its own where a loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        looping = False
    else:
        looping = True
    if not looping:
        # Outside of the handler, so that "no running event loop" isn't shown as the cause of what comes out.
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="delta-cdc-log") as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _local_left_over(path: Path) -> bool:
    """Spark makes the log's folder before it writes data, which tells plain Parquet from a crash."""
    return not path.is_dir() or (path / "_delta_log").is_dir() or not any(path.iterdir())


def _stored_left_over(names: list[str]) -> bool:
    """The same for an object store, where a folder is a mark of its own, or no more than a part of names."""
    rest = [name for name in names if not _LOG_ENTRY.match(name)]
    return not names or (len(rest) < len(names) and all(map(_DATA_FILE.search, rest)))


def _path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _name(uri: str) -> str:
    return uri.rsplit("/", 1)[-1]


def _rows(table: DeltaTable) -> int:
    return int(table.count())
