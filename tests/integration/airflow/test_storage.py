"""The connection of the tables' storage in a real Airflow, and what a real Spark gets of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from airflow_delta_cdc.runtime.storage import add_storage
from delta_cdc.core.spec import EnableSpec
from delta_cdc.launch.session import embedded_confs
from tests.integration.airflow.test_flow import write
from tests.support.http_store import HttpStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

HIDDEN = {"s3": "hidden/key+of=s3", "azure": "hidden\\key of=azure:"}
HOST = "acc.dfs.core.windows.net"

_APPLICATION = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from delta_cdc.core import private_files

private_files.take()
spark = SparkSession.builder.getOrCreate()
hadoop = spark._jsc.hadoopConfiguration()
names = {names!r}
lines = []
process = os.getpid()
while process > 1:
    # Up to spark-submit and its shell, and beyond.
    lines.append(Path(f"/proc/{{process}}/cmdline").read_text())
    process = int(Path(f"/proc/{{process}}/stat").read_text().rpartition(")")[2].split()[1])
Path({answer!r}).write_text(json.dumps({{
    "hadoop": {{name: hadoop.get(name) for name in names}},
    "default": spark.conf.get("spark.of.the.defaults", None),
    "lines": lines,
    "files": [path.name for path in Path({answer!r}).parent.iterdir()],
    "authenticated": spark.conf.get("spark.authenticate"),
}}))
"""


_FLOW = """
import os

from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaEnableChangeDataFeedOperator

os.environ["AIRFLOW_CONN_LAKE"] = {connection!r}

with DAG("connected", schedule=None) as dag:
    DeltaEnableChangeDataFeedOperator(task_id="enable", table={table!r}, delta_conn_id="lake")
"""


def test_a_log_is_read_with_the_connection(airflow: Airflow, tmp_path: Path) -> None:
    write(tmp_path / "t", [(1, "a")])
    DeltaTable(str(tmp_path / "t")).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with HttpStore(tmp_path) as store:
        connection = {
            "conn_type": "delta",
            "login": "AKIA1",
            "password": HIDDEN["s3"],
            "host": store.endpoint,
            "extra": {"storage": "s3", "region": "r", "allow_http": True},
        }
        text = _FLOW.format(connection=json.dumps(connection), table=store.uri("t"))
        outcome = airflow.run(airflow.dag("connected", text), forbid_processes=True)
        assert outcome.state == "success", outcome.log
        assert store.asked()
    assert outcome.xcom("enable")[0]["first_readable_version"] == 1
    assert HIDDEN["s3"] not in outcome.log


@pytest.mark.slow
def test_credentials_arrive_and_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = tmp_path / "conf"
    defaults.mkdir()
    (defaults / "spark-defaults.conf").write_text("spark.of.the.defaults yes\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(defaults))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    names = ["fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.endpoint", f"fs.azure.account.key.{HOST}"]
    application, answer = tmp_path / "application.py", tmp_path / "answer.json"
    application.write_text(_APPLICATION.format(names=names, answer=str(answer)))
    hook = DeltaCdcSubmitHook(
        conn_id=None,
        conf={
            name: value
            for name, value in embedded_confs(2, quick_start=True).items()
            if name != "spark.master" and not name.endswith("extraClassPath") and "delta" not in value.lower()
        },
        log_file=tmp_path / "spark.log",
    )
    options = {
        "AWS_ACCESS_KEY_ID": "AKIA1",
        "AWS_SECRET_ACCESS_KEY": HIDDEN["s3"],
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AZURE_STORAGE_ACCOUNT_NAME": "acc",
        "AZURE_STORAGE_ACCOUNT_KEY": HIDDEN["azure"],
    }
    spec = EnableSpec(run_id="r", tables=("s3://b/t",))
    add_storage(hook, options, spec=spec, directory=tmp_path, log=hook.log)
    hook.submit(str(application))
    seen = json.loads(answer.read_text())
    assert seen["hadoop"] == dict(
        zip(names, ["AKIA1", HIDDEN["s3"], "http://store:9000", HIDDEN["azure"]], strict=True)
    )
    assert "storage.properties" not in seen["files"], "deleted before the work begins"
    assert seen["authenticated"] == "true"
    assert seen["default"] == "yes", "the user's defaults are read all the same"
    assert any("SparkSubmit" in line for line in seen["lines"])
    written = (tmp_path / "spark.log").read_text()
    for hidden in HIDDEN.values():
        assert not any(hidden in line for line in seen["lines"])
        assert hidden not in written
