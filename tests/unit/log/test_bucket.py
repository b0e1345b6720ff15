"""One client for all tables of a bucket."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from delta_cdc.delta_log.store import _STORES, open_bucket
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.http_store import HttpStore
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HttpStore]:
    with HttpStore(tmp_path / "root") as made:
        yield made


def test_tables_with_the_same_options_share_a_client(store: HttpStore) -> None:
    options = store.options()
    one, prefix = open_bucket("s3://lake/a/b", options)
    again, other_prefix = open_bucket("s3://lake/c", dict(reversed(options.items())))
    assert again is one
    assert (prefix, other_prefix) == ("a/b", "c")
    assert open_bucket("s3://lake/a/b", store.options(AWS_ACCESS_KEY_ID="another"))[0] is not one
    assert open_bucket("s3://pond/a/b", options)[0] is not one


def test_a_client_that_nobody_uses_is_given_up(store: HttpStore) -> None:
    gc.collect()
    before = set(_STORES)
    bucket, _ = open_bucket("s3://pond/a", store.options())
    (key,) = set(_STORES) - before
    assert _STORES[key] is bucket
    del bucket
    gc.collect()
    assert key not in _STORES


def test_tables_side_by_side(store: HttpStore) -> None:
    name = "a b/100%25"
    table = LogTable(store.root / name).create()
    LogTable(store.root / f"{name}2").create()
    table.append()
    assert run_sync(DeltaLog(store.uri(name), store.options()).newest_version()) == 1
    assert run_sync(DeltaLog(store.uri(f"{name}2"), store.options()).newest_version()) == 0
