"""``make docker-check`` is only worth its time if it finds mistakes: here they are made, one by one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docker_check import findings, programs
from tools.docker_check.build import PlainBuild
from tools.docker_check.places import Project

ROOT = Path(__file__).resolve().parents[3]
FILES = (".dockerignore", "constraints.txt", "pyproject.toml", "README.md", "LICENSE", "tools/s3gateway.sh")

#: What somebody does to a file, and what the check of that title must say: one mistake for each check.
MISTAKES = [
    ("Dockerfile", "COPY docker/install.sh", "COPY docker/instal.sh", "instal.sh does not exist"),
    (
        "requirements.txt",
        "pyspark==4.2.0",
        "pyspark==4.1.9",
        "pyspark is 4.1.9, and 4.2.0 in constraints.txt",
    ),
    (
        "compose.yaml",
        '"127.0.0.1:${STORE_PORT',
        '"${STORE_PORT',
        "store: port 7070:7070 is open to the network",
    ),
    ("setup.py", "spark://spark-master", "spark://master", "master is no service"),
    (
        "compose.yaml",
        "${STORE_SECRET_KEY:-devonlysecret}",
        "hunter2",
        "AWS_SECRET_ACCESS_KEY stands in the file",
    ),
    (".env.example", "STORE_PORT=7070", "STORE_PORT=7071", "STORE_PORT is 7071, and 7070 in compose.yaml"),
    ("compose.yaml", "CORE__EXECUTOR", "CORE__EXECUTER", "Airflow has no [core] executer"),
    ("compose.yaml", "- store-data:", "- shop-data:", "the volume shop-data is not declared"),
    ("compose.yaml", 'command: ["scheduler"]', 'command: ["scheduller"]', "run.sh has no role scheduller"),
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A copy of all that the checks read."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "docker", root / "docker", ignore=shutil.ignore_patterns("__pycache__", ".env"))
    for name in FILES:
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    for name in ("airflow_delta_cdc", "spark_jobs"):
        (root / name).mkdir()
    return Project(root)


def found(project: Project) -> list[str]:
    return [line for check in findings.CHECKS.values() for line in check(project)]


def plant(project: Project, name: str, find: str, replace: str) -> None:
    path = project.docker / name
    text = path.read_text(encoding="utf-8")
    assert find in text, "the mistake can't be made any more"
    path.write_text(text.replace(find, replace, 1), encoding="utf-8")


def test_every_mistake_is_found(project: Project) -> None:
    assert found(project) == []
    kept = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    missed = []
    for mistake in MISTAKES:
        plant(project, *mistake[:3])
        # Another object: what was read is kept.
        lines = found(Project(project.root))
        if not any(mistake[3] in line for line in lines):
            missed.append((mistake, lines))
        for path, content in kept.items():
            path.write_bytes(content)
    assert missed == []


@pytest.mark.slow
def test_a_command_that_is_not_there_is_found(project: Project) -> None:
    """The project's own environment stands in for the image's, so Celery's commands are unknown here."""

    class Here(PlainBuild):
        @property
        def bin(self) -> list[Path]:
            return [Path(sys.executable).parent]

    before = set(Here(project, project.root).findings())
    plant(project, "compose.yaml", 'command: ["triggerer"]', 'command: ["triggerer", "--capacitty", "1"]')
    plant(project, "compose.yaml", 'command: ["samples"]', 'command: ["sample-tables"]')
    plant(project, "run.sh", "deploy.worker.Worker", "deploy.worker.Wroker")
    lines = set(Here(Project(project.root), project.root).findings()) - before
    # Spark's classes are looked for in the image's JARs, which are not here; they are asked for by name.
    assert "compose.yaml: triggerer: Airflow refuses `airflow triggerer --capacitty 1`" in lines
    assert "compose.yaml: init: there is no program sample-tables" in lines
    assert any("Spark has no class org.apache.spark.deploy.worker.Wroker" in line for line in lines)


@pytest.mark.slow
def test_others_programs_find_what_is_theirs(project: Project) -> None:
    """An unknown key, a relative folder, an unquoted variable."""
    plant(project, "compose.yaml", "    stop_grace_period: 2m", "    stop_grace: 2m")
    plant(project, "Dockerfile", "WORKDIR /opt/airflow", "WORKDIR opt/airflow")
    plant(project, "install.sh", 'chown -R airflow:0 "$root"', "chown -R airflow:0 $root")
    (project.root / ".cache").symlink_to(ROOT / ".cache")
    for check, word in (
        (programs.compose, "stop_grace"),
        (programs.dockerfile, "DL3000"),
        (programs.scripts, "SC2086"),
    ):
        try:
            lines = list(check(project))
        except programs.NotHere as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        assert any(word in line for line in lines), (check.__name__, lines)


def test_a_judge_does_not_pass_what_nobody_has_looked_at(project: Project, tmp_path: Path) -> None:
    script = """
import sys
from tools.docker_check import programs
from tools.docker_check.__main__ import Report
def check():
    raise programs.NotHere("no program")
report = Report()
report.run("a check", check)
sys.exit(report.failed)
"""
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    for variables, word, code in ((kept, "SKIPPED", 0), ({**kept, "CI": "1"}, "FAILED", 1)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout.split()[0]) == (code, word)
