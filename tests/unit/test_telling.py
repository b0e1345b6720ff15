"""What a Spark of this process is told of a store, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli.common import session
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.storage_options import spark_storage
from delta_cdc.launch.storage_secrets import storage_confs

if TYPE_CHECKING:
    from collections.abc import Iterator

S3 = {"aws_access_key_id": "id", "aws_secret_access_key": "hidden", "aws_region": "r"}
AZURE = {"azure_storage_account_name": "acc", "azure_storage_account_key": "hidden"}
KEY = "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net=hidden"
ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ARGUMENTS, raising=False)


def test_keys_of_s3_are_in_the_environment_while_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Afterwards it is what it was: who reads logs would complete other options from it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "theirs")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    before = dict(os.environ)
    with storage_confs(spark_storage(S3), tmp_path) as confs:
        assert (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SESSION_TOKEN"]) == ("id", "")
        assert os.environ["AWS_SECRET_ACCESS_KEY"] == "hidden"
        assert ARGUMENTS not in os.environ
    assert dict(os.environ) == before
    assert "hidden" not in confs.values()
    assert confs["spark.hadoop.fs.s3a.endpoint.region"] == "r"
    with pytest.raises(RuntimeError), storage_confs(spark_storage(S3), tmp_path):
        raise RuntimeError
    assert dict(os.environ) == before


def told_by_file(folder: Path) -> tuple[list[str], list[str]]:
    """Return the lines of the file that PySpark is told, and its other arguments."""
    with storage_confs(spark_storage(AZURE), folder) as confs:
        assert "hidden" not in confs.values()
        option, name, *rest = shlex.split(os.environ[ARGUMENTS])
        assert option == "--properties-file"
        assert Path(name).stat().st_mode & 0o777 == 0o600
        return Path(name).read_text().splitlines(), rest


def test_other_secrets_go_by_a_file_beside_sparks_defaults(tmp_path: Path) -> None:
    lines, rest = told_by_file(tmp_path)
    assert KEY in lines
    assert rest == ["--load-spark-defaults", "pyspark-shell"]
    assert ARGUMENTS not in os.environ


@pytest.mark.parametrize("option", ["--properties-file ", "--properties-file="])
def test_a_file_of_the_users_stays_in_force(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    """PySpark would read the last of two: the user's, without the credentials."""
    own = tmp_path / "my own.conf"
    monkeypatch.setenv(ARGUMENTS, f"{option}{shlex.quote(str(own))} --verbose pyspark-shell")
    with pytest.raises(InvalidConfiguration, match=str(own)):
        told_by_file(tmp_path)
    own.write_text("spark.x 1\n")
    lines, rest = told_by_file(tmp_path)
    assert KEY in lines
    assert lines[-1] == "spark.x 1"
    assert rest == ["--verbose", "pyspark-shell"]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_key_of_google_is_a_file_of_this_machine(tmp_path: Path, is_local: bool) -> None:
    storage = spark_storage({"google_service_account_key": '{"private_key": "hidden"}'})
    with storage_confs(storage, tmp_path, is_local=is_local) as confs:
        files = [Path(value) for value in confs.values() if value.endswith("google-key.json")]
    assert [file.read_text() for file in files] == (['{"private_key": "hidden"}'] if is_local else [])
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


class Started:
    """What sessions were started with, and in which environment."""

    def __init__(self) -> None:
        self.confs: dict[str, Any] = {}
        self.is_stopped = False

    def __call__(self, name: str, **confs: Any) -> Started:
        self.confs = confs
        return self

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    made = Started()
    monkeypatch.setattr("delta_cdc.cli.common.get_session", made)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    yield made
    assert made.is_stopped


def test_a_session_of_the_command_line_is_told_its_locations(started: Started) -> None:
    region = "spark.hadoop.fs.s3a.endpoint.region"
    told: dict[str, Any] = {region: "mine"}
    with session(locations=["s3://b/t"], storage_options=S3, **told):
        assert started.confs["locations"] == ["s3://b/t"]
        assert (started.confs[region], started.confs["storage_options"]) == ("mine", S3)
        assert "AWS_ACCESS_KEY_ID" not in os.environ
    with session(locations=["s3://b/t"]):
        assert region not in started.confs
