"""Columns of Parquet files, from their footers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.core.spec import SourceFile
from delta_cdc.planning.parquet_footers import footers
from tests.support.http_store import Fault, HttpStore

if TYPE_CHECKING:
    from pathlib import Path


def read(uris: list[str], options: dict[str, str] | None = None) -> tuple[SourceFile, ...]:
    return asyncio.run(footers([SourceFile(uri, 1, 2) for uri in uris], options))


def test_what_footers_say(tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        folder = tmp_path / "a b"
        folder.mkdir()
        pq.write_table(pa.table({"id": [1], "ünï": ["x"], "s": [{"a": 1}]}), folder / "%41 #[x].parquet")
        pq.write_table(pa.table({"id": [1]}), folder / "b.parquet ")
        whole = (folder / "%41 #[x].parquet").read_bytes()
        (folder / "cut.parquet").write_bytes(whole[:-20])
        (folder / "empty.parquet").touch()
        (folder / "text.parquet").write_text("not at all Parquet")
        names = ["%41 #[x].parquet", "cut.parquet", "empty.parquet", "text.parquet", "gone.parquet"]
        names += ["b.parquet ", "null.parquet"]
        empty = {
            "n": pa.nulls(1),
            "t": pa.array([None], pa.string()),
            "l": pa.array([[]], pa.list_(pa.null())),
        }
        pq.write_table(pa.table({"id": [1], **empty}), folder / "null.parquet")
        local = read([f"{folder}/{name}" for name in names])
        stored = read([f"s3a://lake/a b/{name}" for name in names], store.options())
        store.forget()
        read(["s3a://lake/a b/%41 #[x].parquet"], store.options())
        asked = len(store.requests)
    for found in (local, stored):
        assert found[0].columns == ("id", "ünï", "s")
        assert not found[0].unreadable
        assert all(footer.unreadable and not footer.columns for footer in found[1:4])
        assert found[4].missing
        assert found[5].columns == ("id",)
        assert (found[6].columns, found[6].untyped) == (("id", "n", "t", "l"), ("n",))
    assert asked <= 3
    assert read([]) == ()


def damaged(path: Path) -> None:
    """Write a file of Parquet whose footer is none."""
    pq.write_table(pa.table({"id": [1]}), path)
    content = bytearray(path.read_bytes())
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[start] ^= 0xFF
    path.write_bytes(content)


def test_a_damaged_footer_is_no_news_from_the_store(tmp_path: Path) -> None:
    """Arrow raises OSError for it, as for a disk: a retry would meet it again."""
    damaged(tmp_path / "a.parquet")
    with HttpStore(tmp_path) as store:
        for uri, options in ((f"{tmp_path}/a.parquet", None), ("s3://lake/a.parquet", store.options())):
            (found,) = read([uri], options)
            assert "Couldn't deserialize thrift" in found.unreadable


@pytest.mark.parametrize("kind", ["unavailable", "reset", "truncated", "denied"])
def test_a_store_that_fails_says_nothing_of_a_file(tmp_path: Path, kind: Any) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with HttpStore(tmp_path) as store:
        options = store.options(max_retries="0", retry_timeout="1s")
        for faults in (lambda _: Fault(kind), lambda one: Fault(kind) if one.method == "GET" else None):
            store.faults = faults
            with pytest.raises(StoreUnavailable):
                read(["s3://lake/a.parquet"], options)


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_nanoseconds(tmp_path: Path, nested: bool) -> None:
    """What pandas writes unless told otherwise, and no Spark reads."""
    for unit in ("us", "ns"):
        moment = pa.array([1_800_000_000_000_000_000], pa.timestamp("ns", tz="UTC")).cast(
            pa.timestamp(unit, tz="UTC")
        )
        column = pa.StructArray.from_arrays([moment], ["at"]) if nested else moment
        pq.write_table(pa.table({"id": [1], "x": column}), tmp_path / f"{unit}.parquet")
    micro, nano = read([f"{tmp_path}/us.parquet", f"{tmp_path}/ns.parquet"])
    assert (micro.columns, micro.unreadable) == (("id", "x"), "")
    assert nano.unreadable.startswith(
        f"its column {'x.at' if nested else 'x'} holds timestamps in nanoseconds"
    )


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"a": pa.array([1], pa.time64("us"))}, "its column a holds times of day"),
        (
            {"s": pa.array([{"t": 1}], pa.struct([("t", pa.time32("ms"))]))},
            "its column s.t holds times of day",
        ),
        ({"d": pa.array([None], pa.decimal256(60, 2))}, "its column d holds decimals of 60 digits"),
        ({"h": pa.array([None], pa.float16())}, "its column h holds values of the type FLOAT16"),
        ({"x": [1], "X": [2]}, "its columns x and X differ in case only"),
        ({"s": pa.array([{"y": 1, "Y": 2}])}, "its columns s.y and s.Y differ in case only"),
        ({"n": pa.array([1], pa.timestamp("ns"))}, "its column n holds timestamps in nanoseconds"),
        ({"x": [1], "": [2]}, "a column has no name"),
        ({"d": pa.array([None], pa.decimal128(38, 2)), "u": pa.array([1], pa.uint64())}, ""),
    ],
    ids=[
        "time",
        "time in a struct",
        "60 digits",
        "half",
        "x and X",
        "s.y and s.Y",
        "nanoseconds",
        "no name",
        "fine",
    ],
)
def test_types_that_spark_does_not_read(tmp_path: Path, table: dict[str, Any], reason: str) -> None:
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (file,) = read([str(tmp_path / "a.parquet")])
    assert file.unreadable.startswith(reason)
    assert bool(file.unreadable) == bool(reason)
    assert bool(file.columns) != bool(reason)
