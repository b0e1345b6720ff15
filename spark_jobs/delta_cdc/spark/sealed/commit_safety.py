"""Check that Delta commits safely at a table's location: a later commit can overwrite an earlier one.

Delta selects a log store by the scheme of a location and by the confs that Spark was started with; the confs
of a session have no effect. On HDFS, Azure and Google, the storage itself refuses to create a version twice,
so Delta's default is safe for any number of drivers. On S3 and on disks it is safe for one: its log store
checks whether the version exists, and then writes or renames unconditionally. Delta's other stores of release
4.4 are no better there, except for ``S3DynamoDBLogStore``, which keeps the versions in a DynamoDB table. Our
own (``java/``) send S3 a condition, after a test whether the store honours it, and make hard links on disks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core.commit_safety import (
    CONDITIONAL_STORE,
    CONF_OF_ALL,
    SINGLE_DRIVER_CONF,
    conf_for,
    log_store,
    refuse_unsafe_confs,
)
from delta_cdc.core.errors import SparkRestricted
from delta_cdc.core.storage_options import is_local, is_s3
from delta_cdc.spark.sessions import asking_java, refuses_java, set_where_allowed, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence


log = logging.getLogger(__name__)


def refuse_unsafe_log_store(spark: SparkSession, uri: str, *, single_driver: bool) -> None:
    """Refuse to write to S3 with a log store that loses commits if two drivers write.

    If the user guarantees a single driver, log once what that means. On a disk, warn once.

    :param spark: the session that writes; the guarantee is kept in its confs, for our log store
    :param uri: location of the table, as passed to Spark
    :param single_driver: the user guarantees that there is only one
    :raises UnsafeLogStore: names the conf
    :raises SparkRestricted: this Spark does not tell which log store it uses
    """
    if is_local(uri):
        # The session's own confs tell it as well, unless a user set them too late; for a warning, that is
        # not worth a query for each table.
        confs = {name: value_of(spark, name) or "" for name in (conf_for(uri), CONF_OF_ALL)}
        refuse_unsafe_confs(confs, uri, single_driver=single_driver)
        set_where_allowed(spark, {SINGLE_DRIVER_CONF: "true" if single_driver else None})
    if not is_s3(uri):
        return
    try:
        confs = _started_with(spark, (conf_for(uri), CONF_OF_ALL))
    except Exception:
        if not refuses_java(spark):
            raise
        _refuse_unknown_log_store(uri, single_driver=single_driver)
        return
    refusal = _refusal(spark, uri) if log_store(confs, uri) == CONDITIONAL_STORE else ""
    refuse_unsafe_confs(confs, uri, single_driver=single_driver, refusal=refusal)
    if refusal:
        spark.conf.set(SINGLE_DRIVER_CONF, "true")


def _refuse_unknown_log_store(uri: str, *, single_driver: bool) -> None:
    unknown = (
        "This Spark does not let a query call Java (java_method), so it does not tell which log store "
        f"commits to {uri}, and whether two drivers may write there at once."
    )
    if not single_driver:
        raise SparkRestricted(
            unknown,
            remedy="run on a Spark that allows java_method; or set single_driver=True if the platform makes "
            "commits safe itself, or no second driver can ever write to this table. See "
            "docs/howto/platforms/restrictions.md.",
        )
    log.warning("single_driver: %s", unknown)


def _refusal(spark: SparkSession, uri: str) -> str:
    """Return why our log store cannot commit at a location; it remembers the answer per bucket."""
    return str(spark.sql(asking_java((CONDITIONAL_STORE, "refusal", uri))).collect()[0][0])


def _started_with(spark: SparkSession, names: Sequence[str]) -> dict[str, str]:
    """Return the values of the confs that Spark was started with, because Delta uses these.

    A session shows only its own confs, but Spark's launcher turns start confs into properties of the JVM. A
    conf that a program passes after the JVM has started is not visible here; the check may then refuse a safe
    store.
    """
    query = asking_java(*(("java.lang.System", "getProperty", name, "") for name in names))
    values = spark.sql(query).collect()[0]
    return {name: value for name, value in zip(names, values, strict=True) if value}
