"""Damaged records against strict parsers that we did not write: an event equals theirs, or is quarantined."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import change_log
from delta_cdc.core.spec import IngestOptions, SourceFile
from delta_cdc.spark.ingest import records
from delta_cdc.spark.ingest.adapters import named
from tests.support.engine import session_like
from tests.support.ingest_specs import ingest_spec
from tests.support.mutated import COLUMNS, IGNORED, KINDS, QUARANTINED, Kind, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of each kind; eight kinds.
SHARE, WHOLE = 400, 12_500
#: Records of a file: where a quote is damaged, all that is behind it goes to quarantine.
A_FILE = 25
SEED = int(os.environ.get("MUTATED_SEED", "20261122"))


def deliver(kind: Kind, folder: Path, count: int, seed: str) -> dict[str, dict[int, Verdict]]:
    """Write files of damaged records; return what the oracle says of each, by file and row."""
    wanted = {}
    for number in range(count // A_FILE):
        data = kind.file(A_FILE, random.Random(f"{seed}-{number}"))
        path = folder / f"f{number}.{kind.format}"
        path.write_bytes(data)
        wanted[str(path)] = dict(kind.verdicts(data))
    return wanted


def adapted(spark: SparkSession, kind: Kind, files: list[str]) -> list[Any]:
    session = session_like(spark)
    options = IngestOptions(
        format=kind.format,  # type: ignore[arg-type]
        adapter=kind.adapter,
        adapter_options=kind.options,
        keys=("id",),
        schema=kind.schema,
        format_options=kind.format_options,
    )
    spec = ingest_spec(options, files=tuple(SourceFile(file, 1, 0) for file in files))
    adapter = named(kind.adapter)
    found = records.read(session, spec, needs_rows=True)
    checked = adapter.check(kind.options, keys=("id",), format=kind.format, insert_only=False)
    context = change_log.Context(
        spark=session,
        options=checked,
        keys=options.keys,
        format=options.format,
        declared=records.declared(options),
    )
    return adapter.events(found, context).collect()


def verdict_of(rows: list[Any]) -> Verdict:
    """Return what became of a record, in the words of the oracle."""
    if any(row[change_log.ERROR] is not None for row in rows):
        return QUARANTINED
    found = []
    for row in rows:
        if row[change_log.OP] == change_log.IGNORE:
            return IGNORED
        event: dict[str, Any] = {"op": row[change_log.OP], "sequence": row[change_log.SEQUENCE]}
        if row[change_log.OP] != change_log.TRUNCATE:
            event["row"] = {name: row[change_log.PAYLOAD][name] for name in COLUMNS}
        if row[change_log.OP] == change_log.UPSERT:
            event["columns"] = sorted(name for name in row[change_log.COLUMNS] if name in COLUMNS)
        found.append(event)
    return sorted(found, key=lambda event: (event["sequence"], event["op"]))


def alike(kind: Kind, found: Verdict, wanted: Verdict) -> bool:
    if isinstance(found, str) or isinstance(wanted, str) or len(found) != len(wanted):
        return found == wanted
    return all(
        {**a, "row": None} == {**b, "row": None}
        and all(same(kind, a["row"][name], b["row"][name]) for name in COLUMNS if "row" in a)
        for a, b in zip(found, wanted, strict=True)
    )


def same(kind: Kind, found: Any, wanted: Any) -> bool:
    """Compare a value with the oracle's. Python's csv does not tell an empty value from a quoted one."""
    if kind.format == "csv":
        return bool((found or "") == wanted)
    if wanted is None or isinstance(wanted, str) or found is None:
        return bool(found == wanted)
    return bool(json.loads(found) == wanted)


def is_doubtful(kind: Kind, raw: bytes) -> bool:
    """Tell whether RFC 4180 says nothing of a line, and Python takes it: a CR that ends no line."""
    return kind.format == "csv" and b"\r" in raw


def differences(
    spark: SparkSession, folder: Path, kind: Kind, count: int, seed: str
) -> tuple[list[Any], Any]:
    wanted = deliver(kind, folder, count, seed)
    found: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in adapted(spark, kind, list(wanted)):
        found[row[change_log.POSITION]["file"]][row[change_log.POSITION]["row"]].append(row)
    bad, seen = [], {"events": 0, "quarantined": 0, "doubtful": 0}
    for file, verdicts in wanted.items():
        lines = Path(file).read_bytes().split(b"\n")
        got = {row: verdict_of(rows) for row, rows in found[file].items()}
        rows = {row for row, verdict in verdicts.items() if verdict != IGNORED} | set(got)
        for row in sorted(rows):
            ours, theirs = got.get(row, IGNORED), verdicts.get(row, IGNORED)
            seen["quarantined" if ours == QUARANTINED else "events"] += 1
            if alike(kind, ours, theirs):
                continue
            if ours == QUARANTINED and is_doubtful(kind, lines[row]):
                seen["doubtful"] += 1
                continue
            bad.append((file, row, lines[row], ours, theirs))
    return bad, seen


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_share(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    bad, seen = differences(spark, tmp_path, kind, SHARE, f"{SEED}-{kind.name}")
    assert bad == []
    # Neither the damage nor the oracle is so coarse that nothing is looked at.
    assert seen["events"] > SHARE // 5
    assert seen["quarantined"] > SHARE // 10
    assert seen["doubtful"] <= SHARE // 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_hundred_thousand(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    bad, seen = differences(spark, tmp_path, kind, WHOLE, f"whole-{SEED}-{kind.name}")
    print(f"{kind.name}: {seen}, seed {SEED}")
    assert bad == []
