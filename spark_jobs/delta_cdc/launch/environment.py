"""Find Spark and Java on this machine. Standard library only; imports no pyspark.

All paths derive from the running interpreter, so this works in a virtual environment that is not activated,
in an Airflow worker and in a notebook.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import EnvironmentNotReady, VersionsUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Oldest Java that Spark 4 runs on.
MINIMUM_JAVA = 17

#: The remedy where pyspark and pyspark-client differ.
ONE_PYSPARK = "reinstall pyspark and pyspark-client, both in one version (pip install --force-reinstall)."

#: Variables in which every JVM finds further options.
JAVA_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_REMEDY = f"install a Java runtime >= {MINIMUM_JAVA} and put it on PATH, or point JAVA_HOME to it."


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which is a complete Spark distribution.

    An inherited ``SPARK_HOME`` is ignored: Spark's JVM side must have exactly the version that this
    interpreter imports.

    :raises EnvironmentNotReady: if pyspark is not installed, or only its Connect client is
    """
    remedy = "install pyspark (the full package, not only pyspark-client) into this Python environment."
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentNotReady(f"pyspark is not installed for {sys.executable}.", remedy=remedy)
    home = Path(spec.origin).resolve().parent
    if not (home / "bin" / "spark-submit").is_file() or not (home / "jars").is_dir():
        raise EnvironmentNotReady(f"The pyspark in {home} has no Spark in it.", remedy=remedy)
    return home


def bundled_version(artifact: str, home: Path | None = None) -> str | None:
    """Return the version of a JAR in Spark's distribution; None if the JAR is missing.

    :param artifact: regular expression of its Maven name
    :param home: folder of the distribution; None is :func:`spark_home`
    """
    names = (
        re.match(rf"{artifact}-(\d.*)\.jar$", jar.name) for jar in ((home or spark_home()) / "jars").iterdir()
    )
    return next((name.group(1) for name in names if name), None)


def pyspark_versions(home: Path) -> dict[str, str]:
    """Return the versions of all that shares pyspark's folder: both packages, the code, the JVM side.

    :param home: the folder; what has no version there is left out
    """
    packages = {name: installed_version(name) for name in ("pyspark", "pyspark-client")}
    code = re.search(r"__version__[^\"'_]*+[\"']([^\"']+)", _text(home / "version.py"))
    jars = bundled_version(r"spark-core_[\d.]+", home) if (home / "jars").is_dir() else None
    found = {**packages, "code": code and code.group(1), "JARs": jars}
    return {name: version for name, version in found.items() if version}


