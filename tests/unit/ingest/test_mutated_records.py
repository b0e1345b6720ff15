"""Damaged records against strict parsers that we did not write: an event equals theirs, or is quarantined."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.core.adapters import IGNORE, TRUNCATE, UPSERT
from delta_cdc.ingest import adapters, local
from delta_cdc.ingest.batch import COLUMNS as CARRIED
from delta_cdc.ingest.batch import OP, POSITION, REASON, SEQUENCE
from delta_cdc.ingest.reading import Reading
from tests.support.change_sets import typed
from tests.support.mutated import COLUMNS, IGNORED, KINDS, QUARANTINED, Kind, Verdict

#: Of each kind; eight kinds.
SHARE, WHOLE = 2_500, 125_000
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


def adapted(kind: Kind, file: str) -> list[dict[str, Any]]:
    """Return the rows of a file, read as an ingest reads it, without Spark."""
    declared = typed(kind.schema)
    checked = adapters.check(kind.adapter, kind.options, keys=("id",), format=kind.format)
    reading = Reading(
        format=kind.format,
        adapter=kind.adapter,
        adapter_options=checked,
        format_options=kind.format_options,
        keys=("id",),
        declared=True,
        names=tuple(name for name, _ in declared.fields),
        numbered=True,
    )
    path = Path(file)
    return local.rows_of_file(local.complete(reading, path, declared), path)


def verdict_of(rows: list[Any]) -> Verdict:
    """Return what became of a record, in the words of the oracle."""
    if any(row[REASON] is not None for row in rows):
        return QUARANTINED
    found = []
    for row in rows:
        if row[OP] == IGNORE:
            return IGNORED
        event: dict[str, Any] = {"op": row[OP], "sequence": row[SEQUENCE]}
        if row[OP] != TRUNCATE:
            event["row"] = {name: row[name] for name in COLUMNS}
        if row[OP] == UPSERT:
            event["columns"] = sorted(name for name in row[CARRIED] if name in COLUMNS)
        found.append(event)
    return sorted(found, key=lambda event: (event["sequence"], event["op"]))


def with_keys(kind: Kind, wanted: Verdict, found: Verdict) -> Verdict:
    """Return the oracle's verdict with the rule that each event has a key.

    Python's csv does not tell an empty value, which is NULL, from a quoted one.
    """
    if isinstance(wanted, str):
        return wanted
    keys = [event["row"]["id"] for event in wanted if "row" in event]
    if None in keys or (kind.format == "csv" and "" in keys and found == QUARANTINED):
        return QUARANTINED
    return wanted


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


def differences(folder: Path, kind: Kind, count: int, seed: str) -> tuple[list[Any], Any]:
    wanted = deliver(kind, folder, count, seed)
    found: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for file in wanted:
        for row in adapted(kind, file):
            found[file][row[POSITION]["row"]].append(row)
    bad, seen = [], {"events": 0, "quarantined": 0, "doubtful": 0}
    for file, verdicts in wanted.items():
        lines = Path(file).read_bytes().split(b"\n")
        got = {row: verdict_of(rows) for row, rows in found[file].items()}
        rows = {row for row, verdict in verdicts.items() if verdict != IGNORED} | set(got)
        for row in sorted(rows):
            ours = got.get(row, IGNORED)
            theirs = with_keys(kind, verdicts.get(row, IGNORED), ours)
            seen["quarantined" if ours == QUARANTINED else "events"] += 1
            if alike(kind, ours, theirs):
                continue
            if ours == QUARANTINED and is_doubtful(kind, lines[row]):
                seen["doubtful"] += 1
                continue
            bad.append((file, row, lines[row], ours, theirs))
    return bad, seen


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_share(tmp_path: Path, kind: Kind) -> None:
    bad, seen = differences(tmp_path, kind, SHARE, f"{SEED}-{kind.name}")
    assert bad == []
    # Neither the damage nor the oracle is so coarse that nothing is looked at.
    assert seen["events"] > SHARE // 5
    assert seen["quarantined"] > SHARE // 10
    assert seen["doubtful"] <= SHARE // 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_million(tmp_path: Path, kind: Kind) -> None:
    bad, seen = differences(tmp_path, kind, WHOLE, f"whole-{SEED}-{kind.name}")
    print(f"{kind.name}: {seen}, seed {SEED}")
    assert bad == []
