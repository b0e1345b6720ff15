"""What lands in a target, told from the projection alone: no table is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.spark.apply import layout, rows, schema
from delta_cdc.spark.apply.rows import CARRIED
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = (*METADATA_COLUMNS, states.SEQUENCE)


def read(spark: SparkSession, options: ApplyOptions) -> tuple[DataFrame, rows.Shape]:
    source = spark.sql(
        "SELECT 1 AS id, 'a' AS name, 2 AS n, array('name') AS authored, 'insert' AS _change_type, "
        "1L AS _commit_version, timestamp'2024-01-01' AS _commit_timestamp"
    )
    return rows.read(source, options, "source")


@pytest.mark.parametrize(
    ("options", "landing"),
    [
        ({}, ["id", "name", "n", "authored"]),
        ({"column_list": ("N",)}, ["id", "n"]),
        ({"except_column_list": ("name", "AUTHORED")}, ["id", "n"]),
        ({"columns_to_update": "Authored"}, ["id", "name", "n"]),
        ({"columns_to_update": "authored", "except_column_list": ("n",)}, ["id", "name"]),
        ({"columns_to_update": "authored", "column_list": ("authored",)}, ["id", "authored"]),
        ({"column_list": ("name",), "partition_by": {"part": "n % 2"}}, ["id", "name", "part"]),
        ({"except_column_list": ("n", "authored"), "partition_by": {"p": "n"}}, ["id", "name", "p"]),
        ({"select": ("id AS K", "n"), "column_list": (), "keys": ("k",)}, ["K"]),
        ({"column_list": ("name",), "keys": (), "insert_only": True}, ["name"]),
    ],
)
def test_what_lands(spark: SparkSession, options: dict[str, Any], landing: list[str]) -> None:
    asked = ApplyOptions(**{"keys": ("id",), **options})
    found, shape = read(spark, asked)
    kept = (*KEPT, CARRIED) if asked.columns_to_update is not None else KEPT
    assert found.columns == [*landing, *kept]
    assert list(shape.values) == landing


LOG = {"source_kind": "change_log", "sequence_by": "n"}


@pytest.mark.parametrize(
    ("options", "order", "added"),
    [
        ({}, None, []),
        ({"delete_mode": "soft"}, None, ["_deleted boolean"]),
        ({**LOG}, "int", []),
        ({**LOG, "delete_mode": "soft"}, "int", ["_deleted boolean"]),
        ({"source_kind": "snapshot", "snapshot_version_column": "n", "sequence_by": "n"}, "int", []),
        ({"stored_as_scd_type": 2}, "bigint", ["__START_AT bigint", "__END_AT bigint"]),
        (
            {"stored_as_scd_type": 2, **LOG, "sequence_by": ("n", "name"), "end_column": "till"},
            "struct<_1:int,_2:string>",
            ["__START_AT struct<_1:int,_2:string>", "till struct<_1:int,_2:string>"],
        ),
    ],
)
def test_what_orders_the_rows_and_what_is_added(
    spark: SparkSession, options: dict[str, Any], order: str | None, added: list[str]
) -> None:
    asked = ApplyOptions(keys=("id",), **options)
    _, shape = read(spark, asked)
    assert (None if shape.order_type is None else shape.order_type.simpleString()) == order
    assert shape.sequence_type == (shape.order_type if asked.stored_as_scd_type == 2 else None)
    made = schema.target_schema(shape, asked).fields[len(shape.values) :]
    assert [f"{field.name} {field.dataType.simpleString()}" for field in made] == added
    if shape.sequence_type is not None:
        statistics = layout.properties(shape, asked)["delta.dataSkippingStatsColumns"]
        assert statistics == f"`id`,`__START_AT`,`{asked.end_column}`"
