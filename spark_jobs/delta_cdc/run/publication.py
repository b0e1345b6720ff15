"""Writes and reads the manifest of a group: one file, replaced as a whole."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import PublicationUnreadable
from delta_cdc.core.publication import Publication, pinned
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.requests import Storage, put_stream
from delta_cdc.delta_log.table import run_sync

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)


def views_manifest(manifest: str) -> str:
    """Return the location of the manifest that names the schema of views, beside that of the versions."""
    return f"{manifest.removesuffix('.json')}.views.json"


def publish_versions(
    manifest: str,
    group: str,
    tables: Mapping[str, Any],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Publication:
    """Write the versions that a publish named into the manifest of its group.

    The file is replaced as a whole: a reader sees all versions of one publish. A publish of an earlier
    run, whose
    task was slow or was cleared, changes nothing.

    :param manifest: path or URI of the file
    :param group: name of the group
    :param tables: the map ``tables`` of the event of the group's asset: ``{pipeline: {target, target_version,
        version, seals}}``
    :param storage_options: options of the object store
    :return: what the manifest has now
    :raises PublicationUnreadable: the file exists, and is no manifest of this group
    :raises InvalidConfiguration: ``tables`` is another value
    """
    options = dict(storage_options) if storage_options else None
    earlier = _found(manifest, options)
    now = time.time_ns() // 1_000_000
    new = Publication(group, now if earlier is None else max(now, earlier.number + 1), pinned(tables))
    if earlier is not None:
        if earlier.group != group:
            raise PublicationUnreadable(
                f"{manifest} is the manifest of group {earlier.group}, not of {group}.",
                remedy="give each group its own manifest.",
            )
        if earlier.tables == new.tables:
            return earlier
        if not new.follows(earlier):
            _log.warning("%s has later versions than this publish of %s, and stays.", manifest, group)
            return earlier
    _write(manifest, new, options)
    return new


def published(manifest: str, *, storage_options: Mapping[str, str] | None = None) -> Publication:
    """Return the versions that the newest publish of a group named.

    :param manifest: path or URI of the file
    :param storage_options: options of the object store
    :raises PublicationUnreadable: there is no manifest, or the file is another one
    """
    found = _found(manifest, dict(storage_options) if storage_options else None)
    if found is None:
        raise PublicationUnreadable(
            f"There is no manifest at {manifest}.",
            remedy="check the path; the first publish of the group writes the file.",
        )
    return found


def write_views(
    manifest: str, publication: Publication, storage_options: Mapping[str, str] | None = None
) -> None:
    """Name the schema of views that shows a publish."""
    _write(views_manifest(manifest), publication, dict(storage_options) if storage_options else None)


def _split(manifest: str) -> tuple[str, str]:
    folder, _, name = canonical_uri(manifest).rpartition("/")
    return folder or "/", name


def _found(manifest: str, options: dict[str, str] | None) -> Publication | None:
    folder, name = _split(manifest)
    content = run_sync(Storage(folder, options).read(name))
    return None if content is None else Publication.from_json(content, manifest)


def _write(manifest: str, publication: Publication, options: dict[str, str] | None) -> None:
    folder, name = _split(manifest)
    run_sync(put_stream(folder, name, iter([f"{publication.to_json()}\n".encode()]), options))
