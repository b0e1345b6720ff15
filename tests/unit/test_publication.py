"""The manifest of a group: one publish, as a whole, and never an earlier one again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import publish_versions, published, read_published
from delta_cdc.cli import main
from delta_cdc.core.errors import InvalidConfiguration, PublicationUnreadable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "sales.json")


def named(**versions: int) -> dict[str, Any]:
    return {
        name: {
            "target": f"/lake/{name}",
            "target_version": version,
            "version": version + 10,
            "seals": {"target": 1},
        }
        for name, version in versions.items()
    }


def test_a_publish_replaces_the_one_before(manifest: str) -> None:
    first = publish_versions(manifest, "sales", named(a=1, b=1))
    assert published(manifest) == first
    second = publish_versions(manifest, "sales", named(a=2, b=1, c=0))
    assert published(manifest) == second
    assert second.number > first.number
    assert {name: one.target_version for name, one in second.tables.items()} == {"a": 2, "b": 1, "c": 0}
    assert publish_versions(manifest, "sales", named(a=2, b=1, c=0)) == second, "nothing is new"


@pytest.mark.parametrize(
    ("versions", "is_later"),
    [
        ({"a": 1, "b": 2}, False),
        ({"a": 1, "b": 1}, False),
        ({"a": 2, "b": 1, "c": 5}, False),
        ({"a": 3, "b": 2}, True),
        # A table was made again.
        ({"a": 0, "b": 3}, True),
        ({"c": 0}, True),
    ],
)
def test_a_publish_of_an_earlier_run_changes_nothing(
    manifest: str, versions: dict[str, int], is_later: bool
) -> None:
    kept = publish_versions(manifest, "sales", named(a=2, b=2))
    found = publish_versions(manifest, "sales", named(**versions))
    assert (found != kept) is is_later
    assert published(manifest) == found


def test_numbers_rise_though_the_clock_goes_back(manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = []
    for version, clock in enumerate((5_000, 4_000, 6_000)):
        monkeypatch.setattr("time.time_ns", lambda at=clock: at * 1_000_000)
        numbers.append(publish_versions(manifest, "sales", named(a=version)).number)
    assert numbers == [5_000, 5_001, 6_000]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is no manifest of a group"),
        ('{"group":"sales"}', "is no manifest of a group"),
        ('{"format":2,"group":"sales","number":1,"tables":{},"views":""}', "has format 2"),
        ('{"format":1,"group":"other","number":1,"tables":{},"views":""}', "is the manifest of group other"),
    ],
)
def test_another_file(tmp_path: Path, content: str, problem: str) -> None:
    place = tmp_path / "m.json"
    place.write_text(content)
    with pytest.raises(PublicationUnreadable, match=problem):
        publish_versions(str(place), "sales", named(a=1))
    assert place.read_text() == content


def test_there_is_none(manifest: str) -> None:
    with pytest.raises(PublicationUnreadable, match="There is no manifest"):
        published(manifest)
    with pytest.raises(InvalidConfiguration, match="versions of a publish"):
        publish_versions(manifest, "sales", {"a": {"target": "/lake/a"}})


def test_tables_that_a_reader_cannot_have(manifest: str) -> None:
    publish_versions(manifest, "sales", {"a": {"target": "main.sales.a", "target_version": 1}})
    tables = read_published(manifest)
    with pytest.raises(InvalidConfiguration, match="a name in Spark's catalog"):
        tables.delta_table("a")
    with pytest.raises(InvalidConfiguration, match="names no pipeline b"):
        tables.arrow("b")


def test_the_command(manifest: str, tmp_path: Path, capsys: Any) -> None:
    tables = {**named(orders=41), "lines": {"target": "main.sales.lines", "target_version": 7}}
    tables["orders"]["target"] = "s3://lake/orders"
    number = publish_versions(manifest, "sales", tables).number
    assert main(["views", manifest]) == 0
    out = capsys.readouterr().out
    assert f"sales: publish {number}\n" in out
    assert "orders    s3://lake/orders       41         51" in out
    assert main(["views", manifest, "--schema", "main.sales"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        (
            f"CREATE SCHEMA IF NOT EXISTS `main`.`sales_{number}` WITH DBPROPERTIES ('delta_cdc.group' = "
            f"'sales');"
        ),
        (
            f"CREATE OR REPLACE VIEW `main`.`sales_{number}`.`lines` AS "
            "SELECT * FROM `main`.`sales`.`lines` VERSION AS OF 7;"
        ),
        (
            f"CREATE OR REPLACE VIEW `main`.`sales_{number}`.`orders` AS "
            "SELECT * FROM delta.`s3a://lake/orders` VERSION AS OF 41;"
        ),
    ]
    assert main(["views", manifest, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["orders"]["target_version"] == 41

    configuration = tmp_path / "pipelines.yaml"
    text = "groups: {{sales: {{{}}}, other: {{}}}}\npipelines:\n"
    for name in ("sales", "other"):
        text += f"  {name}1: {{{{group: {name}, source: /s, target: /t{name}, keys: id}}}}\n"
    configuration.write_text(text.format(f"manifest: {manifest}"))
    assert main(["views", str(configuration), "--group", "sales"]) == 0
    assert f"publish {number}" in capsys.readouterr().out
    for arguments, problem in (
        ([str(configuration)], "names no group"),
        ([str(configuration), "--group", "third"], "has no group third"),
        ([str(configuration), "--group", "other"], "has no manifest"),
        ([manifest, "--group", "sales"], "--group given without a configuration"),
        ([manifest, "--remote", "sc://host"], "--remote needs --schema"),
    ):
        assert main(["views", *arguments]) == 2, arguments
        assert problem in capsys.readouterr().err
