"""The rehearsal itself, inside its namespaces: services in their order, DAGs, comparison."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from tools.docker_check.places import Project
from tools.docker_rehearsal.container import Container, World, make_network
from tools.docker_rehearsal.image import base_environment, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Seconds a service may take until it is healthy, and a DAG run until it has ended.
START_LIMIT = 600.0
RUN_LIMIT = 900.0
_PAUSE = 1.0

DAGS = ("shop_over_connect", "shop_in_worker", "shop_on_cluster")
_PASSWORD = "rehearsed"
_begin = time.monotonic()


class Failed(Exception):
    """The rehearsal failed; the message says where to look."""


def play(root: Path) -> int:
    """Start the services, run the DAGs, compare what came out; return the exit code."""
    folder = kept(root)
    world = World(
        Project(root),
        folder,
        {"AIRFLOW_ADMIN_PASSWORD": _PASSWORD, "SPARK_WORKER_CORES": "2", "SPARK_WORKER_MEMORY": "2g"},
        base_environment(),
    )
    containers: dict[str, Container] = {}
    try:
        make_network()
        containers = _containers(world)
        _start(containers)
        _run_dags(containers["api-server"])
        _compare(containers["store"])
    except (Failed, subprocess.CalledProcessError, OSError) as error:
        _say(f"FAILED: {error}")
        return 1
    finally:
        for container in reversed(containers.values()):
            container.stop()
    _say("ok: every target is what its source says, whichever connection it was brought by")
    return 0


# -- the services -----------------------------------------------------------------------------------
def _containers(world: World) -> dict[str, Container]:
    services = world.project.compose(world.variables)["services"]
    addresses = world.hosts(list(services))
    lines = "".join(f"{address} {name}\n" for name, address in addresses.items())
    (world.folder / "hosts").write_text(f"127.0.0.1 localhost\n{lines}", encoding="utf-8")
    return {name: Container(world, name, service, addresses[name]) for name, service in services.items()}


def _start(containers: dict[str, Container]) -> None:
    """Start each service when all it depends on is as its condition says."""
    waiting = dict(containers)
    fulfilled: set[tuple[str, str]] = set()

    def late() -> str:
        return f"not started, or not healthy: {', '.join(_unhealthy(containers, fulfilled))}"

    for _ in _patience(START_LIMIT * 2, late):
        for name, container in list(waiting.items()):
            needs = container.service.get("depends_on") or {}
            if all((other, how["condition"]) in fulfilled for other, how in needs.items()):
                _say(f"starting {name}")
                container.start()
                del waiting[name]
        for name, container in containers.items():
            if name not in waiting:
                fulfilled.update(_state(container, fulfilled))
        if not waiting and not _unhealthy(containers, fulfilled):
            return


def _state(container: Container, known: set[tuple[str, str]]) -> set[tuple[str, str]]:
    name, code = container.name, container.ended()
    healthy, completed = (name, "service_healthy"), (name, "service_completed_successfully")
    if code is not None:
        if code != 0 or container.service.get("restart") != "no":
            raise Failed(f"{name} ended with exit code {code}; see {container.log}")
        if completed not in known:
            _say(f"{name} has done its work")
        return {completed}
    check = container.service.get("healthcheck") or {}
    if healthy in known or check.get("disable") or not container.is_healthy():
        return set()
    _say(f"{name} is healthy")
    return {healthy}


def _unhealthy(containers: dict[str, Container], fulfilled: set[tuple[str, str]]) -> list[str]:
    done = {name for name, _ in fulfilled}
    return [name for name in containers if name not in done]


# -- the DAGs ---------------------------------------------------------------------------------------
def _run_dags(server: Container) -> None:
    url = f"http://{server.address}:8080"
    token = _call(url, "POST", "/auth/token", {"username": "admin", "password": _PASSWORD})["access_token"]

    def call(method: str, path: str, body: Any = None) -> Any:
        return _call(url, method, f"/api/v2{path}", body, token)

    for _ in _patience(START_LIMIT, lambda: "the DAGs are not there"):
        if {dag["dag_id"] for dag in call("GET", "/dags")["dags"]} >= {*DAGS, "shop_next_day"}:
            break
    for day in range(2):
        if day:
            _finish(call, "shop_next_day")
        for dag_id in DAGS:
            _finish(call, dag_id)


def _finish(call: Callable[..., Any], dag_id: str) -> None:
    begin = time.monotonic()
    run = call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, "conf": {}})["dag_run_id"]
    for _ in _patience(RUN_LIMIT, lambda: f"{dag_id} did not end"):
        state = call("GET", f"/dags/{dag_id}/dagRuns/{run}")["state"]
        if state in ("success", "failed"):
            break
    tasks = call("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances")["task_instances"]
    states = {task["task_id"]: task["state"] for task in tasks}
    _say(f"{dag_id}: {state} after {time.monotonic() - begin:.0f} s")
    if state != "success" or any(one == "failed" for one in states.values()):
        raise Failed(f"{dag_id} ended as {state}: {states}; see the logs in .cache/docker-rehearsal/volumes")


def _call(url: str, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
    request = urllib.request.Request(
        url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        },
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return json.load(answer)


# -- the comparison ---------------------------------------------------------------------------------
def _compare(store: Container) -> None:
    """Compare the targets with their source, and with each other, by a reader that is not Spark."""
    from deltalake import DeltaTable, QueryBuilder

    environment = store.environment
    options = {
        "AWS_ACCESS_KEY_ID": environment["ROOT_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": environment["ROOT_SECRET_KEY"],
        "AWS_ENDPOINT_URL": f"http://{store.address}:7070",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }

    def rows(name: str) -> list[tuple[Any, ...]]:
        table = DeltaTable(f"s3://lake/shop/{name}", storage_options=options)
        found = QueryBuilder().register("found", table).execute("SELECT * FROM found").read_all()
        return sorted(
            tuple(map(str, row)) for row in zip(*(one.to_pylist() for one in found.columns), strict=True)
        )

    orders, customers = rows("orders"), rows("customers")
    histories = []
    for dag_id in DAGS:
        found, history = rows(f"{dag_id}/orders"), rows(f"{dag_id}/customer_history")
        _say(f"{dag_id}: {len(found)} orders, {len(history)} versions of customers")
        if found != orders:
            raise Failed(f"the target of {dag_id} differs from orders")
        histories.append(history)
    if any(history != histories[0] for history in histories):
        raise Failed("the histories of customers differ between the connections")
    if len(histories[0]) <= len(customers):
        raise Failed("the history has no closed version, so nothing was proved")


# -- details ----------------------------------------------------------------------------------------
def _patience(seconds: float, what: Callable[[], str]) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(_PAUSE)
    raise Failed(f"{what()} within {seconds:.0f} s")


def _say(text: str) -> None:
    seconds = int(time.monotonic() - _begin)
    print(f"{seconds // 60}:{seconds % 60:02}  {text}", flush=True)
