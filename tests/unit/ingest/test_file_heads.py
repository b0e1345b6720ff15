"""First bytes of text files: what the planner finds before any Spark starts."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.core.spec import SourceFile
from delta_cdc.planning.file_heads import heads
from tests.support.http_store import Fault, HttpStore

if TYPE_CHECKING:
    from pathlib import Path

LINE = b'{"id":1,"seq":1}\n'
#: Name, content, and what the reason names; "" for a file that can be read.
FILES = {
    "a.json": (LINE, ""), "b.json.gz": (gzip.compress(LINE), ""), "c.json.bz2": (bz2.compress(LINE), ""),
    "d ü%41.json": (LINE, ""), "e.json": (b"", ""), "f.json.gz": (LINE, "gz"),
    "g.json": (gzip.compress(LINE), "gzip"), "h.json.xz": (lzma.compress(LINE), "xz"),
    "j.json ": (LINE, ""), "l /m.json": (LINE, ""),
    "i.json.lz4": (b"\x04\x22\x4d\x18" + b"\x64\x40\xa7" + LINE, "lz4"),
}  # fmt: skip


def read(files: list[SourceFile], options: dict[str, str] | None = None) -> dict[str, SourceFile]:
    found = asyncio.run(heads(files, "json", options))
    return {file.uri.partition("/in/")[2]: file for file in found}


def test_containers_are_named(tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        folder = tmp_path / "in"
        folder.mkdir()
        for name, (content, _) in FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        sizes = {name: len(content) for name, (content, _) in FILES.items()} | {"gone.json": 7}
        local = read([SourceFile(f"{folder}/{name}", size, 0) for name, size in sizes.items()])
        stored = read(
            [SourceFile(f"s3a://lake/in/{name}", size, 0) for name, size in sizes.items()], store.options()
        )
    for found in (local, stored):
        assert found["gone.json"].missing
        for name, (_, reason) in FILES.items():
            file = found[name]
            assert not file.missing
            assert bool(file.unreadable) == bool(reason), (name, file.unreadable)
            assert reason in file.unreadable.lower()


def test_a_local_name_that_a_store_cannot_have(tmp_path: Path) -> None:
    """Such a file must not count as missing: each run would try it again, and start Spark for nothing."""
    for name in ("a.json\n", "b\x01.json", "c\t.json"):
        (tmp_path / name).write_bytes(LINE)
        (file,) = asyncio.run(heads([SourceFile(f"{tmp_path}/{name}", len(LINE), 0)], "json"))
        assert (file.missing, file.unreadable) == (False, "")


def test_a_store_that_does_not_answer_is_no_news_of_a_file(tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        (tmp_path / "a.json").write_bytes(LINE)
        store.faults = lambda _: Fault("denied")
        with pytest.raises(StoreUnavailable):
            read([SourceFile("s3a://lake/a.json", len(LINE), 0)], store.options())
