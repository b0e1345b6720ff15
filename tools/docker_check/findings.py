"""The checks that need nothing but the files: each takes a project and yields what is wrong, a line each."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

from tools.docker_check.places import environment_of, is_ours, stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.docker_check.places import Project

#: A tag that names one version: three numbers, as Debian, Airflow and the others write them.
_EXACT = re.compile(r"\d+\.\d+(\.\d+|_\d+|-)")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+]*://(?:[^@/\s\"']*@)?([a-z][a-z0-9-]*)(?::\d+)?")
_SECRET = re.compile(r"PASSWORD|SECRET|_KEY|TOKEN|CONN$|BACKEND$")
#: Hosts that are no service: this container itself, and the bucket.
_NO_SERVICES = {"localhost", "lake"}


def copied(project: Project) -> Iterator[str]:
    """Find COPY instructions whose files are missing, or do not reach the build."""
    for one in (one for stage in project.stages.values() for one in stage.own):
        if one.name != "COPY":
            continue
        if "from" in one.flags:
            if one.flags["from"] not in project.stages:
                yield f"Dockerfile:{one.line}: there is no stage {one.flags['from']} to copy from"
            continue
        for source in one.words[:-1]:
            if not (project.root / source).exists():
                yield f"Dockerfile:{one.line}: {source} does not exist"
            elif not project.in_context(source):
                yield f"Dockerfile:{one.line}: .dockerignore keeps {source} from the build"
    for line in (project.root / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!") and not (project.root / line[1:]).exists():
            yield f".dockerignore: {line[1:]} does not exist"


def versions(project: Project) -> Iterator[str]:
    """Find tags that name no exact version, and versions that differ between files."""
    for stage in project.stages.values():
        if stage.base not in project.stages and not _EXACT.search(stage.base.partition(":")[2]):
            yield f"Dockerfile: {stage.base} names no exact version"
    for name, service in project.services.items():
        if not is_ours(service) and not _EXACT.search(str(service["image"]).partition(":")[2]):
            yield f"compose.yaml: {name}: {service['image']} names no exact version"
    image, pinned = project.pins("docker/requirements.txt"), project.pins("constraints.txt")
    base = next(stage.base for stage in project.stages.values() if stage.base.startswith("apache/airflow"))
    if f"-{image['apache-airflow']}-python3.12" not in base:
        yield f"Dockerfile: {base} is not Airflow {image['apache-airflow']} with Python 3.12"
    for package, version in image.items():
        if pinned.get(package, version) != version:
            yield (
                f"requirements.txt: {package} is {version}, and {pinned[package]} in constraints.txt "
                "(`make constraints` writes both)"
            )
    for package in _wanted(project):
        if package not in image:
            yield f"requirements.txt: {package} of pyproject.toml is missing"


def services(project: Project) -> Iterator[str]:
    """Find services that wait for what never comes, listen to the world, or are built from no stage."""
    every = project.services
    for name, service in every.items():
        if is_ours(service) and stage_of(service) not in project.stages:
            yield f"compose.yaml: {name}: there is no stage {stage_of(service)} in the Dockerfile"
        for port in service.get("ports") or ():
            if not str(port).startswith("127.0.0.1:"):
                yield f"compose.yaml: {name}: port {port} is open to the network"
        for other, how in (service.get("depends_on") or {}).items():
            yield from _awaited(name, other, how["condition"], every.get(other))


def _awaited(name: str, other: str, condition: str, service: dict[str, Any] | None) -> Iterator[str]:
    if service is None:
        yield f"compose.yaml: {name}: there is no service {other} to wait for"
    elif condition == "service_healthy":
        check = service.get("healthcheck") or {}
        if "test" not in check:
            yield f"compose.yaml: {name} waits until {other} is healthy, which has no health check"
    elif condition == "service_completed_successfully" and service.get("restart") != "no":
        yield f"compose.yaml: {name} waits until {other} has ended, which is restarted"


def addresses(project: Project) -> Iterator[str]:
    """Find addresses that name a host which is no service."""
    known = set(project.services) | _NO_SERVICES
    texts = {"compose.yaml": project.compose_text}
    for path in (*project.docker.glob("*.py"), *project.docker.glob("dags/*.py")):
        texts[path.name] = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for host in _ADDRESS.findall(line):
                if host not in known:
                    yield f"{name}:{number}: {host} is no service"


def secrets(project: Project) -> Iterator[str]:
    """Find secrets in a file."""
    filled = project.compose({name: f"from-{name}" for name in project.variables()})["services"]
    for name, service in filled.items():
        for variable, value in environment_of(service).items():
            if not _SECRET.search(variable) or variable.endswith(("_CMD", "_FILE")):
                continue
            if "from-" not in value:
                yield f"compose.yaml: {name}: {variable} stands in the file; take it from .env"
    for stage in project.stages:
        for variable in project.environment(stage):
            if _SECRET.search(variable):
                yield f"Dockerfile: {variable} would stay in a layer of {stage}"


def variables(project: Project) -> Iterator[str]:
    """Find variables that ``.env.example`` does not explain as they are."""
    told, used = project.example, project.variables()
    for variable, default in used.items():
        if told.get(variable) != default:
            yield f".env.example: {variable} is {told.get(variable)}, and {default} in compose.yaml"
    for variable in told.keys() - used.keys():
        yield f".env.example: {variable} is not used"


def settings(project: Project) -> Iterator[str]:
    """Find variables of Airflow that it does not know."""
    known = _airflow_settings()
    for name, service in project.services.items():
        for variable in environment_of(service):
            if not variable.startswith("AIRFLOW__"):
                continue
            _, section, option = variable.lower().split("__", 2)
            plain = option.removesuffix("_cmd")
            if (section, plain) not in known:
                yield f"compose.yaml: {name}: Airflow has no [{section}] {plain}"
            elif plain != option and not known[section, plain]:
                yield f"compose.yaml: {name}: [{section}] {plain} takes no command"


def volumes(project: Project) -> Iterator[str]:
    """Find volumes that are not defined, and those whose folder the image does not make.

    A volume takes its owner from the image's folder; without one it belongs to root.
    """
    declared = set(project.compose().get("volumes") or {})
    script = (project.docker / "install.sh").read_text(encoding="utf-8")
    made = script.replace("$root", "/opt/delta-cdc").replace("$airflow_home", "/opt/airflow")
    used = set()
    for name, service in project.services.items():
        for volume in service.get("volumes") or ():
            source, target = str(volume).split(":")[:2]
            used.add(source)
            if source not in declared:
                yield f"compose.yaml: {name}: the volume {source} is not declared"
            if is_ours(service) and f'"{target}"' not in made:
                yield f"compose.yaml: {name}: install.sh does not make {target}, so root would own the volume"
    for source in declared - used:
        yield f"compose.yaml: the volume {source} is not used"


def commands(project: Project) -> Iterator[str]:
    """Find services of ours that `run` has no role for, and health checks of another role."""
    run = (project.docker / "run.sh").read_text(encoding="utf-8")
    roles = {
        role.strip()
        for line in re.findall(r"^    ([a-z][a-z |-]*)\)$", run, re.MULTILINE)
        for role in line.split("|")
    }
    health = (project.docker / "health.py").read_text(encoding="utf-8")
    for name, service in project.services.items():
        if not is_ours(service):
            continue
        role = service["command"][0]
        if role not in roles:
            yield f"compose.yaml: {name}: run.sh has no role {role}"
        test = (service.get("healthcheck") or {}).get("test")
        if test and test[1:] != ["health", role]:
            yield f"compose.yaml: {name}: its health check is {' '.join(test)}, and its role {role}"
        if test and f'"{role}"' not in health:
            yield f"compose.yaml: {name}: health.py has no role {role}"


#: Every check of this module, by what it is about.
CHECKS: dict[str, Callable[[Project], Iterator[str]]] = {
    "files that are copied": copied,
    "versions": versions,
    "services, ports, waiting": services,
    "addresses": addresses,
    "secrets": secrets,
    "variables": variables,
    "Airflow's settings": settings,
    "volumes": volumes,
    "roles and health checks": commands,
}


def _wanted(project: Project) -> Iterator[str]:
    found = tomllib.loads((project.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in found["dependencies"]:
        yield re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0]


@cache
def _airflow_settings() -> dict[tuple[str, str], bool]:
    """Return every option of Airflow, of Celery's provider and of ours, and whether it is a secret."""
    from airflow.configuration import retrieve_configuration_description

    from airflow_delta_cdc.provider_info import get_provider_info

    sections = {
        **retrieve_configuration_description(include_providers=False),
        **get_provider_info()["config"],
    }
    found = {
        (section, option): bool((about or {}).get("sensitive"))
        for section, one in sections.items()
        for option, about in one["options"].items()
    }
    # Celery's provider is only in the image.
    return {**found, ("celery", "broker_url"): True, **dict.fromkeys(_CELERY, False)}


_CELERY = [("celery", "result_backend"), ("celery", "worker_concurrency")]
