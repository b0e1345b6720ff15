"""Spark profiles: confs of a Delta session, of an embedded session, and the engine as a zip.

Standard library only at import time; pyspark is imported by :func:`get_session` alone.
"""

from __future__ import annotations

import atexit
import hashlib
import marshal
import os
import re
import zipfile
from contextlib import ExitStack
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.core.storage_options import is_s3, spark_storage
from delta_cdc.launch.class_data_archive import ClassDataArchive, quoted
from delta_cdc.launch.environment import (
    JAVA_OPTION_VARIABLES,
    child_environment,
    require_java,
    variables,
)
from delta_cdc.launch.jars import HOME_VARIABLE, cache_home, class_path
from delta_cdc.launch.log_store import log_store_confs
from delta_cdc.launch.run_folder import run_folder
from delta_cdc.launch.spark_defaults import spark_default
from delta_cdc.launch.storage_secrets import storage_confs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

CLASS_PATH = "spark.driver.extraClassPath"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: Spark puts these before them, on the same command line.
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
#: Classes that extend Spark, and Delta's.
EXTENSIONS, _DELTAS = "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
#: With it, a user's ``s3://`` is what ``s3a://`` is.
_S3_SCHEME, _S3_CLASS = "spark.hadoop.fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"

#: Confs of a job with few rows (:data:`delta_cdc.planning.size.TINY`). An apply compiles about 100 classes,
#: with a compiler whose own classes no class-data archive holds.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_PACKAGE = Path(__file__).resolve().parent.parent
#: Variables in which a JVM, or Spark's launcher, finds further options.
_OPTION_VARIABLES = (*JAVA_OPTION_VARIABLES, "SPARK_SUBMIT_OPTS")


