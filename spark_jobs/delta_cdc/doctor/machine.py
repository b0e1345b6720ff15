"""Checks of this machine: Python, Java, Spark, packages, JARs, folders. No JVM except ``java -version``."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.core.spark_versions import numbers
from delta_cdc.doctor.report import Check, Result, failed, ok, skipped, warning
from delta_cdc.launch.class_data_archive import ClassDataArchive
from delta_cdc.launch.environment import (
    MINIMUM_JAVA,
    ONE_PYSPARK,
    bundled_version,
    installed_version,
    java_binary,
    parse_java_version,
    pyspark_versions,
    refuse_noexec,
    spark_home,
    unknown_java,
)
from delta_cdc.launch.jars import (
    HOME_VARIABLE,
    cache_home,
    class_path,
    delta_jars,
    jar_sets,
    kafka_jars,
    s3_jars,
)
from delta_cdc.launch.log_store import log_store_jar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delta_cdc.launch.jars import JarSet

MINIMUM_PYTHON = (3, 11)
#: Package, its minimum release, the first unsupported one.
_PANDAS = (("pandas", (2, 2), (3,)),)
_AIRFLOW = (
    ("apache-airflow", (3, 1), (4,)),
    ("apache-airflow-providers-apache-spark", (6, 3, 4), (7,)),
)
#: Any location on S3.
_ON_S3 = ("s3://bucket",)
#: A folder with less free space, in bytes, counts as nearly full.
_LITTLE_SPACE = 1 << 30


def checks(*, timeout: float, kafka: bool = False, s3: bool = False) -> list[Check]:
    """Return the checks of this machine.

    :param timeout: seconds for Java to report its version
    :param kafka: whether the JARs for Kafka are needed, so that missing ones give a warning
    :param s3: whether the JARs for S3 are needed
    """
    return [
        Check("python", python),
        Check("java", lambda: java(timeout)),
        Check("spark", spark),
        Check("pyspark", pyspark),
        Check("pandas", pandas),
        Check("airflow", airflow),
        Check("cache-folder", cache_folder),
        Check("temporary-folder", temporary_folder),
        Check("delta-jars", lambda: jars(delta_jars(), is_needed=True)),
        Check("kafka-jars", lambda: jars(kafka_jars(), is_needed=kafka)),
        Check("s3-jars", lambda: jars(s3_jars(), is_needed=s3)),
        Check("log-stores", log_stores),
        Check("start-archive", lambda: archive(kafka=kafka, s3=s3)),
    ]


# -- interpreters -------------------------------------------------------------------------------
def python(release: Sequence[int] | None = None) -> Result:
    """Check the interpreter."""
    release = tuple(release or sys.version_info[:3])
    text = f"Python {'.'.join(map(str, release))}, {sys.executable}"
    if release[:2] >= MINIMUM_PYTHON:
        return ok(text)
    return failed(text, f"run the workers with Python {'.'.join(map(str, MINIMUM_PYTHON))} or newer.")


def java(timeout: float) -> Result:
    """Check the Java that Spark would start."""
    binary = java_binary()
    origin = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
    remedy = f"install a Java runtime >= {MINIMUM_JAVA} and put it on PATH, or point JAVA_HOME to it."
    try:
        process = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, errors="replace", timeout=timeout,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return failed(f"{binary} -version gave no answer within {timeout:g} s", remedy)
    except OSError as error:
        return failed(f"{binary} does not run: {error.strerror}", remedy)
    output = process.stderr + process.stdout
    major, full = parse_java_version(output), re.search(r'version "([^"]+)"', output)
    if major is None or full is None:
        return failed(*unknown_java(binary, process.returncode, output))
    text = f"Java {full.group(1)}, {binary} (found by {origin})"
    return ok(text) if major >= MINIMUM_JAVA else failed(f"{text}; Spark needs Java {MINIMUM_JAVA}", remedy)


# -- packages -----------------------------------------------------------------------------------
def spark() -> Result:
    """Check the Spark distribution in pyspark."""
    home = spark_home()
    installed = spark_version(home)
    if installed is None:
        return failed(
            f"{home} has no spark-core JAR", "reinstall pyspark: its folder is damaged or incomplete."
        )
    text = f"Spark {installed}, {home}"
    if not os.access(home / "bin" / "spark-submit", os.X_OK):
        return failed(f"{home}/bin/spark-submit cannot be executed", "give the file its permission back.")
    inherited = os.environ.get("SPARK_HOME")
    if inherited and Path(inherited).resolve() != home:
        return warning(
            f"{text}; SPARK_HOME names {inherited}, which is not used",
            "unset SPARK_HOME, which suggests that the other Spark runs.",
        )
    return ok(text)


def spark_version(home: Path) -> str | None:
    """Return the version of the JVM side of a Spark distribution; None if it has no version."""
    return bundled_version(r"spark-core_[\d.]+", home)


def pyspark() -> Result:
    """Compare pyspark, pyspark-client (installed over it), the installed code, and its JARs."""
    home = spark_home()
    versions = pyspark_versions(home)
    text = ", ".join(f"{name} {installed}" for name, installed in versions.items())
    if len(set(versions.values())) > 1:
        return failed(f"{text} share {home}, and differ in their versions", ONE_PYSPARK)
    return ok(text)


def pandas() -> Result:
    """Check pandas, which PySpark uses."""
    return _releases(_PANDAS)


def airflow() -> Result:
    """Check Airflow and its Spark provider; the engine needs neither."""
    if not any(installed_version(name) for name, _, _ in _AIRFLOW):
        return skipped("Airflow is not installed, and the engine alone does not need it")
    return _releases(_AIRFLOW)


def _releases(packages: Iterable[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> Result:
    """Check that packages are installed in supported releases."""
    texts, required = [], []
    for name, least, limit in packages:
        installed = installed_version(name)
        texts.append(f"{name} {installed or 'missing'}")
        if not installed or not least <= numbers(installed) < limit:
            required.append(f"{name} >= {'.'.join(map(str, least))}, < {limit[0]}")
    text = ", ".join(texts)
    return failed(text, f"install {' and '.join(required)}.") if required else ok(text)


# -- folders and JARs ---------------------------------------------------------------------------
def cache_folder() -> Result:
    """Write a test file into the folder of JARs, engine and archives."""
    return _writable(cache_home(), f"make the folder writable, or name another one in {HOME_VARIABLE}.")


def temporary_folder() -> Result:
    """Write a test file into the folder where each run keeps a private one for its spec, result and log."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return failed(f"no temporary folder can be written: {error}", "set TMPDIR to a folder that can be.")
    refuse_noexec(folder)
    return _writable(folder, "make room or set TMPDIR to another folder.")


