"""Where slices lie: one folder for each read, and none where nothing is to be read through them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delta_cdc.core.errors import ReadMethodUnavailable
from delta_cdc.core.steps import ReadRange
from delta_cdc.delta_log.file_manifests import write_manifests
from delta_cdc.manifest_folder import folder_for

FED = ReadRange(1, 2, "change_files", "", 0)
BY_ROW_IDS = ReadRange(3, 4, "row_tracking", "", 0)


def session(master: str) -> Any:
    return SimpleNamespace(conf={"spark.master": master})


def test_each_read_has_a_folder_of_its_own() -> None:
    """A DataFrame is read when it is used: until then no other read may write over its slices."""
    named = [folder_for(session("yarn"), [FED], "s3a://lake/tmp/") for _ in range(2)]
    assert all(folder.startswith("s3a://lake/tmp/") for folder in named)
    assert named[0] != named[1]
    assert folder_for(session("local[2]"), [FED], None) != folder_for(session("local[2]"), [FED], None)


def test_a_cluster_without_a_folder_reads_the_feed_by_itself() -> None:
    assert folder_for(session("yarn"), [FED, BY_ROW_IDS], None) == ""
    assert write_manifests("/table", [FED], "", at=4) == (FED,)
    with pytest.raises(ReadMethodUnavailable, match="Versions 3-4 are read by row_tracking") as failed:
        write_manifests("/table", [FED, BY_ROW_IDS], "", at=4)
    assert "scratch=" in failed.value.remedy


def test_without_changes_there_is_no_folder() -> None:
    assert folder_for(session("local[2]"), [], None) == ""
    assert folder_for(session("yarn"), [], "s3a://lake/tmp") == ""
