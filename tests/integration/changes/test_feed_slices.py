"""The change data feed through slices: exactly what Delta's own reader gives, or that reader itself."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import read_changes
from delta_cdc.core import manifest_columns
from delta_cdc.core.errors import CorruptLog, VersionsExpired
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, ORDER
from delta_cdc.core.sql import quote
from delta_cdc.core.steps import ReadRange
from delta_cdc.delta_log import manifest_feed
from delta_cdc.delta_log.file_manifests import write_manifests
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.spark.changes import manifests
from delta_cdc.spark.changes import rows as change
from tests.support.manifest_table import ManifestTable, bag
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

FIRST = (
    "INSERT INTO $T SELECT /*+ COALESCE(1) */ id, concat('n', id), "
    "CASE id % 4 WHEN 0 THEN 'a b%/c=d' WHEN 1 THEN NULL WHEN 2 THEN 'ü#+' ELSE 'x' END FROM range(0, 40)"
)
#: Masks rows twice in one file, unmasks some and all of them, exchanges files, and rewrites them.
EVERYTHING = (
    "DELETE FROM $T WHERE id IN (0, 5, 6, 7)",
    "DELETE FROM $T WHERE id IN (1, 4, 8, 10)",
    "UPDATE $T SET `na.me` = 'u', part = IF(id = 12, NULL, part) WHERE id IN (9, 12)",
    (
        "MERGE INTO $T t USING (SELECT explode(array(2, 3, 11, 90)) AS k) s ON t.id = s.k "
        "WHEN MATCHED AND s.k = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET t.`na.me` = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, `na.me`, part) VALUES (s.k, 'new', 'a b%/c=d')"
    ),
    "RESTORE TABLE $T TO VERSION AS OF 2",
    "OPTIMIZE $T",
    "MERGE INTO $T t USING (SELECT 2 AS k) s ON t.id = s.k WHEN MATCHED AND false THEN DELETE",
    "INSERT INTO $T VALUES (91, '', ''), (92, NULL, NULL)",
    "DELETE FROM $T WHERE part = 'x'",
    "RESTORE TABLE $T TO VERSION AS OF 1",
    "DELETE FROM $T WHERE id IN (2, 20)",
    "INSERT OVERWRITE $T SELECT id + 1, `na.me`, part FROM $T WHERE id < 9",
    "DELETE FROM $T",
)


class Source(ManifestTable):
    """A table whose change feed is read by file manifests."""

    def by_manifest(self, start: int, end: int) -> ReadRange:
        (read_range,) = write_manifests(
            DeltaLog(self.path),
            [ReadRange(start, end, "change_files", "", 0)],
            str(self.manifests),
            at=self.newest,
        )
        return read_range

    def rows(self, read_range: ReadRange) -> DataFrame:
        assert read_range.by_manifest
        return manifests.change_rows(self.spark, read_range, str(self.manifests), self.columns())

    def agrees(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Compare ranges with the feed, all of them by two queries."""
        from pyspark.sql import functions as F

        wanted = [quote(name) for name in (*self.columns(), *METADATA_COLUMNS)]
        feed = self.feed(0, self.newest).select(*wanted)
        ours = [
            self.rows(self.by_manifest(*span)).select(F.lit(f"{span}").alias("span"), *wanted, ORDER)
            for span in ranges
        ]
        whole = reduce(lambda left, right: left.union(right), ours)
        assert [one.dataType for one in ours[0].schema[1:-1]] == [one.dataType for one in feed.schema]
        told: dict[str, Counter[Any]] = {f"{span}": Counter() for span in ranges}
        for row in whole.collect():
            told[row["span"]][plain(tuple(row)[1:-1])] += 1
            assert row[ORDER] == row["_commit_version"]
        expected = [plain(tuple(row)) for row in feed.collect()]
        for start, end in ranges:
            assert told[f"{(start, end)}"] == Counter(row for row in expected if start <= row[-2] <= end)


@pytest.fixture(autouse=True)
def everything_is_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_feed, "WORTHWHILE", 0)


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Callable[..., Source]:
    def made(layout: str = "PARTITIONED BY (part)", **properties: str) -> Source:
        source = Source.below(spark, tmp_path)
        given = {"enableChangeDataFeed": "true", "enableDeletionVectors": "true", **properties}
        named = {f"delta.{name.replace('_', '.')}": value for name, value in given.items()}
        source.create("id BIGINT, `na.me` STRING, part STRING", named, layout=layout)
        return source

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "properties"),
    [
        ("PARTITIONED BY (part)", {"columnMapping_mode": "name", "enableRowTracking": "true"}),
        ("", {"enableDeletionVectors": "false"}),
        ("", {}),
    ],
    ids=["vectors, partitioned, mapped, tracked", "copy on write", "vectors"],
)
def test_every_version_is_what_the_feed_says(
    make: Callable[..., Source], layout: str, properties: dict[str, str]
) -> None:
    source = make(layout, **properties)
    source.sql(FIRST, *EVERYTHING)
    newest = source.newest
    assert newest >= len(EVERYTHING) - 2, "OPTIMIZE and the MERGE of nothing need not make a version"
    source.agrees(
        [
            (0, newest),
            (3, 6),
            # Each slice is a log that Spark has to open: the slow cases take them all.
            *[(version, version) for version in ((3, 6, 10) if layout else range(2, newest + 1))],
        ]
    )


