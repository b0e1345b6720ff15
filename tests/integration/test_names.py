"""What Spark's catalog says about a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.core.spec import ResolveSpec
from delta_cdc.core.uris import canonical_uri
from delta_cdc.spark.catalog import run
from tests.support.engine import session_like

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def sales(spark: SparkSession) -> Iterator[SparkSession]:
    """A schema with a Delta table, another table, and a view of each."""
    spark.sql("CREATE SCHEMA names_sales")
    spark.sql("CREATE TABLE names_sales.orders (id BIGINT) USING delta")
    spark.sql("CREATE TABLE names_sales.files (id BIGINT) USING parquet")
    spark.sql("CREATE VIEW names_sales.of_orders AS SELECT * FROM names_sales.orders")
    spark.sql("CREATE VIEW names_sales.of_files AS SELECT * FROM names_sales.files")
    yield spark
    spark.sql("DROP SCHEMA names_sales CASCADE")


def test_locations_and_ids(sales: SparkSession) -> None:
    names = ("names_sales.orders", "spark_catalog.names_sales.orders")
    result = job.run(sales, ResolveSpec(run_id="r", tables=names))
    assert result.status == "committed"
    assert [row["table"] for row in result.tables] == list(names)
    for row in result.tables:
        detail = sales.sql(f"DESCRIBE DETAIL delta.`{canonical_uri(row['location'])}`").collect()[0]
        assert row["table_id"] == detail["id"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("names_sales.nothing", TableNotFound),
        ("names_nowhere.orders", TableNotFound),
        ("nowhere.names_sales.orders", TableNotFound),
        ("names_sales.files", NotADeltaTable),
        ("names_sales.of_orders", NotADeltaTable),
        ("names_sales.of_files", NotADeltaTable),
    ],
)
def test_what_is_no_delta_table_is_named(sales: SparkSession, name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        run(sales, ResolveSpec(run_id="r", tables=(name,)))
    # Among others, it costs nobody else the answer.
    found, none = run(sales, ResolveSpec(run_id="r", tables=("names_sales.orders", name))).tables
    assert found.keys() == {"table", "table_id", "location", "recorded"}
    assert none["table"] == name
    assert none["error"]["class"] == error.__name__


def test_a_catalog_that_does_not_answer_is_not_an_unknown_name(
    sales: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import AnalysisException

    def away(*_: object) -> object:
        raise AnalysisException("HiveException: the metastore refused the connection")

    monkeypatch.setattr(type(sales), "sql", away)
    with pytest.raises(AnalysisException):
        run(sales, ResolveSpec(run_id="r", tables=("names_sales.orders",)))


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"": "no.such.Catalog"}, r"no\.such\.Catalog"),
        ({"": "java.lang.String"}, "java.lang.String"),
        (
            {
                "": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
                ".url": "jdbc:derby:memory:nowhere",
                ".driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
            },
            "connect to the database",
        ),
    ],
)
def test_a_catalog_that_cannot_be_asked_keeps_its_reason(
    sales: SparkSession, conf: dict[str, str], said: str
) -> None:
    name = f"broken_{len(said)}"
    sales = session_like(sales)
    for key, value in conf.items():
        sales.conf.set(f"spark.sql.catalog.{name}{key}", value)
    asked = f"{name}.names_sales.orders"
    result = job.run(sales, ResolveSpec(run_id="r", tables=(asked,)))
    assert result.error is not None
    assert result.error["class"] != "TableNotFound"
    assert re.search(said, result.error["message"])
    with pytest.raises(DeltaCdcError, match=said) as raised:
        located(sales, asked)
    assert not isinstance(raised.value, TableNotFound)
