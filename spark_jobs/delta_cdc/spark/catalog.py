"""Names in Spark's catalogs: look up the table of a name, and register a target under its name.

A target is created and written by its location. It gets its name by one ``CREATE TABLE … LOCATION``, as soon
as its first commit exists. The table property :data:`~delta_cdc.core.properties.CATALOG_NAME` then records
the name: a table without it was never registered, so the next look-up finishes what a crash left; a table
with it that the catalog no longer has was dropped or renamed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from delta_cdc.core.errors import NotADeltaTable, TableNameGone, TableNameMoved, TableNotFound
from delta_cdc.core.properties import CATALOG_NAME
from delta_cdc.core.spec import JobResult
from delta_cdc.core.sql import quote, set_properties, string, table
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.spark.sessions import analysed, value_of

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplySpec, ResolveSpec, TargetName

log = logging.getLogger(__name__)

#: Error classes of Delta and Spark for an object that exists, but is not a Delta table.
_NO_DELTA = ("EXPECT_TABLE_NOT_VIEW", "NOT_A_DELTA", "MISSING_DELTA", "DELTA_TABLE_ONLY_OPERATION")

#: Error classes for a missing object, complete names: a missing data source, class or log file is a different
#: problem. Spark treats a catalog that is not configured as a part of a namespace.
_ABSENT = frozenset(
    {
        "CATALOG_NOT_FOUND",
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_NO_RELATION_TABLE",
        "DELTA_PATH_DOES_NOT_EXIST",
        "DELTA_TABLE_NOT_FOUND",
        "PATH_NOT_FOUND",
        "REQUIRES_SINGLE_PART_NAMESPACE",
        "SCHEMA_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
        "VIEW_NOT_FOUND",
    }
)

_REMEDY = "correct the name, and see that the application runs with the confs of that catalog."

#: The catalog that Spark always has, its conf, and Delta's class for it. Delta's keeps the tables where Spark
#: itself would: in a metastore, or in the memory of the application.
_SESSION_CATALOG = "spark_catalog"
_SESSION_CATALOG_CLASS = "spark.sql.catalog.spark_catalog"
_DELTAS_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_IMPLEMENTATION = "spark.sql.catalogImplementation"


def run(spark: SparkSession, spec: ResolveSpec) -> JobResult:
    """Resolve every name of a spec. Only :func:`target_of` writes.

    :return: per name ``{table, table_id, location, recorded}``; with several names, an invalid one gets
        ``{table, error}``
    :raises TableNotFound: the only name does not exist
    :raises NotADeltaTable: the only name is a view, or a table of another format
    :raises TableNameMoved: see :func:`target_of`
    :raises TableNameGone: see :func:`target_of`
    """
    results = []
    targets = {target.name: target for target in spec.targets}
    for name in spec.tables:
        try:
            if name in targets:
                row = target_of(spark, targets[name])
            else:
                detail = delta_detail(spark, name, remedy=_REMEDY)
                row = _described(name, detail)
        except (TableNotFound, NotADeltaTable, TableNameMoved, TableNameGone) as error:
            if len(spec.tables) == 1:
                raise
            results.append({"table": name, "error": error.to_dict()})
            continue
        log.info("The location of %s is %s", name, row["location"])
        results.append(row)
    return JobResult(status="committed", tables=tuple(results))


def target_of(session: SparkSession, target: TargetName) -> dict[str, Any]:
    """Return the table of a target's name, or where it is to be created.

    If the catalog does not have the name, but a table lies at its location, the table is registered: a crash
    came between the table's first commit and its name, or the user names a table that had none.

    :return: ``{table, table_id, location, recorded}``: ``recorded`` is the name that the table recorded;
        ``table_id`` is "" if no table has the name
    :raises TableNameMoved: the name has another location than ``target.location``, or its location has a
        table of another name
    :raises TableNameGone: the table at the location was registered under this name before
    :raises TableNotFound: the catalog has no such schema, the schema has no location, or the catalog is in
        the application's memory
    :raises NotADeltaTable: the name is a view, or a table of another format
    """
    found = existing_detail(session, target.name)
    location = target.location
    if found is not None:
        if location:
            _refuse_other(target.name, found["location"], location, "target_location is")
        return _described(target.name, found)
    schema_location = _schema_location(session, target.name)
    if not location and not schema_location:
        raise TableNotFound(
            f"{target.name} does not exist, and the catalog gives its schema no location.",
            remedy="say where to create it: layout={'target_location': '<path or URI>'}.",
        )
    location = location or f"{schema_location}/{target.name.split('.')[-1]}"
    table_id = "" if target.dry_run else registered(session, target.name, location, target.comment)
    recorded = target.name if table_id else ""
    return {"table": target.name, "table_id": table_id, "location": location, "recorded": recorded}


def _described(name: str, detail: dict[str, Any]) -> dict[str, Any]:
    recorded = detail["properties"].get(CATALOG_NAME, "")
    return {"table": name, "table_id": detail["id"], "location": detail["location"], "recorded": recorded}


def check(session: SparkSession, spec: ApplySpec) -> None:
    """Refuse an apply whose names no longer are the names of the locations that it was planned for.

    The planner may have taken a location from a cache, and a catalog can change at any time. A target that
    was created, but never registered, gets its name.

    :raises TableNameMoved: a name has another location now
    :raises TableNameGone: a table was dropped from the catalog, or renamed
    :raises TableNotFound: the name of the source does not exist
    """
    if spec.source_name:
        require(session, spec.source_name, spec.source_uri)
    if spec.target_name:
        found = existing_detail(session, spec.target_name)
        if found is not None:
            _refuse_other(spec.target_name, found["location"], spec.target_uri, "this run was planned for")
        elif not spec.dry_run:
            registered(session, spec.target_name, spec.target_uri, spec.target_comment)


def require(session: SparkSession, name: str, location: str) -> None:
    """Refuse a name that no longer is the name of the location that a job was planned for.

    :raises TableNameMoved: it has another location now
    :raises TableNameGone: the catalog does not have it any more
    """
    found = existing_detail(session, name)
    if found is None:
        raise _gone(name, location)
    _refuse_other(name, found["location"], location, "this run was planned for")


def registered(session: SparkSession, name: str, location: str, comment: str = "") -> str:
    """Give the table at a location its name, which the catalog does not have.

    :return: id of the table that has the name now; "" if no table lies at the location
    :raises TableNameGone: the table was registered under this name before
    :raises TableNameMoved: the table has another name, or another table got the name at the same moment
    :raises NotADeltaTable: files lie at the location, but no Delta table
    """
    uri = spark_uri(location)
    detail = existing_detail(session, uri)
    if detail is None:
        return ""
    if detail["properties"].get(CATALOG_NAME) == name:
        raise _gone(name, location)
    _refuse_named(session, name, location, detail)
    commented = f" COMMENT {string(comment)}" if comment else ""
    session.sql(f"CREATE TABLE IF NOT EXISTS {table(name)} USING delta{commented} LOCATION {string(uri)}")
    found = delta_detail(session, name, remedy=_REMEDY)
    _refuse_other(name, found["location"], location, "it was to be the name of")
    properties = {CATALOG_NAME: name, **({"comment": comment} if comment else {})}
    session.sql(set_properties(uri, properties))
    log.info("the table at %s is registered as %s", location, name)
    return str(found["id"])


def existing_detail(session: SparkSession, name: str) -> dict[str, Any] | None:
    """Return :func:`delta_detail`, or None if nothing has the name or lies at the location."""
    try:
        return delta_detail(session, name, remedy=_REMEDY)
    except TableNotFound:
        return None


def has_table(session: SparkSession, uri: str) -> bool:
    """Return whether a Delta table lies at a location.

    Data files without a commit are no table: its first writer has died, or has not committed yet.
    """
    try:
        return existing_detail(session, uri) is not None
    except NotADeltaTable:
        return False


def _refuse_other(name: str, location: str, expected: str, whose: str) -> None:
    if canonical_uri(location) != canonical_uri(expected):
        raise TableNameMoved(
            f"{name} is the name of the table at {location}, and {whose} {expected}.",
            remedy="find out which of the two tables is right. The next run looks up the name again, and "
            "only writes to a table that is empty or has the watermark of this pipeline. To continue with "
            "the other table, use its location instead of the name.",
        )


def _refuse_named(session: SparkSession, name: str, location: str, detail: dict[str, Any]) -> None:
    """Refuse a name for a table that the catalog has under another one, as after a promotion by names."""
    other = detail["properties"].get(CATALOG_NAME)
    found = existing_detail(session, other) if other else None
    if found is not None and found["id"] == detail["id"]:
        raise TableNameMoved(
            f"The catalog has no {name}, and {location}, where it would be created, has the table {other}.",
            remedy="take another name, or say where to create it: layout={'target_location': '<path or "
            f"URI>'}}. To write to that table, name it: {other}.",
        )


def _gone(name: str, location: str) -> TableNameGone:
    return TableNameGone(
        f"The catalog has no {name} any more: it was dropped or renamed. Its table still lies at {location}.",
        remedy="give the table's new name or its location. To load it again, delete its folder, too. Or give "
        "the name back: CREATE TABLE "
        f"{table(name)} USING delta LOCATION {string(spark_uri(location))}",
    )


def _schema_location(session: SparkSession, name: str) -> str:
    """Return the location of a name's schema, without a slash at its end; "" if the catalog has none.

    :raises TableNotFound: the schema does not exist, or is in a catalog that ends with the application
    """
    parts = name.split(".")
    schema = ".".join(map(quote, parts[:-1])) or quote(session.catalog.currentDatabase())
    try:
        rows = session.sql(f"DESCRIBE SCHEMA EXTENDED {schema}").collect()
    except Exception as error:
        if not says_absent(error):
            raise
        raise TableNotFound(
            f"{name} does not exist, nor does its schema.",
            remedy=f"{_REMEDY} A schema is never created here.",
        ) from error
    description = {row[0]: row[1] for row in rows}
    in_session_catalog = description.get("Catalog Name") == _SESSION_CATALOG
    in_memory = (
        in_session_catalog
        and value_of(session, _SESSION_CATALOG_CLASS) == _DELTAS_CATALOG
        and value_of(session, _IMPLEMENTATION) in (None, "in-memory")
    )
    if in_memory:
        raise TableNotFound(
            f"{name} does not exist. The catalog of this application is in its memory, so a name that it "
            "registers would be lost at its end.",
            remedy=f"set the confs of a persistent catalog (for a Hive metastore {_IMPLEMENTATION}=hive and "
            "spark.hadoop.hive.metastore.uris), or the table's location.",
        )
    location = str(description.get("Location") or "").rstrip("/")
    # Spark shows the location as an encoded URI here, and takes all other locations literally.
    return unquote(location) if in_session_catalog else location


def delta_detail(session: SparkSession, name: str, *, remedy: str) -> dict[str, Any]:
    """Return Delta's description of a table, as ``DESCRIBE DETAIL`` gives it.

    :param name: path, URI or catalog name
    :param remedy: what to do if no table has that name
    :raises TableNotFound: the name does not exist
    :raises NotADeltaTable: the name is a view, or a table of another format
    """
    try:
        row = session.sql(f"DESCRIBE DETAIL {table(name)}").collect()[0].asDict()
    except Exception as error:
        text = str(error)
        if any(part in text for part in _NO_DELTA) and _something_is_at(session, name):
            raise NotADeltaTable(
                f"{name} is not a Delta table.",
                remedy="name a Delta table, or convert it to Delta first. Of a view, name its table, and put "
                "the view's SQL into where and select.",
            ) from error
        if not says_absent(error):
            raise
        raise TableNotFound(f"{name} does not exist.", remedy=remedy) from error
    if row["format"] != "delta":
        raise NotADeltaTable(
            f"{name} is a {row['format']} table, not a Delta table.", remedy="convert it to Delta first."
        )
    return row


def says_absent(error: Exception) -> bool:
    """Return whether the error means that the name does not exist. A failing catalog is another error."""
    # An unreachable metastore also raises an AnalysisException.
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    return condition in _ABSENT


def tables_of(session: SparkSession, schema: str) -> list[str]:
    """Return the names of the tables and views of a schema, without the schema, sorted.

    :param schema: a name such as ``main.sales``
    :raises TableNotFound: the schema does not exist
    """
    try:
        rows = session.sql(f"SHOW TABLES IN {table(schema)}").collect()
    except Exception as error:
        if not says_absent(error):
            raise
        raise TableNotFound(f"The schema {schema} does not exist.", remedy=_REMEDY) from error
    return sorted(str(row["tableName"]) for row in rows if not row["isTemporary"])


def location_of(session: SparkSession, name: str) -> str:
    """Return the location of a Delta table.

    :param name: its name in a catalog
    :raises TableNotFound: the name does not exist
    :raises NotADeltaTable: the name is a view, or a table of another format
    """
    return str(delta_detail(session, name, remedy=_REMEDY)["location"])


def _something_is_at(session: SparkSession, name: str) -> bool:
    """Return whether a path has other files. Delta's error is the same for an empty path."""
    if "/" not in name:
        return True
    try:
        analysed(session.read.format("binaryFile").load(name))
    except Exception as error:
        if not says_absent(error):
            raise
        return False
    return True
