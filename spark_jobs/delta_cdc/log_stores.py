"""Whether Delta commits safely where a table lies: S3 has no commit that fails where another was first.

Delta picks a log store by the scheme of a location, and by the confs that Spark was started with; a
session's own don't count. On file systems that can make a file only if it is not there (local disks, HDFS,
Azure, Google) its own choice is safe for any number of drivers. On S3 it is safe for one: its log store looks
whether the version is there, and then writes it, without a condition. None of Delta's other stores makes S3A
send one, so on S3 they are no better; ``S3DynamoDBLogStore`` keeps the versions in a table of DynamoDB.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.errors import UnsafeLogStore
from delta_cdc.sessions import asking_java
from delta_cdc.storage import is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CONF = "spark.delta.logStore.{scheme}.impl"
_CONF_OF_ALL = "spark.delta.logStore.class"
#: Delta's own for S3.
_DEFAULT = "S3SingleDriverLogStore"
#: Of Delta's own, those that lose commits on S3 where two drivers write; the last one picks another one.
_UNSAFE = (_DEFAULT, "HDFSLogStore", "AzureLogStore", "GCSLogStore", "LocalLogStore", "DelegatingLogStore")

#: What has been said in this process: once is enough for an application.
_said: set[str] = set()


def refuse_unsafe_log_store(spark: SparkSession, uri: str, *, single_driver: bool) -> None:
    """Refuse to write to S3 with a log store that loses commits where two drivers write.

    Where the user vouches for one driver, the log says once what that means.

    :param uri: of the table, as Spark is given it
    :param single_driver: the user vouches that there is only one
    :raises UnsafeLogStore: names the conf
    """
    if is_s3(uri):
        confs = _started_with(spark, (_conf_for(uri), _CONF_OF_ALL))
        refuse_unsafe_confs(confs, uri, single_driver=single_driver)


def refuse_unsafe_confs(confs: Mapping[str, str], uri: str, *, single_driver: bool) -> None:
    """Do the same for a Spark that is started with some confs; see :func:`refuse_unsafe_log_store`."""
    if not is_s3(uri):
        return
    conf = _conf_for(uri)
    store = confs.get(conf) or confs.get(_CONF_OF_ALL) or _DEFAULT
    name = store.rpartition(".")[2]
    if name not in _UNSAFE:
        return
    if not single_driver:
        raise UnsafeLogStore(
            f"Spark would commit to {uri} with {name}: where two drivers write at once, the commit of one is "
            "lost without an error.",
            remedy=f"start Spark with {conf} set to io.delta.storage.S3DynamoDBLogStore (artifact "
            "delta-storage-s3-dynamodb), on every writer; set later, in a session, it does nothing. Or say "
            "single_driver=True where no second driver can ever write to this table.",
        )
    if name not in _said:
        _said.add(name)
        log.warning(
            "single_driver: Spark commits to S3 with %s. Nothing but this one driver may write to the same "
            "tables meanwhile, or commits are lost without an error; exactly once holds only as long as that "
            "is so.",
            name,
        )


def _conf_for(uri: str) -> str:
    return _CONF.format(scheme=uri.partition(":")[0].lower())


def _started_with(spark: SparkSession, names: Sequence[str]) -> dict[str, str]:
    """Return those of some confs that Spark was started with, which is where Delta looks.

    What a session shows are its own. Spark's launcher makes those of the start properties of the JVM; one
    that a program gives to a Spark whose JVM runs already is not seen here, which is the safe side.
    """
    asked = asking_java(*(("java.lang.System", "getProperty", name, "") for name in names))
    found = spark.sql(asked).collect()[0]
    return {name: value for name, value in zip(names, found, strict=True) if value}
