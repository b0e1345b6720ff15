"""The checks that others wrote: a compose implementation, hadolint, shellcheck."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.docker_check.places import Project

#: The library by which Docker's own command reads compose files, as the program that comes with it.
COMPOSE_MODULE = "github.com/compose-spec/compose-go/v2/cmd"
COMPOSE_VERSION = "v2.16.2"


class NotHere(Exception):
    """A program is not installed and cannot be; the message says what to install."""


def compose(project: Project) -> Iterator[str]:
    """Let a compose implementation read the file, with the defaults and with ``.env.example``.

    :raises NotHere: there is neither Docker Compose nor Go
    """
    program = _compose_program(project.root)
    for variables in ({}, project.example):
        done = subprocess.run(
            [*program, *_arguments(program)],
            cwd=project.docker,
            env={**{k: v for k, v in os.environ.items() if k not in project.variables()}, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            yield f"compose.yaml: {done.stderr.strip() or done.stdout.strip()}"
            return
        read = json.loads(done.stdout)["services"]
        for name in read.keys() ^ project.services.keys():
            yield f"compose.yaml: {name}: the checks read another file than Docker does"


def _arguments(program: list[str]) -> list[str]:
    if program[0] == "docker":
        return ["--file", "compose.yaml", "config", "--format", "json"]
    return ["--format", "json", "compose.yaml"]


def _compose_program(root: Path) -> list[str]:
    if shutil.which("docker") and _runs(["docker", "compose", "version"]):
        return ["docker", "compose"]
    kept = root / ".cache" / "bin" / f"compose-spec-{COMPOSE_VERSION}"
    if not kept.exists():
        if not shutil.which("go"):
            raise NotHere("neither Docker Compose nor Go is installed, so no program has read compose.yaml")
        folder = kept.parent / ".compose-spec"
        done = subprocess.run(
            ["go", "install", f"{COMPOSE_MODULE}@{COMPOSE_VERSION}"],
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotHere(f"{COMPOSE_MODULE} does not build: {done.stderr.strip()[-300:]}")
        (folder / "cmd").replace(kept)
    return [str(kept)]


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def dockerfile(project: Project) -> Iterator[str]:
    """Let hadolint read the Dockerfile.

    :raises NotHere: it is not installed
    """
    yield from _linter("hadolint", ["--no-color", "docker/Dockerfile"], project.root)


def scripts(project: Project) -> Iterator[str]:
    """Let shellcheck read every shell script.

    :raises NotHere: it is not installed
    """
    found = [
        *project.docker.glob("*.sh"),
        *(project.root / "tools").glob("*.sh"),
        project.root / ".ci" / "run",
    ]
    names = [str(path.relative_to(project.root)) for path in sorted(found) if path.exists()]
    yield from _linter("shellcheck", ["--format=gcc", *names], project.root)


def _linter(name: str, arguments: list[str], root: Path) -> Iterator[str]:
    program = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        raise NotHere(f"{name} is not installed (`make setup` brings it)")
    done = subprocess.run([program, *arguments], cwd=root, capture_output=True, text=True, check=False)
    yield from (done.stdout + done.stderr).strip().splitlines()