def delta_confs() -> dict[str, str]:
    """Return the confs with which a Spark session on any cluster supports Delta."""
    return {
        EXTENSIONS: _DELTAS,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def extensions(confs: Mapping[str, Any], properties_file: str | None = None) -> dict[str, str]:
    """Return the conf with the user's extensions of Spark, after Delta's if they lack it.

    :param confs: see :func:`~delta_cdc.launch.spark_defaults.spark_default`, as ``properties_file``
    """
    names = [name.strip() for name in spark_default(EXTENSIONS, confs, properties_file).split(",")]
    return {EXTENSIONS: ",".join(filter(None, names if _DELTAS in names else [_DELTAS, *names]))}


def embedded_confs(
    cores: int | None = None,
    *,
    quick_start: bool = False,
    kafka: bool = False,
    locations: Iterable[str] = (),
    jars: bool = True,
    more_jars: str = "",
    java_options: str = "",
    default_java_options: str = "",
    archive: bool = True,
) -> dict[str, str]:
    """Return the confs of a driver that is its own cluster, on this machine, with Delta on its class path.

    The session runs in UTC. The caller names the warehouse.

    :param cores: threads of the local master; None means all CPUs this process may use
    :param quick_start: let the JVM start in half the CPU time and compute more slowly once warm: right for
        small work (:mod:`delta_cdc.planning.size`), wrong for long jobs
    :param kafka: put the connector to Kafka on the class path as well
    :param locations: of the tables and files: if one is on S3, the class path gets the JARs for it
    :param jars: False if the user provides all JARs, for instance by ``spark.jars``: then no JARs are
        resolved
    :param more_jars: further class path, appended after the JARs
    :param java_options: more options for the JVM, as in ``spark.driver.extraJavaOptions``. They override
        ours, including the garbage collector
    :param default_java_options: value of ``spark.driver.defaultJavaOptions``; Spark adds these options
    :param archive: start from the class-data archive of this class path, if one exists
        (:mod:`delta_cdc.launch.class_data_archive`)
    :raises EnvironmentNotReady: if Java is missing or too old, or the JARs cannot be resolved
    """
    require_java()
    threads = cores or _usable_cpus()
    ours = class_path(locations, kafka=kafka) if jars else ""
    everything = os.pathsep.join(filter(None, (ours, more_jars)))
    options = _java_options(f"{default_java_options} {java_options}", quick_start=quick_start)
    if archive and jars:
        options += ClassDataArchive(everything).options()
    return {
        **delta_confs(),
        "spark.master": f"local[{threads}]",
        # Not spark.jars: a class path that the JVM knows from the start loads faster.
        CLASS_PATH: everything,
        # If an option has two values, the JVM uses the last one, so append the user's options.
        JAVA_OPTIONS: " ".join([*map(quoted, options), *filter(None, [java_options])]),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # All users of the machine can reach a port on loopback. With a local master, Spark makes the secret.
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Both defaults are meant for clusters; locally they cost seconds per small query.
        "spark.sql.shuffle.partitions": str(max(4, threads)),
        "spark.databricks.delta.snapshotPartitions": "2",
        # One apply compiles about 100 classes, as many as Spark keeps: the next would compile them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Spark would record the line of Python of each expression, at the cost of a call to the JVM for each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def _java_options(user_options: str, *, quick_start: bool) -> list[str]:
    ours = [f"-Dlog4j2.configurationFile={(_PACKAGE / 'log4j2.properties').as_uri()}"]
    if quick_start:
        # With one compiler only, the JVM reserves a code cache that a longer job fills; then it interprets.
        ours += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    options = " ".join([user_options, *(os.environ.get(name, "") for name in _OPTION_VARIABLES)])
    if not re.search(r"-XX:\+Use\w+GC\b", options):
        # A JVM with two collectors does not start.
        ours.append("-XX:+UseSerialGC" if quick_start else "-XX:+UseParallelGC")
    return ours


def _usable_cpus() -> int:
    # A container's CPU set shows in the affinity, which only Linux has.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def get_session(
    app_name: str = "delta-cdc",
    *,
    cores: int | None = None,
    quick_start: bool = False,
    kafka: bool = False,
    locations: Iterable[str] = (),
    jars: bool = True,
    storage_options: Mapping[str, str] | None = None,
    **extra: str,
) -> SparkSession:
    """Return a local Spark session with Delta's JARs and confs: this process's session, or a new one.

    The function sets ``SPARK_HOME`` and the ``PYSPARK_…`` variables of this process, for Spark's child
    processes.

    .. code-block:: python

        spark = get_session(locations=["s3://lake"], **{"spark.driver.memory": "4g"})

    :param app_name: name of the Spark application
    :param cores: threads of the local master; None means all CPUs this process may use
    :param quick_start: True, for small jobs: Spark starts in half the CPU time, but long jobs are slower
    :param kafka: also load the connector to Kafka
    :param locations: paths or URIs that you read or write. If one is on S3, the session loads the JARs for S3
    :param jars: False loads no JARs, because the caller provides its own class path
    :param storage_options: options of the object store of the locations, as delta-rs names them; None takes
        those of the environment
    :param extra: Spark confs. The function appends your class path, JVM options and extensions to its own;
        if you set none, it appends those of ``spark-defaults.conf``
    :raises EnvironmentNotReady: Java is missing or too old, or the JARs cannot be resolved
    """
    places = list(locations)
    ours = embedded_confs(
        cores,
        quick_start=quick_start,
        kafka=kafka,
        locations=places,
        jars=jars,
        more_jars=spark_default(CLASS_PATH, extra),
        java_options=spark_default(JAVA_OPTIONS, extra),
        default_java_options=spark_default(DEFAULT_JAVA_OPTIONS, extra),
    )
    of_log_store = log_store_confs(extra) if jars else {}
    open_folders = ExitStack()
    folder = open_folders.enter_context(run_folder())
    atexit.register(open_folders.close)
    os.environ.update(child_environment())
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    with storage_confs(spark_storage(storage_options, places), folder.path) as of_storage:
        confs = {
            **ours,
            **of_log_store,
            **of_storage,
            **({_S3_SCHEME: _S3_CLASS} if any(map(is_s3, places)) else {}),
            "spark.sql.warehouse.dir": str(folder.path / "warehouse"),
            **extra,
            **extensions(extra),
            CLASS_PATH: ours[CLASS_PATH],
            JAVA_OPTIONS: ours[JAVA_OPTIONS],
        }
        for key, value in confs.items():
            builder = builder.config(key, value)
        with variables(folder.environment(os.environ)):
            return builder.getOrCreate()


def engine_zip(directory: Path | None = None) -> Path:
    """Return the engine as a zip for ``--py-files``; write the file if it does not exist yet.

    It contains the sources, and their bytecode for this version of Python: a driver with the same version
    compiles nothing, and any other one takes the sources. The file's name contains the hash of the sources
    and of that version, so that a worker of one release never runs the engine of another. One rename makes
    the whole file visible.

    :param directory: folder of the file, created if missing; None is ``engine`` in the cache folder
    :raises EnvironmentNotReady: the file cannot be written
    """
    directory = directory or cache_home() / "engine"
    sources = sorted(
        (path.relative_to(_PACKAGE.parent).as_posix(), path.read_bytes()) for path in _PACKAGE.rglob("*.py")
    )
    digest = hashlib.sha256(MAGIC_NUMBER)
    for name, content in sources:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    target = directory / f"delta_cdc-{digest.hexdigest()[:16]}.zip"
    if target.is_file():
        return target
    try:
        _write_zip(target, sources)
    except OSError as error:
        raise EnvironmentNotReady(
            f"The engine cannot be kept in {directory}: {error}.",
            remedy=f"make the folder writable, or name another one in {HOME_VARIABLE}.",
        ) from error
    return target


def _write_zip(target: Path, files: list[tuple[str, bytes]]) -> None:
    # Each user of the cache reads it, as the JARs beside it.
    with replacing(target, mode=0o644) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in [*files, *((f"{name}c", _bytecode(name, source)) for name, source in files)]:
            # Do not compress: the output of deflate depends on the zlib version. ZipInfo's default date is
            # 1980, the oldest possible date in a zip.
            archive.writestr(zipfile.ZipInfo(name), content)


def _bytecode(name: str, source: bytes) -> bytes:
    """Return the content of a ``.pyc`` file that Python never compares with its source."""
    code = compile(source, name, "exec", dont_inherit=True)
    return b"".join([MAGIC_NUMBER, (1).to_bytes(4, "little"), source_hash(source), marshal.dumps(code)])
