"""What the doctor says of storage and tables, on a real store, and on none."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.doctor import Questions, examined, store
from delta_cdc.doctor.application import addresses_of
from tests.support.http_store import Fault, HttpStore, always
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.doctor import Result
    from tests.support.s3_gateway import Gateway

STEPS = ["storage-put", "storage-create", "storage-list", "storage-get", "storage-delete"]


def looked(uri: str, options: dict[str, str] | None = None, timeout: float = 10.0) -> dict[str, Result]:
    asked = Questions(storage=uri, storage_options=options, timeout=timeout)
    found = examined(asked.checks_of_storage(), timeout=timeout, secrets=asked.secrets)
    return {entry.name: entry for entry in found}


# -- a store that is there ------------------------------------------------------------------------
def test_a_folder(tmp_path: Path) -> None:
    found = looked(str(tmp_path))
    assert {name: entry.status for name, entry in found.items()} == dict.fromkeys(STEPS, "ok")
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    gone = looked(str(tmp_path / "gone"))
    assert {entry.status for entry in gone.values()} == {"failed"}
    assert gone["storage-put"].remedy.startswith("create the folder")
    assert not (tmp_path / "gone").exists()


def test_a_bucket(s3: Gateway) -> None:
    found = looked(s3.uri("doctor"), s3.options())
    assert {name: entry.status for name, entry in found.items()} == dict.fromkeys(STEPS, "ok")
    assert not list(s3.bucket.glob("doctor/**/*.*")), "nothing is left behind"


def test_a_bucket_that_the_environment_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also how it is spoken to: without TLS, which nobody does who was not told."""
    with HttpStore(tmp_path) as http:
        for name, value in http.options().items():
            monkeypatch.setenv(name, value)
        found = looked(http.uri("t"))
        told = {name: value for name, value in http.options().items() if name != "AWS_ALLOW_HTTP"}
        beside = looked(http.uri("t"), told)
    # This one writes over what is there, whatever it is asked.
    right = {**dict.fromkeys(STEPS, "ok"), "storage-create": "warning"}
    assert {name: entry.status for name, entry in found.items()} == right
    assert {name: entry.status for name, entry in beside.items()} == right
    assert "no conditional put" in found["storage-create"].found


@pytest.mark.parametrize(
    ("uri", "wrong", "said", "remedy"),
    [
        (None, {"AWS_SECRET_ACCESS_KEY": "wrong-and-secret"}, "SignatureDoesNotMatch", "keys"),
        (None, {"AWS_ACCESS_KEY_ID": "AKIDofNobody"}, "UserNotFound", "keys"),
        ("s3://nowhere/doctor", {}, "NoSuchBucket", "bucket"),
    ],
    ids=["secret", "id", "bucket"],
)
def test_a_bucket_that_refuses(
    s3: Gateway, uri: str | None, wrong: dict[str, str], said: str, remedy: str
) -> None:
    found = looked(uri or s3.uri("doctor"), {**s3.options(), **wrong})
    for name in ("storage-put", "storage-list"):
        assert found[name].status == "failed"
        assert said in found[name].found
        assert remedy in found[name].remedy
    assert {found[name].status for name in ("storage-create", "storage-get", "storage-delete")} == {"skipped"}
    assert "wrong-and-secret" not in str([str(entry) for entry in found.values()])


def test_each_permission_is_asked_for_by_itself(tmp_path: Path) -> None:
    """One who may list and not write is told so: to read logs, that is enough."""
    with HttpStore(tmp_path) as http:
        http.faults = lambda request: Fault("denied") if request.method == "PUT" else None
        found = looked(http.uri("t"), http.options())
        assert found["storage-list"].status == "ok"
        assert found["storage-put"].status == "failed"
        assert found["storage-put"].remedy.startswith("give this identity the right to write")
        http.faults = always("denied")
        found = looked(http.uri("t"), http.options())
    assert "cannot list" in found["storage-list"].found
    assert found["storage-list"].remedy.startswith("give this identity the right to list")


