"""Leave out the rows of erased keys: compare the keys of rows with a ledger (:mod:`delta_cdc.core.erasure`).

The text of a key does not depend on the width of its type, so that a column may widen after an erasure.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType

from delta_cdc.core import codec, maintenance_tags
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.erasure import HASH, hash_sql, ledger_of
from delta_cdc.core.errors import ColumnNotFound, InvalidConfiguration
from delta_cdc.core.properties import ERASED, ERASED_COLUMNS, ERASED_SECRET
from delta_cdc.core.quarantine import key_text_sql
from delta_cdc.core.sql import PLAN_PREFIX, merge, quote, set_properties, table
from delta_cdc.spark import catalog
from delta_cdc.spark.changes import states
from delta_cdc.spark.maintain.optimize import marked
from delta_cdc.spark.sessions import set_where_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.erasure import ErasedKeys
    from delta_cdc.core.watermark import TableVersion

log = logging.getLogger(__name__)

_VIEW = f"{PLAN_PREFIX}erased"
_REWRITE = {"spark.databricks.delta.merge.deletionVectors.persistent": "false"}
#: The hash of a row's key, and that of the ledger.
_ROW, _FOUND = f"{PLAN_PREFIX}key_hash", f"{PLAN_PREFIX}erased_hash"
#: More digits after the point make Spark write small numbers in scientific notation.
_MOST_DIGITS = 6
_WHOLE = T.ByteType | T.ShortType | T.IntegerType | T.LongType
_REMEDY = (
    "restore this table from a backup. Or remove the property delta_cdc.erased from the table beside it; "
    "from then on, a replay brings erased keys back."
)


@dataclass(frozen=True)
class Ledger:
    """A ledger as Spark reads it.

    :param columns: the key columns, in the order in which their texts are hashed
    :param hashes: one column, :data:`~delta_cdc.core.erasure.HASH`, without duplicates
    """

    uri: str
    secret: str
    columns: tuple[str, ...]
    hashes: DataFrame

    def hash_of(self, rows: DataFrame, place: str) -> Column:
        """Return the hash of the key of each row.

        :param rows: have the key columns, in any case
        :param place: whose rows they are, for the error
        :raises ColumnNotFound: the rows lack a key column
        :raises InvalidConfiguration: the type of a key column has no text that can be compared
        """
        names = self.names_in(rows, place)
        texts = [text_sql(quote(name), rows.schema[name].dataType, name) for name in names]
        return F.expr(hash_sql(self.secret, texts))

    def names_in(self, rows: DataFrame, place: str) -> tuple[str, ...]:
        """Return the key columns as some rows spell them.

        :param place: whose rows they are, for the error
        :raises ColumnNotFound: the rows lack a key column
        """
        try:
            return states.match(rows.columns, self.columns, "the columns of erased keys", place)
        except ColumnNotFound as error:
            raise ColumnNotFound(error.message, remedy=f"{new_names(self.uri, self.columns)}.") from error

    def matched(self, rows: DataFrame, place: str, how: str) -> DataFrame:
        """Return the rows of erased keys (``left_semi``), or all others, also those without a key
        (``left_anti``). The errors are those of :meth:`hash_of`.
        """
        columns = [F.col(f"r.{quote(name)}") for name in rows.columns]
        keyed = rows.withColumn(_ROW, self.hash_of(rows, place)).alias("r")
        hashes = F.broadcast(self.hashes.alias("e"))
        return keyed.join(hashes, F.col(f"r.{_ROW}") == F.col(f"e.{HASH}"), how).select(*columns)

    def flagged(self, rows: DataFrame, place: str, flag: str) -> DataFrame:
        """Return all rows, with a flag for those of erased keys. The errors are those of :meth:`hash_of`."""
        found = F.broadcast(self.hashes.select(F.col(HASH).alias(_FOUND)))
        joined = rows.withColumn(_ROW, self.hash_of(rows, place)).join(
            found, F.col(_ROW) == F.col(_FOUND), "left"
        )
        return joined.withColumn(flag, F.col(_FOUND).isNotNull()).drop(_ROW, _FOUND)


def new_names(ledger: str, columns: Sequence[str]) -> str:
    """Return what to do if key columns got other names, for an error."""
    return (
        f"if a key column got another name, give it to the table of erased keys, too, in this order "
        f"({', '.join(columns)}): ALTER TABLE {table(ledger)} SET TBLPROPERTIES ('{ERASED_COLUMNS}' = "
        "'[\"<new name>\"]')"
    )


def text_sql(value: str, data_type: DataType, name: str) -> str:
    """Return the SQL of the text of a key column's value.

    :param value: SQL of the value, of this type
    :param name: the column's name, for the error
    :raises InvalidConfiguration: the type has no text that is the same for equal keys
    """
    text = f"CAST({value} AS STRING)"
    if isinstance(data_type, T.DecimalType) and 0 < data_type.scale <= _MOST_DIGITS:
        return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    if isinstance(data_type, T.DecimalType) and not data_type.scale:
        return text
    if isinstance(data_type, T.TimestampNTZType):
        # A date may widen to this type.
        return f"regexp_replace({text}, ' 00:00:00$', '')"
    if isinstance(data_type, T.BinaryType):
        return f"hex({value})"
    if data_type == T.StringType() or isinstance(data_type, T.CharType | T.VarcharType):
        return value
    if isinstance(data_type, _WHOLE | T.BooleanType | T.DateType | T.TimestampType):
        return text
    raise InvalidConfiguration(
        f"The key column {name} is of type {data_type.simpleString()}: equal keys of this type may have "
        "different texts, so an erased key cannot be remembered.",
        remedy="erase keys of whole numbers, decimals of up to 6 digits after the point, texts without "
        "collation, dates, times, booleans or binaries.",
        argument="key",
    )


def read(session: SparkSession, uri: str) -> Ledger:
    """Return a ledger.

    :raises TableNotFound: it does not exist
    :raises InvalidConfiguration: the table is no ledger
    """
    properties: Mapping[str, str] = catalog.delta_detail(session, uri, remedy=_REMEDY)["properties"]
    secret, columns = properties.get(ERASED_SECRET), _names(properties.get(ERASED_COLUMNS, ""))
    if secret is None or not columns:
        raise InvalidConfiguration(
            f"{uri} is no table of erased keys: it has no properties {ERASED_SECRET} and {ERASED_COLUMNS}.",
            remedy=_REMEDY,
        )
    hashes = session.read.format("delta").load(uri).select(HASH).distinct()
    return Ledger(uri, secret, columns, hashes)


def _names(text: str) -> tuple[str, ...]:
    try:
        value: Any = codec.parsed(text)
    except UnreadableJson:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else ()


def changed_since(erased: ErasedKeys, properties: Mapping[str, str], uri: str) -> str | None:
    """Return a message if keys were erased from a table after planning, so that a job may have their rows.

    :param properties: the table's properties now
    """
    if properties.get(ERASED, "") == erased.marker:
        return None
    return f"keys were erased from {uri} after planning"


def mark(session: SparkSession, erased: ErasedKeys, uri: str) -> None:
    """Set the property of a table that has a ledger and lost the property, or never had it."""
    if erased.ledger and not erased.marker:
        session.sql(set_properties(uri, {ERASED: marker(session, erased.ledger)}))


def marker(session: SparkSession, ledger: str) -> str:
    """Return the value of the property: it differs for each state of a ledger."""
    history = session.sql(f"DESCRIBE HISTORY {table(ledger)} LIMIT 1")
    return str(history.select("version").collect()[0]["version"])


# -- delete -----------------------------------------------------------------------------------------
def delete(session: SparkSession, uri: str, source: DataFrame, condition: str) -> None:
    """Delete the rows of a table that match a row of a source, and rewrite their files without them.

    The maintenance tag of the commit shows readers of a log that its source retracted no event. Statement and
    commit contain no key.

    :param condition: SQL over the aliases ``t`` of the table and ``s`` of the source
    """
    # With deletion vectors the rows would stay in the current files.
    set_where_allowed(session, _REWRITE)
    statement = merge(
        target=uri,
        source_view=_VIEW,
        on=[condition],
        clauses=["WHEN MATCHED THEN DELETE"],
        evolve=False,
    )
    log.info("deleting the rows of erased keys from %s", uri)
    source.createOrReplaceTempView(_VIEW)
    try:
        with marked(session, maintenance_tags.written("erase")):
            session.sql(statement)
    finally:
        session.catalog.dropTempView(_VIEW)


def delete_again(
    session: SparkSession,
    erased: ErasedKeys,
    uri: str,
    planned_on: TableVersion | None,
    version: int,
    *,
    quarantine: str = "",
) -> None:
    """Delete rows of erased keys that a commit brought in, because an erasure came between its last check and
    its commit; or that an earlier run brought in, which died then. This costs something only in the first run
    after an erasure, and if other commits lie between planning and commit.

    :param version: the version that was committed
    :param quarantine: location of the rows that a run puts aside before its commit; "" for none
    """
    is_overtaken = planned_on is not None and version != planned_on.version + 1
    if not is_overtaken and not erased.is_new:
        return
    properties = catalog.delta_detail(session, uri, remedy=_REMEDY)["properties"]
    if ERASED not in properties or not (erased.is_new or changed_since(erased, properties, uri)):
        return
    ledger = read(session, ledger_of(uri))
    rows = session.read.format("delta").load(uri)
    columns = ledger.names_in(rows, uri)
    if not ledger.matched(rows, uri, "left_semi").isEmpty():
        texts = [text_sql(f"t.{quote(name)}", rows.schema[name].dataType, name) for name in columns]
        _delete_keys(session, uri, ledger, texts)
    if quarantine and catalog.has_table(session, quarantine):
        texts = texts_of_json(rows.schema, dict(zip(columns, columns, strict=True)))
        held = session.read.format("delta").load(quarantine).alias("t")
        of_keys = ledger.hashes.alias("s")
        if not held.join(of_keys, F.expr(_has_hash(ledger, texts)), "left_semi").isEmpty():
            _delete_keys(session, quarantine, ledger, texts)


def _delete_keys(session: SparkSession, uri: str, ledger: Ledger, texts: Sequence[str]) -> None:
    delete(session, uri, ledger.hashes.localCheckpoint(), _has_hash(ledger, texts))


def _has_hash(ledger: Ledger, texts: Sequence[str]) -> str:
    return f"{hash_sql(ledger.secret, texts)} = s.{HASH}"


def texts_of_json(schema: T.StructType, columns: Mapping[str, str]) -> list[str]:
    """Return the SQL of the texts of the key columns of a row, of the alias ``t``, of a quarantine.

    :param schema: of the target
    :param columns: the columns of ``schema`` by their names in the keys of the quarantine
    """
    parts = []
    for name, column in columns.items():
        kind, text = schema[column].dataType, key_text_sql(f"t.{quote('keys')}", name)
        is_binary = isinstance(kind, T.BinaryType)
        typed = f"unhex({text})" if is_binary else f"try_cast({text} AS {kind.simpleString()})"
        parts.append(text_sql(typed, kind, name))
    return parts
