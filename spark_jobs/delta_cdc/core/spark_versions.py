"""The pairs of Spark and Delta that this package runs on: their JARs, and what some of them lack.

``make matrix`` runs its cases on each of :data:`PAIRS`. A managed platform may differ from the release that
it names, so there the engine tries: see :func:`delta_cdc.spark.sessions.set_where_allowed`.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.errors import VersionsUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

#: The oldest PySpark whose client of Spark Connect clones sessions, which each job needs.
CONNECT_SINCE = "4.1"

#: The conf with which a MERGE adds columns to its target on every pair. The clause ``WITH SCHEMA EVOLUTION``
#: refuses named columns before Delta 4.4.
SCHEMA_EVOLUTION = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}


def _delta(artifact: str, version: str, unity_catalog: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the JARs of a release of Delta.

    :param artifact: name of the JAR for the release of Spark
    :param unity_catalog: the JARs of Unity Catalog that a release with Delta's kernel needs; empty before it
    """
    kernel = (
        ("delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog") if unity_catalog else ()
    )
    ours = (*kernel, artifact, "delta-storage")
    return (
        *(f"io.delta:{name}:{version}" for name in ours),
        *(f"io.unitycatalog:{one}" for one in unity_catalog),
    )


_UNITY_CATALOG = ("unitycatalog-client:0.6.0", "unitycatalog-hadoop:0.6.0")


@dataclass(frozen=True)
class Pair:
    """A release of Spark with a release of Delta.

    :param spark: the version of Spark that the matrix tests
    :param delta: the version of Delta's JARs, and of the Python package delta-spark
    :param since: the oldest version of Spark that these JARs run on
    :param below: the first version of Spark that they do not run on
    :param jars: Maven coordinates of the JARs
    :param newer: a newer patch release of Spark, which the matrix tests too; "" for none. An installation
        does not get it, because pyspark-client has no such release
    """

    spark: str
    delta: str
    since: str
    below: str
    jars: tuple[str, ...]
    newer: str = ""

    def accepts(self, spark: str, delta: str) -> bool:
        """Return whether versions of Spark and Delta are of this pair; a vendor's suffix does not count."""
        is_delta = numbers(delta) == numbers(self.delta)
        return is_delta and self._runs_on(spark)

    def may_accept(self, spark: str, delta: str) -> bool:
        """Return whether Delta is a newer patch release than that of this pair, for the same Spark."""
        is_newer = release(delta) == release(self.delta) and numbers(delta) > numbers(self.delta)
        return is_newer and self._runs_on(spark)

    def _runs_on(self, spark: str) -> bool:
        return numbers(self.since) <= numbers(spark) < numbers(self.below)

    def __str__(self) -> str:
        return f"Spark {self.spark} with Delta {self.delta}"


#: The newest first: by default, an installation gets this one.
PAIRS = (
    Pair("4.2.0", "4.4.0", "4.2.0", "4.3", _delta("delta-spark_4.2_2.13", "4.4.0", _UNITY_CATALOG), "4.2.1"),
    Pair("4.1.3", "4.4.0", "4.1.0", "4.2", _delta("delta-spark_4.1_2.13", "4.4.0", _UNITY_CATALOG), "4.1.4"),
    # Spark 4.1.2 dropped a class (IgnoreCachedData) that Delta 4.2.0 extends.
    Pair(
        "4.1.1",
        "4.2.0",
        "4.1.0",
        "4.1.2",
        _delta("delta-spark_4.1_2.13", "4.2.0", ("unitycatalog-client:0.4.1",)),
    ),
    Pair("4.0.4", "4.4.0", "4.0.1", "4.1", _delta("delta-spark_4.0_2.13", "4.4.0", _UNITY_CATALOG), "4.0.5"),
    Pair("4.0.4", "4.0.1", "4.0.1", "4.1", _delta("delta-spark_2.13", "4.0.1")),
)


def _kafka(spark: str, clients: str, pool: str) -> tuple[str, ...]:
    return (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
        # Maven Central has no newer release of this JAR. The parts that the connector calls have not changed
        # since; only the warning that a Kerberos cluster gave no delegation token names a class that Spark
        # 4.1 removed.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        f"org.apache.kafka:kafka-clients:{clients}",
        f"org.apache.commons:commons-pool2:{pool}",
    )


