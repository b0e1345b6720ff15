"""What has to be there before Airflow starts (``setup``), and the samples that it starts with (``samples``).

Both may run again: what is there stays.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

#: Airflow connections by id. Their secrets come from the environment, as the store's do.
CONNECTIONS = {
    "spark_cluster": {"conn_type": "spark", "host": "spark://spark-master", "port": 7077},
    "spark_connect": {"conn_type": "spark_connect", "host": "spark-connect", "port": 15002},
}


def setup() -> None:
    """Make up the secrets that Airflow's parts share, then the metadata database and the connections."""
    folder = Path(os.environ["AIRFLOW_HOME"]) / "secrets"
    folder.mkdir(parents=True, exist_ok=True)
    _once(folder / "fernet_key", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    _once(folder / "jwt_secret", secrets.token_urlsafe(64))
    _once(folder / "api_secret_key", secrets.token_urlsafe(32))
    # The one that a person types: .env decides, now and later.
    _write(folder / "passwords.json", json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))
    _airflow("db", "migrate")
    wanted = folder / "connections.json"
    try:
        _write(wanted, json.dumps({**CONNECTIONS, "lake": lake()}))
        _airflow("connections", "import", "--overwrite", str(wanted))
    finally:
        # It contains the store's secret.
        wanted.unlink(missing_ok=True)


def lake() -> dict[str, object]:
    """Return the connection to the store, for the log's reader and for Spark."""
    return {
        "conn_type": "delta",
        "login": os.environ["AWS_ACCESS_KEY_ID"],
        "password": os.environ["AWS_SECRET_ACCESS_KEY"],
        "extra": {
            "storage": "s3",
            "region": os.environ["AWS_REGION"],
            "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
            "allow_http": True,
            "test_table": "s3://lake/shop/orders",
        },
    }


def samples() -> None:
    """Make the sample tables, if they do not exist, and their first day, over Spark Connect."""
    sys.path.insert(0, str(Path(os.environ["AIRFLOW_HOME"]) / "dags"))
    from shop_tables import next_day, remote_session

    spark = remote_session()
    try:
        print(f"The shop's tables are at day {next_day(spark, only_first=True)}.")
    finally:
        spark.stop()


def _once(path: Path, text: str) -> None:
    if not path.exists():
        _write(path, text)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _airflow(*arguments: str) -> None:
    subprocess.run(["airflow", *arguments], check=True)


if __name__ == "__main__":
    {"setup": setup, "samples": samples}[sys.argv[1]]()