def test_change_files_and_whole_files_have_one_side_each(make: Callable[..., Source]) -> None:
    """So its version is a partition column of the slice, and no text has to be taken apart row by row."""
    source = make("", enableDeletionVectors="false")
    source.sql(FIRST, "UPDATE $T SET `na.me` = 'u' WHERE id < 3")
    read_range = source.by_manifest(1, 2)
    assert read_range.by_manifest
    add = action(source.manifests, read_range, "add")[-1]
    assert add["partitionValues"][manifest_columns.SIDES] == "c"
    assert add["partitionValues"][manifest_columns.SIDE_VERSION] == "2"


@pytest.mark.slow
def test_tables_mapped_by_id_are_left_to_deltas_reader(make: Callable[..., Source]) -> None:
    """The column of change types has no id in the files; where there are no change files, it isn't needed."""
    source = make(columnMapping_mode="id")
    source.sql(FIRST, "DELETE FROM $T WHERE id = 4", "UPDATE $T SET `na.me` = 'u' WHERE id = 3")
    source.agrees([(1, 2)])
    read_range = source.by_manifest(1, 3)
    assert not read_range.by_manifest
    assert not (source.manifests / f"{1:020d}-{3:020d}").exists()
    found = read_changes(source.spark, source.path, starting_version=1, raw=True)
    assert bag(found) == bag(source.feed(1, 3).select(*map(quote, found.columns)))


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_removed_files_without_extended_metadata(
    make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    """Other writers leave it out, or set it to false; Delta's own feed refuses such a commit."""
    monkeypatch.undo()
    source = make(enableDeletionVectors=vectors)
    source.sql(FIRST, *EVERYTHING)
    whole = read_changes(source.spark, source.path, starting_version=1, raw=True)
    expected = bag(source.feed(1, source.newest).select(*map(quote, whole.columns)))
    other = f"{source.path}_other"
    shutil.copytree(source.path, other, ignore=shutil.ignore_patterns("*.crc", "*.checkpoint*"))
    for number, commit in enumerate(sorted(Path(other, "_delta_log").glob("*.json"))):
        lines, moment = [json.loads(line) for line in commit.read_text().splitlines()], commit.stat().st_mtime
        for remove in [line["remove"] for line in lines if "remove" in line]:
            remove.pop("extendedFileMetadata")
            remove["partitionValues"].setdefault("part", None)
            if number % 2:
                remove["extendedFileMetadata"] = False
        commit.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        os.utime(commit, (moment, moment))
    with pytest.raises(Exception, match="DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA"):
        bag(ManifestTable(source.spark, other, source.manifests).feed(1, source.newest))
    assert bag(read_changes(source.spark, other, starting_version=1, raw=True)) == expected


@pytest.mark.slow
def test_without_a_folder_delta_reads(make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch) -> None:
    source = make()
    source.sql(FIRST, "DELETE FROM $T WHERE id = 4")
    read: list[tuple[int, int]] = []
    real = change.feed.change_rows

    def by_delta(session: Any, uri: str, start: int, end: int, *given: Any, **named: Any) -> DataFrame:
        read.append((start, end))
        return real(session, uri, start, end, *given, **named)

    monkeypatch.setattr(change.feed, "change_rows", by_delta)
    by_manifest = bag(read_changes(source.spark, source.path, starting_version=1, raw=True))
    assert read == []
    monkeypatch.setattr("delta_cdc.api.changes.folder_for", lambda *_: "")
    assert bag(read_changes(source.spark, source.path, starting_version=1, raw=True)) == by_manifest
    assert read == [(1, 2)]


def test_damaged_and_missing_vectors(make: Callable[..., Source]) -> None:
    source = make("")
    source.sql(FIRST, "DELETE FROM $T WHERE id = 4")
    (vector,) = Path(source.path).glob("*.bin")
    whole = vector.read_bytes()
    vector.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptLog, match=r"part-.*version 2 .*checksum"):
        source.by_manifest(1, 2)
    vector.write_bytes(whole[:-6])
    with pytest.raises(CorruptLog, match=r"ends too early|checksum"):
        source.by_manifest(1, 2)
    vector.unlink()
    with pytest.raises(VersionsExpired, match=r"VACUUM .*part-.*version 2 "):
        source.by_manifest(1, 2)


def action(folder: Path, read_range: ReadRange, kind: str) -> list[dict[str, Any]]:
    name = f"{read_range.starting_version:020d}-{read_range.ending_version:020d}"
    text = (folder / name / "_delta_log" / f"{0:020d}.json").read_text()
    return [line[kind] for line in map(json.loads, text.splitlines()) if kind in line]
