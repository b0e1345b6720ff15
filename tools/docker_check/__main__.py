"""``python -m tools.docker_check [--no-build]``: exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tools.docker_check import findings, programs
from tools.docker_check.build import PlainBuild, StepFailed
from tools.docker_check.places import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[2]


class Report:
    """What the checks found, printed as they go."""

    def __init__(self) -> None:
        self.failed = False

    def run(self, title: str, check: Callable[[], Iterable[str]]) -> None:
        """Run one check and tell what it found."""
        try:
            found = list(check())
        except programs.NotHere as error:
            # A machine that judges a change must not pass what it has not looked at.
            strict = bool(os.environ.get("CI"))
            self.failed |= strict
            print(f"{'FAILED' if strict else 'SKIPPED'}  {title}: {error}", flush=True)
            return
        except StepFailed as error:
            found = [str(error)]
        self.failed |= bool(found)
        print(f"{'FAILED ' if found else 'ok     '} {title}", flush=True)
        for line in found:
            print(f"         {line}", flush=True)


def main() -> int:
    """Run every check; return the exit code."""
    parser = argparse.ArgumentParser(prog="docker_check", description=__doc__)
    parser.add_argument("--no-build", action="store_true", help="do not run the install steps")
    arguments = parser.parse_args()
    project, report = Project(ROOT), Report()
    report.run("compose.yaml, read by a compose implementation", partial(programs.compose, project))
    report.run("Dockerfile, read by hadolint", partial(programs.dockerfile, project))
    report.run("shell scripts, read by shellcheck", partial(programs.scripts, project))
    for title, check in findings.CHECKS.items():
        report.run(title, partial(check, project))
    if not arguments.no_build:
        _build(project, report)
    return 1 if report.failed else 0


def _build(project: Project, report: Report) -> None:
    plain = PlainBuild(project, project.root / ".cache" / "docker-check")
    home = Path(os.environ.get("DELTA_CDC_HOME") or project.root / ".cache" / "delta-cdc")

    def steps() -> Iterable[str]:
        shutil.rmtree(plain.folder, ignore_errors=True)
        plain.folder.mkdir(parents=True)
        plain.make(jars=home / "jars")
        return ()

    report.run("install steps, in a plain folder", steps)
    report.run("commands of the image and of every service", plain.findings)


if __name__ == "__main__":
    sys.exit(main())
