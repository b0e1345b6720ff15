"""What a public project has besides its code: metadata, workflow, templates, changelog, security policy."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from trove_classifiers import classifiers

from delta_cdc._version import __version__
from tools.matrix.__main__ import AIRFLOWS, environments
from tools.release import jar_components

_ROOT = Path(__file__).parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_GITHUB = _ROOT / ".github"
#: What a classifier of the language is followed by, for the releases that are supported.
_PYTHON = re.compile(r"^Programming Language :: Python :: (3\.\d+)$")


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _jobs(workflow: str = "ci") -> dict[str, Any]:
    jobs: dict[str, Any] = _read(_GITHUB / "workflows" / f"{workflow}.yml")["jobs"]
    return jobs


def _steps() -> list[dict[str, Any]]:
    action = _read(_GITHUB / "actions" / "setup" / "action.yml")
    jobs = [*_jobs().values(), *_jobs("release").values()]
    return [step for job in jobs for step in job["steps"]] + action["runs"]["steps"]


# -- versions -------------------------------------------------------------------------------------
def test_the_workflow_has_the_environments_of_the_matrix() -> None:
    job = _jobs()["matrix"]
    listed = [(one["environment"], one["python"]) for one in job["strategy"]["matrix"]["include"]]
    assert listed == [(one.title, one.python) for one in environments()]
    assert {f"Airflow {release}" for release in AIRFLOWS} <= {title for title, _ in listed}
    # A title that another one contains would run both.
    assert not [(a, b) for a, _ in listed for b, _ in listed if a != b and a in b]


def test_python_has_the_same_releases_everywhere() -> None:
    classified = {found[1] for text in _PROJECT["classifiers"] if (found := _PYTHON.match(text))}
    assert set(_jobs()["tests"]["strategy"]["matrix"]["python"]) == classified
    assert {one.python for one in environments()} == classified
    minors = sorted(int(text[2:]) for text in classified)
    assert _PROJECT["requires-python"] == f">=3.{minors[0]},<3.{minors[-1] + 1}"


def test_the_changelog_begins_with_a_section_that_can_be_read() -> None:
    text = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (\S+)", text, re.M)
    assert __version__ in heads
    if __version__ == "0.1.0":
        assert len(text.splitlines()) <= 60


# -- metadata -------------------------------------------------------------------------------------
def test_classifiers_exist() -> None:
    assert set(_PROJECT["classifiers"]) <= set(classifiers)
    assert _PROJECT["classifiers"] == sorted(_PROJECT["classifiers"])


def test_addresses_are_those_of_one_place() -> None:
    source = _PROJECT["urls"]["Source"]
    assert all(url.startswith(source) for url in _PROJECT["urls"].values())
    for contact in _read(_GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]:
        assert contact["url"].startswith(source)


# -- the workflow ---------------------------------------------------------------------------------
def test_actions_are_named_by_their_commit_and_steps_have_no_secret() -> None:
    files = [*(_GITHUB / "workflows").glob("*.yml"), _GITHUB / "actions" / "setup" / "action.yml"]
    texts = [file.read_text(encoding="utf-8") for file in files]
    used = [line for text in texts for line in re.findall(r"uses: (.*)", text)]
    assert len(used) == len([step for step in _steps() if "uses" in step]) > 5
    pinned = {line for line in used if line != "./.github/actions/setup"}
    for line in pinned:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    # One commit for each action.
    assert len(pinned) == len({line.split("@")[0] for line in pinned})
    assert not [text for text in texts if "secrets." in text]


def test_only_the_job_of_a_release_may_write() -> None:
    for workflow in ("ci", "release"):
        assert _read(_GITHUB / "workflows" / f"{workflow}.yml")["permissions"] == {"contents": "read"}
    assert not [name for name, job in _jobs().items() if "permissions" in job]
    (job,) = _jobs("release").values()
    assert job["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}


def test_images_are_named_by_their_digest() -> None:
    folder = _ROOT / "docker"
    named = re.findall(r"^FROM (\S+:\S+)", (folder / "Dockerfile").read_text(encoding="utf-8"), re.M)
    services = _read(folder / "compose.yaml")["services"].values()
    named += sorted({service["image"] for service in services if not service["image"].endswith(":local")})
    pattern = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
    # Dependabot adds the digests of these two, which could not be looked up where the others were added.
    without = {name.partition(":")[0] for name in named if not pattern.fullmatch(name)}
    assert len(named) >= 5
    assert without <= {"apache/airflow", "redis"}


def test_targets_and_files_of_the_workflow_exist() -> None:
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = [step["run"] for step in _steps() if "run" in step]
    targets = {target for script in scripts for target in re.findall(r"\bmake ([a-z-]+)", script)}
    assert {"lint", "types", "test", "matrix", "docs", "release", "audit"} <= targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []
    named = {path for script in scripts for path in re.findall(r"\b(?:tools|tests)/[\w./]+", script)}
    assert named
    assert [path for path in named if not (_ROOT / path).exists()] == []


def test_a_bug_report_asks_for_the_doctor() -> None:
    body = _read(_GITHUB / "ISSUE_TEMPLATE" / "bug_report.yml")["body"]
    (doctor,) = [field for field in body if field.get("id") == "doctor"]
    assert "delta-cdc doctor --json" in doctor["attributes"]["description"]
    assert doctor["validations"]["required"]


# -- pages beside docs/ ---------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "most"), [("SECURITY.md", 2000), ("CONTRIBUTING.md", 700)])
def test_pages_are_short_and_name_what_exists(name: str, most: int) -> None:
    text = (_ROOT / name).read_text(encoding="utf-8")
    assert len(text.split()) <= most
    for path in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|json|js|sha256|java|toml))`", text):
        roots = (_ROOT, _ROOT / "spark_jobs")
        assert any((root / path).exists() for root in roots), path
    for link in re.findall(r"\]\(([^)\s#]+)", text):
        assert (_ROOT / link).exists(), link


# -- the SBOM -------------------------------------------------------------------------------------
def test_jars_are_components_with_their_hashes() -> None:
    components = jar_components()
    names = {component["name"] for component in components if component["scope"] == "required"}
    assert "delta-storage" in names
    for component in components:
        parts = (component["group"], component["name"], component["version"])
        assert component["purl"] == "pkg:maven/{}/{}@{}".format(*parts)
        (digest,) = component["hashes"]
        assert re.fullmatch("[0-9a-f]{64}", digest["content"])
    assert len({component["bom-ref"] for component in components}) == len(components)


def test_the_image_has_all_files_that_the_build_needs() -> None:
    build = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    hook = build["targets"]["wheel"]["hooks"]["custom"]["path"]
    for needed in (hook, "spark_jobs", "airflow_delta_cdc", "pyproject.toml", "README.md", "LICENSE"):
        assert f"!{needed}\n" in (_ROOT / ".dockerignore").read_text(encoding="utf-8"), needed
        copied = re.findall(
            r"^COPY (.*)$", (_ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8"), re.M
        )
        assert any(needed in line.split()[1:-1] for line in copied), needed


# -- the wheel ------------------------------------------------------------------------------------
def test_who_builds_a_wheel_without_the_jar_of_the_log_stores_is_warned(tmp_path: Path, capfd: Any) -> None:
    source, to = tmp_path / "source", str(tmp_path / "dist")
    for name in ("airflow_delta_cdc", "spark_jobs", "tools"):
        shutil.copytree(_ROOT / name, source / name, ignore=shutil.ignore_patterns("*.jar", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    list(WheelBuilder(str(source)).build(directory=to, versions=["standard"]))
    assert "lacks the JAR of the log stores" in "".join(capfd.readouterr())
    (source / "spark_jobs/delta_cdc/launch/delta-cdc-log-store-0123.jar").touch()
    list(WheelBuilder(str(source)).build(directory=to, versions=["standard"]))
    assert "lacks" not in "".join(capfd.readouterr())
