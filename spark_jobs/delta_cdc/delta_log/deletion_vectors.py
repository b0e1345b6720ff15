"""Deletion vectors: read a file's masked rows, or write a vector that leaves only some rows visible.

A vector is a set of row positions in Delta's portable form: a magic number, then 32-bit Roaring bitmaps, each
keyed by the upper half of 64-bit positions. No file has 2^32 rows, so only the bitmap with key 0 is read.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAGIC = 1_681_511_377
_COOKIE, _COOKIE_WITH_RUNS = 12_346, 12_347
#: From this many containers on, a bitmap with runs stores the offset of each.
_OFFSETS = 4
_CONTAINER = 65_536
_CONTAINER_BYTES = _CONTAINER // 8
#: Up to this many positions, a container lists them; a larger one is a bitmap.
_MOST_LISTED = 4_096
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {digit: at for at, digit in enumerate(_Z85)}
#: Length of a UUID in Z85.
_UUID = 20
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]

#: The most bytes of a vector that is read here. Spark reads a larger one.
LARGEST = 16 * 1024 * 1024

#: Row positions: upper 16 bits -> a number whose bits are the lower ones.
Positions = dict[int, int]


class UnreadableVectorError(ValueError):
    """The bytes are not a deletion vector in the portable form."""


class UnsupportedVectorError(UnreadableVectorError):
    """The vector may be correct, but it cannot be read here."""


def file_of(place: str) -> str:
    """Return the path (percent-encoded) of a vector's file from its folder name and UUID in Z85.

    :raises UnreadableVectorError: ``place`` has another form
    """
    folder, raw = place[:-_UUID], decode(place[-_UUID:])
    if len(raw) != 16:
        raise UnreadableVectorError(f"{place!r} holds no UUID")
    name = f"deletion_vector_{uuid.UUID(bytes=raw)}.bin"
    return f"{quote(folder)}/{name}" if folder else name


def decode(text: str) -> bytes:
    """Return the bytes of a text in Z85.

    :raises UnreadableVectorError: it is not Z85
    """
    raw = bytearray()
    try:
        for start in range(0, len(text), 5):
            number = 0
            for digit in text[start : start + 5]:
                number = number * 85 + _DIGITS[digit]
            raw += number.to_bytes(4, "big")
    except (KeyError, OverflowError) as error:
        raise UnreadableVectorError(f"{text!r} is not Z85") from error
    return bytes(raw)


def encode(raw: bytes) -> str:
    """Return bytes in Z85, padded with zeros to a multiple of four."""
    characters: list[str] = []
    for (number,) in struct.iter_unpack(">I", raw + bytes(-len(raw) % 4)):
        rest, digits = number, []
        for _ in range(5):
            rest, digit = divmod(rest, 85)
            digits.append(_Z85[digit])
        characters.extend(reversed(digits))
    return "".join(characters)


def checked(stored: bytes) -> bytes:
    """Return the vector in a part of a file: length, vector, CRC-32. Verify length and CRC-32.

    :raises UnreadableVectorError: length or CRC-32 does not match
    """
    if len(stored) < 8:
        raise UnreadableVectorError("the file of the vector ends too early")
    (size,) = struct.unpack_from(">I", stored)
    data = stored[4 : 4 + size]
    if len(stored) < size + 8 or struct.unpack_from(">I", stored, 4 + size)[0] != zlib.crc32(data):
        raise UnreadableVectorError("the vector's checksum is wrong")
    return data


def inline_positions(text: str, size: int) -> Positions:
    """Read a vector of this many bytes from its text in Z85; raise the errors of :func:`positions`."""
    return positions(decode(text)[:size])


def stored_positions(stored: bytes) -> Positions:
    """Read a vector from a part of a file; raise the errors of :func:`checked` and :func:`positions`."""
    return positions(checked(stored))


def positions(data: bytes) -> Positions:
    """Read a vector.

    :raises UnreadableVectorError: it is in another form
    """
    try:
        magic, count = struct.unpack_from("<IQ", data)
        if magic != _MAGIC:
            raise UnreadableVectorError(f"its form is {magic}")
        if not count:
            return {}
        if count > 1 or struct.unpack_from("<I", data, 12)[0] != 0:
            raise UnsupportedVectorError("it masks rows beyond 2^32")
        return _bitmap(data, 16)
    except struct.error as error:
        raise UnreadableVectorError(f"it ends too early ({error})") from error


def minus(left: Mapping[int, int], right: Mapping[int, int]) -> Positions:
    """Return the positions of ``left`` that ``right`` does not have."""
    remaining = {high: bits & ~right.get(high, 0) for high, bits in left.items()}
    return {high: bits for high, bits in remaining.items() if bits}


def count(found: Mapping[int, int]) -> int:
    """Return the number of positions."""
    return sum(bits.bit_count() for bits in found.values())


def all_but(seen: Mapping[int, int], rows: int) -> bytes:
    """Return the vector that masks all of a file's rows except some.

    :param seen: the rows that stay visible
    :param rows: number of rows in the file
    """
    containers = []
    for high in range(-(-rows // _CONTAINER)):
        size = min(rows - high * _CONTAINER, _CONTAINER)
        masked = ((1 << size) - 1) & ~seen.get(high, 0)
        if masked:
            containers.append((high, masked, list(_runs(seen.get(high, 0), size))))
    head = struct.pack("<IQ", _MAGIC, 1 if containers else 0)
    return head + (struct.pack("<I", 0) + _encoded_bitmap(containers) if containers else b"")


def _encoded_bitmap(containers: list[tuple[int, int, list[tuple[int, int]]]]) -> bytes:
    """Return the bitmap of containers: (upper 16 bits, positions as bits, the same positions as runs)."""
    flags, heads, bodies = 0, b"", []
    for position, (high, bits, runs) in enumerate(containers):
        heads += struct.pack("<HH", high, bits.bit_count() - 1)
        if 4 * len(runs) <= min(2 * bits.bit_count(), _CONTAINER_BYTES):
            flags |= 1 << position
            flat = [value for start, length in runs for value in (start, length - 1)]
            bodies.append(struct.pack(f"<H{len(flat)}H", len(runs), *flat))
        elif bits.bit_count() > _MOST_LISTED:
            bodies.append(bits.to_bytes(_CONTAINER_BYTES, "little"))
        else:
            bodies.append(struct.pack(f"<{bits.bit_count()}H", *_positions(bits)))
    number = len(containers)
    # If no container has runs, readers expect the size of the form without runs, so use that form.
    head = struct.pack("<II", _COOKIE, number)
    if flags:
        head = struct.pack("<I", _COOKIE_WITH_RUNS | number - 1 << 16)
        head += flags.to_bytes(-(-number // 8), "little")
    head += heads
    if number >= _OFFSETS or not flags:
        position = len(head) + 4 * number
        for body in bodies:
            head += struct.pack("<I", position)
            position += len(body)
    return head + b"".join(bodies)


def _runs(holes: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and length of each range between positions."""
    start = 0
    for position in _positions(holes):
        if position > start:
            yield start, position - start
        start = position + 1
    if end > start:
        yield start, end - start


