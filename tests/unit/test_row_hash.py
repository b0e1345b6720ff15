"""Which columns the hash of a row covers, and the SQL of one, without a JVM."""

from __future__ import annotations

from pyspark.sql import types as T

from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply.row_hash import counted, hash_sql
from delta_cdc.spark.apply.rows import Shape


def _shape(*names: str, flag: str = "") -> Shape:
    schema = T.StructType([T.StructField(name, T.StringType()) for name in names])
    return Shape(("id",), names, names, (), schema, None, flag=flag)


def _options(**more: object) -> ApplyOptions:
    return ApplyOptions(keys=("id",), row_hash_column="h", **more)  # type: ignore[arg-type]


def test_columns_of_the_layout_do_not_count() -> None:
    """Computed partition columns in any case, and the mark of deleted rows; a source's own ones do."""
    options = _options(partition_by={"Day": "left(at, 1)", "city": None})
    shape = _shape("id", "city", "at", "day", "_deleted", flag="_deleted")
    assert list(counted(shape, options)) == ["id", "city", "at"]
    # A source's own column of this name, where the engine marks nothing.
    assert list(counted(_shape("id", "_deleted"), _options())) == ["id", "_deleted"]


def test_the_order_of_the_columns_does_not_count() -> None:
    """Columns are ordered by the bytes of their names in lower case, which other systems can do."""
    names = ["id", "Z", "a", "\u00e9", "_b"]
    one, other = (hash_sql({name: T.StringType() for name in order}) for order in (names, names[::-1]))
    assert one == other
    places = [one.index(f"sha2(CAST('{name}' AS BINARY)") for name in ("_b", "a", "id", "z", "\u00e9")]
    assert places == sorted(places)