def require_one_pyspark() -> None:
    """Check that pyspark and pyspark-client, which install into one folder, have one version.

    :raises VersionsUnsupported: they differ: the last one that was installed has overwritten the other
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        # :func:`spark_home` raises where Spark is needed.
        return
    home = Path(spec.origin).resolve().parent
    found = pyspark_versions(home)
    if len(set(found.values())) > 1:
        text = ", ".join(f"{name} {version}" for name, version in found.items())
        raise VersionsUnsupported(f"{text} share {home}, and differ in their versions.", remedy=ONE_PYSPARK)


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None without one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def submit_binary() -> Path:
    """Return the absolute path of ``spark-submit``.

    :raises EnvironmentNotReady: see :func:`spark_home`
    """
    return spark_home() / "bin" / "spark-submit"


def child_environment(*, driver_here: bool = True) -> dict[str, str]:
    """Return the variables to add to the environment of a process that runs Spark.

    ``JAVA_HOME`` and ``PATH`` are left as they are: Spark itself looks for Java in that order.

    :param driver_here: whether the driver runs on this machine. On another machine the driver keeps the
        cluster's interpreter, because ours only exists on this machine.
    :raises EnvironmentNotReady: see :func:`spark_home` and :func:`require_one_pyspark`
    """
    require_one_pyspark()
    home = {"SPARK_HOME": str(spark_home())}
    if not driver_here:
        return home
    return {**home, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def driver_variables(theirs: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables without which a driver on this machine would not start, or not find files.

    - Java reads names of files by the locale, and without one, as in many images, only in ASCII.
    - Spark looks for an address of the machine's name, which a container need not have.

    :param theirs: the driver's environment otherwise
    :raises EnvironmentNotReady: the user of this process has no name, which Hadoop needs
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise EnvironmentNotReady(
            f"The user id {os.geteuid()} has no name on this machine, and Spark does not start without one.",
            remedy="add a line for it to /etc/passwd, as the entry point of Airflow's image does.",
        ) from None
    found = {}
    locale = next(filter(None, (theirs.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "C")
    if sys.platform == "linux" and str(locale).upper() in ("C", "POSIX"):
        found["LC_ALL"] = "C.UTF-8"
    if not any(theirs.get(name) for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")):
        try:
            socket.getaddrinfo(socket.gethostname(), None)
        except OSError:
            found["SPARK_LOCAL_IP"] = "127.0.0.1"
    return found


def refuse_noexec(folder: Path) -> None:
    """Refuse a temporary folder from which no library can be loaded.

    :raises EnvironmentNotReady: see above
    """
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise EnvironmentNotReady(
            f"The temporary folder {folder} is on a file system that is mounted with noexec, and Spark loads "
            "its libraries for compression from there.",
            remedy="set TMPDIR to a folder of another file system.",
        )


def java_binary() -> Path:
    """Return the ``java`` that Spark's scripts would start: in ``$JAVA_HOME``, else on PATH.

    :raises EnvironmentNotReady: Java is missing
    """
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        binary = Path(java_home) / "bin" / "java"
        if not os.access(binary, os.X_OK):
            raise EnvironmentNotReady(
                f"JAVA_HOME is {java_home}, which has no bin/java.", remedy=_JAVA_REMEDY
            )
        return binary
    java_path = shutil.which("java")
    if java_path is None:
        raise EnvironmentNotReady("Java is missing: no JAVA_HOME, no java on PATH.", remedy=_JAVA_REMEDY)
    return Path(java_path)


def java_identity(home: Path | None = None) -> list[Any]:
    """Return values that identify a Java installation, without starting it.

    These are its folder, its release file, and size and time (in whole seconds) of the files on which a
    class-data archive depends.

    :param home: Java's folder; None: the folder of the Java that Spark would use
    :raises EnvironmentNotReady: Java is missing
    """
    home = home or java_binary().resolve().parent.parent
    release = _text(home / "release")
    files = [*(home / "lib" / name for name in _JAVA_FILES), home / "bin" / "java"]
    return [str(home), release, *([file.name, *size_and_time(file)] for file in files)]


_JAVA_FILES = ("server/libjvm.so", "server/libjvm.dylib", "server/classes.jsa", "modules")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def size_and_time(path: Path) -> tuple[int, int]:
    """Return a file's size, and its time in whole seconds: Java compares both, and image layers keep both."""
    try:
        stat = path.stat()
    except OSError:
        return (-1, -1)
    return (stat.st_size, int(stat.st_mtime))


def require_java() -> int:
    """Return the major version of the Java that Spark would use.

    The answer is cached for the life of the process; starting Java takes a tenth of a second.

    :raises EnvironmentNotReady: if Java is missing, does not run, or is older than :data:`MINIMUM_JAVA`
    """
    return _java_version(java_binary())


def unknown_java(binary: Path, exit_code: int, output: str) -> tuple[str, str]:
    """Return why ``java -version`` named no version, in Java's own words, and what to do.

    A JVM that does not know an option of a variable does not start at all.
    """
    lines = [line.strip() for line in output.splitlines()]
    reason = next((line for line in lines if line and not line.startswith(("Picked up ", "NOTE: "))), "")
    text = ": ".join(filter(None, [f"{binary} -version names no version (exit code {exit_code})", reason]))
    given = [name for name in JAVA_OPTION_VARIABLES if os.environ.get(name)]
    is_of_options = exit_code and given
    remedy = f"correct the Java options in {', '.join(given)}." if is_of_options else _JAVA_REMEDY
    return text.removesuffix("."), remedy


@cache
def _java_version(binary: Path) -> int:
    try:
        answer = subprocess.run(
            [binary, "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{binary} does not run: {error}.", remedy=_JAVA_REMEDY) from error
    output = answer.stderr + answer.stdout
    major = parse_java_version(output)
    if major is None:
        text, remedy = unknown_java(binary, answer.returncode, output)
        raise EnvironmentNotReady(f"{text}.", remedy=remedy)
    if major < MINIMUM_JAVA:
        raise EnvironmentNotReady(
            f"{binary} is Java {major}; Spark needs Java {MINIMUM_JAVA} or newer.", remedy=_JAVA_REMEDY
        )
    return major


def parse_java_version(text: str) -> int | None:
    """Return the major version in the output of ``java -version``; None if the output has no version.

    Java 8 and older print 1.8 and so on.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment within the block; restore them afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
