"""Version ranges are inclusive at both ends, as Delta's own options are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_cdc.core.versions import VersionRange


def test_both_ends_belong_to_the_range() -> None:
    versions = VersionRange(101, 110)
    assert 101 in versions
    assert 110 in versions
    assert 100 not in versions
    assert 111 not in versions
    assert len(versions) == 10


@given(start=st.integers(0, 10**9), length=st.integers(0, 10**9))
def test_text_form_reads_back(start: int, length: int) -> None:
    versions = VersionRange(start, start + length)
    assert VersionRange.parse(str(versions)) == versions


@pytest.mark.parametrize(
    ("text", "versions"),
    [("101-110", VersionRange(101, 110)), (" 7 ", VersionRange(7, 7)), ("0 - 3", VersionRange(0, 3))],
)
def test_parse(text: str, versions: VersionRange) -> None:
    assert VersionRange.parse(text) == versions


@pytest.mark.parametrize("text", ["", "-", "5-", "-5", "a-b", "1-2-3", "1.5", "9-3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|before"):
        VersionRange.parse(text)


def test_negative_version_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        VersionRange(-1, 3)
