"""Write the file manifests by which a job reads files: to the run's own directory or the shared folder."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from airflow_delta_cdc.runtime.exchange import needed_results_uri, results_uri
from delta_cdc.core.storage_options import hadoop_uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow.sdk.types import Logger

    from delta_cdc.core.spec import Spec
    from delta_cdc.core.steps import Step


@contextlib.contextmanager
def manifests_for(
    spec: Spec,
    master: str,
    directory: Path,
    *,
    options: dict[str, str] | None,
    log: Logger,
    lasting: bool = False,
) -> Iterator[Spec]:
    """Yield the spec with the manifests by which Spark reads files; afterwards, delete those on a store.

    :param master: master of the Spark that reads them
    :param directory: the run's private directory, which is deleted with its content
    :param options: options of the object store
    :param lasting: whether the application may outlive a failure of this block, so that the next try finds it
        again. Then the manifests are named after the work, and stay until a block ends without an error.
        Otherwise they belong to this try only, and are deleted with it: a try that only seemed dead must not
        delete the manifests of the next one
    :raises InvalidConfiguration: the job needs manifests, the cluster cannot read this machine's files, and
        no shared folder is configured
    """
    name = _work(spec) if lasting else uuid.uuid4().hex
    has_ended = not lasting
    try:
        yield with_manifests(spec, master, directory, options=options, name=name)
        has_ended = True
    finally:
        if has_ended and not is_here(master) and results_uri():
            _forget(spec, name, options, log)


def with_manifests(
    spec: Spec, master: str, directory: Path, *, options: dict[str, str] | None, name: str
) -> Spec:
    """Write the manifests of a spec that reads a table by its files, and return the spec with them."""
    root = _root(spec, master, directory, name)
    if not isinstance(spec, engine.BatchSpec):
        return engine.with_manifests(spec, root, options)
    parts = [
        # A manifest is named by its versions, and two parts may read the same versions of two tables.
        engine.with_manifests(part, root and f"{root}/{number}", options)
        for number, part in enumerate(spec.parts)
    ]
    return replace(spec, parts=tuple(parts))


@contextlib.contextmanager
def scratch_for(spec: Spec, *, options: dict[str, str] | None, log: Logger) -> Iterator[str | None]:
    """Yield a folder for the manifests of an apply that the job plans after its ingest; then delete it.

    :return: None if the job needs no folder, or none is configured
    """
    if not results_uri() or not any(part.after for part in spec.each):
        yield None
        return
    root = _shared(results_uri(), uuid.uuid4().hex)
    try:
        yield f"{root}/manifests"
    finally:
        _deleted(root, options, log)


def is_here(master: str) -> bool:
    """Return whether a Spark of this master runs only on this machine, and can read its files."""
    return master.startswith("local")


def _root(spec: Spec, master: str, directory: Path, name: str) -> str:
    if is_here(master):
        return str(directory / "manifests")
    read_ranges = engine.ranges_of(_readable(spec))
    needed = [read_range for read_range in read_ranges if read_range.needs_manifest]
    if not needed and not (read_ranges and results_uri()):
        return ""
    reason = f"The changes are read on {master}, by a list of their files"
    if needed:
        reason = f"The changes are read by {needed[0].method} on {master}, by a list of their files"
    return f"{_shared(needed_results_uri(reason), name)}/manifests"


def _forget(spec: Spec, name: str, options: dict[str, str] | None, log: Logger) -> None:
    if engine.ranges_of(_readable(spec)):
        # The folder contains only manifests.
        _deleted(_shared(results_uri(), name), options, log)


def _deleted(root: str, options: dict[str, str] | None, log: Logger) -> None:
    try:
        engine.delete_manifests(root, options)
    except Exception as error:  # noqa: BLE001 - leftover files do not change the outcome of the job
        log.warning("The lists of files in %s could not be deleted: %s", root, error)


def _readable(spec: Spec) -> list[Step]:
    """Return the steps whose changes may be read by manifests that the worker writes.

    An apply after an ingest is excluded: its changes do not exist yet, so its driver writes the manifests.
    """
    return [step for part in spec.each for step in part.steps]


def _shared(folder: str, name: str) -> str:
    return hadoop_uri(f"{folder}/{name}")


def _work(spec: Spec) -> str:
    """Return a name of the work that is the same in every attempt."""
    return engine.sha256("".join(engine.fingerprint(part) for part in spec.each if part.steps))
