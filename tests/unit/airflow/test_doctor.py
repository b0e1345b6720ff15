"""What the doctor says of the connections that Airflow keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.command_line import _parser
from airflow_delta_cdc.doctor import Connections
from delta_cdc.doctor import Questions, examined
from tests.support.http_store import Fault, HttpStore
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.doctor import Result
    from tests.support.s3_gateway import Gateway
    from tests.unit.airflow.conftest import Connect

#: Nobody listens there.
_CLOSED = "127.0.0.1:1"
_SECRET = "very/secret+key"


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine itself is looked at elsewhere."""
    monkeypatch.setattr("delta_cdc.doctor.machine.checks", lambda **_: [])


def looked(
    asked: Questions | None = None, *, spark: str | None = None, delta: str | None = None
) -> dict[str, Result]:
    asked = asked or Questions(timeout=5)
    to_hide = asked.secrets
    checks = Connections(asked, to_hide, spark=spark, delta=delta).checks()
    return {entry.name: entry for entry in examined(checks, timeout=asked.timeout, secrets=to_hide)}


def statuses(found: dict[str, Result]) -> dict[str, str]:
    return {name: entry.status for name, entry in found.items() if name != "airflow-config"}


# -- the command ----------------------------------------------------------------------------------
def test_the_arguments_of_airflows_command() -> None:
    parsed = _parser().parse_args(
        ["doctor", "--spark-conn-id", "s", "--table", "a", "--table", "b", "--timeout", "7"]
    )
    assert (parsed.spark_conn_id, parsed.delta_conn_id) == ("s", None)
    assert (parsed.tables, parsed.timeout, parsed.json) == (["a", "b"], 7.0, False)


@pytest.mark.slow
def test_standard_output_is_the_report_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow logs to standard output; a reader of JSON wants none of it."""
    # A secret this short is worth a warning to Airflow.
    connection = {"conn_type": "delta", "login": "AKIA1", "password": "abc", "extra": {"region": "r"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "airflow_delta_cdc.command_line"),
            *("doctor", "--delta-conn-id", "lake", "--json"),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    names = [check["name"] for check in report["checks"]]
    assert names[:3] == ["airflow-config", "delta-connection", "python"]
    assert report["checks"][1]["status"] == "ok"
    assert done.returncode == (1 if report["counts"]["failed"] else 0)


def test_wrong_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__DELTA_JARS", "sometimes")
    found = looked()["airflow-config"]
    assert found.status == "failed"
    assert "sometimes" in found.found


# -- storage --------------------------------------------------------------------------------------
def test_the_connection_of_the_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection = {
        "conn_type": "delta", "login": "AKIA1", "password": _SECRET, "host": f"http://{_CLOSED}",
        "extra": {"region": "r", "allow_http": True, "test_table": "s3://lake/t"},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    found = looked(delta="lake")
    assert found["delta-connection"].status == "ok"
    assert "AWS_SECRET_ACCESS_KEY" in found["delta-connection"].found
    # Where nothing is named, the table of the connection's form is read.
    assert found["table-log"].status == "failed"
    assert _CLOSED in found["table-log"].found
    asked = Questions(storage="s3://lake/x", timeout=2)
    found = looked(asked, delta="lake")
    assert "table-log" not in found
    assert _CLOSED in found["storage-put"].found
    for entry in found.values():
        assert _SECRET not in str(entry)


def test_a_connection_that_does_not_do_stops_what_it_was_for(connect: Connect) -> None:
    spark = connect("of_spark", host="local[1]")
    asked = Questions(storage="s3://lake/x", tables=("s3://lake/t",), timeout=2)
    for conn_id, error in (("nowhere", "DeltaConnectionNotFound"), (spark, "InvalidConfiguration")):
        found = looked(asked, delta=conn_id)
        assert statuses(found) == {"delta-connection": "failed"}
        assert found["delta-connection"].found.startswith(error)
        assert found["delta-connection"].remedy


def test_an_option_in_another_spelling_wins_over_the_connections(
    monkeypatch: pytest.MonkeyPatch, s3: Gateway
) -> None:
    fields = {"conn_type": "delta", "login": "wrong", "password": _SECRET, "host": f"http://{_CLOSED}"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({**fields, "extra": {"storage": "s3"}}))
    options = {"endpoint": s3.endpoint, "region": REGION, "allow_http": "true"}
    options |= {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    asked = Questions(storage=s3.uri("doctor"), storage_options=options, timeout=20)
    assert looked(asked, delta="lake")["storage-put"].status == "ok"


# -- Spark ----------------------------------------------------------------------------------------
def _away(kind: str) -> dict[str, str]:
    """Return the checks of a Spark whose address does not answer."""
    skipped = {f"{kind}-{name}": "skipped" for name in ("job", "python", "defaults", "confs")}
    return {f"{kind}-address": "failed", **skipped}


@pytest.mark.parametrize(
    ("connection", "status", "said"),
    [
        ({}, {"spark-connection": "failed"}, "SparkConnectionNotFound"),
        (
            {"host": f"spark://{_CLOSED}"},
            {"spark-connection": "ok", **_away("master")},
            "deploy mode client",
        ),
        (
            {"host": f"spark://{_CLOSED}", "deploy-mode": "cluster"},
            {"spark-connection": "failed"},
            "DeployModeUnsupported",
        ),
        (
            {"conn_type": "spark_connect", "host": "sc://127.0.0.1:1"},
            {"spark-connection": "ok", **_away("connect")},
            "Spark Connect server, sc://127.0.0.1:1",
        ),
    ],
    ids=["missing", "away", "impossible", "connect"],
)
def test_a_connection_of_spark(
    connect: Connect, connection: dict[str, Any], status: dict[str, str], said: str
) -> None:
    conn_id = connect(**connection) if connection else "nowhere"
    found = looked(spark=conn_id)
    assert statuses(found) == status
    assert said in found["spark-connection"].found


@pytest.fixture
def on_a_cluster(connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Give the id of a connection whose drivers run elsewhere."""
    (tmp_path / "yarn-site.xml").touch()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    return connect(host="yarn", **{"deploy-mode": "cluster"})


@pytest.mark.parametrize("there", ["not set", "gone", "there"])
def test_the_folder_between_worker_and_cluster(
    on_a_cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: str
) -> None:
    if there != "not set":
        folder = tmp_path / ("results" if there == "gone" else "")
        monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", folder.as_uri())
    found = looked(spark=on_a_cluster)
    assert found["master-address"].status == "ok"
    assert found["master-job"].status == "skipped"
    assert found["results-folder"].status == ("ok" if there == "there" else "failed")
    said = {"not set": "InvalidConfiguration", "gone": "does not exist", "there": "can be written"}
    assert said[there] in found["results-folder"].found


def test_the_folder_is_reached_as_by_a_task_and_nothing_is_left(
    on_a_cluster: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the connection where that is for the same store; this machine has no keys of its own."""
    with HttpStore(tmp_path / "store") as store:
        monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", store.uri("results"))
        fields = {"conn_type": "delta", "extra": {"storage": "s3", "storage_options": store.options()}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))
        found = looked(Questions(timeout=20), spark=on_a_cluster, delta="lake")["results-folder"]
        assert found.status == "ok", found
        store.faults = lambda request: Fault("denied") if request.lists else None
        found = looked(Questions(timeout=20), spark=on_a_cluster, delta="lake")["results-folder"]
    assert found.status == "failed"
    assert "cannot list" in found.found
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
