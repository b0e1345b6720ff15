"""The files that a worker and its application exchange: their locations and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from airflow.providers.common.compat.sdk import conf

from airflow_delta_cdc import engine
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.storage_options import same_store
from delta_cdc.core.uris import KNOWN_SCHEMES, canonical_uri

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    Options = Mapping[str, str] | None

#: The provider's section in Airflow's configuration.
SECTION = "delta_cdc"


@dataclass(frozen=True)
class Exchange:
    """The locations of one application's files, as ``spark-submit`` and the driver open them.

    :param application: the application file
    :param engine: the engine's zip, for ``--py-files``
    :param spec: the spec, as the driver opens it
    :param result: location of the result: a local file in client mode, or else the URI of a folder that the
        driver's Spark writes
    :param files: files that ``--files`` sends to the driver, or None
    :param folder: URI of the run's folder that cluster and worker share; None without one
    """

    application: str
    engine: str
    spec: str
    result: str
    files: str | None = None
    folder: str | None = None


def results_uri() -> str:
    """Return the configured folder that workers and clusters share, a path as a URI; empty without one.

    :raises InvalidConfiguration: the setting is no folder that can be reached
    """
    text = (conf.get(SECTION, "results_uri", fallback="") or "").strip().rstrip("/")
    if text.startswith("/"):
        return Path(text).as_uri()
    scheme, _, rest = text.partition("://")
    if text and not (scheme.lower() in KNOWN_SCHEMES and rest):
        raise InvalidConfiguration(
            f"[{SECTION}] results_uri is {text!r}, which is no folder that a worker can read.",
            remedy="set it to a folder that workers and drivers reach, such as s3://bucket/folder, "
            "abfss://container@account.dfs.core.windows.net/folder, gs://bucket/folder or a path.",
        )
    return text


def needed_results_uri(reason: str) -> str:
    """Return the configured folder.

    :param reason: why the folder is needed, for the error
    :raises InvalidConfiguration: no folder is configured
    """
    uri = results_uri()
    if not uri:
        raise InvalidConfiguration(
            f"{reason}, and no folder is set that the worker and the cluster can both reach.",
            remedy=f"set [{SECTION}] results_uri to a folder of an object store that the worker and "
            "the driver can both reach.",
        )
    return uri


def read_text(uri: str, *, is_local: bool, options: Options = None) -> str | None:
    """Return the result of a driver; None if it left none.

    :param is_local: whether ``uri`` is a local file, not a folder that Spark wrote
    :param options: options of the tables' storage; they count if the folder is on the same kind of store
    """
    if is_local:
        path = Path(uri)
        return path.read_text(encoding="utf-8") if path.exists() else None
    import obstore

    with _named(uri, options):
        store = _open_existing(uri, options)
        if store is None:
            return None
        objects = obstore.list_with_delimiter(store)["objects"]
        # Spark writes part files, a marker and checksums.
        names = [item["path"] for item in objects]
        parts = sorted(name for name in names if name.rpartition("/")[2].startswith("part-"))
        text = "".join(bytes(obstore.get(store, part).bytes()).decode() for part in parts)
    return text.strip() or None


def put_object(uri: str, data: bytes, options: Options = None) -> None:
    """Write one object to the shared folder.

    :param options: see :func:`read_text`
    """
    import obstore

    with _named(uri, options):
        store, name = _open_folder(uri, options)
        obstore.put(store, name, data)


def put_file_once(uri: str, file: Path, options: Options = None) -> None:
    """Write a file to the shared folder, unless it exists. For files whose names identify their content.

    :param options: see :func:`read_text`
    """
    import obstore

    with _named(uri, options):
        store, name = _open_folder(uri, options)
        try:
            is_there = obstore.head(store, name)["size"] == file.stat().st_size
        except FileNotFoundError:
            is_there = False
        if not is_there:
            obstore.put(store, name, file.read_bytes())


def delete_folder(uri: str, options: Options = None) -> None:
    """Delete a folder in the shared folder with all its content; it may be missing.

    :param options: see :func:`read_text`
    """

    engine.run_sync(engine.delete_folder(uri, options_for(uri, options)))


def _named(uri: str, options: Options) -> AbstractContextManager[None]:
    """Raise the errors of the store of a folder by name: it does not answer, or refuses."""
    return engine.Storage(canonical_uri(uri), options_for(uri, options)).named()


def _open_existing(folder: str, options: Options) -> Any:
    """Return the store rooted at a folder; None if a folder of a file system does not exist."""
    # Do not create the folder: the driver may run as another user, who could not write to it.
    if folder.startswith("file:") and not Path(url2pathname(urlsplit(folder).path)).is_dir():
        return None
    return _open(folder, options)


def _open_folder(uri: str, options: Options) -> tuple[Any, str]:
    from obstore.store import from_url

    folder, _, name = uri.rpartition("/")
    if folder.startswith("file:"):
        # On a file system shared by workers and cluster, unlike on an object store, folders must be created.
        return from_url(folder, mkdir=True), name
    return _open(folder, options), name


def _open(folder: str, options: Options) -> Any:
    from obstore.store import from_url

    store_options = options_for(folder, options)
    # Without options, use the identity of the machine.
    return (
        from_url(folder) if store_options is None else engine.open_store(canonical_uri(folder), store_options)
    )


def options_for(folder: str, options: Options) -> dict[str, str] | None:
    """Return the options of the tables' storage if they fit the store of a folder.

    None means the identity of the machine.
    """

    return dict(options) if options and same_store(folder, options) else None
