"""The JARs that Spark does not ship (of Delta, Kafka, S3): resolve them once, cache them, check their hashes.

The resolver in Spark's own distribution (Ivy) fetches them, so that proxies and trust stores of the Java
installation apply. It runs with a custom settings file, whose only resolver is Maven Central. Spark's list
of resolvers also includes ``~/.m2``, where a POM without its JAR makes the resolution fail, and a second
repository that is queried for every parent POM. A company with a mirror names its own settings file in
``DELTA_CDC_IVY_SETTINGS``.

The installed packages determine the JARs: delta-spark determines the release of Delta, and pyspark's own JARs
those of Spark and Hadoop. Delta's ``configure_spark_with_delta_pip`` gives the same coordinates, but
imports pyspark, which a process that only plans does not load. :mod:`delta_cdc.core.spark_versions` names the
JARs of each release, and ``jars.sha256`` has their SHA-256, so that neither a mirror nor a damaged cache can
put other code into Spark. No dependency of a POM is followed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from delta_cdc.core import codec
from delta_cdc.core.errors import EnvironmentNotReady, VersionsUnsupported
from delta_cdc.core.spark_versions import KAFKA, PAIRS, S3, one_of, pair_of, release, version_with_jars
from delta_cdc.core.storage_options import is_s3
from delta_cdc.launch.environment import bundled_version, java_binary, require_java, spark_home
from delta_cdc.launch.log_store import log_store_jar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The folder of the JARs; default ``~/.cache/airflow-provider-delta-cdc``.
HOME_VARIABLE = "DELTA_CDC_HOME"
#: An Ivy settings file, which replaces Maven Central.
IVY_SETTINGS_VARIABLE = "DELTA_CDC_IVY_SETTINGS"

_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="delta-cdc" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default-&gt;master(*)">
{dependencies}  </dependencies>
</ivy-module>
"""

_MANIFEST = "manifest.json"
_RESOLVE_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class JarSet:
    """Some JARs that are used together.

    :param title: their name in messages
    :param folder: their folder under ``jars`` in the cache; each version has another folder
    :param by_coordinates: SHA-256 by Maven coordinates (``group:artifact:version``), the same on mirrors
    """

    title: str
    folder: str
    by_coordinates: Mapping[str, str]

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every JAR, by file name."""
        return {_file_name(coordinates): sha256 for coordinates, sha256 in self.by_coordinates.items()}

    @property
    def path(self) -> Path:
        """Return the folder in the cache."""
        return cache_home() / "jars" / self.folder

    def is_resolved(self) -> bool:
        """Return whether the cache has everything that :meth:`jars` returns."""
        hashes, folder = self.hashes, self.path
        try:
            manifest = codec.parsed((folder / _MANIFEST).read_text())
            return bool(manifest.keys() == hashes.keys()) and all(
                entry["sha256"] == hashes[name] and (folder / name).stat().st_size == entry["size"]
                for name, entry in manifest.items()
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # After any error, :meth:`jars` fills the cache again.
            return False

    def jars(self) -> tuple[Path, ...]:
        """Return the paths of the JARs; resolve them first if the cache does not have them.

        A complete cache costs a few file look-ups. Several processes may resolve at the same time: each file
        appears as a whole, and the manifest, without which the files do not count, comes last.

        :raises EnvironmentNotReady: if Java or Spark is missing, the resolution fails, or a JAR differs from
            the published file
        """
        if not self.is_resolved():
            require_java()
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                # In the target's own folder, because a rename is atomic only within one file system.
                with tempfile.TemporaryDirectory(prefix=".resolving-", dir=self.path) as scratch:
                    self._publish(self._resolve(Path(scratch)))
            except OSError as error:
                raise EnvironmentNotReady(
                    f"The {self.title} cannot be kept in {self.path}: {error}.",
                    remedy=f"make the folder writable, or name another one in {HOME_VARIABLE}.",
                ) from error
        return tuple(self.path / name for name in sorted(self.hashes))

    def _resolve(self, scratch: Path) -> list[Path]:
        """Let Ivy resolve the JARs; return the files in ``scratch``."""
        settings, module, jars = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "jars"
        settings.write_text(_IVY_SETTINGS)
        module.write_text(_ivy_module(self.by_coordinates))
        command = [
            str(java_binary()),
            # The options that spark-submit would pass to its own resolver, such as a proxy or a trust store.
            *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
            *("-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
            *("-settings", os.environ.get(IVY_SETTINGS_VARIABLE) or str(settings)),
            *("-ivy", str(module)),
            *("-cache", str(scratch / "cache")),
            *("-retrieve", f"{jars}/[organisation]_[artifact]-[revision].[ext]"),
        ]
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_RESOLVE_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"took longer than {_RESOLVE_TIMEOUT_SECONDS} s") from error
        if process.returncode != 0:
            raise self._failure(f"failed: {_last_complaint(process.stdout + process.stderr)}")
        return [jars / name for name in sorted(self.hashes)]

    def _publish(self, jars: list[Path]) -> None:
        manifest, hashes, folder = {}, self.hashes, self.path
        for jar in jars:
            if not jar.is_file():
                raise self._failure(f"gave no {jar.name}")
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            if digest != hashes[jar.name]:
                raise self._failure(f"gave a {jar.name} with SHA-256 {digest}, not the published file")
            manifest[jar.name] = {"sha256": digest, "size": jar.stat().st_size}
        for jar in jars:
            jar.replace(folder / jar.name)
        draft = jars[0].parent / _MANIFEST
        draft.write_text(json.dumps(manifest, indent=1, sort_keys=True))
        draft.replace(folder / _MANIFEST)

    def _failure(self, outcome: str) -> EnvironmentNotReady:
        return EnvironmentNotReady(
            f"Resolving the {self.title} {outcome}.",
            remedy=(
                "give this machine access to Maven Central, or name an Ivy settings file with your mirror in "
                f"{IVY_SETTINGS_VARIABLE}, then try again."
            ),
        )


#: SHA-256 of every JAR, as ``sha256sum`` prints it, with Maven coordinates instead of file names.
_HASHES = Path(__file__).with_name("jars.sha256")


def installed_delta() -> str:
    """Return the version of the installed delta-spark, which is also the version of the Delta JARs.

    :raises VersionsUnsupported: it is not installed
    """
    try:
        return version("delta-spark")
    except PackageNotFoundError:
        raise VersionsUnsupported(
            f"delta-spark is not installed for {sys.executable}.",
            remedy=f"install {one_of(PAIRS)} into this Python environment.",
        ) from None


def delta_jars() -> JarSet:
    """Return the Delta JARs of the installed delta-spark and pyspark.

    :raises EnvironmentNotReady: one of them is missing, or they are no pair that works
    """
    delta, spark = installed_delta(), _bundled("spark-core_[0-9.]+")
    folder = f"delta-{delta}-spark-{release(spark)}"
    return JarSet("Delta JARs", folder, _hashes(pair_of(spark, delta).jars))


def kafka_jars() -> JarSet:
    """Return the JARs of the connector to Kafka for the installed pyspark; see :func:`delta_jars`."""
    spark, title = _bundled("spark-core_[0-9.]+"), "Kafka connector JARs"
    known = version_with_jars(spark, KAFKA, title, "pyspark")
    return JarSet(title, f"spark-kafka-{known}", _hashes(KAFKA[known]))


def s3_jars() -> JarSet:
    """Return the JARs of the file system for S3 for the Hadoop in pyspark; see :func:`delta_jars`."""
    hadoop, title = _bundled("hadoop-client-api"), "JARs of Hadoop's file system for S3"
    known = version_with_jars(hadoop, S3, title, "Hadoop")
    return JarSet(title, f"hadoop-aws-{known}", _hashes(S3[known]))


def _hashes(patterns: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each JAR by its coordinates.

    :param patterns: coordinates; ``*`` is all artifacts of a group and a version
    """
    lines = (line.split() for line in _HASHES.read_text(encoding="ascii").splitlines())
    known = {coordinates: sha256 for sha256, coordinates in lines}
    return {name: known[name] for pattern in patterns for name in fnmatch.filter(known, pattern)}


