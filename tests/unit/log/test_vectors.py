"""Deletion vectors: what is written is read back, in every form of container, and damage has its name."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_cdc.delta_log import deletion_vectors
from delta_cdc.delta_log.deletion_vectors import UnreadableVectorError
from tests.support.vectors import bits, rows_of

#: A file of vectors as Delta wrote it (its first byte is a version): row 4 is masked.
STORED = bytes.fromhex(
    "0100000022d1d339640100000000000000000000003a300000010000000000000010000000040093ca71b1"
)


def test_a_vector_that_delta_wrote() -> None:
    assert rows_of(deletion_vectors.checked(STORED[1:])) == [4]


def test_a_file_of_the_table_is_named_by_its_uuid() -> None:
    assert deletion_vectors.file_of("ab^-aqEH.-t@S}K{vb[*k^") == (
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert deletion_vectors.file_of("a b%^-aqEH.-t@S}K{vb[*k^").startswith(
        "a%20b%25/deletion_vector_d2c639aa-"
    )
    with pytest.raises(UnreadableVectorError, match="no UUID"):
        deletion_vectors.file_of("abc")


@given(st.binary(max_size=40))
def test_text_and_bytes(raw: bytes) -> None:
    assert deletion_vectors.decode(deletion_vectors.encode(raw))[: len(raw)] == raw


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        (10, [0]),
        (10, [9]),
        (10, list(range(1, 9))),
        (65_536, [5]),
        (65_537, [65_536]),
        (300_000, [0, 65_535, 65_536, 299_999]),
        # Containers as bits: neither runs nor a list would be shorter.
        (200_000, list(range(0, 200_000, 2))),
        # One container of each kind, and one of which nothing is masked.
        (262_144, [*range(0, 65_536, 3), *range(65_536, 131_072), *range(131_072, 190_000), 200_000]),
        (65_536, [row for row in range(65_536) if row % 40]),
    ],
)
def test_all_rows_but_some_are_masked(rows: int, seen: list[int]) -> None:
    data = deletion_vectors.all_but(bits(set(seen)), rows)
    assert rows_of(data) == sorted(set(range(rows)) - set(seen))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200_000), st.sets(st.integers(0, 199_999), max_size=60))
def test_all_rows_but_any(rows: int, seen: set[int]) -> None:
    seen = {row for row in seen if row < rows}
    assert rows_of(deletion_vectors.all_but(bits(seen), rows)) == sorted(set(range(rows)) - seen)


def test_differences() -> None:
    left, right = bits({1, 2, 70_000}), bits({2, 3})
    assert deletion_vectors.minus(left, right) == bits({1, 70_000})
    assert deletion_vectors.minus(right, left) == bits({3})
    assert deletion_vectors.minus(left, left) == {}
    assert deletion_vectors.count(left) == 3


def test_a_vector_in_a_file_is_checked() -> None:
    data = deletion_vectors.all_but(bits({1}), 10)
    stored = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    assert deletion_vectors.checked(stored) == data
    for damaged in (stored[:-1], stored[:5] + b"x" + stored[6:], stored[:3]):
        with pytest.raises(UnreadableVectorError):
            deletion_vectors.checked(damaged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<IQ", 1_681_511_376, 0),
        struct.pack("<IQ", 1_681_511_377, 2) + bytes(40),
        struct.pack("<IQII", 1_681_511_377, 1, 1, 12_346) + bytes(8),
        struct.pack("<IQII", 1_681_511_377, 1, 0, 99),
        deletion_vectors.all_but({0: 1}, 10)[:-1],
        deletion_vectors.all_but(bits(set(range(0, 65_536, 2))), 65_536)[:-1],
    ],
)
def test_what_is_no_vector_is_not_guessed_at(data: bytes) -> None:
    with pytest.raises(UnreadableVectorError):
        deletion_vectors.positions(data)


def test_what_is_no_text_of_a_vector() -> None:
    for text in ("~~~~~", "#####"):
        with pytest.raises(UnreadableVectorError):
            deletion_vectors.decode(text)
