"""The Dockerfile's steps in a plain folder, and what every container would run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tools.docker_check.places import environment_of, executables, is_ours, plain_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.docker_check.places import Instruction, Project

#: Programs that the base image brings, by its own Dockerfile.
BASE_PROGRAMS = {"/usr/bin/dumb-init"}

_PARSE = """
import sys
from airflow.cli.cli_parser import get_parser
parser = get_parser()
for line in sys.stdin.read().splitlines():
    try:
        parser.parse_args(line.split(" ")[1:])
    except SystemExit as end:
        if end.code:
            print(line)
"""


class StepFailed(Exception):
    """A step of the build failed; the message says which, and how."""


class PlainBuild:
    """A stage of the Dockerfile, made in a plain folder instead of an image.

    What a stage takes from another image is left out: the machine's own Python and Java replace it.

    :param project: what to build
    :param folder: where; the image's ``/`` is this folder
    :param python: the Python 3.12 that replaces the base image's
    """

    def __init__(self, project: Project, folder: Path, *, python: str = sys.executable) -> None:
        self.project = project
        self.folder = folder
        self.python = python

    def path(self, path: str) -> Path:
        """Return where a path of the image is."""
        return plain_path(path, self.folder)

    @property
    def bin(self) -> list[Path]:
        """Return the folders of the image's programs."""
        return [self.path("/opt/delta-cdc/bin"), self.path("/opt/delta-cdc/venv/bin")]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a process in the plain folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "_AIRFLOW", "PYTHON"))}
        return {
            **kept,
            "PATH": executables(self.bin),
            "PYTHON": self.python,
            "DELTA_CDC_ROOT": str(self.path("/opt/delta-cdc")),
            "DELTA_CDC_HOME": str(self.path("/opt/delta-cdc/cache")),
            "AIRFLOW_HOME": str(self.path("/opt/airflow")),
            "DELTA_CDC_UV_CACHE": str(self.project.root / ".cache" / "uv"),
        }

    def make(self, *, jars: Path | None = None, only_copy: bool = False) -> None:
        """Run the stage ``runtime``, instruction by instruction, into a folder that has nothing in it.

        :param jars: folder of JARs that were resolved before; saves their download
        :param only_copy: run no step, as what they made is there
        :raises StepFailed: an instruction failed
        """
        for one in self.project.instructions("runtime"):
            if one.name == "COPY" and "from" not in one.flags:
                self._copy(one)
            elif one.name == "RUN" and not only_copy:
                if one.words[-1] == "jars" and jars is not None and jars.is_dir():
                    shutil.copytree(jars, self.path("/opt/delta-cdc/cache/jars"))
                self._run(one)

    def _copy(self, one: Instruction) -> None:
        *sources, target = one.words
        for source in sources:
            found, place = self.project.root / source, self.path(target)
            if found.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
                shutil.copytree(found, place, dirs_exist_ok=True, ignore=ignored)
                continue
            place = place / found.name if target.endswith("/") else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)
            if "chmod" in one.flags:
                place.chmod(int(one.flags["chmod"], 8))

    def _run(self, one: Instruction) -> None:
        program, *arguments = one.words
        print(f"      {' '.join(one.words)}", flush=True)
        done = subprocess.run(
            [self.path(program), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise StepFailed(f"Dockerfile:{one.line}: {' '.join(one.words)} failed:\n{said}")

    # -- what containers run ----------------------------------------------------------------------
    def findings(self) -> Iterator[str]:
        """Find commands of the image and of the services that are not there."""
        for one in self.project.instructions("runtime"):
            if one.name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
                yield from self._missing(f"Dockerfile:{one.line}", one.words)
        airflow: dict[str, list[str]] = {}
        for name, service in self.project.services.items():
            if not is_ours(service):
                continue
            command = self.command(service["command"], environment_of(service))
            if command[0] == "airflow":
                airflow.setdefault(" ".join(command), []).append(name)
            yield from (f"compose.yaml: {name}: {what}" for what in self._unknown(command))
        for line in self._refused(list(airflow)):
            yield f"compose.yaml: {', '.join(airflow[line])}: Airflow refuses `{line}`"

    def command(self, words: list[str], environment: dict[str, str]) -> list[str]:
        """Return what ``run`` makes of a service's command."""
        variables = {**self.environment, **environment, "DELTA_CDC_PRINT": "1"}
        variables["STORE_FOLDER"] = str(self.path("/opt/delta-cdc/store"))
        done = subprocess.run(
            ["sh", str(self.project.docker / "run.sh"), *words],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines() or ["sh", f"run.sh: {done.stderr.strip()}"]

    def _missing(self, where: str, words: tuple[str, ...]) -> Iterator[str]:
        for word in words:
            if word.startswith("/") and word not in BASE_PROGRAMS and not self.path(word).exists():
                yield f"{where}: {word} is not in the image"

    def _unknown(self, command: list[str]) -> Iterator[str]:
        program = command[0]
        if program == "sh":
            yield " ".join(command[1:])
            return
        # The one program that only the stage `store` has.
        if program != "versitygw" and shutil.which(program, path=executables(self.bin)) is None:
            yield f"there is no program {program}"
        for word in command[1:]:
            if word.startswith("org.apache.spark.") and not self._has_class(word):
                yield f"Spark has no class {word}"
            if word.endswith(".py") and not (self.bin[0] / Path(word).name).exists():
                yield f"there is no {word}"

    def _has_class(self, name: str) -> bool:
        entry = f"{name.replace('.', '/')}.class"
        jars = self.path("/opt/delta-cdc/venv").glob("lib/python*/site-packages/pyspark/jars/spark-co*.jar")
        return any(entry in zipfile.ZipFile(jar).namelist() for jar in jars)

    def _refused(self, lines: list[str]) -> list[str]:
        python = shutil.which("python", path=executables(self.bin))
        done = subprocess.run(
            [str(python), "-c", _PARSE],
            input="\n".join(lines),
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return [line for line in done.stdout.splitlines() if line in lines]
