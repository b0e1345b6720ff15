"""A change log describes itself in its table properties, and an apply of it needs keys alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.change_log import DESCRIPTION, LOG_COLUMNS, completed
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.spec import ApplySpec
from delta_cdc.planning.apply import plan_apply
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path


def planned(folder: Path, columns: tuple[str, ...], properties: dict[str, str], **given: Any) -> ApplyOptions:
    log = LogTable(folder / "log", table_id="log", columns=columns, configuration=properties)
    log.create()
    options = ApplyOptions(**{"keys": ("id",), "source_kind": None, **given})
    request = ApplyRequest(pipeline="p", source=log.uri, target=str(folder / "target"), options=options)
    spec = plan_apply(request).spec
    assert isinstance(spec, ApplySpec)
    return spec.options


def test_a_log_that_describes_itself(tmp_path: Path) -> None:
    found = planned(tmp_path, ("id", *LOG_COLUMNS), dict(DESCRIPTION))
    assert found == completed(ApplyOptions(keys=("id",), source_kind=None), DESCRIPTION)
    assert (found.source_kind, found.sequence_by) == ("change_log", "_sequence")
    assert planned(tmp_path / "other", ("id", "_op", "_sequence"), {}) == ApplyOptions(keys=("id",))


@pytest.mark.parametrize(
    "given", [{"source_kind": "change_feed"}, {"source_kind": None, "insert_only": True, "keys": ()}]
)
def test_what_is_asked_for_wins(tmp_path: Path, given: dict[str, Any]) -> None:
    found = planned(tmp_path, ("id", *LOG_COLUMNS), dict(DESCRIPTION), **given)
    assert (found.source_kind, found.sequence_by) == ("change_feed", "_commit_version")
    assert found.except_column_list is None


def test_a_log_without_an_order(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="sequence_by is missing"):
        planned(tmp_path, ("id",), {}, source_kind="change_log")


def test_a_log_without_its_properties_is_not_taken_for_a_table(tmp_path: Path) -> None:
    """A process can die between the first commit of a log and the commit with its properties."""
    with pytest.raises(InvalidConfiguration, match="source_kind is missing"):
        planned(tmp_path, ("id", *LOG_COLUMNS), {})
