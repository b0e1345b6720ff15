"""An apply's request on its way through a spec."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from delta_cdc import job
from delta_cdc.core import codec
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.job import STORAGE_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = ApplyRequest(
    pipeline="p",
    source="/log",
    target="/target",
    options=ApplyOptions(
        keys=("a", "b"),
        source_kind="change_log",
        sequence_by=("x", "y"),
        except_column_list=("_op",),
        partition_by={"year": "year(d)", "c": None},
        cluster_by=(),
        on_conflict=("z",),
        target_properties={"delta.x": "1"},
    ),
    initial_load={"from_version": 3},
    max_versions=5,
    run_id="r",
    scratch=False,
    storage_options={"aws_secret_access_key": "hidden"},
)


def test_a_request_comes_back_as_it_was_without_what_is_secret() -> None:
    text = codec.dumps(REQUEST)
    assert "hidden" not in text
    assert codec.loads(ApplyRequest, text) == replace(REQUEST, storage_options=None)


def test_options_of_the_store_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORAGE_OPTIONS, raising=False)
    assert job._from_environment() is None
    path = tmp_path / "options.json"
    monkeypatch.setenv(STORAGE_OPTIONS, str(path))
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        job._from_environment()
    path.write_text('{"allow_http": true, "region": "x"}')
    assert job._from_environment() == {"allow_http": "true", "region": "x"}
