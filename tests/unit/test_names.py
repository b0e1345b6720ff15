"""What a catalog says when it is asked for a table, and how it is told; without Spark."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException

from delta_cdc import job
from delta_cdc.api.changes import located
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNotFound
from delta_cdc.core.spec import ResolveSpec
from delta_cdc.spark import catalog, table_properties


class Told(AnalysisException):
    """An error of Spark's, with the condition that the JVM gives."""

    def __init__(self, condition: str | None, message: str = "why") -> None:
        super().__init__(f"[{condition}] {message}" if condition else message)
        self._condition = condition

    def getCondition(self) -> str | None:  # noqa: N802 - PySpark's name
        return self._condition


class Session:
    """A session whose every statement fails in one way."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def sql(self, _: str) -> NoReturn:
        raise self.error


ABSENT = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "CATALOG_NOT_FOUND",
    "REQUIRES_SINGLE_PART_NAMESPACE",
    "PATH_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
)
#: Errors that say nothing about the table, by what has to be told of them.
OTHERS: dict[str, Exception] = {
    "refused the connection": Told(None, "HiveException: the metastore refused the connection"),
    "Permission denied": PySparkException("AccessControlException: Permission denied: user=me"),
    "Syntax error": ParseException("[PARSE_SYNTAX_ERROR] Syntax error at or near '-'"),
    "no.such.Catalog": Told("DATA_SOURCE_NOT_FOUND", "no.such.Catalog"),
    "00007.json": Told("DELTA_LOG_FILE_NOT_FOUND", "_delta_log/00007.json"),
    "part-1.parquet": Told("DELTA_FILE_NOT_FOUND", "part-1.parquet"),
    "of_a_view": Told("ROUTINE_NOT_FOUND", "of_a_view"),
    "renamed": Told("RENAME_SRC_PATH_NOT_FOUND", "renamed"),
    "timed out": TimeoutError("timed out"),
}


def asked(session: Any) -> list[Exception]:
    """Return what each way to ask the catalog raises, or gives as the error of a result."""
    found: list[Exception] = []
    for ask in (
        lambda: catalog.run(session, ResolveSpec(run_id="r", tables=("a.b",))),
        lambda: located(session, "a.b"),
        lambda: table_properties._tables_of(session, "a", table_properties._Failures(goes_on=True)),
    ):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - looked at by the caller
            ask()
        found.append(raised.value)
    result = job.run(session, ResolveSpec(run_id="r", tables=("a.b",)))
    assert result.error is not None
    return [*found, DeltaCdcError.from_dict(result.error)]


@pytest.mark.parametrize("condition", ABSENT)
def test_what_the_catalog_says_is_absent_is_not_found(condition: str) -> None:
    for error in asked(Session(Told(condition))):
        assert isinstance(error, TableNotFound)


@pytest.mark.parametrize("said", OTHERS)
def test_what_else_fails_keeps_its_own_reason(said: str) -> None:
    for error in asked(Session(OTHERS[said])):
        assert not isinstance(error, TableNotFound | NotADeltaTable)
        assert said in str(error)
        assert "does not exist" not in str(error)
        assert "has no Delta table" not in str(error)
    with pytest.raises(DeltaCdcError, match=r"look-up of a\.b"):
        located(Session(OTHERS[said]), "a.b")  # type: ignore[arg-type]
