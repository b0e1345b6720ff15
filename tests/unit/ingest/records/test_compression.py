"""Containers of files that real programs wrote."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import shutil
import struct
import subprocess
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

from delta_cdc.ingest.records import compression as c
from delta_cdc.ingest.records.compression import FIRST_BYTES, container, flaw

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHANCE = random.Random(38)
ROWS = "".join(f'{{"id":{n},"v":"{_CHANCE.random()} {n % 7} ü"}}\n' for n in range(6_000)).encode()
SMALL = b'{"id":1,"seq":1}\n'
TEXTS = (SMALL, ROWS)


def by_tool(command: Sequence[str], data: bytes) -> bytes:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("data", TEXTS, ids=["small", "large"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("zstd", "-c"), c.ZSTD), (("zstd", "-19", "--no-check", "-c"), c.ZSTD), (("lz4", "-c"), c.LZ4),
        (("lz4", "-9", "--content-size", "-c"), c.LZ4), (("lz4", "-l", "-c"), c.LZ4_LEGACY),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)  # fmt: skip
def test_tools(data: bytes, command: tuple[str, ...], name: str) -> None:
    packed = by_tool(command, data)
    assert container(packed[:FIRST_BYTES]) == name
    assert container(packed[:20]) == name


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w"):
        pass
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("a.json")
        entry.size = len(SMALL)
        archive.addfile(entry, io.BytesIO(SMALL))
    return file.getvalue()


def columnar(kind: str) -> bytes:
    file, table = io.BytesIO(), pa.table({"id": [1, 2], "v": ["a", "b"]})
    if kind == c.PARQUET:
        pa.parquet.write_table(table, file)
    elif kind == c.ORC:
        pa.orc.write_table(table, file, compression="zlib")
    else:
        pa.feather.write_feather(table, file)
    return file.getvalue()


def compressed(data: bytes, codec: str) -> bytes:
    return bytes(pa.compress(data, codec=codec, asbytes=True))


def hadoop(codec: str, data: bytes, size: int = 200_000) -> bytes:
    """Return the blocks that Hadoop's codecs write: the length of the data, then parts with their lengths."""
    out = bytearray()
    for at in range(0, len(data), size):
        part = data[at : at + size]
        packed = compressed(part, codec)
        out += struct.pack(">II", len(part), len(packed)) + packed
    return bytes(out)


def framed_snappy(data: bytes) -> bytes:
    packed = compressed(data[:60_000], "snappy")
    return b"\xff\x06\x00\x00sNaPpY\x00" + struct.pack("<I", len(packed) + 4)[:3] + b"\0\0\0\0" + packed


@pytest.mark.parametrize(
    ("packed", "name"),
    [
        *[(gzip.compress(data, mtime=0), c.GZIP) for data in TEXTS],
        (gzip.compress(b"", mtime=0), c.GZIP),
        *[(bz2.compress(data), c.BZIP2) for data in (*TEXTS, b"")],
        *[(lzma.compress(data), c.XZ) for data in TEXTS],
        *[(lzma.compress(data, lzma.FORMAT_ALONE), c.LZMA) for data in TEXTS],
        *[(zlib.compress(data, level), c.DEFLATE) for data in TEXTS for level in (0, 1, 6, 9)],
        *[(compressed(data, "zstd"), c.ZSTD) for data in TEXTS],
        *[(compressed(data, "lz4"), c.LZ4) for data in TEXTS],
        *[
            (compressed(data, "snappy"), c.SNAPPY)
            for data in (ROWS, bytes(100_000), _CHANCE.randbytes(200_000))
        ],
        (compressed(_CHANCE.randbytes(5_000), "snappy"), c.SNAPPY),
        (compressed(_CHANCE.randbytes(500), "snappy"), c.SNAPPY),
        *[(hadoop("snappy", data), c.HADOOP_BLOCKS) for data in (*TEXTS, bytes(100_000))],
        *[(hadoop("lz4_raw", data), c.HADOOP_BLOCKS) for data in (*TEXTS, bytes(100_000))],
        *[(framed_snappy(data), c.SNAPPY_FRAMED) for data in TEXTS],
        (zipped(), c.ZIP), (b"PK\x07\x08PK\x03\x04", c.ZIP), (tarred(), c.TAR),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", c.SEVEN_ZIP), (b"\x89LZO\x00\r\n\x1a\n\x10\x40", c.LZO),
        (b"\x1f\x9d\x90ab", c.COMPRESS),
        # A frame that readers skip, then a frame of each.
        (b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + compressed(SMALL, "zstd"), c.ZSTD),
        (b"\x5f\x2a\x4d\x18\x04\x00\x00\x00abcd" * 2 + compressed(SMALL, "lz4"), c.LZ4),
        (b"\x50\x2a\x4d\x18\x00\x00\x00\x00" * 5_000, c.ZSTD),
        (columnar(c.PARQUET), c.PARQUET), (columnar(c.ORC), c.ORC), (columnar(c.ARROW), c.ARROW),
        (b"PARE\x00\x00", c.PARQUET), (b"Obj\x01\x04\x16avro.schema", c.AVRO),
    ],
)  # fmt: skip
def test_containers(packed: bytes, name: str) -> None:
    assert container(packed[:FIRST_BYTES]) == name
    assert container(packed) == name


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"\n", b"{", *TEXTS, b"id,name\n1,a\n", b"i", b"1\x01NULL\n"),
        # They begin as containers do.
        *(b"PAR1,PAR2\n1,2\n", b"ORCHARD,n\n1,2\n", b"ORC\x01n\n", b"BZh9,n\n", b"BZh91AY,n\n", b"PK,n\n"),
        *(b"7z,n\n", b"Obj,n\n", b"x\x9cble,1\n", b"x^2,x^3\n1,2\n", b"x\x01y\x01z\n" * 100),
        # These are also raw snappy.
        b" |" + b"a" * 32,
        b"\t " + b"a" * 9,
        b"\xf0\xf0A\xf4ab" + b"x" * 5_000,
        "Straße;Nummer;Größe\nÄ;1;2\n".encode("latin-1") * 3,
        "\xdcber,a\n".encode("latin-1"),
        "имя,n\n".encode("cp1251") * 20,
        "名前,表\n".encode("shift_jis") * 20,
        *[
            "id,name,ü\n1,a,b\n".encode(name) * 40
            for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037")
        ],
    ],
)
def test_texts(text: bytes) -> None:
    assert container(text[:FIRST_BYTES]) is None
    assert flaw("a.csv", text[:FIRST_BYTES], "csv") == ""


