"""A first batch without an event: the error says why, and nothing is lost."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from delta_cdc import ingest_changes
from delta_cdc.cli import main
from delta_cdc.core.errors import NoEventYet
from delta_cdc.spark.ingest.events import _unread
from tests.support import debezium as d
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_reasons_and_the_adapter_that_it_may_be(spark: SparkSession, tmp_path: Path) -> None:
    landing, log = tmp_path / "landing", tmp_path / "log"
    landing.mkdir()
    change = d.change("c", None, {"id": 1, "v": "x"}, d.postgresql(100, 120))
    lines = [*[json.dumps(change)] * 3, "no JSON"]
    (landing / "1.json").write_text("".join(f"{line}\n" for line in lines))
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"]}
    options = {"operation_column": "kind", "sequence_by": "ts_ms"}
    with pytest.raises(NoEventYet) as caught:
        ingest_changes(spark, str(landing), str(log), adapter_options=options, **given)
    message = caught.value.message
    assert "4 records are not events: 3 times unknown operation ''; 1 time not JSON: 'n' at" in message
    assert '"connector": "postgresql"' in message
    assert "set adapter to 'debezium'" in caught.value.remedy
    assert "delta-cdc decode" in caught.value.remedy
    assert not log.exists()
    done = ingest_changes(spark, str(landing), str(log), adapter="debezium", **given)
    assert (done.counts["events"], done.counts["quarantined"]) == (3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1.json", "1.json.gz"])
def test_a_first_batch_without_an_event_grows_beyond_its_limits(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """The limit would choose the same file again, however much input comes: without values, or damaged."""
    landing, log = tmp_path / "landing", str(tmp_path / "log")
    landing.mkdir()
    (landing / name).write_text("null\n")
    os.utime(landing / name, (1_700_000_000, 1_700_000_000))
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "adapter_options": {"sequence_by": "n"}}
    with pytest.raises(NoEventYet):
        ingest_changes(spark, str(landing), log, limits={"max_files": 1}, **given)
    (landing / "2.json").write_text(json.dumps({"id": 1, "n": 1}) + "\n")
    assert ingest_changes(spark, str(landing), log, limits={"max_files": 1}, **given).counts["events"] == 1
    (landing / "3.json").write_text(json.dumps({"id": 2, "n": 2}) + "\n")
    assert ingest_changes(spark, str(landing), log, limits={"max_files": 1}, **given).counts["events"] == 1


def test_a_text_that_spark_takes_as_no_variant_is_not_lost(spark: SparkSession) -> None:
    """Older versions of Spark have a limit below ours: such a text must not become NULL."""
    texts = [("upsert", "{"), ("upsert", '{"a": 1}'), ("upsert", None), ("delete", "{")]
    rows = spark.createDataFrame(texts, "_op string, v string")
    found = rows.select(_unread(T.StructField("v", T.VariantType()))).collect()
    assert [row[0] for row in found] == ["column v is no variant", None, None, None]


@pytest.mark.parametrize("format_name", slow_but(["json", "parquet"]))
def test_a_wider_type_in_the_records_widens_the_log(
    spark: SparkSession, tmp_path: Path, format_name: str
) -> None:
    """As ``int4`` that became ``int8``; without the policy, values that do not fit go to quarantine."""
    landing, log = tmp_path / "landing", tmp_path / "log"
    landing.mkdir()
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "adapter": "debezium"}
    if format_name == "parquet":
        given |= {"adapter": "plain", "adapter_options": {"sequence_by": "id"}, "format": "parquet"}

    def deliver(file: str, kind: str, *rows: tuple[int, int]) -> None:
        if format_name == "parquet":
            types = pa.schema([("id", pa.int32()), ("qty", getattr(pa, kind)())])
            columns = dict(zip(types.names, map(list, zip(*rows, strict=True)), strict=True))
            pq.write_table(pa.table(columns, types), landing / f"{file}.parquet")
            return
        fields = [{"field": "id", "type": "int32"}, {"field": "qty", "type": kind, "optional": True}]
        schema = d.envelope_schema(fields)
        lines = [
            d.message(d.change("c", None, {"id": key, "qty": qty}, d.postgresql(key, key)), schema)
            for key, qty in rows
        ]
        (landing / file).write_text("".join(f"{line}\n" for line in lines))

    deliver("1.json", "int32", (1, 7))
    ingest_changes(spark, str(landing), str(log), **given)
    deliver("2.json", "int64", (2, 5_000_000_000), (3, 8))
    done = ingest_changes(spark, str(landing), str(log), **given)
    assert (done.counts["events"], done.counts["quarantined"]) == (1, 1)
    # A replay follows the policy of the configuration.
    widen = given | {"policies": {"schema_evolution": "widen"}}
    entry = {name: value for name, value in widen.items() if name != "pipeline"}
    file = tmp_path / "flows.yaml"
    file.write_text(json.dumps({"pipelines": {"p": {**entry, "source": str(landing), "log": str(log)}}}))
    # A record of a Parquet file is in quarantine without the types of its file.
    is_typed = format_name == "json"
    assert main(["replay", str(file), "p"]) == (0 if is_typed else 1)
    deliver("3.json", "int64", (4, 6_000_000_000))
    deliver("4.json", "int32", (5, 9))
    done = ingest_changes(spark, str(landing), str(log), **widen)
    assert (done.counts["events"], done.counts.get("quarantined", 0)) == (2, 0)
    assert is_typed or main(["replay", str(file), "p"]) == 0
    rows = spark.read.format("delta").load(str(log))
    assert rows.schema["qty"].dataType == T.LongType()
    found = {row["id"]: row["qty"] for row in rows.collect()}
    assert found == {1: 7, 2: 5_000_000_000, 3: 8, 4: 6_000_000_000, 5: 9}


@pytest.mark.slow
def test_a_warning_lists_the_columns_that_the_schema_leaves_out(
    spark: SparkSession, tmp_path: Path, caplog: Any
) -> None:
    """In lines, whose names the executors see; in columns; not again for a file without such a column."""
    rows = [{"id": 1, "v": "a", "price": 2, "n": 1}, {"id": 2, "v": "b", "n": 2}]
    given: dict[str, Any] = {"keys": ["id"], "schema": "id INT, v STRING"}
    given["adapter_options"] = {"sequence_by": "n"}
    for format_name in ("json", "parquet"):
        landing, warned = tmp_path / format_name, []
        landing.mkdir()
        for number, row in enumerate(rows):
            path = landing / f"{number}.{format_name}"
            if format_name == "json":
                path.write_text(json.dumps(row) + "\n")
            else:
                pq.write_table(pa.Table.from_pylist([row]), path)
            caplog.clear()
            log = str(tmp_path / f"{format_name}_log")
            done = ingest_changes(spark, str(landing), log, pipeline="p", format=format_name, **given)
            assert done.counts["events"] == 1
            assert done.counts.get("left_out:price") == (1 if number == 0 else None)
            warned.append([one for one in caplog.messages if "leaves out the column(s) 'price' of" in one])
        assert [len(messages) for messages in warned] == [1, 0]
