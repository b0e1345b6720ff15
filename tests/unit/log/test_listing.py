"""A listing of a log keeps a few bytes per commit, however long the log is."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from delta_cdc.delta_log.listing import Commits, Names
from delta_cdc.delta_log.requests import Entry


def _commit(version: int, modified: int = 5) -> Entry:
    return Entry(f"_delta_log/{version:020d}.json", 100, modified)


@pytest.mark.parametrize("seed", range(20))
def test_commits_are_a_mapping_of_the_versions(seed: int) -> None:
    rng = random.Random(seed)
    first = rng.choice([0, 1, 63, 64, 1_000])
    expected = {version: rng.randrange(-5, 10**12) for version in range(first, first + rng.randrange(1, 300))}
    for version in rng.sample(sorted(expected), min(len(expected) - 1, rng.randrange(4))):
        del expected[version]
    if seed % 3 == 0:
        expected[2**63 - 1] = 7
    names, order = Names(), list(expected)
    rng.shuffle(order)
    for version in order:
        names.add(_commit(version, expected[version]))
    commits = names.listing().commits
    assert list(commits.items()) == sorted(expected.items())
    assert (len(commits), commits.oldest, commits.newest) == (len(expected), min(expected), max(expected))
    assert first - 1 not in commits
    with pytest.raises(KeyError):
        commits[10**9]
    top = max(version for version in expected if version < 2**62)
    for low, high in [(first, top), (first + 1, top - 1), (first, top + 1), (top, first), (top, top)]:
        missing = [version for version in range(low, high + 1) if version not in expected]
        assert commits.newest_missing(low, high) == (missing[-1] if missing else None)
    assert commits.newest_missing(0, 2**63 - 1) == (2**63 - 2 if seed % 3 == 0 else 2**63 - 1)


def test_no_commit_is_no_newest_one() -> None:
    assert not Commits()
    for name in ("newest", "oldest"):
        with pytest.raises(ValueError, match="empty"):
            getattr(Commits(), name)


def test_a_long_log_takes_few_bytes() -> None:
    names = Names()
    tracemalloc.start()
    for version in range(50_000):
        names.add(_commit(version))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert names.listing().commits.newest == 49_999
    assert size < 50_000 * 20
