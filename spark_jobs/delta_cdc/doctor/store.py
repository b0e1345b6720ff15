"""Checks of the storage, one per permission, and of a table's log. No JVM."""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from delta_cdc.core.commit_safety import CONDITIONAL_STORE, LINK_STORE, log_store, unsafe_log_store
from delta_cdc.core.reasons import reason
from delta_cdc.core.storage_options import is_local, is_s3
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.delta_log.store import open_store
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.doctor.report import Check, Result, failed, ok, skipped, warning
from delta_cdc.launch.log_store import log_store_confs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Folder of the test objects, which are deleted afterwards.
PREFIX = "_delta_cdc_doctor"
_CONTENT = b"written by delta-cdc doctor; may be deleted\n"

_KEYS = "correct the keys or the token: the store does not accept them."
_RIGHT = "give this identity the right to {verb} objects there, or correct the keys."
_BUCKET = "create the bucket, or correct its name."
_WAY = "correct the endpoint, the region and the credentials, or let this machine reach it over the network."
#: Remedies by S3 error code, then by the class of obstore's error.
_REMEDIES = {
    "NoSuchBucket": _BUCKET,
    "AccessDenied": _RIGHT,
    "SignatureDoesNotMatch": _KEYS,
    "InvalidAccessKeyId": _KEYS,
    "UserNotFound": _KEYS,
    "ExpiredToken": _KEYS,
    "InvalidToken": _KEYS,
    "RequestTimeTooSkewed": "correct this machine's clock.",
    "PermissionDeniedError": _RIGHT,
    "UnauthenticatedError": _KEYS,
    "NotFoundError": _BUCKET,
    "GenericError": _WAY,
}


def patient(storage_options: Mapping[str, str] | None, timeout: float) -> dict[str, str]:
    """Return the options, with a limit on retries if they set none.

    Options of the HTTP client, such as time-outs, must not be added: with them, the store ignores the
    environment's client options (``AWS_ALLOW_HTTP``). A request that hangs is abandoned with its check.
    """
    options = dict(storage_options or {})
    option_names = {name.lower() for name in options}
    bounds = {"max_retries": "1", "retry_timeout": f"{max(1, int(timeout))}s"}
    return options | {name: value for name, value in bounds.items() if name not in option_names}


class RoundTrip:
    """Write an object, use it in every way that the provider needs, and delete it.

    :param uri: folder of the object; it need not exist on an object store
    :param storage_options: options with delta-rs's and obstore's names; None uses the environment's
    :param timeout: seconds for each request
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None, timeout: float) -> None:
        self._uri = uri
        self._options = patient(storage_options, timeout)
        self._name = f"{PREFIX}/{uuid4().hex}"
        self._place = ""
        self._store: Any = None
        self._is_written = False

    def checks(self) -> list[Check]:
        """Return the checks, in the order in which they must run."""
        steps = {
            "put": ("write", self._put),
            "create": ("write", self._create),
            "list": ("list", self._list),
            "get": ("read", self._get),
            "delete": ("delete", self._delete),
        }
        return [Check(f"storage-{name}", partial(self._run, *step)) for name, step in steps.items()]

    def _run(self, verb: str, step: Callable[[], Result]) -> Result:
        from obstore.exceptions import BaseError

        if self._store is None:
            self._place = canonical_uri(self._uri)
            self._store = open_store(self._place, self._options if "://" in self._place else None)
        if self._store is None:
            return failed(f"{self._uri} does not exist", "create the folder, or mount its file system.")
        try:
            return step()
        except (BaseError, OSError) as error:
            return failed(f"{self._uri}: cannot {verb}: {reason(error)}", _remedy(error, verb))

    def _put(self) -> Result:
        self._store.put(self._name, _CONTENT)
        self._is_written = True
        return ok(f"an object was written under {self._uri.rstrip('/')}/{PREFIX}/")

    def _create(self) -> Result:
        """Check that a conditional put does not overwrite an existing object, which makes commits safe."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        if not self._is_written:
            return skipped("nothing was written")
        try:
            self._store.put(self._name, _CONTENT, mode="create")
        except (AlreadyExistsError, FileExistsError):
            return ok("the store did not overwrite an existing object (conditional put)")
        except (NotSupportedError, NotImplementedError):
            # Reported below, because a missing conditional put has the same effect on commits.
            pass
        return warning(
            "the store has no conditional put: of two writers of one commit both would succeed",
            "let one driver alone write to each table, or use a store that honours If-None-Match.",
        )

    def _list(self) -> Result:
        names = [item["path"] for batch in self._store.list(PREFIX) for item in batch]
        if self._is_written and self._name not in names:
            return failed(
                f"{self._uri}: what was written a moment ago is not in the list of {len(names)}",
                "use a store that lists what it holds: a log is read by its list of files.",
            )
        return ok(f"{self._uri.rstrip('/')}/{PREFIX}/ can be listed")

    def _get(self) -> Result:
        if not self._is_written:
            return skipped("nothing was written")
        content = bytes(self._store.get(self._name).bytes())
        if content != _CONTENT:
            return failed(
                f"{self._uri}: {len(content)} other bytes came back",
                "look for a proxy or a cache between this machine and the store.",
            )
        return ok(f"{len(content)} bytes were read back")

    def _delete(self) -> Result:
        if not self._is_written:
            return skipped("nothing was written")
        self._store.delete(self._name)
        self._is_written = False
        if "://" not in self._place:
            # A file system keeps empty folders; another doctor may be using this one.
            with contextlib.suppress(OSError):
                (Path(self._place) / PREFIX).rmdir()
        return ok("the object was deleted")


