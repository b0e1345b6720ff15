"""The image: the Dockerfile's steps at the paths that they have in it, seen by this namespace alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docker_check.build import PlainBuild, StepFailed
from tools.docker_check.places import Project
from tools.docker_rehearsal.container import USER

_JAVA = "/opt/java/openjdk"
_PYTHON = "/opt/python"


def kept(root: Path) -> Path:
    """Return the folder with all that a rehearsal makes; it stays for a look at the logs."""
    return root / ".cache" / "docker-rehearsal"


def base_environment() -> dict[str, str]:
    """Return what the base image's environment stands for here."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "AIRFLOW_HOME": "/opt/airflow",
        # This machine's Python may look for its own library in a folder that others can't read.
        "LD_LIBRARY_PATH": f"{_PYTHON}/lib",
    }


def make_image(root: Path, *, again: bool = True) -> int:
    """Run the Dockerfile's steps; return the exit code.

    :param again: else take what the last rehearsal's steps made, if they ended well, and only copy files
    """
    folder = kept(root)
    done = folder / "image" / "done"
    again = again or not done.exists()
    if again:
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("services", "volumes"):
        shutil.rmtree(folder / name, ignore_errors=True)
    print("      the image: the Dockerfile's steps", flush=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/opt")
    for name in ("delta-cdc", "airflow"):
        (folder / "image" / name).mkdir(parents=True, exist_ok=True)
        _bind(folder / "image" / name, f"/opt/{name}")
    java = os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "").resolve().parents[1]
    _bind(Path(java), _JAVA)
    _bind(Path(sys.base_prefix), _PYTHON)
    users = Path("/etc/passwd").read_text(encoding="utf-8")
    (folder / "passwd").write_text(f"{users}airflow:x:{USER[0]}:{USER[1]}::/tmp:/bin/sh\n", encoding="utf-8")
    _run("mount", "--bind", str(folder / "passwd"), "/etc/passwd")
    os.environ["JAVA_HOME"] = _JAVA
    home = Path(os.environ.get("DELTA_CDC_HOME") or root / ".cache" / "delta-cdc")
    try:
        build = PlainBuild(Project(root), Path("/"), python=f"{_PYTHON}/bin/python3.12")
        build.make(jars=home / "jars", only_copy=not again)
    except StepFailed as error:
        print(error, file=sys.stderr)
        return 1
    gateway = subprocess.run(
        [root / "tools" / "s3gateway.sh"], capture_output=True, text=True, check=True
    ).stdout.strip()
    shutil.copy2(gateway, "/opt/delta-cdc/bin/versitygw")
    _run("chown", "-R", f"{USER[0]}:{USER[1]}", "/opt/delta-cdc", "/opt/airflow")
    done.touch()
    return 0


def _bind(source: Path, target: str) -> None:
    Path(target).mkdir(parents=True, exist_ok=True)
    _run("mount", "--bind", str(source), target)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
