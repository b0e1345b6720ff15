"""Remove keys from a table, and let a target or a change log remember them (:mod:`delta_cdc.core.erasure`).

1. **remember**: the ledger beside the table is created, if it does not exist, and gets the hashes of the keys
2. **mark**: a property of the table tells every later run to leave these keys out. It changes with each
   erasure, so a run that was planned before it is planned again. Delta refuses a commit that began before it.
   A run between its last look and its commit deletes the rows after it
   (:func:`delta_cdc.spark.erased_keys.delete_again`)
3. **delete**: one MERGE deletes the rows of all keys in the ledger. Statement and commit contain only hashes.
   The maintenance tag of the commit shows readers of a log that the source retracted no event

Each step finds what an earlier attempt did, so an erasure that was killed is run again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import failpoints
from delta_cdc.core.erasure import HASH, hash_sql, key_hash, ledger_of, new_secret
from delta_cdc.core.errors import (
    ColumnNotFound,
    ConcurrentModification,
    InvalidConfiguration,
    NotADeltaTable,
)
from delta_cdc.core.properties import ERASED, ERASED_COLUMNS, ERASED_SECRET
from delta_cdc.core.quarantine import other_names_sql
from delta_cdc.core.spec import JobResult
from delta_cdc.core.spellings import BASE64
from delta_cdc.core.sql import PLAN_PREFIX, quote, set_properties, string, table
from delta_cdc.spark import catalog, erased_keys, quarantine
from delta_cdc.spark.changes import states
from delta_cdc.spark.erased_keys import text_sql
from delta_cdc.spark.sealed.commit import look
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import EraseSpec

_VIEW = f"{PLAN_PREFIX}erased"


def run(session: SparkSession, spec: EraseSpec) -> JobResult:
    """Remove the keys of a spec from its table.

    :return: counts ``deleted``; for records also ``found``, if they are only counted; and ``unsearched``:
        records of bytes that may have a key in another form, or rows in quarantine whose key has other
        columns. A dry run counts what it would delete
    :raises InvalidConfiguration: the value of a key does not fit its column, or the ledger has other columns
    :raises ColumnNotFound: the owner has no such column
    :raises ConcurrentModification: the table was replaced after planning
    """
    state = look(session, spec.table_uri)
    if state.table_id != spec.table_id:
        raise ConcurrentModification(
            f"{spec.table_uri} is another table than at planning (its id is {state.table_id}).",
            remedy="run again, with a new plan.",
        )
    owner = session.read.format("delta").load(spec.owner)
    names = _names(spec, owner)
    if spec.place == "records":
        return _records(session, spec, owner, names)
    uri = ledger_of(spec.owner)
    exists, remembers = _exists(session, uri), spec.remembers and not spec.dry_run
    if remembers:
        refuse_unsafe_log_store(session, uri, single_driver=spec.single_driver)
    if remembers and not exists:
        # Also looks at the types of the columns: a key that cannot be remembered leaves no ledger behind.
        _texts(session, owner, names, spec.keys[0])
        _create(session, uri, names)
        failpoints.reached("created")
    secret, hashes = new_secret(), session.createDataFrame([], f"{HASH} string")
    if exists or remembers:
        ledger = erased_keys.read(session, uri)
        _refuse_other_columns(ledger, names, spec)
        # The hash depends on their order.
        names, secret, hashes = ledger.columns, ledger.secret, ledger.hashes
    keys = [_texts(session, owner, names, key) for key in spec.keys]
    if remembers:
        _remember(session, spec, uri, keys)
        failpoints.reached("remembered")
        value = erased_keys.marker(session, uri)
        if state.properties.get(ERASED) != value:
            session.sql(set_properties(spec.table_uri, {ERASED: value}))
        failpoints.reached("marked")
    new = [(key_hash(secret, key),) for key in keys]
    # A MERGE reads its source twice.
    hashes = hashes.unionByName(session.createDataFrame(new, f"{HASH} string")).distinct().localCheckpoint()
    rows = session.read.format("delta").load(spec.table_uri)
    deleted = _delete(session, spec, hashes, hash_sql(secret, _parts(spec, owner, rows, names)))
    failpoints.reached("erased")
    if spec.place == "keys":
        # Keys whose columns had other names then.
        others = other_names_sql(quote("keys"), names)
        unsearched = session.read.format("delta").load(spec.table_uri).where(others).count()
        return _result(spec, deleted=deleted, unsearched=unsearched)
    return _result(spec, deleted=deleted)


def _result(spec: EraseSpec, **counts: int) -> JobResult:
    return JobResult("planned" if spec.dry_run else "committed", counts=counts, tables=(counts,))


# -- the key --------------------------------------------------------------------------------------
def _names(spec: EraseSpec, owner: DataFrame) -> tuple[str, ...]:
    """Return the key columns as the owner spells them, in the order of its columns."""
    given = {name.lower() for key in spec.keys for name in key}
    states.match(owner.columns, sorted(given), "key", spec.owner)
    names = tuple(name for name in owner.columns if name.lower() in given)
    for key in spec.keys:
        if len(key) != len(names):
            raise ColumnNotFound(
                f"The key {', '.join(sorted(key))} does not have the columns {', '.join(names)}.",
                remedy="give each key all of the columns.",
                argument="key",
            )
    return names


def _texts(session: SparkSession, owner: DataFrame, names: Sequence[str], key: dict[str, str]) -> list[str]:
    """Return the texts of a key's columns, as they are hashed.

    :raises InvalidConfiguration: a value does not fit its column
    """
    values = {name.lower(): value for name, value in key.items()}
    types = [owner.schema[name].dataType for name in states.match(owner.columns, names, "key", "the table")]
    # First, because Spark refuses to cast a text to some types without a word of ours.
    columns = [text_sql(quote(name), kind, name) for name, kind in zip(names, types, strict=True)]
    typed = session.range(1).select(
        *[
            _typed(F.lit(values[name.lower()]), kind).alias(name)
            for name, kind in zip(names, types, strict=True)
        ]
    )
    row = typed.selectExpr(*columns).first()
    assert row is not None
    texts: list[str] = []
    for name, kind, text in zip(names, types, row, strict=True):
        if text is None:
            # The error does not repeat the value, because it may be personal.
            raise InvalidConfiguration(
                f"The value that is given for the key column {name} is no {kind.simpleString()}.",
                remedy="write it as Spark casts a value of this type to a text; a binary as hex.",
                argument="key",
            )
        texts.append(text)
    return texts


def _typed(text: Column, kind: T.DataType) -> Column:
    """Return a text as a value of a type; NULL if it has no such value, or if a cast would round it."""
    if isinstance(kind, T.BinaryType):
        return F.unhex(text)
    value, finer = text.try_cast(kind), kind
    if isinstance(kind, T.DecimalType):
        finer = T.DecimalType(38, 38 - (kind.precision - kind.scale))
    elif isinstance(kind, T.DateType):
        finer = T.TimestampNTZType()
    return F.when(text.try_cast(finer) == value.cast(finer), value)


def _parts(spec: EraseSpec, owner: DataFrame, rows: DataFrame, names: Sequence[str]) -> list[str]:
    """Return the SQL of the texts of the key columns of a row of the alias ``t``."""
    if spec.place == "keys":
        columns = states.match(owner.columns, names, "key", spec.owner)
        return erased_keys.texts_of_json(owner.schema, dict(zip(names, columns, strict=True)))
    spelled = states.match(rows.columns, names, "key", spec.table_uri)
    return [text_sql(f"t.{quote(name)}", rows.schema[name].dataType, name) for name in spelled]


# -- remember -------------------------------------------------------------------------------------
def _exists(session: SparkSession, ledger: str) -> bool:
    """Return whether a ledger has a commit. A killed erasure may have left a folder without one."""
    try:
        return catalog.existing_detail(session, ledger) is not None
    except NotADeltaTable:
        if _has_files(session, ledger):
            raise
        return False


def _has_files(session: SparkSession, folder: str) -> bool:
    reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
    return not reader.load(folder).isEmpty()


def _create(session: SparkSession, ledger: str, names: Sequence[str]) -> None:
    """Create a ledger; one that another erasure has just created stays."""
    properties = {ERASED_SECRET: new_secret(), ERASED_COLUMNS: json.dumps(list(names))}
    assignments = ", ".join(f"{string(name)} = {string(value)}" for name, value in properties.items())
    columns = {HASH: "STRING", "erased_at": "TIMESTAMP", "run_id": "STRING"}
    session.sql(
        f"CREATE TABLE IF NOT EXISTS {table(ledger)} "
        f"({', '.join(f'{name} {kind}' for name, kind in columns.items())}) "
        f"USING delta TBLPROPERTIES ({assignments})"
    )
    if _exists(session, ledger):
        return
    # A killed erasure left a log without a commit. Delta takes it for a table, and lets only a replacement
    # begin there.
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
    session.sql(
        f"CREATE OR REPLACE TABLE {table(ledger)} USING delta TBLPROPERTIES ({assignments}) "
        f"AS SELECT {empty} LIMIT 0"
    )
    version = int(erased_keys.marker(session, ledger))
    if version > 0:
        # Another erasure created it at the same time: its keys must stay.
        session.sql(f"RESTORE TABLE {table(ledger)} TO VERSION AS OF {version - 1}")


def _remember(session: SparkSession, spec: EraseSpec, ledger: str, keys: Sequence[Sequence[str]]) -> None:
    """Add the hashes that the ledger lacks."""
    found = erased_keys.read(session, ledger)
    new = session.createDataFrame([(key_hash(found.secret, key),) for key in keys], f"{HASH} string")
    missing = new.distinct().join(found.hashes, HASH, "left_anti").localCheckpoint()
    if missing.isEmpty():
        return
    missing.createOrReplaceTempView(_VIEW)
    try:
        session.sql(
            f"MERGE INTO {table(ledger)} AS t USING {quote(_VIEW)} AS s ON t.{HASH} = s.{HASH} "
            f"WHEN NOT MATCHED THEN INSERT ({HASH}, erased_at, run_id) "
            f"VALUES (s.{HASH}, current_timestamp(), {string(spec.run_id)})"
        )
    finally:
        session.catalog.dropTempView(_VIEW)


def _refuse_other_columns(ledger: erased_keys.Ledger, names: Sequence[str], spec: EraseSpec) -> None:
    if sorted(map(str.lower, ledger.columns)) != sorted(map(str.lower, names)):
        raise InvalidConfiguration(
            f"The keys that were erased from {spec.owner} have the columns {', '.join(ledger.columns)}, and "
            f"this key has {', '.join(names)}.",
            remedy=f"name exactly those columns; or {erased_keys.new_names(ledger.uri, ledger.columns)}.",
            argument="key",
        )


# -- delete ---------------------------------------------------------------------------------------
def _delete(session: SparkSession, spec: EraseSpec, hashes: DataFrame, hash_of_row: str) -> int:
    """Delete the rows whose key has one of the hashes; return their number. Without rows nothing commits."""
    rows = session.read.format("delta").load(spec.table_uri).alias("t")
    of_keys = F.broadcast(hashes.alias("s"))
    number = rows.join(of_keys, F.expr(hash_of_row) == F.col(f"s.{HASH}"), "left_semi").count()
    if number and not spec.dry_run:
        erased_keys.delete(session, spec.table_uri, hashes, f"{hash_of_row} = s.{HASH}")
    return number


def _records(session: SparkSession, spec: EraseSpec, owner: DataFrame, names: Sequence[str]) -> JobResult:
    """Count, or delete, the records that have a spelling of all columns of a key.

    Such a record need not be of the key: it was no valid event, so its columns are unknown.
    """
    texts = [_texts(session, owner, names, key) for key in spec.keys]
    values, of_key = quarantine.spelled(session, [owner.schema[name].dataType for name in names], texts)
    rows = session.read.format("delta").load(spec.table_uri).alias("t")
    of_keys = F.broadcast(values.alias("s"))
    number = rows.join(of_keys, F.expr(of_key), "left_semi").count()
    # Bytes that are no text, of Avro for instance, have numbers in other forms than any of these.
    others = rows.where(F.expr(f"startswith(t.raw, {string(BASE64)})"))
    unsearched = others.join(of_keys, F.expr(of_key), "left_anti").count()
    if not spec.deletes_records:
        return _result(spec, deleted=0, found=number, unsearched=unsearched)
    if number and not spec.dry_run:
        erased_keys.delete(session, spec.table_uri, values, of_key)
    failpoints.reached("erased")
    return _result(spec, deleted=number, unsearched=unsearched)