def forget(uri: str, storage_options: Mapping[str, str] | None, timeout: float) -> bool:
    """Delete everything under a location; return whether anything existed."""
    place = canonical_uri(uri)
    if "://" not in place:
        exists = Path(place).exists()
        shutil.rmtree(place, ignore_errors=not exists)
        return exists
    store: Any = open_store(place, patient(storage_options, timeout))
    paths = [item["path"] for batch in store.list() for item in batch]
    if paths:
        store.delete(paths)
    return bool(paths)


def table(
    uri: str, storage_options: Mapping[str, str] | None, confs: Mapping[str, str], timeout: float
) -> list[Check]:
    """Return the checks of one table: whether its log can be read, and whether Spark writes it safely."""

    def readable() -> Result:
        log = DeltaLog(uri, patient(storage_options, timeout) if "://" in uri else None)
        newest = run_sync(log.newest_version())
        state = run_sync(log.snapshot(newest))
        return ok(f"{uri}: version {newest}, {plural(state.num_files, 'file')}, by the log alone")

    checks = [Check("table-log", readable)]
    if is_s3(uri) or is_local(uri) or "://" not in uri:
        checks.append(Check("table-commits", partial(commits, uri, confs)))
    return checks


def commits(uri: str, confs: Mapping[str, str]) -> Result:
    """Check the log store that Spark commits with: on S3 and disks, Delta's default supports one driver.

    :param confs: of Spark, without those that the provider adds
    """
    all_confs, place = {**log_store_confs(confs), **confs}, spark_uri(uri)
    unsafe = unsafe_log_store(all_confs, place)
    if unsafe is not None:
        return warning(unsafe.message.rstrip("."), unsafe.remedy)
    name = log_store(all_confs, place)
    needs = {
        CONDITIONAL_STORE: ", if the store honours If-None-Match",
        LINK_STORE: ", if the disk takes hard links",
    }
    return ok(f"Spark commits to {uri} with {name}, which keeps several drivers apart{needs.get(name, '')}")


def _remedy(error: Exception, verb: str) -> str:
    text = f"{reason(error)} {type(error).__name__}"
    remedy = next((remedy for name, remedy in _REMEDIES.items() if name in text), None)
    if remedy is None and isinstance(error, OSError) and error.errno is not None:
        user = os.geteuid() if hasattr(os, "geteuid") else "of this process"
        return f"give the user {user} the right to {verb} there, or make room."
    return (remedy or _WAY).format(verb=verb)
