"""The JARs that Spark does not ship, Delta's and Kafka's: resolved once, kept in a cache, checked by hash.

The work is left to the resolver in Spark's own distribution (Ivy), so that proxies and trust stores of the
Java installation apply. It runs with a settings file of our own, whose only resolver is Maven Central: the
list built into Spark also looks into ``~/.m2``, where a POM without its JAR makes the resolution fail, and
asks a second repository for every parent POM. A company that has a mirror names its own settings file in
``DELTA_CDC_IVY_SETTINGS``. Every JAR is named and pinned here; nothing is followed that its POM asks for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from delta_cdc.environment import java_binary, require_java, spark_home
from delta_cdc.errors import EnvironmentNotReady

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The newest Delta whose JAR is on Maven Central; the Python package of the same name is not needed.
DELTA_VERSION = "4.4.0"
DELTA_PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"

#: Where the JARs are kept; default ``~/.cache/airflow-provider-delta-cdc``.
HOME_VARIABLE = "DELTA_CDC_HOME"
#: An Ivy settings file to resolve with, instead of Maven Central.
IVY_SETTINGS_VARIABLE = "DELTA_CDC_IVY_SETTINGS"

#: The connector belongs to the Spark that runs it.
KAFKA_CONNECTOR_VERSION = "4.2.0"
# Maven Central has no newer release of this one. What the connector calls in it has not changed since; only
# the warning that a Kerberos cluster gave no delegation token names a class that Spark 4.1 took away.
_TOKEN_PROVIDER_VERSION = "4.0.0"

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

    :param title: what to call them in messages
    :param folder: where they lie under ``jars`` in the cache; another one for other versions
    :param pins: SHA-256 by Maven coordinates (``group:artifact:version``). A mirror serves the same bytes
    """

    title: str
    folder: str
    pins: Mapping[str, str]

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every JAR, by file name."""
        return {_file_name(coordinates): sha256 for coordinates, sha256 in self.pins.items()}

    @property
    def path(self) -> Path:
        """Return the folder in the cache."""
        return cache_home() / "jars" / self.folder

    def is_resolved(self) -> bool:
        """Return whether :meth:`jars` would find everything in the cache."""
        return _is_complete(self)

    def jars(self) -> tuple[Path, ...]:
        """Return the paths of the JARs; resolve them first if the cache does not hold them.

        A cache that is complete costs a few file look-ups. Processes that resolve at the same time do not
        disturb each other: each file appears whole, and the manifest that vouches for them comes last.

        :raises EnvironmentNotReady: if Java or Spark is missing, the resolution fails, or a JAR has other
            bytes than the published one
        """
        if not _is_complete(self):
            _fill(self)
        return tuple(self.path / name for name in sorted(self.hashes))


DELTA_JARS = JarSet(
    "Delta JARs",
    f"delta-{DELTA_VERSION}",
    {
        f"io.delta:delta-kernel-api:{DELTA_VERSION}": (
            "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11"
        ),
        f"io.delta:delta-kernel-defaults:{DELTA_VERSION}": (
            "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b"
        ),
        f"io.delta:delta-kernel-unitycatalog:{DELTA_VERSION}": (
            "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa"
        ),
        DELTA_PACKAGE: "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        f"io.delta:delta-storage:{DELTA_VERSION}": (
            "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
        ),
        "io.unitycatalog:unitycatalog-client:0.6.0": (
            "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19"
        ),
        "io.unitycatalog:unitycatalog-hadoop:0.6.0": (
            "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150"
        ),
    },
)

#: Spark's connector to Kafka, and what it needs that Spark does not ship.
KAFKA_JARS = JarSet(
    "Kafka connector JARs",
    f"spark-kafka-{KAFKA_CONNECTOR_VERSION}",
    {
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{KAFKA_CONNECTOR_VERSION}": (
            "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
        ),
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{_TOKEN_PROVIDER_VERSION}": (
            "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
        ),
        "org.apache.kafka:kafka-clients:3.9.2": (
            "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
        ),
        "org.apache.commons:commons-pool2:2.13.1": (
            "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
        ),
    },
)


def cache_home() -> Path:
    """Return the cache folder: ``$DELTA_CDC_HOME``, else the user's cache folder as XDG defines it."""
    own = os.environ.get(HOME_VARIABLE)
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow-provider-delta-cdc"


