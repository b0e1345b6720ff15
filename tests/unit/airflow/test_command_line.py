"""``airflow delta-cdc``: the engine's command line, with what Airflow's connections give."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc import command_line, commands
from airflow_delta_cdc.command_line import main
from delta_cdc import cli
from tests.support.imports import loaded
from tests.support.logs import LogTable
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_gateway import Gateway


@dataclass
class _OnStore(LogTable):
    """A table whose files are in the folder of a gateway's bucket, and whose location is on the gateway."""

    location: str = ""

    @property
    def uri(self) -> str:
        return self.location


@pytest.fixture
def lake(s3: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tables:
    """Tables that only the connection ``lake`` can read."""
    name = f"commands/{tmp_path.name}"
    made = Tables.made_in(s3.bucket / name)
    for part in ("source", "target", "staging"):
        table = getattr(made, part)
        setattr(made, part, _OnStore(**{**vars(table), "location": s3.uri(f"{name}/{part}")}))
    made.sealed(2)
    connection = {
        "conn_type": "delta", "login": ACCESS_KEY, "password": SECRET_KEY, "host": s3.endpoint,
        "extra": {"region": REGION, "allow_http": True},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    return made


def file_of(folder: Path, tables: Tables, **settings: Any) -> str:
    path = folder / "pipelines.yaml"
    entry = {"source": tables.source.uri, "target": tables.target.uri, "keys": ["id"]}
    path.write_text(json.dumps({"groups": {"g": settings}, "pipelines": {"p": {**entry, "group": "g"}}}))
    return str(path)


def test_the_commands_are_those_of_the_engine() -> None:
    from airflow.cli import cli_parser

    parsed = cli_parser.get_parser().parse_args(["delta-cdc", "why", "--key", "id=1", "a.yaml", "--help"])
    assert parsed.func.__name__ == command_line.run.__name__
    assert (parsed.subcommand, parsed.arguments) == ("why", ["--key", "id=1", "a.yaml", "--help"])
    lines = cli.command_line().commands.lines  # type: ignore[union-attr]
    for name, text in commands.COMMANDS.items():
        assert name == "doctor" or lines[name].startswith(text)


def test_airflow_loads_nothing_of_a_command_that_it_does_not_run() -> None:
    found = loaded("from airflow_delta_cdc.commands import get_cli_commands", "get_cli_commands()")
    assert {name for name in found if name.startswith(("delta_cdc", "airflow_delta_cdc"))} <= {
        "airflow_delta_cdc", "airflow_delta_cdc.commands"
    }  # fmt: skip


def test_a_configuration_names_its_connection(lake: Tables, tmp_path: Path, capfd: Any) -> None:
    """Each command gets the connection's options as the tasks of the group do."""
    path = file_of(tmp_path, lake, delta_conn_id="lake")
    main(["status", path, "--json"])
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["committed"], row["source_version"]) == (2, 5)
    assert main(["plan", path]) == 0
    printed = capfd.readouterr()
    assert "versions 3-5" in printed.out
    assert "looked up" not in printed.err
    assert main(["changes", path, "p", "--plan"]) == 0
    assert main(["verify", path, "--checks", "seal"]) == 0


def test_tables_without_a_configuration(lake: Tables, capfd: Any) -> None:
    target, connection = f"p={lake.target.uri}", ("--delta-conn-id", "lake")
    for command in (
        ["status", target, *connection],
        ["plan", target, *connection],
        ["changes", lake.source.uri, "--from", "1", "--plan", *connection],
        ["verify", target, "--checks", "seal", *connection],
    ):
        main(command)
        printed = capfd.readouterr()
        assert "Error" not in printed.err + printed.out, command
        assert "version" in printed.out
        assert SECRET_KEY not in printed.err + printed.out


def test_the_connection_of_the_command_line_wins(lake: Tables, tmp_path: Path, capfd: Any) -> None:
    path = file_of(tmp_path, lake, delta_conn_id="{{ var.value.lake }}")
    assert main(["plan", path]) == 2
    assert "delta_conn_id of a group contains a template" in capfd.readouterr().err
    assert main(["plan", path, "--delta-conn-id", "lake"]) == 0
    assert main(["plan", path, "--delta-conn-id", "nix"]) == 1
    assert "DeltaConnectionNotFound: The Delta connection 'nix' does not exist." in capfd.readouterr().err


def test_options_of_the_group_win_over_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "a:9092", "client.id": "theirs"}}
    monkeypatch.setenv("AIRFLOW_CONN_BROKERS", json.dumps(kafka))
    given = cli.command_line().parse_args(["plan", "p=/t"])
    given.delta_conn_id = given.kafka_conn_id = None
    settings = {"kafka_conn_id": "brokers", "kafka_options": {"client.id": "ours"}, "schedule": "@daily"}
    assert command_line.connected(given, settings) == {
        "kafka_options": {"bootstrap.servers": "a:9092", "client.id": "ours"}, "schedule": "@daily"
    }  # fmt: skip
