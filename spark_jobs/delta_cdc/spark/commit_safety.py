"""Check that Delta commits safely at a table's location: on S3, a later commit can overwrite an earlier one.

Delta selects a log store by the scheme of a location and by the confs that Spark was started with; the confs
of a session have no effect. On file systems with atomic create-if-absent (local disks, HDFS, Azure,
Google) Delta's default is safe for any number of drivers. On S3 it is safe for one: its log store checks
whether the version exists, and then writes it unconditionally. None of Delta's other stores makes S3A send a
condition, so on S3 they are no better; ``S3DynamoDBLogStore`` keeps the versions in a DynamoDB table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from delta_cdc.core.commit_safety import CONF_OF_ALL, conf_for, refuse_unsafe_confs
from delta_cdc.core.storage_options import is_s3
from delta_cdc.spark.sessions import asking_java

if TYPE_CHECKING:
    from collections.abc import Sequence


log = logging.getLogger(__name__)


def refuse_unsafe_log_store(spark: SparkSession, uri: str, *, single_driver: bool) -> None:
    """Refuse to write to S3 with a log store that loses commits if two drivers write.

    If the user guarantees a single driver, log once what that means.

    :param uri: location of the table, as passed to Spark
    :param single_driver: the user guarantees that there is only one
    :raises UnsafeLogStore: names the conf
    """
    if is_s3(uri):
        confs = _started_with(spark, (conf_for(uri), CONF_OF_ALL))
        refuse_unsafe_confs(confs, uri, single_driver=single_driver)


def _started_with(spark: SparkSession, names: Sequence[str]) -> dict[str, str]:
    """Return the values of the confs that Spark was started with, because Delta uses these.

    A session shows only its own confs, but Spark's launcher turns start confs into properties of the JVM. A
    conf that a program passes after the JVM has started is not visible here; the check may then refuse a safe
    store.
    """
    query = asking_java(*(("java.lang.System", "getProperty", name, "") for name in names))
    values = spark.sql(query).collect()[0]
    return {name: value for name, value in zip(names, values, strict=True) if value}