# -- a store that is not --------------------------------------------------------------------------
@contextmanager
def mute() -> Iterator[int]:
    """Give the port of a server that takes every connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def at(port: int) -> dict[str, str]:
    endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "r"}
    return {**endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "a-secret-of-ours"}


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check comes to its end by the limits of its requests, or is left behind."""
    monkeypatch.setattr("delta_cdc.doctor.report.GRACE", 0.2)
    with mute() as port:
        answers: list[dict[str, Result]] = []
        look = lambda: answers.append(looked("s3://lake/doctor", at(port), timeout=1))  # noqa: E731
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(120)
        assert answers, "the doctor hangs"
    # Nobody listens there any more.
    answers.append(looked("s3://lake/doctor", at(port), timeout=2))
    for found in answers:
        assert found["storage-put"].status == found["storage-list"].status == "failed"
    assert "endpoint" in answers[1]["storage-put"].remedy


# -- tables ---------------------------------------------------------------------------------------
def test_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = LogTable(tmp_path / "t", configuration=dict(FEED)).create()
    table.append()
    assert main(["doctor", "--table", table.uri, "--json"]) == 0
    (found,) = (one for one in json.loads(capsys.readouterr().out)["checks"] if one["name"] == "table-log")
    assert found["status"] == "ok"
    assert "version 1, 1 file," in found["found"]
    assert main(["doctor", "--table", str(tmp_path / "gone")]) == 1
    assert "TableNotFound" in capsys.readouterr().out


DYNAMO, SINGLE = "io.delta.storage.S3DynamoDBLogStore", "io.delta.storage.S3SingleDriverLogStore"


@pytest.mark.parametrize(
    ("uri", "confs", "status", "name"),
    [
        ("s3://lake/t", {}, "ok", "S3ConditionalLogStore"),
        ("s3://lake/t", {"s3a.impl": DYNAMO}, "ok", "S3DynamoDBLogStore"),
        # Not the scheme by which Spark is told.
        ("s3://lake/t", {"s3.impl": DYNAMO}, "warning", "S3SingleDriverLogStore"),
        ("s3://lake/t", {"class": SINGLE}, "warning", "S3SingleDriverLogStore"),
        ("/lake/t", {}, "ok", "FileLinkLogStore"),
        ("file:///lake/t", {"class": "com.example.Store"}, "ok", "com.example.Store"),
        ("lake/t", {"file.impl": "io.delta.storage.HDFSLogStore"}, "warning", "HDFSLog"),
    ],
)
def test_the_safety_of_commits(
    uri: str, confs: dict[str, str], status: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_cdc.launch.log_store.log_store_jar", lambda: Path("/log-store.jar"))
    told = {f"spark.delta.logStore.{conf}": value for conf, value in confs.items()}
    (_, check) = store.table(uri, None, told, 1.0)
    assert check.name == "table-commits"
    found = check.look()
    assert found.status == status
    assert name in found.found
    if status == "warning":
        assert "single_driver" in found.remedy


# -- addresses ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("spark://a", [("a", 7077)]),
        ("sc://a", [("a", 15002)]),
        ("sc://a:7/;token=x;user_id=y", [("a", 7)]),
        ("k8s://https://a:6443", [("a", 6443)]),
        ("k8s://a", [("a", 443)]),
        ("sc://[::1]:7", [("::1", 7)]),
        ("spark://a:port", []),
        ("spark://", []),
    ],
)
def test_addresses(url: str, addresses: list[Any]) -> None:
    assert addresses_of(url) == addresses


@pytest.mark.parametrize("option", ["--master", "--remote"])
def test_nobody_listens(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with mute() as port:
        """Closed at the end of this block, so that nobody listens there."""
    scheme, kind = ("spark", "master") if option == "--master" else ("sc", "connect")
    assert main(["doctor", option, f"{scheme}://127.0.0.1:{port}", "--timeout", "5"]) == 1
    out = capsys.readouterr().out.splitlines()
    (address,) = (line for line in out if f" {kind}-address " in line)
    (job,) = (line for line in out if f" {kind}-job " in line)
    assert address.startswith("failed")
    assert f"127.0.0.1:{port} cannot be reached" in address
    assert job.startswith("skipped")


def test_yarn_without_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    assert main(["doctor", "--master", "yarn"]) == 1
    assert "HADOOP_CONF_DIR" in capsys.readouterr().out
