"""Know the log stores with which a later commit can overwrite an earlier one, and refuse them on S3."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.core.storage_options import S3_SCHEMES, is_local, is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_CONF = "spark.delta.logStore.{scheme}.impl"
CONF_OF_ALL = "spark.delta.logStore.class"
#: Our log stores (``java/``): the one for S3 commits with If-None-Match, the one for disks with hard links.
CONDITIONAL_STORE = "delta.cdc.S3ConditionalLogStore"
LINK_STORE = "delta.cdc.FileLinkLogStore"
#: The confs that select a log store, one for each scheme, with ours; a driver takes all of a group or none.
_S3_CONFS = {_CONF.format(scheme=scheme): CONDITIONAL_STORE for scheme in S3_SCHEMES}
_DISK_CONFS = {_CONF.format(scheme="file"): LINK_STORE}
OUR_STORES: tuple[Mapping[str, str], ...] = (_S3_CONFS, _DISK_CONFS)
#: Hadoop conf for our log stores: the user guarantees a single driver.
SINGLE_DRIVER_CONF = "delta_cdc.single.driver"
#: Our log stores say this when a storage does not exclude that a second driver overwrites a commit.
REFUSED_COMMIT = "several drivers could lose commits"
#: Delta's default log stores.
_DEFAULT = "S3SingleDriverLogStore"
_DEFAULT_ELSEWHERE = "HDFSLogStore"
#: Delta's log stores that lose commits on S3 and on disks when two drivers write; the last one delegates to
#: another one.
_UNSAFE = (
    _DEFAULT,
    _DEFAULT_ELSEWHERE,
    "AzureLogStore",
    "GCSLogStore",
    "LocalLogStore",
    "DelegatingLogStore",
)
#: Log stores already warned about in this process, and whether on a disk: one warning is enough.
_warned: set[tuple[str, bool]] = set()


def log_store(confs: Mapping[str, str], uri: str) -> str:
    """Return the class of the log store that Delta uses at a location on S3 or on a disk.

    :param confs: of the Spark that writes
    :param uri: the table's URI, as given to Spark
    """
    default = _DEFAULT if is_s3(uri) else _DEFAULT_ELSEWHERE
    return confs.get(conf_for(uri)) or confs.get(CONF_OF_ALL) or default


def unsafe_log_store(confs: Mapping[str, str], uri: str, refusal: str = "") -> UnsafeLogStore | None:
    """Return the error that names a log store with which two drivers lose commits; None for one that is safe.

    :param confs: of the Spark that writes
    :param uri: the table's URI, as given to Spark
    :param refusal: why :data:`CONDITIONAL_STORE` cannot commit at this location, a sentence; empty if it can
    """
    if not (is_s3(uri) or is_local(uri)):
        return None
    name = log_store(confs, uri).rpartition(".")[2]
    if name not in _UNSAFE and not refusal:
        return None
    return UnsafeLogStore(
        f"Spark would commit to {uri} with {name}: if two drivers write at once, the commit of one is "
        f"lost without an error. {refusal}".rstrip(),
        remedy=f"{_OTHER_STORE if refusal else _our_store(uri)} Or set "
        "single_driver=True if no second driver can ever write to this table.",
    )


def refuse_unsafe_confs(
    confs: Mapping[str, str], uri: str, *, single_driver: bool, refusal: str = ""
) -> None:
    """Refuse to write to S3 with a log store that loses commits when two drivers write.

    If the user guarantees a single driver, log a warning once instead. On a disk, a warning is all: there,
    one driver is the usual case, and two must meet within milliseconds.

    :param single_driver: the user guarantees that there is only one driver
    :raises UnsafeLogStore: see :func:`unsafe_log_store`
    """
    unsafe = unsafe_log_store(confs, uri, refusal)
    if unsafe is None or (single_driver and is_local(uri)):
        return
    if is_s3(uri) and not single_driver:
        raise unsafe
    kind = (log_store(confs, uri), is_local(uri))
    if kind not in _warned:
        _warned.add(kind)
        log.warning("%s", f"single_driver: {unsafe.message}" if single_driver else unsafe)


_OTHER_STORE = (
    "use a store that honours If-None-Match, with S3A of Hadoop 3.4.2 or later; or "
    "io.delta.storage.S3DynamoDBLogStore, on every writer."
)


def _our_store(uri: str) -> str:
    store = CONDITIONAL_STORE if is_s3(uri) else LINK_STORE
    return (
        f"start Spark with {conf_for(uri)} set to {store} and with its JAR (delta-cdc jars prints the path), "
        "on every writer; set later, in a session, it does nothing."
    )


def conf_for(uri: str) -> str:
    """Return the conf that selects the log store for the scheme of a location."""
    return _CONF.format(scheme="file" if is_local(uri) else uri.partition(":")[0].lower())
