"""What a file is, by its first bytes: compressed, a binary format, or text.

Spark's reader of texts chooses the decompressor by the ending of the name alone, and believes it: a file of
another container gives no records, or ends the driver. So the planner looks at the first bytes, and leaves
out what the reader would not read as what it is.
"""

from __future__ import annotations

import zlib

#: The bytes of a file that :func:`container` needs. Less are enough for most containers.
FIRST_BYTES = 4096

GZIP, BZIP2, ZSTD, DEFLATE = "gzip", "bzip2", "zstd", "zlib"
LZ4, LZ4_LEGACY, SNAPPY_FRAMED, SNAPPY, HADOOP_BLOCKS = "lz4", "old lz4", "framed snappy", "snappy", "Hadoop"
XZ, LZMA, LZO, ZIP, SEVEN_ZIP, COMPRESS, TAR = "xz", "lzma", "lzo", "zip", "7z", "compress", "tar"
PARQUET, AVRO, ORC, ARROW = "Parquet", "Avro", "ORC", "Arrow"

#: Bytes at the start that no text has, because one of them is a control character or not UTF-8.
_SURE = (
    (b"\x1f\x8b", GZIP),
    (b"\x1f\x9d", COMPRESS),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\x04\x22\x4d\x18", LZ4),
    (b"\x02\x21\x4c\x18", LZ4_LEGACY),
    (b"\xff\x06\x00\x00sNaPpY", SNAPPY_FRAMED),
    (b"\xfd7zXZ\x00", XZ),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"PK\x07\x08", ZIP),
    (b"7z\xbc\xaf\x27\x1c", SEVEN_ZIP),
    (b"\x89LZO\x00\r\n\x1a\n", LZO),
    (b"Obj\x01", AVRO),
    (b"ARROW1\x00\x00", ARROW),
)
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
#: What Spark's reader of lines decompresses, by the ending, which it compares exactly.
BY_ENDING = {
    ".gz": (GZIP,),
    ".bz2": (BZIP2,),
    ".zst": (ZSTD,),
    ".deflate": (DEFLATE,),
    ".snappy": (HADOOP_BLOCKS,),
    ".lz4": (HADOOP_BLOCKS,),
}
_ENDING_OF = {GZIP: ".gz", BZIP2: ".bz2", ZSTD: ".zst", DEFLATE: ".deflate"}
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.zst", ".tzst")
_BINARY = {"parquet": PARQUET, "avro": AVRO}
_PHRASES = {
    LZ4: "an lz4 file",
    LZ4_LEGACY: "an lz4 file of the old format",
    SNAPPY_FRAMED: "a framed snappy file",
    SNAPPY: "a raw snappy file",
    HADOOP_BLOCKS: "a file of Hadoop's snappy or lz4 blocks",
    XZ: "an xz file",
    LZMA: "an lzma file",
    LZO: "an lzo file",
    ZIP: "a zip archive",
    SEVEN_ZIP: "a 7z archive",
    COMPRESS: "a file of the program compress",
    TAR: "a tar archive",
    AVRO: "an Avro file",
    ORC: "an ORC file",
    ARROW: "an Arrow file",
}
COMPRESS_IT = "compress it with gzip or zstd, and name it .gz or .zst"


def container(first: bytes) -> str | None:
    """Return what the first bytes of a file are; None if they look like text.

    :param first: the first :data:`FIRST_BYTES` of the file, or all of it
    """
    # Files of zstd and lz4 may begin with frames that their readers skip.
    skipped = 0
    while first[skipped + 1 : skipped + 4] == b"\x2a\x4d\x18" and 0x50 <= first[skipped] <= 0x5F:
        skipped += 8 + int.from_bytes(first[skipped + 4 : skipped + 8], "little")
    if skipped:
        return LZ4 if first.startswith(b"\x04\x22\x4d\x18", skipped) else ZSTD
    for start, name in _SURE:
        if first.startswith(start):
            return name
    if first[:3] == b"BZh" and first[3:4] in b"123456789" and first[4:10] in _BZIP2_BLOCKS:
        return BZIP2
    if first[257:262] == b"ustar":
        return TAR
    if _is_zlib(first):
        return DEFLATE
    if b"\0" in first:
        return _binary_name(first)
    return SNAPPY if not _is_text(first) and _is_snappy(first, is_part=len(first) >= FIRST_BYTES) else None


def _binary_name(first: bytes) -> str | None:
    """Return what bytes with a NUL are. A text may begin with the same words, but has no NUL."""
    if first.startswith((b"PAR1", b"PARE")):
        return PARQUET
    if first.startswith(b"ORC"):
        return ORC
    if first[:3] == b"\x5d\x00\x00" and len(first) >= 13:
        return LZMA
    if _is_hadoop(first):
        return HADOOP_BLOCKS
    return SNAPPY if _is_snappy(first, is_part=len(first) >= FIRST_BYTES) else None


def _is_zlib(first: bytes) -> bool:
    if len(first) < 6 or first[0] != 0x78 or int.from_bytes(first[:2], "big") % 31:
        return False
    reader = zlib.decompressobj()
    try:
        reader.decompress(first, 2**20)
    except zlib.error:
        return False
    return reader.eof or len(first) >= FIRST_BYTES