def _positions(bits: int) -> Iterator[int]:
    if bits:
        for index, byte in enumerate(bits.to_bytes(_CONTAINER_BYTES, "little")):
            for bit in _BITS[byte]:
                yield index * 8 + bit


def _bitmap(data: bytes, start: int) -> Positions:
    (cookie,) = struct.unpack_from("<I", data, start)
    offset = start + 4
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        number = (cookie >> 16) + 1
        width = -(-number // 8)
        flags = int.from_bytes(data[offset : offset + width], "little")
        offset += width
        has_offsets = number >= _OFFSETS
    elif cookie == _COOKIE:
        (number,) = struct.unpack_from("<I", data, offset)
        offset, flags, has_offsets = offset + 4, 0, True
    else:
        raise UnreadableVectorError(f"no Roaring bitmap ({cookie})")
    heads = struct.unpack_from(f"<{2 * number}H", data, offset)
    offset += 4 * number + (4 * number if has_offsets else 0)
    containers = {}
    for index in range(number):
        high, size = heads[2 * index], heads[2 * index + 1] + 1
        containers[high], offset = _container(data, offset, size, is_run=bool(flags >> index & 1))
    return containers


def _container(data: bytes, offset: int, size: int, *, is_run: bool) -> tuple[int, int]:
    """Read a container; return its bits and the offset of the next container."""
    if is_run:
        (number,) = struct.unpack_from("<H", data, offset)
        flat = struct.unpack_from(f"<{2 * number}H", data, offset + 2)
        bits = 0
        for start, extra in zip(flat[::2], flat[1::2], strict=True):
            bits |= (1 << extra + 1) - 1 << start
        return bits, offset + 2 + 4 * number
    if size > _MOST_LISTED:
        end = offset + _CONTAINER_BYTES
        if len(data) < end:
            raise UnreadableVectorError("it ends too early")
        return int.from_bytes(data[offset:end], "little"), end
    raw = bytearray(_CONTAINER_BYTES)
    for low in struct.unpack_from(f"<{size}H", data, offset):
        raw[low >> 3] |= 1 << (low & 7)
    return int.from_bytes(raw, "little"), offset + 2 * size