def _bundled(artifact: str) -> str:
    bundled = bundled_version(artifact)
    if bundled is None:
        raise EnvironmentNotReady(
            f"Spark's distribution in {spark_home()} has no JAR {artifact}.",
            remedy="install pyspark again: its folder is damaged or incomplete.",
        )
    return bundled


def cache_home() -> Path:
    """Return the cache folder: ``$DELTA_CDC_HOME``, else the user's cache folder as XDG defines it.

    :raises EnvironmentNotReady: this user has no home, as in a container with any user id
    """
    configured, base = os.environ.get(HOME_VARIABLE), os.environ.get("XDG_CACHE_HOME")
    try:
        if configured:
            return Path(configured).expanduser().absolute()
        return (Path(base) if base else Path.home() / ".cache") / "airflow-provider-delta-cdc"
    except RuntimeError:
        raise EnvironmentNotReady(
            "There is no folder for JARs and the engine: the user of this process has no home.",
            remedy=f"set {HOME_VARIABLE} to the absolute path of a folder that this user can write.",
        ) from None


def jar_sets(locations: Iterable[str] = (), *, kafka: bool = False) -> tuple[JarSet, ...]:
    """Return the JARs that a session needs.

    The JARs of Hadoop's file systems for Azure and Google are not included: they come with the cluster, or by
    ``packages``.

    :param locations: URIs and paths that the session reads or writes
    :param kafka: include the connector to Kafka
    :raises EnvironmentNotReady: see :func:`delta_jars`
    """
    s3 = any(is_s3(location) for location in locations)
    return (delta_jars(), *((kafka_jars(),) if kafka else ()), *((s3_jars(),) if s3 else ()))


def needed(locations: Iterable[str] = (), *, kafka: bool = False) -> tuple[Path, ...]:
    """Return the paths of all the JARs of :func:`jar_sets`, and of our log stores.

    :raises EnvironmentNotReady: see there and :meth:`JarSet.jars`
    """
    resolved = [jar for jar_set in jar_sets(locations, kafka=kafka) for jar in jar_set.jars()]
    log_store = log_store_jar()
    return (*([log_store] if log_store else []), *resolved)


def class_path(locations: Iterable[str] = (), *, kafka: bool = False) -> str:
    """Return the paths of :func:`needed` as a value of ``spark.driver.extraClassPath``."""
    return os.pathsep.join(map(str, needed(locations, kafka=kafka)))


def _file_name(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"{group}_{artifact}-{version}.jar"


def _ivy_module(jars: Iterable[str]) -> str:
    lines = []
    for coordinates in jars:
        group, artifact, version = (quoteattr(part) for part in coordinates.split(":"))
        lines.append(f'    <dependency org={group} name={artifact} rev={version} transitive="false"/>\n')
    return _IVY_MODULE.format(dependencies="".join(lines))


def _last_complaint(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [
        line for line in lines if "Exception" in line or "not found" in line or "error" in line.lower()
    ]
    return (complaints or lines or ["no output"])[-1].rstrip(".")
