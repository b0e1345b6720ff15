"""The submit hook: strict about connections, quiet about Spark's log, sure to kill."""

from __future__ import annotations

import inspect
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.supervisor import WatchedSubprocess

from airflow_delta_cdc.hooks import submit
from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from delta_cdc.core.errors import (
    DeployModeUnsupported,
    EnvironmentNotReady,
    InvalidConfiguration,
    JobFailed,
    SparkConnectionNotFound,
)
from tests.unit.airflow.conftest import Connect, Records, StandIn


# -- connections ----------------------------------------------------------------------------------
def test_a_missing_connection_is_an_error_and_not_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    def missing(conn_id: str) -> Any:
        raise AirflowNotFoundException(f"The conn_id `{conn_id}` isn't defined")

    monkeypatch.setattr(DeltaCdcSubmitHook, "get_connection", staticmethod(missing))
    with pytest.raises(SparkConnectionNotFound, match="'nowhere'"):
        DeltaCdcSubmitHook(conn_id="nowhere")


def test_a_connect_connection_is_refused(connect: Connect) -> None:
    conn_id = connect(conn_type="spark_connect", host="sc://server")
    with pytest.raises(DeployModeUnsupported, match="Spark Connect"):
        DeltaCdcSubmitHook(conn_id=conn_id)


@pytest.mark.parametrize(("conn_type", "host"), [("delta", "https://s3.example.com"), ("kafka", "broker")])
def test_a_connection_of_another_type_is_refused(connect: Connect, conn_type: str, host: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"is of type {conn_type}, not of type spark"):
        DeltaCdcSubmitHook(conn_id=connect(conn_type=conn_type, host=host))


def test_a_connection_without_a_host_is_refused(connect: Connect) -> None:
    with pytest.raises(InvalidConfiguration, match="has no host"):
        DeltaCdcSubmitHook(conn_id=connect(host=""))


@pytest.mark.parametrize("mode", ["Cluster", "clutser"])
def test_a_misspelt_deploy_mode_is_refused(connect: Connect, mode: str) -> None:
    """Spark would run the driver in the worker, or fail in each try."""
    with pytest.raises(InvalidConfiguration, match=mode):
        DeltaCdcSubmitHook(conn_id=connect(host="yarn", **{"deploy-mode": mode}))


