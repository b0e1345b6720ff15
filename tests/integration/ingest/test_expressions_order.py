"""SQL expressions in ``sequence_by`` and ``source_timestamp``: Spark evaluates them over the record."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc.core.change_log import OP, SEQUENCE, SOURCE_TIMESTAMP
from delta_cdc.core.errors import InvalidExpression
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import SourceFile
from delta_cdc.ingest.batch import REASON
from delta_cdc.spark.ingest.decoding import Decoding
from tests.support import debezium as d
from tests.support.engine import session_like

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def rows_of(
    spark: SparkSession,
    folder: Path,
    lines: list[Any],
    *,
    schema: str | None = None,
    log_sequence: T.DataType | None = None,
    **options: Any,
) -> list[Any]:
    path = folder / "1.json"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    declared = None if schema is None else T.StructType.fromDDL(schema)
    decoding = Decoding(
        IngestOptions(keys=("id",), **options),
        declared=declared,  # type: ignore[arg-type]
        known=None,
        log_sequence=log_sequence,
    )
    decoding.add_files(session_like(spark), [SourceFile(str(path), path.stat().st_size, 0)])
    decoding.look()
    rows, _, _ = decoding.rows()
    return rows.collect()


def test_over_columns(spark: SparkSession, tmp_path: Path) -> None:
    """They may name columns that the log does not get; the parts of a list become one text."""
    lines = [
        {"id": 1, "lsn": "0/10", "ts": "2024-01-02 00:00:00", "n": 5},
        {"id": 2, "lsn": "0/9", "ts": "2024-01-01 00:00:00", "n": -1},
    ]
    options = {
        "sequence_by": "cast(split(lsn, '/')[1] as bigint)",
        "source_timestamp": "to_timestamp(ts) + interval 1 day",
        "except_column_list": ["lsn", "ts"],
    }
    rows = rows_of(spark, tmp_path, lines, adapter_options=options)
    assert [row[SEQUENCE] for row in rows] == [10, 9]
    assert [row[SOURCE_TIMESTAMP].isoformat(sep=" ") for row in rows] == [
        "2024-01-03 00:00:00",
        "2024-01-02 00:00:00",
    ]
    assert "lsn" not in rows[0].asDict()
    several = rows_of(spark, tmp_path, lines, adapter_options={"sequence_by": ["n * 2", "_row", "lsn"]})
    assert [row[SEQUENCE] for row in several] == [
        f"{10:020d}/{0:020d}/{0:020d}/{10:020d}",
        f"-{10**20 - 1 - 2:020d}/{1:020d}/{0:020d}/{9:020d}",
    ]
    assert sorted(row[SEQUENCE] for row in several) == [several[1][SEQUENCE], several[0][SEQUENCE]]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("cast(v as bigint) + 1", [2, None, None]),
        ("cast(v as decimal(38,0)) * 3", [Decimal(3), None, Decimal(9223372036854775807 * 3)]),
        ("1 / (length(v) - 1)", [None, None, 1 / 18]),
        ("concat('a', v, if(v = 'x', raise_error('b'), ''))", ["a1", None, "a9223372036854775807"]),
        ("timestamp_seconds(1729990800 + cast(v as int))", ["2024-10-27 01:00:01", None, None]),
        (
            "cast(timestamp_seconds(1729990800 + cast(v as int)) as timestamp_ntz)",
            ["2024-10-27 01:00:01", None, None],
        ),
        ("date_add(DATE'9999-12-30', cast(v as int))", ["9999-12-31", None, None]),
    ],
    ids=["bigint", "decimal", "double", "string", "timestamp", "ntz", "date"],
)
def test_a_record_for_which_an_expression_raises_has_no_order(
    spark: SparkSession, tmp_path: Path, expression: str, wanted: list[Any]
) -> None:
    """It is invalid alone; all other values are those of Spark, in a zone with a repeated hour, too."""
    lines = [{"id": 1, "v": "1"}, {"id": 2, "v": "x"}, {"id": 3, "v": "9223372036854775807"}]
    options = {"sequence_by": expression, "source_timestamp": "to_timestamp(if(v = 'x', raise_error(''), v))"}
    rows = rows_of(spark, tmp_path, lines, schema="id INT, v STRING", adapter_options=options)
    found = [row[SEQUENCE] for row in rows]
    assert [str(value) if isinstance(value, datetime | date) else value for value in found] == wanted
    assert [row[SOURCE_TIMESTAMP] for row in rows] == [None] * 3


def test_with_old_keys(spark: SparkSession, tmp_path: Path) -> None:
    options = {"sequence_by": "ts * 10", "old_keys": {"id": "old"}}
    rows = rows_of(spark, tmp_path, [{"id": 2, "old": 1, "ts": 3}], adapter_options=options)
    assert [(row[OP], row["id"], row[SEQUENCE]) for row in rows] == [
        ("delete", 1, f"{30:020d}/0"),
        ("upsert", 2, f"{30:020d}/1"),
    ]


def test_the_logs_type_stays(spark: SparkSession, tmp_path: Path) -> None:
    lines = [{"id": 1, "ts": 3}, {"id": 2, "ts": 4.5}]
    schema = "id INT, ts DOUBLE"
    options = {"sequence_by": "ts + 0"}
    rows = rows_of(spark, tmp_path, lines, schema=schema, adapter_options=options, log_sequence=T.LongType())
    assert [row[SEQUENCE] for row in rows] == [3, None]
    with pytest.raises(InvalidExpression, match="cannot be compared"):
        rows_of(spark, tmp_path, lines, schema=schema, adapter_options=options, log_sequence=T.StringType())
    with pytest.raises(InvalidExpression, match="lpad"):
        rows_of(spark, tmp_path, lines, schema=schema, adapter_options={"sequence_by": ["ts + 0", "id"]})
    with pytest.raises(InvalidExpression, match="does not resolve"):
        rows_of(spark, tmp_path, lines, schema=schema, adapter_options={"sequence_by": "upper(a b)"})


def test_over_an_envelope(spark: SparkSession, tmp_path: Path) -> None:
    source = {"connector": "vitess", "vgtid": "x", "ts_ms": 5}
    change = d.change("c", None, {"id": 1, "op": "the row's own"}, source)
    line = d.message({**change, "transaction": {"total_order": 7}})
    options = {
        "sequence_by": [
            "cast(source.ts_ms as bigint)",
            "cast(get_json_object(transaction, '$.total_order') as bigint)",
        ]
    }
    (row,) = rows_of(spark, tmp_path, [line], adapter="debezium", adapter_options=options)
    assert (row[REASON], row[SEQUENCE], row["op"]) == (None, f"{5:020d}/{7:020d}", "the row's own")
    flat = json.dumps({"id": 1, "__op": "c", "__source_lsn": 120})
    by_lsn = {"unwrapped": True, "sequence_by": "cast(source.lsn as bigint)"}
    (row,) = rows_of(spark, tmp_path, [flat], adapter="debezium", adapter_options=by_lsn)
    assert (row[REASON], row[SEQUENCE]) == (None, 120)
