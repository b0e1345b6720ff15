"""What adapters refuse before any Spark starts, and which adapter a name means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.core import adapters, codec
from delta_cdc.core.adapters import BUNDLED, SETTINGS
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import IngestOptions
from delta_cdc.ingest.adapters import debezium_order

PLAIN = {"sequence_by": "ts"}


def check(adapter: str, options: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return adapters.check(adapter, options, **{"keys": ("id",), "format": "json", **changes})


@pytest.mark.parametrize(
    ("adapter", "options", "reason"),
    [
        ("plain", {"sequence_by": "ts", "operation_colum": "op"}, "did you mean 'operation_column'"),
        ("plain", {}, "has no 'sequence_by'"),
        ("plain", {"sequence_by": []}, "has no 'sequence_by'"),
        ("plain", {"sequence_by": ["ts", ""]}, "sequence_by is a text, or a list"),
        ("plain", {"sequence_by": 7}, "sequence_by of the adapter 'plain' is 7"),
        ("plain", {**PLAIN, "operations": {"x": "delete"}}, "has no 'operation_column'"),
        ("plain", {**PLAIN, "operation_column": "o", "operations": {"x": "delet"}}, "did you mean 'delete'"),
        ("plain", {**PLAIN, "operation_column": "o", "operations": {"x": 1}}, "a mapping of texts to texts"),
        ("plain", {**PLAIN, "operation_column": " "}, "operation_column is a text, and not empty"),
        ("plain", {**PLAIN, "old_keys": {"ix": "old"}}, "did you mean 'id'"),
        ("debezium", {"connector": "oracel"}, "give sequence_by"),
        ("debezium", {"connector": "vitess"}, "the order of events of the connector 'vitess'"),
        ("debezium", {"unwrapped": True}, "has no 'connector'"),
        ("debezium", {"unwrapped": "yes"}, "unwrapped is true or false"),
        ("debezium", {"decimal_handling_mode": "precis"}, "did you mean 'precise'"),
        ("debezium", {"time_units": {"a": "seconds"}}, "is one of days, ms, ns, us"),
        ("debesium", {}, "did you mean 'debezium'"),
        ("dms", {"change_sequenze": "s"}, "did you mean 'change_sequence'"),
        ("dms", {"change_sequence": "s", "timestamp_column": "s"}, "are both 's'"),
        ("dms", {"sequence_by": "a", "change_sequence": "b"}, "sequence_by are both given"),
        ("dms", {"envelope": "yes"}, "true or false"),
        ("goldengate", {"model": "rows"}, "did you mean 'row'"),
        ("goldengate", {"operations": {"X": "keychange"}}, "did you mean 'key_change'"),
    ],
)
def test_refusals_name_the_option_and_what_is_near(
    adapter: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        check(adapter, options)
    assert reason.lower() in str(refused.value).lower()


def test_what_goes_with_the_format_and_without_keys() -> None:
    with pytest.raises(InvalidConfiguration, match="format to 'json'"):
        check("debezium", {}, format="csv")
    with pytest.raises(InvalidConfiguration, match="set model to 'row'"):
        check("goldengate", {"model": "operation"}, format="csv")
    assert check("goldengate", {}, format="csv")["model"] == "row"
    assert check("goldengate", {})["model"] == "operation"
    with pytest.raises(InvalidConfiguration, match="old_keys and insert_only"):
        check("plain", {**PLAIN, "old_keys": {"id": "o"}}, insert_only=True)


def test_an_adapter_may_have_no_checks_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "newest", {"table": adapters.Setting("text")})
    assert check("newest", {}, format="csv") == {"table": None}


def test_what_is_not_given_has_its_default() -> None:
    empty = (
        "operation_column",
        "operations",
        "sequence_by",
        "source_timestamp",
        "columns_to_update",
        "old_keys",
    )
    wanted = {**dict.fromkeys(empty), "except_column_list": (), "tombstones": "ignore"}
    assert check("plain", {}, keys=(), insert_only=True) == wanted
    assert check("plain", PLAIN)["sequence_by"] == ("ts",)
    assert check("dms", {})["operation_column"] == "Op"


def test_checked_options_can_be_checked_again() -> None:
    """The driver checks what the planner has checked, after a way through JSON."""
    keyed = {**PLAIN, "old_keys": {"id": "old"}, "operation_column": "op"}
    for name, options in (("plain", keyed), ("debezium", {}), ("dms", {}), ("goldengate", {})):
        once = check(name, options)
        assert check(name, once) == once


def test_every_connector_that_can_be_named_has_an_order() -> None:
    assert set(debezium_order.PLACES) == set(adapters.CONNECTORS)


def test_checking_needs_no_spark() -> None:
    program = (
        "import sys\nfrom delta_cdc.core.adapters import check, BUNDLED\n"
        "for name in BUNDLED:\n"
        "    options = {} if name in ('debezium', 'dms', 'goldengate') else {'sequence_by': 'a'}\n"
        "    check(name, options, keys=('id',), format='json')\n"
        "print(sorted({'pyspark', 'pandas', 'pyarrow', 'obstore', 'deltalake'} & set(sys.modules)))\n"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=path
    )
    assert made.stdout.strip() == "[]"
    assert len(BUNDLED) >= 6


def test_the_page_of_an_adapter_names_every_option() -> None:
    folder = Path(__file__).parents[4] / "docs" / "reference" / "adapters"
    common = (folder / "index.md").read_text(encoding="utf-8")
    for name in BUNDLED:
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        for option in SETTINGS[name]:
            where = common if option == "except_column_list" else page
            assert f"`{option}`" in where, f"{name}: {option}"


def test_lists_of_options_are_equal_after_a_way_through_json() -> None:
    """Adapters and users write tuples, and JSON has only lists."""
    for options in (check("plain", {"sequence_by": ("a", "b")}), {"deep": {"list": [("x",)]}}):
        given = IngestOptions(adapter_options=options, keys=("id",))
        assert codec.loads(IngestOptions, codec.dumps(given)) == given
