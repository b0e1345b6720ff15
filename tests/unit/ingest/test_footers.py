"""Columns of Parquet files, from their footers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.ingest.footers import Footer, footers
from tests.support.http_store import HttpStore

if TYPE_CHECKING:
    from pathlib import Path


def test_what_footers_say(tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        folder = tmp_path / "a b"
        folder.mkdir()
        pq.write_table(pa.table({"id": [1], "ünï": ["x"], "s": [{"a": 1}]}), folder / "%41 #[x].parquet")
        whole = (folder / "%41 #[x].parquet").read_bytes()
        (folder / "cut.parquet").write_bytes(whole[:-20])
        (folder / "empty.parquet").touch()
        (folder / "text.parquet").write_text("not at all Parquet")
        names = ["%41 #[x].parquet", "cut.parquet", "empty.parquet", "text.parquet", "gone.parquet"]
        local = asyncio.run(footers([f"{folder}/{name}" for name in names]))
        stored = asyncio.run(footers([f"s3a://lake/a b/{name}" for name in names], store.options()))
        store.forget()
        asyncio.run(footers(["s3a://lake/a b/%41 #[x].parquet"], store.options()))
        asked = len(store.requests)
    for found in (local, stored):
        assert found[0] == Footer(columns=("id", "ünï", "s"))
        assert all(footer.unreadable and not footer.columns for footer in found[1:4])
        assert found[4] == Footer(missing=True)
    assert asked <= 3
    assert asyncio.run(footers([])) == []


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_nanoseconds(tmp_path: Path, nested: bool) -> None:
    """What pandas writes unless told otherwise, and no Spark reads."""
    for unit in ("us", "ns"):
        moment = pa.array([1_800_000_000_000_000_000], pa.timestamp("ns", tz="UTC")).cast(
            pa.timestamp(unit, tz="UTC")
        )
        column = pa.StructArray.from_arrays([moment], ["at"]) if nested else moment
        pq.write_table(pa.table({"id": [1], "x": column}), tmp_path / f"{unit}.parquet")
    micro, nano = asyncio.run(footers([f"{tmp_path}/us.parquet", f"{tmp_path}/ns.parquet"]))
    assert micro == Footer(columns=("id", "x"))
    assert nano.unreadable.startswith(
        f"its column {'x.at' if nested else 'x'} holds timestamps in nanoseconds"
    )
