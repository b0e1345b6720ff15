"""Files that no reader is asked for."""

from __future__ import annotations

import pytest

from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import IngestSpec, SourceFile
from delta_cdc.spark.ingest.lines import as_path, names
from delta_cdc.spark.ingest.readable_files import readable, unreadable
from tests.support.ingest_specs import ingest_spec


def spec_of(*files: SourceFile) -> IngestSpec:
    return ingest_spec(IngestOptions(keys=("id",)), files=files)


@pytest.mark.parametrize(
    ("uri", "is_read"),
    [
        ("/in/a.json", True), ("/in/_a.json", False), ("/in/_k=v.json", True), ("/in/.a.json", False),
        ("/in/a.json._COPYING_", False), ("/in/12:00.json", False), ("s3a://in/12:00.json", True),
    ],
)  # fmt: skip
def test_a_name_that_spark_leaves_out_is_told(uri: str, is_read: bool) -> None:
    spec = spec_of(SourceFile(uri, 1, 1))
    assert [file.uri for file in readable(spec)] == ([uri] if is_read else [])
    assert ["rename it" in reason for _, reason in unreadable(spec)] == ([] if is_read else [True])


def test_what_is_missing_is_neither_read_nor_told() -> None:
    gone = SourceFile("/in/a", 1, 1, missing=True)
    damaged = SourceFile("/in/b", 1, 1, unreadable="damaged")
    spec = spec_of(gone, damaged)
    assert readable(spec) == []
    assert unreadable(spec) == [(damaged, "damaged")]


def test_a_pattern_is_a_name() -> None:
    assert as_path("/a[1]{b}*?\\c d%") == "/a\\[1\\]\\{b\\}\\*\\?\\\\c d%"


@pytest.mark.parametrize(
    ("uri", "is_named"),
    [("/log", False), ("/log__quarantine", True), ("/in/a[1].json", True), ("/in/b.json", False)],
)
def test_an_error_names_a_location(uri: str, is_named: bool) -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/log__quarantine, /in/a\\[1\\].json. SQLSTATE: 42K03"
    assert names(text, [uri]) == is_named


@pytest.mark.parametrize("text", ["/in/a%20b is a damaged file", "file:///in/a%2520b: not a Parquet file"])
def test_an_error_names_a_location_with_a_percent_sign(text: str) -> None:
    """As it is (our own errors), or escaped (Spark's)."""
    assert names(text, ["/in/a%20b"])
    assert not names(text, ["/in/a%2"])