def _is_hadoop(first: bytes) -> bool:
    """Return whether the bytes begin with a block: the length of its data, then that of its first part."""
    size, part = int.from_bytes(first[:4], "big"), int.from_bytes(first[4:8], "big")
    if len(first) < 10 or not 0 < size < 2**28 or not 0 < part <= 64 + size + size // 6 or first[8] == 0:
        return False
    return _is_snappy(first[8 : 8 + part], most=size, is_part=8 + part > len(first)) or _is_lz4_block(
        first[8 : 8 + part], size
    )


def _is_snappy(data: bytes, most: int = 2**32 - 1, *, is_part: bool) -> bool:
    """Return whether bytes are raw snappy: its length, then literals and copies that fit.

    :param most: the most bytes of its data
    :param is_part: the bytes are only the beginning
    """
    size, at, shift = 0, 0, 0
    while at < len(data) and at < 5:
        size |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    else:
        return False
    made, steps = 0, 0
    if not 0 < size <= most:
        return False
    while at < len(data) and made < size:
        tag = data[at]
        kind, length = tag & 3, (tag >> 2) + 1
        steps += 1
        if kind == 0:
            extra = max(0, length - 60)
            if extra:
                length = int.from_bytes(data[at + 1 : at + 1 + extra], "little") + 1
            at += 1 + extra + length
        else:
            width = (1, 2, 4)[kind - 1]
            offset = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if kind == 1:
                length, offset = ((tag >> 2) & 7) + 4, offset | ((tag >> 5) << 8)
            if at + 1 + width <= len(data) and not 0 < offset <= made:
                return False
            at += 1 + width
        made += length
    if made >= size:
        return made == size and at >= len(data)
    # A text could be a few parts by chance; data that cannot be compressed is one part of 64 KiB.
    return is_part and (steps >= 4 or made == 2**16)


def _is_lz4_block(data: bytes, size: int) -> bool:
    """Return whether bytes are the beginning of a block of lz4: literals and copies that fit."""
    at, made = 0, 0
    while at < len(data) and made <= size:
        token = data[at]
        length, at = _lz4_length(data, at + 1, token >> 4)
        made, at = made + length, at + length
        if at >= len(data):
            # The last literals have no copy.
            break
        if at + 2 <= len(data) and not 0 < int.from_bytes(data[at : at + 2], "little") <= made:
            return False
        length, at = _lz4_length(data, at + 2, token & 15)
        made += length + 4
    return made <= size


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Return a length that may go on in further bytes, and where they end."""
    goes_on = length == 15
    while goes_on and at < len(data):
        length, goes_on, at = length + data[at], data[at] == 255, at + 1
    return length, at


def _is_text(first: bytes) -> bool:
    try:
        first.decode()
    except UnicodeDecodeError as error:
        # The bytes may end within a character.
        return len(first) - error.start < 4 and len(first) >= FIRST_BYTES
    return True


def flaw(name: str, first: bytes, format: str) -> str:  # noqa: A002
    """Return why Spark would not read a file as what it is; "" if it would.

    :param name: the file's name, with its ending
    :param first: as for :func:`container`
    :param format: ``json``, ``csv``, ``parquet`` or ``avro``
    """
    if not first:
        return ""
    found = container(first)
    wanted = _BINARY.get(format)
    if wanted is not None:
        return "" if found == wanted else _not_binary(wanted, found)
    if name.lower().endswith(_ARCHIVES) or found in (TAR, ZIP, SEVEN_ZIP):
        return f"it is {_phrase(found or TAR)} of files; unpack it, and deliver the files in it"
    ending = next((end for end in BY_ENDING if name.endswith(end)), "")
    if found in BY_ENDING.get(ending, (None,)):
        return ""
    if found is None:
        return f"it is named {ending}, but is not compressed; name it without {ending}"
    if found in _BINARY.values():
        return f"it is {_phrase(found)}; set format to {found.lower()}, or deliver it to another folder"
    if found in _ENDING_OF:
        named = f", but named {ending}" if ending else ""
        return f"it is {_phrase(found)}{named}; name it {_ENDING_OF[found]}, because Spark goes by the ending"
    if found in (ORC, ARROW):
        return f"it is {_phrase(found)}, which is not read; deliver JSON, CSV, Avro or Parquet"
    if found == HADOOP_BLOCKS:
        return f"it is {_phrase(found)}; name it .snappy or .lz4 (whichever it is), or {COMPRESS_IT}"
    return f"it is {_phrase(found)}, which Spark does not read; {COMPRESS_IT}"


def _phrase(found: str) -> str:
    return _PHRASES.get(found, f"a {found} file")


def _not_binary(wanted: str, found: str | None) -> str:
    what = f"is {_phrase(found)}, not" if found else "is no"
    article = "" if not found else "an " if wanted == AVRO else "a "
    return (
        f"it {what} {article}{wanted} file; set format to that of the files, or deliver it to another folder"
    )
