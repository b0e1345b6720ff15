"""Refuse Delta log stores that are unsafe on S3 when several drivers write."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.core.storage_options import S3_SCHEMES, is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_CONF = "spark.delta.logStore.{scheme}.impl"
CONF_OF_ALL = "spark.delta.logStore.class"
#: The confs that select a log store for S3, one for each scheme.
SCHEME_CONFS = tuple(_CONF.format(scheme=scheme) for scheme in S3_SCHEMES)
#: Our log store, which commits with If-None-Match (``java/``).
CONDITIONAL_STORE = "delta.cdc.S3ConditionalLogStore"
#: Hadoop conf for our log store: the user guarantees a single driver.
SINGLE_DRIVER_CONF = "delta_cdc.single.driver"
#: Delta's default log store for S3.
_DEFAULT = "S3SingleDriverLogStore"
#: Delta's log stores that lose commits on S3 when two drivers write; the last one delegates to another one.
_UNSAFE = (_DEFAULT, "HDFSLogStore", "AzureLogStore", "GCSLogStore", "LocalLogStore", "DelegatingLogStore")
#: Log stores already warned about in this process: one warning is enough for an application.
_warned: set[str] = set()


def log_store(confs: Mapping[str, str], uri: str) -> str:
    """Return the class of the log store that Delta uses at a location on S3.

    :param confs: of the Spark that writes
    :param uri: the table's URI, as given to Spark
    """
    return confs.get(conf_for(uri)) or confs.get(CONF_OF_ALL) or _DEFAULT


def refuse_unsafe_confs(
    confs: Mapping[str, str], uri: str, *, single_driver: bool, refusal: str = ""
) -> None:
    """Refuse to write to S3 with a log store that loses commits when two drivers write.

    If the user guarantees a single driver, log a warning once instead.

    :param confs: of the Spark that writes
    :param uri: the table's URI, as given to Spark
    :param single_driver: the user guarantees that there is only one driver
    :param refusal: why :data:`CONDITIONAL_STORE` cannot commit at this location, a sentence; empty if it can
    :raises UnsafeLogStore: names the conf
    """
    if not is_s3(uri):
        return
    name = log_store(confs, uri).rpartition(".")[2]
    if name not in _UNSAFE and not refusal:
        return
    if not single_driver:
        raise UnsafeLogStore(
            f"Spark would commit to {uri} with {name}: if two drivers write at once, the commit of one is "
            f"lost without an error. {refusal}".rstrip(),
            remedy=f"{_OTHER_STORE if refusal else _OUR_STORE.format(conf=conf_for(uri))} Or set "
            "single_driver=True if no second driver can ever write to this table.",
        )
    if name not in _warned:
        _warned.add(name)
        log.warning(
            "single_driver: Spark commits to S3 with %s. If another driver writes to the same tables at "
            "once, commits are lost without an error. %s",
            name,
            refusal,
        )


_OUR_STORE = (
    f"start Spark with {{conf}} set to {CONDITIONAL_STORE} and with its JAR (delta-cdc jars --s3 prints the "
    "path), on every writer; set later, in a session, it does nothing."
)
_OTHER_STORE = (
    "use a store that honours If-None-Match, with S3A of Hadoop 3.4.2 or later; or "
    "io.delta.storage.S3DynamoDBLogStore, on every writer."
)


def conf_for(uri: str) -> str:
    return _CONF.format(scheme=uri.partition(":")[0].lower())
