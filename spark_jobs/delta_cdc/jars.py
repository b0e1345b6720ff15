"""The Delta JARs that Spark does not ship: resolved once, kept in a cache, checked by hash.

The work is left to Spark's own resolver (Ivy), so that proxies and trust stores of the Java installation
apply. It runs with a settings file of our own, whose only resolver is Maven Central: the built-in list also
looks into ``~/.m2``, where a POM without its JAR makes the resolution fail, and asks a second repository for
every parent POM. A company that has a mirror names its own settings file in ``DELTA_CDC_IVY_SETTINGS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

from delta_cdc.environment import child_environment, require_java, submit_binary
from delta_cdc.errors import EnvironmentNotReady

#: The newest Delta whose JAR is on Maven Central; the Python package of the same name is not needed.
DELTA_VERSION = "4.4.0"
DELTA_PACKAGE = f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}"

#: Where the JARs are kept; default ``~/.cache/airflow-provider-delta-cdc``.
HOME_VARIABLE = "DELTA_CDC_HOME"
#: An Ivy settings file to resolve with, instead of Maven Central.
IVY_SETTINGS_VARIABLE = "DELTA_CDC_IVY_SETTINGS"

#: SHA-256 of every JAR, by file name. A mirror serves the same bytes.
JAR_HASHES = {
    f"{artifact}.jar": sha256
    for artifact, sha256 in (
        (
            f"io.delta_delta-kernel-api-{DELTA_VERSION}",
            "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
        ),
        (
            f"io.delta_delta-kernel-defaults-{DELTA_VERSION}",
            "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
        ),
        (
            f"io.delta_delta-kernel-unitycatalog-{DELTA_VERSION}",
            "cea22dfb4ac562b3cd27bf652697750e8336009d73fb06631363aaaad5345ffa",
        ),
        (
            f"io.delta_delta-spark_4.2_2.13-{DELTA_VERSION}",
            "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
        ),
        (
            f"io.delta_delta-storage-{DELTA_VERSION}",
            "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        ),
        (
            "io.unitycatalog_unitycatalog-client-0.6.0",
            "48257499a86b801a3e2372cec55ac226ca1c1c7eabe5c118e7302f29a1fdbc19",
        ),
        (
            "io.unitycatalog_unitycatalog-hadoop-0.6.0",
            "c47b63c961c87102b9e1d63809a0915ba4c86b7652f57c8d39ca3a05b441a150",
        ),
    )
}

# Everything else that Delta's POM asks for is in Spark already, mostly newer.
_EXCLUSIONS = ("org.*:*", "com.*:*", "commons-*:*", "javax.*:*", "io.airlift:*")

_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

_MANIFEST = "manifest.json"
_RESOLVE_TIMEOUT_SECONDS = 600


def cache_home() -> Path:
    """Return the cache folder: ``$DELTA_CDC_HOME``, else the user's cache folder as XDG defines it."""
    own = os.environ.get(HOME_VARIABLE)
    if own:
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airflow-provider-delta-cdc"


def delta_jars() -> tuple[Path, ...]:
    """Return the paths of the Delta JARs; resolve them first if the cache does not hold them.

    A cache that is complete costs a few file look-ups. Processes that resolve at the same time do not
    disturb each other: each file appears whole, and the manifest that vouches for them comes last.

    :raises EnvironmentNotReady: if Java or Spark is missing, the resolution fails, or a JAR has other bytes
        than the published one
    """
    folder = _folder()
    if not _is_complete(folder):
        _fill(folder)
    return tuple(folder / name for name in sorted(JAR_HASHES))


def is_resolved() -> bool:
    """Return whether :func:`delta_jars` would find everything in the cache."""
    return _is_complete(_folder())


def class_path() -> str:
    """Return the JARs in the form that ``spark.driver.extraClassPath`` takes."""
    return os.pathsep.join(str(jar) for jar in delta_jars())


def _folder() -> Path:
    return cache_home() / "jars" / f"delta-{DELTA_VERSION}"


def _is_complete(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        return manifest.keys() == JAR_HASHES.keys() and all(
            entry["sha256"] == JAR_HASHES[name] and (folder / name).stat().st_size == entry["size"]
            for name, entry in manifest.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Whatever is wrong with a cache, the remedy is to fill it again.
        return False


def _fill(folder: Path) -> None:
    require_java()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In the target's own folder, because a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder) as scratch:
            _publish(_resolve(Path(scratch)), folder)
    except OSError as error:
        raise EnvironmentNotReady(
            f"The Delta JARs cannot be kept in {folder}: {error}.",
            remedy=f"make the folder writable, or name another one in {HOME_VARIABLE}.",
        ) from error


def _resolve(scratch: Path) -> list[Path]:
    """Let Spark resolve the package; return the files in ``scratch``."""
    settings, script, ivy = scratch / "ivysettings.xml", scratch / "nothing.py", scratch / "ivy"
    settings.write_text(_IVY_SETTINGS)
    script.write_text("")
    command = [
        str(submit_binary()),
        *("--master", "local[1]"),
        *("--packages", DELTA_PACKAGE),
        *("--exclude-packages", ",".join(_EXCLUSIONS)),
        *("--conf", f"spark.jars.ivySettings={os.environ.get(IVY_SETTINGS_VARIABLE) or settings}"),
        *("--conf", f"spark.jars.ivy={ivy}"),
        *("--conf", "spark.ui.enabled=false"),
        str(script),
    ]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **child_environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RESOLVE_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _failure(f"took longer than {_RESOLVE_TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise _failure(f"failed: {_last_complaint(done.stdout + done.stderr)}")
    return [ivy / "jars" / name for name in sorted(JAR_HASHES)]


def _publish(jars: list[Path], folder: Path) -> None:
    manifest = {}
    for jar in jars:
        if not jar.is_file():
            raise _failure(f"gave no {jar.name}")
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()
        if digest != JAR_HASHES[jar.name]:
            raise _failure(f"gave a {jar.name} with SHA-256 {digest}, not the published file")
        manifest[jar.name] = {"sha256": digest, "size": jar.stat().st_size}
    for jar in jars:
        jar.replace(folder / jar.name)
    draft = jars[0].parent / _MANIFEST
    draft.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    draft.replace(folder / _MANIFEST)


def _failure(what: str) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"Resolving {DELTA_PACKAGE} {what}.",
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
