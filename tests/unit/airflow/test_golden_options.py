"""Which arguments are refused, with which words; and the signatures of operators and functions.

Each value of :data:`VALUES` is tried alone, and some pairs of them, on several pipelines. The golden files
hold each answer once, with its number of cases: a rule that is lost, that comes too early, or that says
something else changes them. ``UPDATE_GOLDEN=1`` rewrites the files; see ``tests/unit/test_golden.py``.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from itertools import chain, combinations, islice, product
from typing import TYPE_CHECKING, Any

import delta_cdc
from airflow_delta_cdc import form, operators, sensors
from airflow_delta_cdc.decorators.changes import delta_changes_task
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.option import filled, flat
from delta_cdc.core.options import READ, QueryOptions
from delta_cdc.core.requests import IngestRequest, ReadRequest
from delta_cdc.core.rules import check_apply, check_read
from delta_cdc.planning.ingest_request import checked
from delta_cdc.run.table_arguments import requests
from tests.support import golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

KEYED = {"source": "/lake/source", "target": "/lake/target", "keys": ["id"]}
LOG = {"source_kind": "change_log", "sequence_by": "at"}
#: The pipelines on which each value is tried.
BASES: dict[str, dict[str, Any]] = {
    "feed": KEYED,
    "history": {**KEYED, "stored_as_scd_type": 2},
    "change log": {**KEYED, **LOG},
    "history of a change log": {**KEYED, **LOG, "stored_as_scd_type": 2},
    "copies": {**KEYED, "source_kind": "snapshot"},
    "collected": {
        **KEYED,
        "target_kind": "change_log",
        "sequence_by": "at",
        "delete_sequence": "_commit_timestamp",
    },
    "inserts": {"source": "/lake/source", "target": "/lake/target", "insert_only": True},
    "staged": {**KEYED, "staging": "/lake/staging"},
    "repair": {**KEYED, "mode": "repair", "repair_keys": "id = 1"},
    "ingested": {**KEYED, "log": "/lake/log"},
    "topic": {**KEYED, "source": "kafka://b:1/t", "log": "/lake/log", "schema": "id INT"},
}
VALUES: tuple[tuple[str, Any], ...] = (
    *(("pipeline", "a b"), ("target", "/lake/source"), ("source_kind", "change_log")),
    *(("target_kind", "change_log"), ("once", True)),
    *(("source_kind", "snapshot"), ("keys", ["id", "b"]), ("insert_only", True)),
    *(("stored_as_scd_type", 2), ("sequence_by", "_commit_timestamp"), ("sequence_by", ["at", "n"])),
    *(("delete_sequence", "_commit_timestamp"), ("starting_version", 3), ("ending_version", 2)),
    ("starting_timestamp", "2026-01-02T00:00:00+00:00"),
    ("ending_timestamp", "2026-01-01T00:00:00+00:00"),
    *(("ending_timestamp", "2026-01-03T00:00:00+00:00"), ("starting_timestamp", "yesterday")),
    *(("max_versions", 2), ("max_bytes", 0), ("versions_per_commit", 2), ("where", "a > 1")),
    *(("select", ["id", "a"]), ("apply_as_deletes", "op = 'd'"), ("apply_as_truncates", "op = 't'")),
    *(("column_list", []), ("column_list", ["a"]), ("except_column_list", ["ID"])),
    *(("track_history_column_list", ["b"]), ("track_history_except_column_list", ["b"])),
    *(("ignore_null_updates", True), ("ignore_null_updates_column_list", ["a"])),
    *(("ignore_null_updates_except_column_list", ["a"]), ("columns_to_update", "c")),
    *(("start_column", "__end_at"), ("on_conflict", "quarantine"), ("on_conflict", {"last_by": ["n"]})),
    *(("on_invalid", "quarantine"), ("on_late", "discard"), ("delete_mode", "soft")),
    *(("initial_load", "none"), ("initial_load", {"from_version": 3}), ("initial_load", "all")),
    *(("partition_by", ["b"]), ("cluster_by", ["a", "b", "c", "d", "e"]), ("cluster_by", ["id"])),
    *(("target_properties", {"delta.setTransactionRetentionDuration": "1 day"}), ("mode", "backfill")),
    *(("mode", "repair"), ("mode", "reload"), ("mode", "reset"), ("mode", "interval")),
    *(("dry_run", True), ("discard_history", True), ("repair_keys", "name LIKE 'a%'")),
    *(("repair_keys", "id IN (1, 2)"), ("repair_quarantined", True), ("on_drift", "repair")),
    *(("on_source_replaced", "reload"), ("on_versions_expired", "reload"), ("allow_empty", True)),
    *(("take_over_from", "old"), ("take_over_from", "target"), ("snapshot_version_column", "v")),
    *(("format", "csv"), ("adapter", "debezium"), ("adapter_options", {"op": "o"})),
    *(("format_options", {"sep": ";"}), ("max_files", 3), ("max_offsets", 3), ("glob", "a/*")),
    *(("lexical_order", True), ("follow_links", True), ("replay", True), ("on_expired", "continue")),
    ("log_properties", {"delta.enableChangeDataFeed": "true"}),
)
QUERIES: tuple[tuple[str, Any], ...] = (
    *(("query", "upsert"), ("query", "min_delta"), ("query", "append_only"), ("keys", ["id"])),
    *(("method", "added_files"), ("method", "change_files"), ("raw", True), ("where", "a > 1")),
    *(("select", ["id"]), ("on_change_commit", "skip"), ("target", "/lake/target")),
    *(("target", "/lake/staging"), ("starting_version", 3), ("ending_version", 2)),
    ("ending_timestamp", "2026-01-01T00:00:00+00:00"),
)
#: Fields of the form: each is filled in or not, in each mode.
FIELDS: dict[str, Any] = {
    "starting_version": 3,
    "ending_version": 2,
    "versions_per_commit": 1,
    "starting_timestamp": "2026-01-02T00:00:00+00:00",
    "ending_timestamp": "2026-01-01T00:00:00+00:00",
    "repair_keys": "id = 1",
    "repair_quarantined": True,
    "tables": ["a", "b"],
}


def answer(ask: Callable[[], object]) -> str:
    """Return the error of a call with its argument; "accepted" without one."""
    try:
        ask()
    except DeltaCdcError as error:
        return f"{error.to_dict().get('argument')}: {error}"
    return "accepted"


def check_table(given: dict[str, Any]) -> None:
    """Check the arguments of one table."""
    for request in requests(given):
        if isinstance(request, IngestRequest):
            checked(request)
        elif request is not None:
            check_apply(request)


def check_a_read(given: dict[str, Any]) -> None:
    """Check the arguments of a read."""
    given = flat(READ, given)
    options = filled(QueryOptions, READ, given)
    check_read(filled(ReadRequest, READ, given, source="/lake/source", options=options))


def tries(base: dict[str, Any], values: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a base with each value, and with every eleventh pair of values of different arguments."""
    values = list(values)
    for chosen in chain([()], combinations(values, 1), islice(combinations(values, 2), 0, None, 11)):
        if len({name for name, _ in chosen}) == len(chosen):
            yield {**base, **dict(chosen)}


