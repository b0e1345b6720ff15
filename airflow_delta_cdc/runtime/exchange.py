"""Files that a worker and the application it runs exchange: where they lie, and who may read them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from airflow.providers.common.compat.sdk import conf

from airflow_delta_cdc import engine
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.storage_options import same_store
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Options = Mapping[str, str] | None

#: Of Airflow's configuration.
SECTION = "delta_cdc"


@dataclass(frozen=True)
class Exchange:
    """Where one application finds its files, as ``spark-submit`` and as the driver know them.

    :param application: the application file
    :param engine: the engine's zip, for ``--py-files``
    :param spec: the spec as the driver opens it
    :param result: where the worker finds the result: a file of its own in client mode, else the URI of a
        folder that the driver's Spark writes
    :param files: what ``--files`` has to bring to the driver, or None
    :param folder: URI of the run's folder where cluster and worker reach it; None where it has none
    """

    application: str
    engine: str
    spec: str
    result: str
    files: str | None = None
    folder: str | None = None


@dataclass
class RunDirectory:
    """A directory of one run, that only this user can read.

    :param keep_log: whether Spark's log outlives the run. Only who comes to the end knows that it is not
        needed
    """

    path: Path
    keep_log: bool = True

    @property
    def log(self) -> Path:
        """Return where Spark's log lies."""
        return self.path / "spark.log"


@contextlib.contextmanager
def private_directory() -> Iterator[RunDirectory]:
    """Give a directory for a run; afterwards it is gone, but for Spark's log where that is kept."""
    directory = RunDirectory(Path(tempfile.mkdtemp(prefix="delta-cdc-")))
    try:
        yield directory
    finally:
        _clean(directory.path, keep=directory.log if directory.keep_log else None)


def _clean(directory: Path, *, keep: Path | None) -> None:
    for child in directory.iterdir():
        if child == keep and child.stat().st_size:
            continue
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


def results_uri() -> str:
    """Return the configured folder that workers and clusters share; empty where none is."""
    return (conf.get(SECTION, "results_uri", fallback="") or "").strip().rstrip("/")


def needed_results_uri(reason: str) -> str:
    """Return the configured folder.

    :param reason: what it is needed for
    :raises InvalidConfiguration: none is configured
    """
    uri = results_uri()
    if not uri:
        raise InvalidConfiguration(
            f"{reason}, and there is no place that both the worker and the cluster reach.",
            remedy=f"set [{SECTION}] results_uri to a folder of an object store that the worker and "
            "the driver can both reach.",
        )
    return uri


def read_text(uri: str, *, is_local: bool, options: Options = None) -> str | None:
    """Return what a driver left as its result; None where there is nothing.

    :param is_local: ``uri`` is a file of this machine, not a folder that Spark wrote
    :param options: of the tables' storage, which count where the folder is on the same kind of store
    """
    if is_local:
        path = Path(uri)
        return path.read_text(encoding="utf-8") if path.exists() else None
    import obstore

    store = _open_existing(uri, options)
    if store is None:
        return None
    found = obstore.list_with_delimiter(store)["objects"]
    # What Spark's writers leave: part files; beside them a marker and checksums.
    parts = sorted(item["path"] for item in found if item["path"].rpartition("/")[2].startswith("part-"))
    text = "".join(bytes(obstore.get(store, part).bytes()).decode() for part in parts)
    return text.strip() or None


def put_object(uri: str, data: bytes, options: Options = None) -> None:
    """Write one object of the shared folder.

    :param options: see :func:`read_text`
    """
    import obstore

    store, name = _open_folder(uri, options)
    obstore.put(store, name, data)


def put_file_once(uri: str, file: Path, options: Options = None) -> None:
    """Write a file into the shared folder, unless it is there: for files whose names tell their content.

    :param options: see :func:`read_text`
    """
    import obstore

    store, name = _open_folder(uri, options)
    try:
        is_there = obstore.head(store, name)["size"] == file.stat().st_size
    except FileNotFoundError:
        is_there = False
    if not is_there:
        obstore.put(store, name, file.read_bytes())


def delete_folder(uri: str, options: Options = None) -> None:
    """Delete a folder of the shared one with all that is in it; it may be missing.

    :param options: see :func:`read_text`
    """

    engine.run_sync(engine.delete_folder(uri, options_for(uri, options)))


def _open_existing(folder: str, options: Options) -> Any:
    """Return the store rooted at a folder; None for a folder of a file system that is not there."""
    # Not made here: the driver may be another user, who then could not write into it.
    if folder.startswith("file:") and not Path(url2pathname(urlsplit(folder).path)).is_dir():
        return None
    return _open(folder, options)


def _open_folder(uri: str, options: Options) -> tuple[Any, str]:
    from obstore.store import from_url

    folder, _, name = uri.rpartition("/")
    if folder.startswith("file:"):
        # A file system shared by workers and cluster: unlike in an object store, folders have to be made.
        return from_url(folder, mkdir=True), name
    return _open(folder, options), name


def _open(folder: str, options: Options) -> Any:
    from obstore.store import from_url

    own = options_for(folder, options)
    # Without any, the identity of the machine.
    return from_url(folder) if own is None else engine.open_store(canonical_uri(folder), own)


def options_for(folder: str, options: Options) -> dict[str, str] | None:
    """Return the options of the tables' storage where they are for the store of a folder; None means
    the identity of the machine.
    """

    return dict(options) if options and same_store(folder, options) else None
