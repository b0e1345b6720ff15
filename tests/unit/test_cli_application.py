"""What Spark in the command line's own process is told of the tables' storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.cli.application import Application
from delta_cdc.spec import BundleSpec, EnableSpec

HIDDEN = "s3cr3t/of+nobody="


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": HIDDEN, "AWS_REGION": "r"}, None),
        (
            {"azure_storage_account_name": "acc", "azure_storage_account_key": HIDDEN},
            "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net",
        ),
    ],
    ids=["S3", "Azure"],
)
def test_no_secret_is_a_conf(
    options: dict[str, str], named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark puts confs on the JVM's command line."""
    monkeypatch.setattr(os, "environ", {"PYSPARK_SUBMIT_ARGS": "--name mine pyspark-shell"})
    spec: Any = EnableSpec("r", ("s3://lake/t",), {"a": "b"})
    with Application({"storage_options": options, "conf": {"spark.own": "1"}}) as application:
        confs = application._confs(BundleSpec("r", (spec,)))
        assert HIDDEN not in str(confs)
        assert HIDDEN not in os.environ["PYSPARK_SUBMIT_ARGS"]
        assert confs["spark.own"] == "1"
        if named is None:
            assert os.environ["AWS_SECRET_ACCESS_KEY"] == HIDDEN
            assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
            return
        words = os.environ["PYSPARK_SUBMIT_ARGS"].split()
        file = Path(words[words.index("--properties-file") + 1])
        assert words[-3:] == ["--name", "mine", "pyspark-shell"]
        assert f"{named}={HIDDEN}" in file.read_text().splitlines()
        assert file.parent.stat().st_mode & 0o077 == 0
    assert not file.exists()
