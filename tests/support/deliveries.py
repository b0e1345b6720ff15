"""A source that delivers files, its change log, and what the log holds: for tests of an ingest."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_cdc import apply_changes, ingest_changes
from delta_cdc.core.requests import IngestRequest
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.run.table_arguments import ingest_options
from tests.support.grouped import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import IngestSpec
    from delta_cdc.run.outcomes import Outcome

    Event = dict[str, Any]

SCHEMA = "seq BIGINT, id BIGINT, name STRING, amount BIGINT"
_TYPES = {"op": pa.string(), "seq": pa.int64(), "id": pa.int64(), "name": pa.string(), "amount": pa.int64()}


@dataclass
class Deliveries:
    """Files in ``<folder>/in``, ingested into ``<folder>/log``.

    :param given: further arguments of :func:`delta_cdc.ingest_changes`
    """

    spark: SparkSession
    folder: Path
    format: str = "json"
    given: dict[str, Any] = field(default_factory=dict)
    adapter_options: dict[str, Any] = field(
        default_factory=lambda: {"operation_column": "op", "sequence_by": "seq"}
    )

    def __post_init__(self) -> None:
        self.source.mkdir(parents=True, exist_ok=True)

    @property
    def source(self) -> Path:
        return self.folder / "in"

    @property
    def log(self) -> str:
        return str(self.folder / "log")

    # -- what is delivered --------------------------------------------------------------------------
    def deliver(self, name: str, events: Sequence[Event | str]) -> Path:
        """Write one file, in the place of one of that name; a text stands in it as it is."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.format == "parquet":
            rows = [event for event in events if isinstance(event, dict)]
            names = [known for known in _TYPES if any(known in row for row in rows)]
            schema = pa.schema([(known, _TYPES[known]) for known in names])
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        elif self.format == "csv":
            path.write_text(as_csv(events))
        else:
            path.write_text("".join(f"{_line(event)}\n" for event in events))
        return path

    # -- what becomes of it -------------------------------------------------------------------------
    def arguments(self, **more: Any) -> dict[str, Any]:
        header = {"format_options": {"header": "true"}} if self.format == "csv" else {}
        return {
            "keys": ["id"],
            "format": self.format,
            "schema": SCHEMA,
            "adapter_options": self.adapter_options,
            **header,
            **self.given,
            **more,
        }

    def ingest(self, **more: Any) -> Outcome:
        given = grouped({"pipeline": "flow", **self.arguments(**more)})
        return ingest_changes(self.spark, str(self.source), self.log, **given)

    def planned(self, **more: Any) -> IngestSpec:
        """Return the next batch, as a driver gets it that does not run it yet."""
        source = str(self.source)
        options = ingest_options({"source": source, **self.arguments()})
        spec = plan_ingest(
            IngestRequest(pipeline="flow", source=source, log=self.log, options=options, **more)
        ).spec
        assert spec is not None
        return spec

    def apply(self, target: str = "target", **more: Any) -> Outcome:
        given = grouped({"pipeline": "apply", "keys": ["id"], **more})
        return apply_changes(self.spark, self.log, str(self.folder / target), **given)

    def rows(self, table: str = "log") -> list[dict[str, Any]]:
        """Return what a table holds: the log, or one beside it."""
        found = self.spark.read.format("delta").load(str(self.folder / table)).collect()
        return [row.asDict(recursive=True) for row in found]

    def events(self) -> list[tuple[Any, ...]]:
        """Return the events of the log, sorted: operation, sequence, key, name and amount."""
        names = ("_op", "_sequence", "id", "name", "amount")
        return sorted((tuple(row.get(name) for name in names) for row in self.rows()), key=repr)

    def quarantined(self) -> list[tuple[str, str, str | None]]:
        """Return what is in quarantine, sorted: reason, name of the file, raw text."""
        if not (self.folder / "log__quarantine").exists():
            return []
        found = [
            (row["reason"], Path(row["position"]["file"]).name, row["raw"])
            for row in self.rows("log__quarantine")
        ]
        return sorted(found, key=repr)


def expected(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Return events as :meth:`Deliveries.events` shows them."""
    meant = {"I": "upsert", "U": "upsert", "D": "delete"}
    return sorted(
        ((meant[e["op"]], e["seq"], e.get("id"), e.get("name"), e.get("amount")) for e in events), key=repr
    )


def event(op: str, seq: int, key: int, **values: Any) -> Event:
    """Return one delivered event."""
    return {"op": op, "seq": seq, "id": key, **values}


def as_csv(events: Sequence[Event | str]) -> str:
    """Return events under a header; a text stands as a line as it is."""
    names = list(dict.fromkeys(name for e in events if isinstance(e, dict) for name in e))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for found in events:
        if isinstance(found, str):
            text.write(f"{found}\n")
        else:
            writer.writerow(["" if found.get(name) is None else found[name] for name in names])
    return text.getvalue()


def _line(found: Event | str) -> str:
    return found if isinstance(found, str) else json.dumps(found)