@pytest.mark.parametrize("extra", ['{"deploy-mode": "cluster",}', '["cluster"]', "deploy-mode=cluster"])
def test_an_extra_that_is_no_json_object_is_refused(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """Airflow takes it for empty, so that the driver would run in the worker."""
    from airflow.sdk import Connection

    found = Connection(conn_id="spark_test", conn_type="spark", host="yarn", extra=extra)
    monkeypatch.setattr(DeltaCdcSubmitHook, "get_connection", staticmethod(lambda _: found))
    with pytest.raises(InvalidConfiguration, match="no JSON object"):
        DeltaCdcSubmitHook(conn_id="spark_test")


@pytest.mark.parametrize("where", ["connection", "operator"])
def test_standalone_cluster_mode_is_refused_before_submit(connect: Connect, where: str) -> None:
    extra = {"deploy-mode": "cluster"} if where == "connection" else {}
    conn_id = connect(host="spark://master:7077", **extra)
    with pytest.raises(DeployModeUnsupported, match="spark://master:7077"):
        DeltaCdcSubmitHook(conn_id=conn_id, deploy_mode="cluster" if where == "operator" else None)


def test_cluster_mode_needs_a_cluster() -> None:
    """A template that gives no connection does not make a job of a cluster one of this worker."""
    for nothing in (None, ""):
        with pytest.raises(DeployModeUnsupported, match="no connection names the cluster"):
            DeltaCdcSubmitHook(conn_id=nothing, deploy_mode="cluster")
    assert DeltaCdcSubmitHook(conn_id=None, deploy_mode="client").master == "local[*]"


def test_kubernetes_without_its_provider_is_named(connect: Connect) -> None:
    pytest.importorskip("airflow.providers.apache.spark")
    conn_id = connect(host="k8s://https://cluster")
    if _has_kubernetes():
        pytest.skip("the Kubernetes provider is installed")
    with pytest.raises(EnvironmentNotReady, match="Kubernetes"):
        DeltaCdcSubmitHook(conn_id=conn_id)


def _has_kubernetes() -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec("airflow.providers.cncf.kubernetes") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(
    ("extra", "tracked"),
    [
        ({}, False),
        ({"yarn_track_via_rm_api": True, "deploy-mode": "client"}, False),
        ({"yarn_track_via_rm_api": True}, True),
        ({"yarn-track-via-rm-api": "true"}, True),
        ({"yarn_resourcemanager_webapp_address": "http://rm:8088"}, True),
        ({"yarn_resourcemanager_webapp_address": "http://rm:8088", "yarn_track_via_rm_api": False}, False),
    ],
)
def test_tracking_comes_from_the_connection(connect: Connect, extra: dict[str, Any], tracked: bool) -> None:
    conn_id = connect(host="yarn", **{"deploy-mode": "cluster", **extra})
    assert DeltaCdcSubmitHook(conn_id=conn_id).is_tracked is tracked


class Pods:
    """What the API of Kubernetes says of a driver's pod."""

    phase: str | None = "Running"

    class ApiException(Exception):
        def __init__(self, status: int) -> None:
            self.status = status

    def get_kube_client(self) -> Pods:
        return self

    def read_namespaced_pod(self, name: str, namespace: str) -> Any:
        if (name, namespace) != ("job-0a1-driver", "lake"):
            raise self.ApiException(404 if namespace == "lake" else 403)
        return SimpleNamespace(status=SimpleNamespace(phase=self.phase))


@pytest.fixture
def in_pods(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Pods:
    """A connection to Kubernetes, whose provider is not installed here."""
    api = Pods()
    monkeypatch.setattr("airflow_delta_cdc.hooks.submit._installed", lambda _: True)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes.kube_client", api)  # type: ignore[arg-type]
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", api, raising=False)
    connect(conn_id="pods", host="k8s://https://c", namespace="lake", **{"deploy-mode": "cluster"})
    return api


def test_a_tracked_pod_is_told_by_its_namespace_and_name(in_pods: Pods, stand_in: StandIn) -> None:
    stand_in.does("echo '\t pod name: job-0a1-driver'")
    hook = DeltaCdcSubmitHook(conn_id="pods", track_driver_via_k8s_api=True)
    assert hook.is_tracked
    assert hook.submit_tracked("job.py") == "lake:job-0a1-driver"
    assert stand_in.confs["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert (hook.status_of("lake:job-0a1-driver"), hook.is_active("Running")) == ("Running", True)
    in_pods.phase = None
    assert hook.status_of("lake:job-0a1-driver") == "Pending"
    assert hook.status_of("lake:job-0b2-driver") == "NotFound"
    assert not hook.is_active("NotFound")
    with pytest.raises(Pods.ApiException):
        hook.status_of("other:job-0a1-driver")


def test_a_submission_that_tells_no_pod_is_an_error(in_pods: Pods, stand_in: StandIn) -> None:
    stand_in.does("echo nothing of that kind")
    with pytest.raises(RuntimeError, match="gave no driver pod"):
        DeltaCdcSubmitHook(conn_id="pods", track_driver_via_k8s_api=True).submit_tracked("job.py")


def test_the_end_of_a_pod_counts_only_where_it_was_seen(
    in_pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, ends = DeltaCdcSubmitHook(conn_id="pods", track_driver_via_k8s_api=True), iter(["Succeeded", None])
    monkeypatch.setattr(hook, "_poll_k8s_driver_via_api", lambda: next(ends))
    assert hook.wait_for("lake:job-0a1-driver")
    assert not hook.wait_for("lake:job-0a1-driver"), "it may have been deleted before its end"


def test_a_tracked_submission_must_not_wait(connect: Connect, stand_in: StandIn) -> None:
    conn_id = connect(host="yarn", yarn_track_via_rm_api=True, **{"deploy-mode": "cluster"})
    hook = DeltaCdcSubmitHook(conn_id=conn_id, conf={"spark.yarn.submit.waitAppCompletion": "TRUE"})
    with pytest.raises(InvalidConfiguration, match="waitAppCompletion is true"):
        hook.submit_tracked("job.py")
    assert not stand_in.was_started


def test_another_submit_binary_must_be_there(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    conn_id = connect(host="local[2]", **{"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentNotReady, match="spark2-submit"):
        DeltaCdcSubmitHook(conn_id=conn_id).submit("job.py")


# -- command and environment ----------------------------------------------------------------------
def test_the_child_gets_a_complete_environment(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "somewhere else")
    DeltaCdcSubmitHook(conn_id=None, env_vars={"MINE": "1"}).submit("job.py")
    seen = stand_in.environment
    assert Path(seen["SPARK_HOME"], "bin", "spark-submit").exists()
    assert seen["MINE"] == "1"
    assert "PYSPARK_PYTHON" in seen


def test_the_connections_own_binary_is_used(stand_in: StandIn, connect: Connect) -> None:
    conn_id = connect(host="local[2]", **{"spark-binary": "spark3-submit"})
    hook = DeltaCdcSubmitHook(conn_id=conn_id)
    assert hook._get_spark_binary_path() == [str(stand_in.binary)]


# -- log ------------------------------------------------------------------------------------------
_OUTPUT = """
echo '26/01/01 00:00:00 INFO SparkContext: Running Spark version'
echo 'delta_cdc| applied 100% of 3 rows'
echo '26/01/01 00:00:00 WARN Utils: something odd'
echo 'java.lang.IllegalStateException: no space left'
echo '\tat org.apache.spark.Frame.run(Frame.scala:1)'
"""


def _run(records: Records, log_file: Path) -> DeltaCdcSubmitHook:
    hook = DeltaCdcSubmitHook(conn_id=None, log_file=log_file)
    hook._log = records  # type: ignore[assignment]
    hook.submit("job.py")
    return hook


def test_only_our_lines_are_shown_and_all_are_kept(
    stand_in: StandIn, records: Records, tmp_path: Path
) -> None:
    stand_in.does(_OUTPUT)
    _run(records, tmp_path / "spark.log")
    assert records.at("info") == ["applied 100% of 3 rows"]
    assert any("Running Spark version" in line for line in records.at("debug"))
    assert len((tmp_path / "spark.log").read_text().splitlines()) == 5


def test_the_output_may_have_any_byte(stand_in: StandIn, records: Records, tmp_path: Path) -> None:
    stand_in.does(r"printf 'caf\351 \377\n'; echo 'delta_cdc| done'")
    _run(records, tmp_path / "spark.log")
    assert records.at("info") == ["done"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_end_the_application(stand_in: StandIn, records: Records) -> None:
    stand_in.does(f"{_OUTPUT}\necho 'delta_cdc| done'")
    _run(records, Path("/dev/full"))
    assert records.at("info")[-1] == "done"
    (warning,) = records.at("warning")
    assert "No space left" in warning


def test_a_dead_application_is_explained_in_a_few_lines(
    stand_in: StandIn, records: Records, tmp_path: Path
) -> None:
    def explained(script: str) -> str:
        stand_in.does(f"{script}\nexit 7")
        with pytest.raises(JobFailed) as caught:
            _run(records, tmp_path / "spark.log")
        return str(caught.value)

    frames = 'i=0; while [ $i -lt 300 ]; do echo "    at org.apache.Frame.f$i(F.scala)"; i=$((i+1)); done'
    message = explained(f"{_OUTPUT}\necho 'Exception: {'x' * 2000} the reason'\n{frames}")
    assert "exit code 7" in message
    assert "no space left" in message
    assert "xx the reason" in message, "a long line is shown to its end"
    assert str(tmp_path / "spark.log") in message
    assert "org.apache" not in message
    assert len(message.splitlines()) <= 25
    message = explained('i=0; while [ $i -lt 100 ]; do echo "trouble $i"; i=$((i+1)); done')
    assert (message.count("trouble"), "trouble 99" in message) == (20, True)


# -- killing --------------------------------------------------------------------------------------
def _start(hook: DeltaCdcSubmitHook, stand_in: StandIn) -> tuple[threading.Thread, list[JobFailed]]:
    """Run submit in a thread; returns when the child says that it runs."""
    running = threading.Event()
    raised: list[JobFailed] = []

    class Log(Records):
        def info(self, message: str, *args: Any) -> None:
            if "running" in (message % args):
                running.set()

    hook._log = Log()  # type: ignore[assignment]

    def submit() -> None:
        try:
            hook.submit("job.py")
        except JobFailed as error:
            raised.append(error)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    assert running.wait(30)
    return thread, raised


@pytest.mark.parametrize("trap", ["", "trap '' TERM"])
def test_kill_ends_the_application_and_its_children(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr("airflow_delta_cdc.hooks.submit.KILL_GRACE", 0.5)
    child = stand_in.folder / "child"
    stand_in.does(f"{trap}\nsleep 600 &\necho $! > {child}\necho 'delta_cdc| running'\nwait; wait; sleep 600")
    hook = DeltaCdcSubmitHook(conn_id=None)
    thread, raised = _start(hook, stand_in)
    assert hook._submit_sp is not None
    watched = os.pidfd_open(int(child.read_text()))
    hook.on_kill()
    # Readable once the process has ended.
    assert select.select([watched], [], [], 30)[0]
    os.close(watched)
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(raised[0], JobFailed)
    assert "killed" in str(raised[0])
    assert hook._submit_sp.poll() in (-signal.SIGTERM, -signal.SIGKILL)


class _TimesOut(Records):
    """A log in which Airflow's timeout of a task comes up, which may be anywhere in the main thread."""

    def info(self, message: str, *args: Any, **_: Any) -> None:
        if "running" in (message % args if args else message):
            raise AirflowTaskTimeout("Timeout")


def test_a_timeout_ends_the_application_on_the_cluster(stand_in: StandIn, connect: Connect) -> None:
    """Airflow calls on_kill after the timeout; then the process, which shows what to kill, is gone."""
    killed, yarn = stand_in.folder / "killed", stand_in.folder / "yarn"
    yarn.write_text(f'#!/bin/sh\necho "$@" >> {killed}\n')
    yarn.chmod(0o755)
    stand_in.does("echo 'Submitted application application_1_0001'\necho 'delta_cdc| running'\nexec sleep 60")
    extra = {"deploy-mode": "cluster", "spark-binary": "spark3-submit"}
    hook = DeltaCdcSubmitHook(conn_id=connect(host="yarn", **extra))
    hook._log = _TimesOut()  # type: ignore[assignment]
    with pytest.raises(AirflowTaskTimeout):
        hook.submit("job.py")
    hook.on_kill()
    assert killed.read_text().splitlines() == ["application -kill application_1_0001"]


def test_a_kill_ends_before_the_supervisor_gives_up() -> None:
    """It sends SIGKILL to the task, which then cannot end a JVM that ignores SIGTERM."""
    delay = inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default
    assert 2 * submit.KILL_GRACE > delay > submit.KILL_GRACE + 1


def test_a_cluster_that_does_not_answer_does_not_hold_up_a_kill(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "KILL_GRACE", 0.2)
    yarn = stand_in.folder / "yarn"
    yarn.write_text("#!/bin/sh\nexec sleep 60\n")
    yarn.chmod(0o755)
    stand_in.does("echo 'Submitted application application_1_0001'\necho 'delta_cdc| running'\nexec sleep 60")
    extra = {"deploy-mode": "cluster", "spark-binary": "spark3-submit"}
    hook = DeltaCdcSubmitHook(conn_id=connect(host="yarn", **extra))
    thread, raised = _start(hook, stand_in)
    hook.on_kill()
    thread.join(20)
    assert "was killed" in str(raised[0])


def test_a_kill_before_the_start_prevents_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal may come while the files of the run are being written."""
    hook = DeltaCdcSubmitHook(conn_id=None)
    hook.on_kill()
    monkeypatch.setattr(hook, "_build_spark_submit_command", lambda _: pytest.fail("it starts"))
    with pytest.raises(JobFailed, match="was killed"):
        hook.submit("job.py")


def test_a_kill_during_the_start_ends_it(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.does("sleep 3; exit 0")
    hook = DeltaCdcSubmitHook(conn_id=None)
    build = hook._build_spark_submit_command

    def signalled(application: str) -> list[str]:
        command = build(application)
        hook.on_kill()
        return command

    monkeypatch.setattr(hook, "_build_spark_submit_command", signalled)
    with pytest.raises(JobFailed, match="was killed"):
        hook.submit("job.py")
    assert hook.exit_code is not None


def test_kill_before_start_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = DeltaCdcSubmitHook(conn_id=None)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("started a process, or looked something up")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(hook, "get_connection", refuse)
    hook.on_kill()


@pytest.mark.parametrize(
    ("conn_id", "external_id", "kills"),
    [
        ("pods", "lake:job-0a1-driver", "_delete_driver_pod"),
        ("yarn", "application_1_2", "_kill_yarn_application"),
    ],
)
@pytest.mark.usefixtures("in_pods")
def test_kill_stops_an_application_that_an_earlier_try_submitted(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, conn_id: str, external_id: str, kills: str
) -> None:
    connect(conn_id="yarn", host="yarn", yarn_track_via_rm_api=True, **{"deploy-mode": "cluster"})
    hook = DeltaCdcSubmitHook(conn_id=conn_id, track_driver_via_k8s_api=conn_id == "pods")
    killed: list[str] = []
    monkeypatch.setattr(hook, kills, lambda *_: killed.append(kills))

    def wait(*_: Any) -> str:
        hook.on_kill()
        return "Succeeded"

    monkeypatch.setattr(hook, "_start_yarn_application_status_tracking", wait)
    monkeypatch.setattr(hook, "_poll_k8s_driver_via_api", wait)
    hook.wait_for(external_id)
    assert killed == [kills]


def test_an_interrupted_submit_takes_its_application_along(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.does("echo 'delta_cdc| running'\nsleep 600")
    hook = DeltaCdcSubmitHook(conn_id=None)

    class Interrupting(Records):
        def info(self, message: str, *args: Any) -> None:
            raise KeyboardInterrupt

    hook._log = Interrupting()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        hook.submit("job.py")
    assert hook._submit_sp is not None
    assert hook._submit_sp.poll() is not None
