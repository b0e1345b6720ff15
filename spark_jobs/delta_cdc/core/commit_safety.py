"""Refuse Delta log stores that are unsafe on S3 when several drivers write."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.core.storage_options import is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_CONF = "spark.delta.logStore.{scheme}.impl"
CONF_OF_ALL = "spark.delta.logStore.class"
#: Delta's default log store for S3.
_DEFAULT = "S3SingleDriverLogStore"
#: Delta's log stores that lose commits on S3 when two drivers write; the last one delegates to another one.
_UNSAFE = (_DEFAULT, "HDFSLogStore", "AzureLogStore", "GCSLogStore", "LocalLogStore", "DelegatingLogStore")
#: Log stores already warned about in this process: one warning is enough for an application.
_warned: set[str] = set()


def refuse_unsafe_confs(confs: Mapping[str, str], uri: str, *, single_driver: bool) -> None:
    """Refuse to write to S3 with a log store that loses commits when two drivers write.

    If the user guarantees a single driver, log a warning once instead.

    :param confs: of the Spark that writes
    :param uri: the table's URI, as given to Spark
    :param single_driver: the user guarantees that there is only one driver
    :raises UnsafeLogStore: names the conf
    """
    if not is_s3(uri):
        return
    conf = conf_for(uri)
    store = confs.get(conf) or confs.get(CONF_OF_ALL) or _DEFAULT
    name = store.rpartition(".")[2]
    if name not in _UNSAFE:
        return
    if not single_driver:
        raise UnsafeLogStore(
            f"Spark would commit to {uri} with {name}: if two drivers write at once, the commit of one is "
            "lost without an error.",
            remedy=f"start Spark with {conf} set to io.delta.storage.S3DynamoDBLogStore (artifact "
            "delta-storage-s3-dynamodb), on every writer; set later, in a session, it does nothing. Or set "
            "single_driver=True if no second driver can ever write to this table.",
        )
    if name not in _warned:
        _warned.add(name)
        log.warning(
            "single_driver: Spark commits to S3 with %s. If another driver writes to the same tables at "
            "once, commits are lost without an error.",
            name,
        )


def conf_for(uri: str) -> str:
    return _CONF.format(scheme=uri.partition(":")[0].lower())
