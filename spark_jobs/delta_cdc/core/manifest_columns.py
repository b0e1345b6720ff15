"""Partition columns of a file manifest: for each file, when its rows were added and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.sql import PLAN_PREFIX

if TYPE_CHECKING:
    from delta_cdc.core.steps import ReadRange

#: Partition column of a file manifest: the sides of a file, separated by commas. Each is one of the marks
#: below, the version and, after ``@``, the commit's timestamp in epoch milliseconds.
SIDES = f"{PLAN_PREFIX}sides"
#: The file's rows are the state before, or after, the commit: rows of both sides are matched by row id.
BEFORE_MARK, AFTER_MARK = "-", "+"
#: The file's rows were deleted, or inserted, regardless of the commit's other files.
DELETED_MARK, INSERTED_MARK = "d", "i"
#: The file is a change file: its rows contain their own change type.
CHANGED_MARK = "c"
#: If every file of a file manifest has one side, these partition columns hold its version and time, and SIDES
#: only its mark. To parse both from a text for each row would take as long as reading the row.
SIDE_VERSION, SIDE_TIME = f"{PLAN_PREFIX}side_version", f"{PLAN_PREFIX}side_time"
#: Metadata of the field :data:`SIDES`: the marks that occur, in the schema of a file manifest.
MARKS = "delta_cdc.marks"


def location(manifests_uri: str, read_range: ReadRange) -> str:
    """Return the location of a range's file manifest.

    :param manifests_uri: folder of the file manifests
    """
    return f"{manifests_uri.rstrip('/')}/{read_range.starting_version:020d}-{read_range.ending_version:020d}"


def side(mark: str, version: int, timestamp: int) -> str:
    """Return one side of a file as :data:`SIDES` holds it."""
    return f"{mark}{version}@{timestamp}"


def parts_of(one: str) -> tuple[str, str, str]:
    """Return mark, version and timestamp of a text made by :func:`side`."""
    version, _, timestamp = one[1:].partition("@")
    return one[0], version, timestamp
