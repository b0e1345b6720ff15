"""Writes and reads the manifest of a group: one file, replaced as a whole."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, PublicationUnreadable, StoreUnavailable
from delta_cdc.core.publication import Publication, pinned
from delta_cdc.core.uris import canonical_uri, local_path
from delta_cdc.delta_log.requests import Storage, put_after, put_stream
from delta_cdc.delta_log.table import run_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from delta_cdc.delta_log.requests import Entry

_log = logging.getLogger(__name__)
#: How often a manifest is read again because another program wrote it in between.
_MOST_TRIES = 20


def views_manifest(manifest: str) -> str:
    """Return the location of the manifest that names the schema of views, beside that of the versions."""
    return f"{manifest.removesuffix('.json')}.views.json"


def publish_versions(
    manifest: str,
    group: str,
    tables: Mapping[str, Any],
    *,
    unknown: Collection[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> Publication:
    """Write the versions that a publish named into the manifest of its group.

    The file is replaced as a whole: a reader sees all versions of one publish. It stays as it is if the
    publish names an older version of a table (its task was slow or was cleared), or does not know the version
    of a table that the file names.

    :param manifest: path or URI of the file
    :param group: the group's ``dag_id``
    :param tables: the map ``tables`` of the event of the group's asset: ``{pipeline: {target, target_version,
        version, seals, table_id}}``. Without ``table_id``, a table that was made again at the same place
        counts as an earlier version
    :param unknown: pipelines of the group whose versions could not be found out
    :param storage_options: options of the object store
    :return: what the manifest has now
    :raises PublicationUnreadable: the file exists, and is no manifest of this group
    :raises InvalidConfiguration: ``tables`` is not such a map, or is empty
    """
    named = pinned(tables)
    if not named:
        raise InvalidConfiguration(
            f"A publish of group {group} names no table.",
            remedy="give the versions of all tables of the group.",
        )

    def next_one(earlier: Publication | None) -> Publication | None:
        now = time.time_ns() // 1_000_000
        if earlier is None:
            return Publication(group, now, named)
        if earlier.group != group:
            raise PublicationUnreadable(
                f"{manifest} is the manifest of group {earlier.group}, not of {group}.",
                remedy="give each group its own manifest; if the group got another name, delete the file.",
            )
        new = Publication(group, max(now, earlier.number + 1), named)
        if earlier.tables == new.tables:
            return None
        if lacking := sorted(earlier.tables.keys() & set(unknown)):
            _log.warning(
                "%s stays, because the versions of %s are not known now.", manifest, ", ".join(lacking)
            )
            return None
        if not new.follows(earlier):
            _log.warning("%s has later versions than this publish of %s, and stays.", manifest, group)
            return None
        return new

    return _replaced(manifest, next_one, dict(storage_options) if storage_options else None)


def published(manifest: str, *, storage_options: Mapping[str, str] | None = None) -> Publication:
    """Return the versions that the newest publish of a group named.

    :param manifest: path or URI of the file
    :param storage_options: options of the object store
    :raises PublicationUnreadable: there is no manifest, or the file is another one
    """
    found, _ = _found(manifest, dict(storage_options) if storage_options else None)
    if found is None:
        raise PublicationUnreadable(
            f"There is no manifest at {manifest}.",
            remedy="check the path; the first publish of the group writes the file.",
        )
    return found


def write_views(
    manifest: str, publication: Publication, storage_options: Mapping[str, str] | None = None
) -> Publication:
    """Name the schema of views that shows a publish, unless a later one is named.

    :return: the publish whose views are named now
    """

    def next_one(named: Publication | None) -> Publication | None:
        is_later = named is not None and named.group == publication.group
        return None if named is not None and is_later and named.number > publication.number else publication

    return _replaced(views_manifest(manifest), next_one, dict(storage_options) if storage_options else None)


def _replaced(
    manifest: str,
    next_one: Callable[[Publication | None], Publication | None],
    options: dict[str, str] | None,
) -> Publication:
    """Replace a manifest by what follows from it, although other programs write it, too.

    :param next_one: takes what the file has, and returns its new content; None: it stays
    :return: what the file has now
    :raises StoreUnavailable: other programs wrote it each time
    """
    folder, name = _split(manifest)
    with _alone(folder):
        for _ in range(_MOST_TRIES):
            found, entry = _found(manifest, options)
            new = next_one(found)
            if new is None:
                assert found is not None
                return found
            if _write(folder, name, new, entry, options):
                return new
    raise StoreUnavailable(
        f"Other programs wrote {manifest} at the same time, {_MOST_TRIES} times.",
        remedy="try again; give each group its own manifest.",
    )


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Let no other program of this machine replace a manifest in a local folder at the same time."""
    path = local_path(folder)
    if path is None:
        yield
        return
    with Storage(folder).named():
        Path(path).mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY)
    try:
        # Some network disks have no locks.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _split(manifest: str) -> tuple[str, str]:
    folder, _, name = canonical_uri(manifest).rpartition("/")
    return folder or "/", name


def _found(manifest: str, options: dict[str, str] | None) -> tuple[Publication | None, Entry | None]:
    """Return the content and the entry of a manifest; None without one."""
    folder, name = _split(manifest)
    found = run_sync(_read(Storage(folder, options), name))
    return (None, None) if found is None else (Publication.from_json(found[1], manifest), found[0])


async def _read(storage: Storage, name: str) -> tuple[Entry, bytes] | None:
    async with storage.open(name) as opened:
        if opened is None:
            return None
        return opened[0], b"".join([chunk async for chunk in opened[1]])


def _write(
    folder: str, name: str, publication: Publication, seen: Entry | None, options: dict[str, str] | None
) -> bool:
    """Write a manifest; return False if another program wrote it since it was read."""
    content = f"{publication.to_json()}\n".encode()
    if local_path(folder) is None:
        return run_sync(put_after(folder, name, content, seen, options))
    run_sync(put_stream(folder, name, iter([content]), options))
    return True