def _writable(folder: Path, remedy: str) -> Result:
    missing = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file:
            file.write(b"x" * 4096)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return failed(f"{folder} cannot be written: {error.strerror or error}", remedy)
    text = f"{folder}{' (created now)' if missing else ''}, {free / (1 << 30):.1f} GiB free"
    return ok(text) if free >= _LITTLE_SPACE else warning(text, remedy)


def jars(wanted: JarSet, *, is_needed: bool) -> Result:
    """Compare the bytes of JARs in the cache with the published ones."""
    if not wanted.path.is_dir() or not any(wanted.path.glob("*.jar")):
        text = f"the {wanted.title} are not in {wanted.path} yet"
        if not is_needed:
            return skipped(text)
        return warning(text, "run `delta-cdc jars` where Maven Central or your mirror can be reached.")
    wrong = [name for name, sha256 in wanted.hashes.items() if _sha256(wanted.path / name) != sha256]
    if wrong or not wanted.is_resolved():
        return failed(
            f"{', '.join(sorted(wrong)) or 'the manifest'} in {wanted.path} is missing or damaged",
            f"delete {wanted.path} and run `delta-cdc jars` again.",
        )
    return ok(f"{len(wanted.hashes)} {wanted.title}, unharmed, {wanted.path}")


def log_stores() -> Result:
    """Check that this installation has the JAR of our log stores."""
    jar = log_store_jar()
    if jar is not None:
        return ok(str(jar))
    return warning(
        "this installation lacks the JAR of the log stores, so of two drivers, one may overwrite commits of "
        "the other on a disk or on S3",
        "install the wheel of a release, or build one with `make wheel`.",
    )


def archive(*, kafka: bool = False, s3: bool = False) -> Result:
    """Check the class-data archive, with which an embedded Spark starts faster: one for each class path.

    :param kafka: the archive of applications that read topics
    :param s3: the archive of applications with tables on S3
    """
    locations = _ON_S3 if s3 else ()
    try:
        if not all(one.is_resolved() for one in jar_sets(locations, kafka=kafka)):
            return skipped("the JARs that it is made of are not there yet")
        status = ClassDataArchive(class_path(locations, kafka=kafka)).status()
    except EnvironmentNotReady as error:
        # Another check reports the missing part.
        return skipped(error.message.rstrip("."))
    reason_text = status.reason.rstrip(".")
    if status.state in ("damaged", "impossible"):
        return warning(reason_text, "Spark starts without it, a few seconds later.")
    return ok(reason_text) if status.state == "ready" else skipped(reason_text)


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        # The check reports an unreadable file as missing or damaged.
        return ""