#: The JARs of Spark's connector to Kafka that Spark does not ship, by the version of Spark.
KAFKA: Mapping[str, tuple[str, ...]] = {
    "4.2.0": _kafka("4.2.0", "3.9.2", "2.13.1"),
    "4.1.3": _kafka("4.1.3", "3.9.1", "2.12.1"),
    "4.1.1": _kafka("4.1.1", "3.9.1", "2.12.1"),
    "4.0.4": _kafka("4.0.4", "3.9.1", "2.12.0"),
}

#: The JARs of Hadoop's file system for S3, with the SDK of its build, by the version of Hadoop in Spark.
#: Hadoop names the SDK's bundle, half a gigabyte with every service of Amazon's; ``*`` are only the modules
#: that S3A uses, with their dependencies. They include parts of large files (copies go through Netty, which
#: Spark ships) and roles (sts). Client-side encryption and SSO are omitted: no setting of ours uses them.
S3: Mapping[str, tuple[str, ...]] = {
    "3.5.0": (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:*:2.35.4",
        # S3A reads with this by default.
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
    "3.4.2": (
        "org.apache.hadoop:hadoop-aws:3.4.2",
        "software.amazon.awssdk:*:2.29.52",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.2.1",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
    "3.4.1": (
        "org.apache.hadoop:hadoop-aws:3.4.1",
        "software.amazon.awssdk:*:2.24.6",
        # Maven Central has no 2.24.6 of this one.
        "software.amazon.awssdk:s3-transfer-manager:2.24.5",
        "software.amazon.eventstream:eventstream:1.0.1",
        "org.reactivestreams:reactive-streams:1.0.4",
    ),
}


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what a vendor appends: ``4.1.1-amzn-0`` is ``(4, 1, 1)``."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[-+]", version)[0])[:3])


def release(version: str) -> str:
    """Return major and minor version, which compatible versions of Spark, or of Delta, share."""
    return ".".join(version.split(".")[:2])


def pair_of(spark: str, delta: str) -> Pair:
    """Return the pair of two versions.

    :raises VersionsUnsupported: no pair has them
    """
    for pair in PAIRS:
        if pair.accepts(spark, delta):
            return pair
    known = [pair for pair in PAIRS if pair.may_accept(spark, delta)]
    newer = f" Delta {delta} is newer than this release, which does not know its JARs." if known else ""
    raise VersionsUnsupported(
        f"Spark {spark} with Delta {delta} is no pair that this package runs on.{newer}",
        remedy=f"take {one_of(PAIRS)}: see docs/versions.md.",
    )


def pair_of_a_server(spark: str, delta: str) -> tuple[Pair, str]:
    """Return the pair of the versions of a Spark that brings its own JARs, and a warning, or "".

    A newer patch release of Delta is of the pair that it follows.

    :raises VersionsUnsupported: no pair has them
    """
    for pair in PAIRS:
        if pair.may_accept(spark, delta):
            return pair, f"Delta {delta} is newer than this release, which was tested with {pair.delta}"
    return pair_of(spark, delta), ""


def version_with_jars(version: str, table: Mapping[str, tuple[str, ...]], title: str, package: str) -> str:
    """Return the version of a table, such as :data:`KAFKA`, whose JARs fit a version.

    A newer patch release gets the JARs of the newest one that it follows, and a warning in the log.

    :param title: the JARs, for the message
    :param package: what the version is of
    :raises VersionsUnsupported: the table has no such version
    """
    if version in table:
        return version
    older = [one for one in table if release(one) == release(version) and numbers(one) < numbers(version)]
    if older:
        nearest = max(older, key=numbers)
        log.warning(
            "%s %s is newer than this release: it gets the %s of %s, which are not tested with it.",
            *(package, version, title, nearest),
        )
        return nearest
    raise VersionsUnsupported(
        f"The {title} for {package} {version} are not known, or do not exist.",
        remedy=f"install {one_of(f'{package} {known}' for known in table)}; or name JARs of your own "
        "(the arguments jars and packages of a task or a connection).",
    )


def one_of(choices: Iterable[object]) -> str:
    """Return choices as text."""
    return " or ".join(map(str, choices))
