"""Compile ``java/`` into the JAR of the log stores, beside the module that finds it.

The name has the hash of the sources, so that a JAR of other sources is never taken for this one. The same
sources and the same compiler give the same bytes.

Usage: ``python -m tools.jar``
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from delta_cdc.core.drafts import replacing
from delta_cdc.launch.environment import MINIMUM_JAVA, spark_home
from delta_cdc.launch.jars import delta_jars
from delta_cdc.launch.log_store import FOLDER, PREFIX

SOURCES = Path(__file__).resolve().parent.parent / "java"


class NoCompilerError(RuntimeError):
    """There is no Java compiler here."""


def built(folder: Path = FOLDER) -> Path:
    """Return the JAR of the sources, compiled if the folder does not have it; delete older ones.

    :raises NoCompilerError: there is no ``javac`` to compile it with
    """
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    jar = folder / f"{PREFIX}{digest[:12]}.jar"
    if not jar.is_file():
        with tempfile.TemporaryDirectory() as scratch:
            compiled(sources, Path(scratch))
            _pack(Path(scratch), jar)
        for older in set(folder.glob(f"{PREFIX}*.jar")) - {jar}:
            older.unlink()
    return jar


def compiled(sources: list[Path], classes: Path) -> None:
    """Compile sources into a folder, against the JARs of Spark and Delta.

    :raises NoCompilerError: see :func:`built`
    """
    classes.mkdir(parents=True, exist_ok=True)
    class_path = [spark_home() / "jars" / "*", *delta_jars().jars()]
    subprocess.run(
        [
            *(_javac(), "--release", str(MINIMUM_JAVA), "-proc:none", "-encoding", "UTF-8"),
            *("-Xlint:all,-classfile,-path", "-Werror", "-d", str(classes)),
            *("-cp", os.pathsep.join(map(str, class_path)), *map(str, sources)),
        ],
        check=True,
    )


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise NoCompilerError(f"no javac in {home or 'PATH'}: install a JDK >= {MINIMUM_JAVA}")
    return found


def _pack(classes: Path, jar: Path) -> None:
    with replacing(jar, mode=0o644) as draft, zipfile.ZipFile(draft, "w") as archive:
        # ZipInfo's default date is 1980, so the bytes do not depend on the day.
        for file in sorted(classes.rglob("*.class")):
            archive.writestr(zipfile.ZipInfo(file.relative_to(classes).as_posix()), file.read_bytes())


if __name__ == "__main__":
    try:
        print(built())
    except NoCompilerError as error:
        sys.exit(f"jar: {error}")