def test_nothing_raises() -> None:
    """Random and damaged bytes are something or nothing; texts of one byte per character are texts."""
    chance = random.Random(1)
    packed = [
        gzip.compress(ROWS, mtime=0),
        hadoop("snappy", ROWS),
        compressed(ROWS, "snappy"),
        hadoop("lz4_raw", ROWS),
    ]
    for _ in range(3_000):
        data = bytearray(chance.choice(packed)[: chance.randrange(300)])
        for _ in range(chance.randrange(4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        container(bytes(data))
        container(chance.randbytes(chance.randrange(64)))
        text = bytes(
            chance.choices([*range(32, 127), 9, 10, 13, *range(160, 256)], k=chance.randrange(200, 400))
        )
        assert container(text) is None
    for _ in range(500):
        assert container(bytes(chance.choices(range(160, 256), k=3)) * (FIRST_BYTES // 3 + 1)) is None


LZ4, RAW = b"\x04\x22\x4d\x18\x64\x40\xa7", compressed(ROWS, "snappy")[:FIRST_BYTES]
GZIPPED = gzip.compress(SMALL, mtime=0)
UNREAD, RENAME = "file, which Spark does not read", ", because Spark goes by the ending"
UNPACK = "; unpack it, and deliver the files in it"


@pytest.mark.parametrize(
    ("name", "first", "form", "reason"),
    [
        ("a.json", SMALL, "json", ""), ("a.json.gz", GZIPPED, "json", ""),
        ("a.csv.bz2", bz2.compress(SMALL), "csv", ""), ("a.zst", compressed(SMALL, "zstd"), "json", ""),
        ("a.deflate", zlib.compress(SMALL), "json", ""), ("a.snappy", hadoop("snappy", SMALL), "json", ""),
        ("a.lz4", hadoop("lz4_raw", SMALL), "json", ""), ("a.gz", b"", "json", ""),
        ("a.parquet", columnar(c.PARQUET), "parquet", ""), ("a", b"Obj\x01", "avro", ""),
        ("a.json.lz4", LZ4, "json",
         f"an lz4 {UNREAD}; compress it with gzip or zstd, and name it .gz or .zst"),
        ("a.json", LZ4, "json", f"an lz4 {UNREAD}"),
        ("a.lz4", b"\x02\x21\x4c\x18", "json", "an lz4 file of the old format, which Spark does not read"),
        ("a.snappy", framed_snappy(SMALL), "json", f"a framed snappy {UNREAD}"),
        ("a.snappy", RAW, "json", f"a raw snappy {UNREAD}"),
        ("a.xz", lzma.compress(SMALL), "csv", f"an xz {UNREAD}"),
        ("a", GZIPPED, "json", f"a gzip file; name it .gz{RENAME}"),
        ("a.GZ", GZIPPED, "json", f"a gzip file; name it .gz{RENAME}"),
        ("a.gz", bz2.compress(SMALL), "json", f"a bzip2 file, but named .gz; name it .bz2{RENAME}"),
        ("a.gz", SMALL, "json", "named .gz, but is not compressed; name it without .gz"),
        ("a.lz4", SMALL, "json", "named .lz4, but is not compressed; name it without .lz4"),
        ("a.zip", zipped(), "csv", f"a zip archive of files{UNPACK}"),
        ("a.csv", tarred(), "csv", f"a tar archive of files{UNPACK}"),
        ("a.tar.gz", gzip.compress(tarred(), mtime=0), "csv", f"a gzip file of files{UNPACK}"),
        ("a.json", columnar(c.PARQUET), "json", "a Parquet file; set format to parquet"),
        ("a.json", b"Obj\x01", "json", "an Avro file; set format to avro"),
        ("a.json", columnar(c.ORC), "json", "an ORC file, which is not read; deliver JSON"),
        ("a.json", hadoop("snappy", SMALL), "json",
         "a file of Hadoop's snappy or lz4 blocks; name it .snappy"),
        ("a.parquet", GZIPPED, "parquet", "a gzip file, not a Parquet file; set format to that of the files"),
        ("a.avro", SMALL, "avro", "no Avro file; set format to that of the files"),
        ("a.avro", LZ4, "avro", "an lz4 file, not an Avro file; set format"),
    ],
)  # fmt: skip
def test_flaws(name: str, first: bytes, form: str, reason: str) -> None:
    found = flaw(name, first, form)
    assert found.startswith(f"it is {reason}" if reason else "")
    assert bool(found) == bool(reason)
