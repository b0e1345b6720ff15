"""What the checks look at: a project's Dockerfile, compose file and pins, read once."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile.

    :param line: number of its first line
    :param name: in capitals, such as COPY
    :param flags: ``--from=java`` as ``{"from": "java"}``
    :param words: the rest, split as a shell would
    """

    line: int
    name: str
    flags: Mapping[str, str]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of a Dockerfile, with the instructions of the stages it is made from."""

    name: str
    base: str
    own: list[Instruction] = field(default_factory=list)


class Project:
    """A project folder with ``docker/`` in it.

    :param root: the folder
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.docker = root / "docker"

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """Return the Dockerfile's stages by name; one without a name is called by its number."""
        found: dict[str, Stage] = {}
        for instruction in _instructions((self.docker / "Dockerfile").read_text(encoding="utf-8")):
            if instruction.name == "FROM":
                base, *rest = instruction.words
                name = rest[1] if len(rest) > 1 else str(len(found))
                found[name] = stage = Stage(name, base)
            else:
                stage.own.append(instruction)
        return found

    def instructions(self, stage: str) -> list[Instruction]:
        """Return all instructions that make a stage, those of the stages below it first."""
        found = self.stages[stage]
        return [*(self.instructions(found.base) if found.base in self.stages else []), *found.own]

    def environment(self, stage: str) -> dict[str, str]:
        """Return the variables that a stage sets."""
        variables: dict[str, str] = {}
        for instruction in self.instructions(stage):
            if instruction.name == "ENV":
                pairs = (word.partition("=") for word in instruction.words)
                variables.update({name: value for name, _, value in pairs})
        return variables

    @cached_property
    def compose_text(self) -> str:
        """Return the compose file as it stands."""
        return (self.docker / "compose.yaml").read_text(encoding="utf-8")

    def compose(self, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the compose file with its variables filled in.

        :param variables: values other than the defaults
        """

        def value(match: re.Match[str]) -> str:
            return (variables or {}).get(match["name"]) or match["default"] or ""

        return dict(yaml.load(_VARIABLE.sub(value, self.compose_text), yaml.CSafeLoader))

    @cached_property
    def services(self) -> dict[str, dict[str, Any]]:
        """Return the compose file's services."""
        return dict(self.compose()["services"])

    @property
    def example(self) -> dict[str, str]:
        """Return the variables of ``.env.example``."""
        lines = (self.docker / ".env.example").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))

    def variables(self) -> dict[str, str | None]:
        """Return the variables that the compose file names, with their defaults."""
        return {match["name"]: match["default"] for match in _VARIABLE.finditer(self.compose_text)}

    def pins(self, name: str) -> dict[str, str]:
        """Return versions by package, from a file of pins in the project."""
        return dict(_PIN.findall((self.root / name).read_text(encoding="utf-8")))

    def in_context(self, path: str) -> bool:
        """Return whether a build can copy a path: ``.dockerignore`` lets it in, or a folder that it is in."""
        lines = (self.root / ".dockerignore").read_text(encoding="utf-8").splitlines()
        allowed = [line[1:].rstrip("/") for line in lines if line.startswith("!")]
        return any(path == one or path.startswith(f"{one}/") for one in allowed)


def is_ours(service: Mapping[str, Any]) -> bool:
    """Return whether a service runs an image of this project."""
    return "build" in service


def stage_of(service: Mapping[str, Any]) -> str:
    """Return the stage that a service of ours is built from."""
    return str(service["build"]["target"])


def environment_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Return a service's own variables."""
    return {name: str(value) for name, value in (service.get("environment") or {}).items()}


def plain_path(path: str, root: Path) -> Path:
    """Return where a path of the image is in a plain folder."""
    return root / path.lstrip("/")


def executables(folders: list[Path]) -> str:
    """Return a PATH with some folders before the machine's own."""
    return os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])


def _instructions(text: str) -> Iterator[Instruction]:
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not joined and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first or number
        joined += line.removesuffix("\\") + " "
        if not line.endswith("\\"):
            yield _instruction(first, joined)
            joined, first = "", 0


def _instruction(line: int, text: str) -> Instruction:
    name, _, rest = text.strip().partition(" ")
    words = [word.strip('[],"') for word in shlex.split(rest, posix=False)]
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    if name.upper() == "RUN":
        # What stands behind the command is the command's own.
        flags = {}
    else:
        words = [word for word in words if not word.startswith("--")]
    return Instruction(line, name.upper(), flags, tuple(word for word in words if word))
