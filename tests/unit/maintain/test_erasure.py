"""Erased keys without a JVM: their hash, whose tables lose them, and who reads on over the deletion."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import maintenance_tags, validation
from delta_cdc.core.char_columns import spellings_of
from delta_cdc.core.erasure import SEALED, ErasedKeys, encoded, key_hash, ledger_of, new_secret
from delta_cdc.core.errors import ColumnNotFound, InvalidConfiguration, TableNotFound
from delta_cdc.core.options import ApplyOptions, IngestOptions
from delta_cdc.core.properties import ERASED
from delta_cdc.core.spec import ApplySpec, EraseSpec, from_json, to_json
from delta_cdc.delta_log.actions import CommitInfo
from delta_cdc.delta_log.schema_changes import char_lengths
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.consumers import Consumer, observe_consumers
from delta_cdc.planning.erasure import (
    Flow,
    Place,
    lengths_of_chars,
    outside_reach,
    places,
    plan_erase,
    remains,
    with_downstream,
)
from delta_cdc.planning.maintenance_commits import erases
from tests.support.logs import FEED, LogTable
from tests.support.tables import KEYED, Tables

if TYPE_CHECKING:
    from delta_cdc.planning.plan import JobPlan

LOG = replace(KEYED, source_kind="change_log", sequence_by="at")
APPENDED = replace(KEYED, keys=(), insert_only=True)
ONLY_DELETES = {
    "matchedPredicates": '[{"actionType":"delete"}]',
    "notMatchedPredicates": "[]",
    "notMatchedBySourcePredicates": "[]",
}
TAG = maintenance_tags.written("erase")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables.made_in(tmp_path)


def erase(source: LogTable) -> int:
    """Delete as an erasure does."""
    return source.commit(
        "MERGE", *source.removes(), source.add(), parameters=dict(ONLY_DELETES), user_metadata=TAG
    )


# -- the hash ---------------------------------------------------------------------------------------
def test_the_hash_is_an_hmac_of_the_lengths_and_the_texts() -> None:
    secret = new_secret()
    assert len(bytes.fromhex(secret)) == 32
    assert secret != new_secret()
    expected = hmac.new(bytes.fromhex(secret), "2:ä1:b".encode(), hashlib.sha256).hexdigest()
    assert key_hash(secret, ["ä", "b"]) == expected
    assert key_hash(new_secret(), ["ä", "b"]) != expected


def test_different_keys_never_have_the_same_bytes() -> None:
    keys = [
        ("ab", "c"),
        ("a", "bc"),
        ("a", "b", "c"),
        ("abc",),
        ("a:b:c",),
        ("1:a",),
        ("", "1:a"),
        ("A",),
        ("a",),
        ("",),
    ]
    assert len({encoded(key) for key in keys}) == len(keys)


# -- whose tables -----------------------------------------------------------------------------------
def test_pipelines_downstream_are_erased_too() -> None:
    ingest = Flow("ingest", "kafka://broker/topic", log="/lake/log", target="/lake/a")
    chain = [
        ingest,
        Flow("b", "file:///lake/a/", target="/lake/b", staging="/lake/b_staging"),
        Flow("c", "/lake/b", target="main.c"),
        Flow("d", "main.c", target="/lake/d"),
        Flow("other", "/elsewhere", target="/lake/other"),
    ]
    found = with_downstream([ingest], list(reversed(chain)))
    assert [flow.pipeline for flow in found] == ["ingest", "b", "c", "d"]
    assert [flow.pipeline for flow in with_downstream(chain[3:4], chain)] == ["d"]
    shadow = Flow("b_next", "/lake/a", target="/lake/b_next", shadow_of=("b",))
    found = with_downstream(chain[1:2], [*chain, shadow])
    assert [flow.pipeline for flow in found] == ["b", "c", "b_next", "d"]
    named = [(place.table, place.place, place.owner) for place in places([ingest, chain[1]])]
    assert named == [
        ("/lake/log", "rows", "/lake/log"),
        ("/lake/a", "rows", "/lake/a"),
        ("/lake/b", "rows", "/lake/b"),
        ("/lake/log__quarantine", "records", "/lake/log"),
        ("/lake/a__quarantine", "keys", "/lake/a"),
        ("/lake/b__quarantine", "keys", "/lake/b"),
        ("/lake/b_staging", "rows", "/lake/b"),
    ]
    texts = " ".join(outside_reach([ingest, chain[1]]))
    assert "kafka://broker/topic" in texts
    assert "Staging tables of your own sinks" in texts
    assert "The source /lake/a" not in texts


def test_a_key_of_a_char_column_gets_its_blanks(tables: Tables) -> None:
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    varchar = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    fields = [
        {"name": "Code", "type": "string", "nullable": True, "metadata": char},
        {"name": "town", "type": "string", "nullable": True, "metadata": varchar},
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    assert char_lengths(schema) == {"code": 5}
    key = {"code": "äb", "town": "x"}
    assert spellings_of(key, [{"code": 5}, {"code": 5}, {}]) == [key, {"code": "äb   ", "town": "x"}]
    for given, stored in (("ab      ", "ab   "), ("ab   ", "ab   "), ("", "     "), (" longer ", " longer")):
        assert spellings_of({"CODE": given}, [{"code": 5}])[-1] == {"CODE": stored}
    # What no table has, as files and a source that is gone, has no columns.
    flows = [Flow("p", tables.source.uri, target="/lake/t"), Flow("q", "/no/such", target="/lake/t")]
    flows += [Flow("r", "kafka://broker/topic", log="/no/log"), Flow("s", None, target="/lake/t")]
    assert run_sync(lengths_of_chars(flows)) == []
    tables.source.alter(*fields)
    assert run_sync(lengths_of_chars(flows)) == [{"code": 5}]


# -- the plan of one table --------------------------------------------------------------------------
def planned(table: str, key: dict[str, str], **more: Any) -> JobPlan[EraseSpec, dict[str, Any]]:
    place = Place(table, "target", "p", more.pop("owner", table), **more)
    spec = EraseSpec(run_id="r", table_uri=table, keys=(key,))
    return run_sync(plan_erase(spec, place))


def test_the_columns_must_be_the_key(tables: Tables, tmp_path: Path) -> None:
    uri = tables.target.uri
    tables.sealed(3, configuration=validation.described(ApplyOptions(keys=("id", "name"))))
    spec = planned(uri, {"ID": "1", "name": "x"}).spec
    assert spec is not None
    assert (spec.remembers, spec.owner, spec.table_id) == (True, uri, tables.target.table_id)
    assert from_json(to_json(spec)) == spec
    assert "x" not in repr(spec).replace(uri, ""), "logs must not show the key"
    for key in ({"id": "1"}, {"id": "1", "name": "x", "at": "3"}):
        with pytest.raises(InvalidConfiguration, match=r"The key of .* has the columns id, name"):
            planned(uri, key)
    # Without a key, any columns will do; but they must exist.
    tables.sealed(4, 101, configuration=validation.described(APPENDED))
    assert planned(uri, {"name": "x"}).spec is not None
    with pytest.raises(ColumnNotFound, match="has no column nope"):
        planned(uri, {"nope": "x"})
    tables.target.set_properties(**{"delta.appendOnly": "true"})
    with pytest.raises(InvalidConfiguration, match=r"delta\.appendOnly"):
        planned(uri, {"name": "x"})
    with pytest.raises(TableNotFound):
        planned(str(tmp_path / "nothing"), {"id": "1"})
    nothing = planned(str(tmp_path / "nothing"), {"id": "1"}, owner=uri, place="keys")
    assert (nothing.spec, nothing.notes) == (None, ("there is no such table",))


def test_the_columns_of_an_ingest_are_its_keys(tables: Tables) -> None:
    ingest = validation.described_ingest(IngestOptions(source_kind="files", keys=("id",)))
    tables.sealed(3, configuration={"ingest": ingest})
    assert planned(tables.target.uri, {"id": "1"}).spec is not None
    with pytest.raises(InvalidConfiguration, match="has the columns id,"):
        planned(tables.target.uri, {"name": "x"})


def test_staged_rows_without_the_key_are_named(tables: Tables) -> None:
    tables.sealed(3)
    tables.staged(1, 0, 3)
    staged = planned(tables.staging.uri, {"nope": "1"}, owner=tables.target.uri)
    assert staged.spec is None
    assert "not searched: it has no column nope" in staged.notes[0]


# -- who leaves erased keys out ---------------------------------------------------------------------
def left_out(tables: Tables, **more: Any) -> ErasedKeys:
    spec = tables.apply(**more).spec
    assert isinstance(spec, ApplySpec)
    return spec.erased


def test_a_run_leaves_out_what_its_tables_remember(tables: Tables) -> None:
    ledger = ledger_of(tables.target.uri)
    tables.sealed(3)
    assert left_out(tables) == ErasedKeys()
    tables.target.set_properties(**{ERASED: "2"})
    assert left_out(tables) == ErasedKeys("", ledger, "2", is_new=True)
    tables.source.set_properties(**FEED, **{ERASED: "7"})
    assert left_out(tables) == ErasedKeys(ledger_of(tables.source.uri), ledger, "2", is_new=True)


def test_the_first_run_after_an_erasure_looks_for_rows_that_a_dead_run_left(tables: Tables) -> None:
    tables.sealed(3)
    tables.target.set_properties(**{ERASED: "2"})
    assert left_out(tables).is_new
    # Its own seal says that it looked; until the next erasure no run looks again.
    sealed = {**validation.described(KEYED), **left_out(tables).sealed}
    tables.sealed(4, 101, configuration=sealed)
    assert not left_out(tables).is_new
    tables.target.set_properties(**{ERASED: "3"})
    assert left_out(tables).is_new
    assert ErasedKeys().sealed == {}
    assert ErasedKeys(ledger="l").sealed == {SEALED: True}, "the run itself sets the property"


def test_a_table_that_lost_its_property_still_leaves_out(tables: Tables) -> None:
    """Its seal, or the ledger that lies beside it, says so."""
    ledger = ledger_of(tables.target.uri)
    assert left_out(tables) == ErasedKeys(), "the first load"
    LogTable(Path(ledger)).create()
    assert left_out(tables) == ErasedKeys("", ledger, ""), "a table that was dropped"
    tables.sealed(3)
    assert left_out(tables) == ErasedKeys(), "the seal does not know of a ledger"
    tables.sealed(4, 101, configuration={**validation.described(KEYED), SEALED: True})
    assert left_out(tables) == ErasedKeys("", ledger, "")
    tables.target.replace_table("another")
    assert left_out(tables, on_target_replaced="reload") == ErasedKeys("", ledger, "")


# -- readers of the deletion ------------------------------------------------------------------------
def info(**changes: Any) -> CommitInfo:
    given: dict[str, Any] = {"operation": "MERGE", "user_metadata": TAG, "operation_parameters": ONLY_DELETES}
    return CommitInfo(**{**given, **changes})


def test_which_commits_are_erasures() -> None:
    assert erases(info())
    assert not erases(info(operation="DELETE"))
    assert not erases(info(user_metadata=maintenance_tags.written("expire", below="3")))
    updates = {**ONLY_DELETES, "matchedPredicates": '[{"actionType":"update"}]'}
    assert not erases(info(operation_parameters=updates))


@pytest.mark.parametrize(
    ("options", "expected"),
    [(LOG, [(4, 5), (7, 7)]), (APPENDED, [(4, 5), (7, 7)]), (KEYED, [(4, 7)])],
    ids=["events", "appended", "states"],
)
def test_readers_of_appended_rows_pass_over_an_erasure(
    tables: Tables, options: ApplyOptions, expected: list[tuple[int, int]]
) -> None:
    tables.sealed(3, configuration=validation.described(options))
    erase(tables.source)  # 6
    tables.source.append()  # 7
    spec = tables.apply(options=options).spec
    assert isinstance(spec, ApplySpec)
    (step,) = spec.steps
    assert step.ending_version == 7
    assert [(one.starting_version, one.ending_version) for one in step.read.ranges] == expected


@pytest.mark.parametrize(("options", "unread"), [(LOG, None), (APPENDED, None), (KEYED, 6)])
def test_a_consumer_that_passes_over_it_needs_no_old_file(
    tables: Tables, options: ApplyOptions, unread: int | None
) -> None:
    tables.sealed(5, configuration=validation.described(options))
    erase(tables.source)  # 6
    log = DeltaLog(tables.source.uri)
    consumers = [Consumer("p", tables.source.uri, tables.target.uri)]
    (seen,) = run_sync(observe_consumers(log, run_sync(log.snapshot()), consumers))
    assert seen.unread == unread


# -- the report -------------------------------------------------------------------------------------
def test_until_when_deleted_rows_can_be_read(tables: Tables) -> None:
    source = tables.source
    assert run_sync(remains(source.uri))["old_versions_until"] == ""
    erase(source)
    found = run_sync(remains(source.uri))
    assert found["version"] == 6
    removed = run_sync(DeltaLog(source.uri).commit(6)).timestamp
    week = dt.datetime.fromisoformat(found["old_versions_until"]).timestamp() * 1000 - removed
    assert round(week / 1000) == 7 * 86_400, "delta.deletedFileRetentionDuration"
    # Delta counts whole days: https://github.com/delta-io/delta, MetadataCleanup.
    assert found["statistics_until"].endswith("T00:00:00+00:00")
    day = 86_400_000
    until = dt.datetime.fromisoformat(found["statistics_until"]).timestamp() * 1000
    assert 0 <= until - 30 * day - removed < day
    assert found["statistics_version"] == 6
    # RETAIN 240 HOURS counts, and not the table's property.
    longer = {"defaultRetentionMillis": "0", "specifiedRetentionMillis": str(10 * day)}
    source.commit("VACUUM START", at=removed + 1_000, parameters=longer)
    source.commit("VACUUM END", at=removed + 1_000)
    assert run_sync(remains(source.uri)) == {**found, "version": 8}
    source.commit("VACUUM START", at=removed + 1_000, parameters={"defaultRetentionMillis": "0"})
    # It was killed, and may have deleted only some files.
    assert run_sync(remains(source.uri)) == {**found, "version": 9}
    source.commit("VACUUM START", at=removed + 1_500, parameters={"defaultRetentionMillis": "0"})
    source.commit("VACUUM END", at=removed + 2_000)
    found = run_sync(remains(source.uri))
    assert (found["old_versions_until"], found["statistics_until"] != "") == ("", True)
