"""Servers that tests run are JARs from Maven Central: pinned by lock files, kept in the project's cache.

``python -m tests.support.maven`` follows the dependencies of :data:`ROOTS` and writes the lock files anew.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

from delta_cdc.launch.environment import java_binary, spark_home
from delta_cdc.launch.jars import JarSet

KAFKA_VERSION = "4.3.1"
DEBEZIUM_VERSION = "3.7.0.Final"

#: What each lock file is made from.
ROOTS = {
    "kafka-broker": (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36"),
    # The connector is built for this very release of Connect.
    "kafka-connect": (
        f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
        f"org.apache.kafka:connect-json:{KAFKA_VERSION}",
        f"io.debezium:debezium-connector-postgres:{DEBEZIUM_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
}

_HERE = Path(__file__).resolve().parent
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="delta-cdc" module="tests"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default-&gt;compile,runtime,master">
{dependencies}  </dependencies>
</ivy-module>
"""


def locked(name: str) -> JarSet:
    """Return the JARs that a lock file pins.

    :param name: one of :data:`ROOTS`
    """
    lines = _lock_file(name).read_text().splitlines()
    pins = dict(line.split() for line in lines if line and not line.startswith("#"))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()[:12]
    return JarSet(f"JARs of {name}", f"{name}-{KAFKA_VERSION}-{digest}", pins)


def _lock_file(name: str) -> Path:
    return _HERE / f"{name}.lock"


def _follow(name: str, scratch: Path) -> dict[str, str]:
    """Return the SHA-256 of all that some roots need, by Maven coordinates."""
    settings, module, jars = scratch / "settings.xml", scratch / "ivy.xml", scratch / "jars"
    settings.write_text(_SETTINGS)
    named = [(quoteattr(part) for part in root.split(":")) for root in ROOTS[name]]
    lines = [f"    <dependency org={group} name={one} rev={version}/>\n" for group, one, version in named]
    module.write_text(_MODULE.format(dependencies="".join(lines)))
    subprocess.run(
        [
            *(str(java_binary()), "-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
            *("-settings", str(settings), "-ivy", str(module), "-cache", str(scratch / "cache")),
            *("-retrieve", f"{jars}/[organisation]@[artifact]@[revision].[ext]"),
        ],
        check=True,
    )
    return {
        re.sub(r"\.jar$", "", jar.name).replace("@", ":"): hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in sorted(jars.iterdir())
    }


def main() -> None:
    """Write all lock files."""
    for name, roots in ROOTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            found = _follow(name, Path(scratch))
        head = f"# What {', '.join(roots)} need, by SHA-256; made by python -m tests.support.maven\n"
        _lock_file(name).write_text(head + "".join(f"{pin} {sha}\n" for pin, sha in found.items()))
        print(f"{name}: {len(found)} JARs")


if __name__ == "__main__":
    main()