def counted(answers: Iterable[str], folder: Path) -> str:
    """Return each answer once, with its number, as a golden file holds it."""
    return golden.as_json(Counter(answers), folder)


def test_what_an_apply_or_an_ingest_refuses(tmp_path: Path) -> None:
    for name, base in BASES.items():
        answers = (answer(lambda given=given: check_table(given)) for given in tries(base, VALUES))  # type: ignore[misc]
        golden.check(f"refusals/{name.replace(' ', '_')}.json", counted(answers, tmp_path))


def test_what_a_read_refuses(tmp_path: Path) -> None:
    base = {"pipeline": "p", "staging": "/lake/staging"}
    answers = (answer(lambda given=given: check_a_read(given)) for given in tries(base, QUERIES))  # type: ignore[misc]
    golden.check("refusals/read.json", counted(answers, tmp_path))


def test_what_the_form_refuses(tmp_path: Path) -> None:
    chosen = chain.from_iterable(combinations(FIELDS, number) for number in range(3))
    filled_in = ({name: FIELDS[name] for name in names} for names in chosen)
    answers = (
        answer(lambda mode=mode, values=values: form.asked({"mode": mode, **values}, tables=["a", "b", "c"]))  # type: ignore[misc]
        for values, mode in product(filled_in, form.MODES)
    )
    golden.check("refusals/form.json", counted(answers, tmp_path))


def test_signatures() -> None:
    public: dict[str, Any] = {name: getattr(operators, name) for name in operators.__all__}
    public |= {name: getattr(sensors, name) for name in sensors.__all__}
    public |= {name: one for name in delta_cdc.__all__ if callable(one := getattr(delta_cdc, name))}
    public["task.delta_changes"] = delta_changes_task
    found = {}
    for name, one in public.items():
        code = inspect.unwrap(one.__init__) if inspect.isclass(one) else one
        found[name] = {
            parameter.name: "required" if parameter.default is inspect.Parameter.empty else parameter.default
            for parameter in sorted(inspect.signature(code).parameters.values(), key=lambda p: p.name)
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD and parameter.name != "self"
        }
    golden.check("signatures.json", json.dumps(found, indent=1, sort_keys=True, default=repr) + "\n")