def delta_jars() -> tuple[Path, ...]:
    """Return the paths of the Delta JARs; see :meth:`JarSet.jars`.

    :raises EnvironmentNotReady: see there
    """
    return DELTA_JARS.jars()


def kafka_jars() -> tuple[Path, ...]:
    """Return the paths of the JARs that a session needs beside Delta's to read from Kafka.

    :raises EnvironmentNotReady: see :meth:`JarSet.jars`
    """
    return KAFKA_JARS.jars()


def is_resolved() -> bool:
    """Return whether :func:`delta_jars` would find everything in the cache."""
    return DELTA_JARS.is_resolved()


def class_path(*, kafka: bool = False) -> str:
    """Return the JARs in the form that ``spark.driver.extraClassPath`` takes.

    :param kafka: the connector to Kafka as well
    """
    return os.pathsep.join(str(jar) for jar in (*delta_jars(), *(kafka_jars() if kafka else ())))


def _file_name(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return f"{group}_{artifact}-{version}.jar"


def _is_complete(wanted: JarSet) -> bool:
    hashes, folder = wanted.hashes, wanted.path
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        return bool(manifest.keys() == hashes.keys()) and all(
            entry["sha256"] == hashes[name] and (folder / name).stat().st_size == entry["size"]
            for name, entry in manifest.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Whatever is wrong with a cache, the remedy is to fill it again.
        return False


def _fill(wanted: JarSet) -> None:
    require_java()
    folder = wanted.path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In the target's own folder, because a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder) as scratch:
            _publish(wanted, _resolve(wanted, Path(scratch)))
    except OSError as error:
        raise EnvironmentNotReady(
            f"The {wanted.title} cannot be kept in {folder}: {error}.",
            remedy=f"make the folder writable, or name another one in {HOME_VARIABLE}.",
        ) from error


def _resolve(wanted: JarSet, scratch: Path) -> list[Path]:
    """Let Ivy resolve the JARs; return the files in ``scratch``."""
    settings, module, jars = scratch / "ivysettings.xml", scratch / "ivy.xml", scratch / "jars"
    settings.write_text(_IVY_SETTINGS)
    module.write_text(_ivy_module(wanted.pins))
    command = [
        str(java_binary()),
        # What spark-submit would give its own resolver: a proxy, a trust store.
        *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        *("-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-settings", os.environ.get(IVY_SETTINGS_VARIABLE) or str(settings)),
        *("-ivy", str(module)),
        *("-cache", str(scratch / "cache")),
        *("-retrieve", f"{jars}/[organisation]_[artifact]-[revision].[ext]"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RESOLVE_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failure(wanted, f"took longer than {_RESOLVE_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise _failure(wanted, f"failed: {_last_complaint(done.stdout + done.stderr)}")
    return [jars / name for name in sorted(wanted.hashes)]


def _ivy_module(pins: Mapping[str, str]) -> str:
    lines = []
    for coordinates in pins:
        group, artifact, version = (quoteattr(part) for part in coordinates.split(":"))
        lines.append(f'    <dependency org={group} name={artifact} rev={version} transitive="false"/>\n')
    return _IVY_MODULE.format(dependencies="".join(lines))


def _publish(wanted: JarSet, jars: list[Path]) -> None:
    manifest, hashes, folder = {}, wanted.hashes, wanted.path
    for jar in jars:
        if not jar.is_file():
            raise _failure(wanted, f"gave no {jar.name}")
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        if digest != hashes[jar.name]:
            raise _failure(wanted, f"gave a {jar.name} with SHA-256 {digest}, not the published file")
        manifest[jar.name] = {"sha256": digest, "size": jar.stat().st_size}
    for jar in jars:
        jar.replace(folder / jar.name)
    draft = jars[0].parent / _MANIFEST
    draft.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    draft.replace(folder / _MANIFEST)


def _failure(wanted: JarSet, what: str) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"Resolving the {wanted.title} {what}.",
        remedy=(
            f"give this machine access to Maven Central, or name an Ivy settings file with your mirror in "
            f"{IVY_SETTINGS_VARIABLE}, then try again."
        ),
    )


def _last_complaint(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line for line in lines if "Exception" in line or "not found" in line or "error" in line.lower()
    ]
    return (telling or lines or ["no output"])[-1].rstrip(".")
