"""Set the physical layout of targets: properties, partitions, clustering, and the files of a MERGE."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.change_log import SEQUENCE
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.properties import COLUMN_MAPPING, STATISTICS_COLUMNS, WHOLE_FILES_TARGET
from delta_cdc.core.reserved_columns import TIMES
from delta_cdc.core.sql import quote, set_properties, string, table
from delta_cdc.spark.apply.schema import target_schema
from delta_cdc.spark.column_needs import mapping
from delta_cdc.spark.sealed.commit import look
from delta_cdc.spark.sessions import FEW_BYTES, set_or_restore, shuffle_for, value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

_MAX_CLUSTERING_COLUMNS = 4


#: Property of a target: the size in bytes that data files should not exceed by much.
FILE_SIZE = "delta_cdc.targetFileSize"
_FILE_SIZE = 256 * 1024**2
_ROWS_PER_FILE = "spark.sql.files.maxRecordsPerFile"
_DELETION_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
#: A MERGE of fewer rows writes little in any case, so the check would cost more than it saves.
_MANY_ROWS = 10_000
#: Spark broadcasts batches of up to this many rows.
MOST_SENT = 100_000
#: Spark broadcasts up to this many (compressed) bytes, by the source's log: a small driver can hold them.
_MOST_BYTES = 16 * 1024**2
#: Bytes of a target up to which one task shuffles the rows that a MERGE rewrites.
_ONE_TASK_TARGET = 128 * 1024**2
#: Bytes of a target up to which a MERGE writes whole files. Deletion vectors save bytes, but each MERGE then
#: scans the target's files once more to find the rows, and later readers open the old files, too.
_WHOLE_FILES_TARGET = WHOLE_FILES_TARGET
#: If one MERGE rewrites a greater share of a target's rows, it writes whole files. Deletion vectors leave the
#: old rows in place: rewriting half of 1,000,000 rows in 85 MB added 42 MB, so that every later scan opens
#: 127 MB; whole files cost 85 MB once.
_COPY_FROM = 0.5
#: Changes with fewer bytes than this share of the target's cannot rewrite that many rows.
_SMALL_SHARE = 1 / 16


def extent(session: SparkSession, uri: str, size: int | None = None) -> tuple[int, int]:
    """Return the number of rows and of bytes of a table; only the bytes include rows that vectors hide.

    Delta answers from its log, without opening a data file.

    :param size: the bytes, if they are known
    """
    rows = session.sql(f"SELECT count(*) AS n FROM {table(uri)}").collect()[0]["n"]
    if size is None:
        size = session.sql(f"DESCRIBE DETAIL {table(uri)}").select("sizeInBytes").collect()[0][0]
    return rows, size


def file_size(options: ApplyOptions) -> int:
    """Return the size in bytes that data files should not exceed by much.

    :raises InvalidConfiguration: :data:`FILE_SIZE` is not a number of bytes
    """
    configured = options.target_properties.get(FILE_SIZE)
    if configured is None:
        return _FILE_SIZE
    if not configured.isdecimal() or int(configured) < 1:
        raise InvalidConfiguration(
            f"target_properties: {FILE_SIZE} = {configured!r} is no number of bytes.",
            remedy=f"give a whole number, for instance {_FILE_SIZE}.",
        )
    return int(configured)


def rows_per_file(rows: int, size: int, options: ApplyOptions) -> int | None:
    """Return how many rows a data file may hold, by the row size of a table; None if that is unknown.

    Spark starts a new file at this limit, so it writes at most one file per task more than the size requires.

    :param rows: of the table
    :param size: of the table, in bytes
    """
    return max(1, file_size(options) * rows // size) if rows and size else None


def is_small(target_bytes: int | None) -> bool:
    """Return whether a target is so small that each MERGE may write all of it again.

    :param target_bytes: None if unknown
    """
    return target_bytes is not None and target_bytes <= _WHOLE_FILES_TARGET


def skips_files(context: StepContext) -> bool:
    """Return whether the target may have many files, of which the MERGE can skip some.

    Reading all keys of a smaller target without partitions takes less time than the job that looks for gaps
    between the keys.
    """
    target_bytes = context.spec.target_bytes
    is_large = target_bytes is None or target_bytes > _ONE_TASK_TARGET
    return bool(context.options.partition_by) or is_large


def fit(session: SparkSession, spec: ApplySpec, step: Step) -> None:
    """Set how the statements of a step shuffle and write, in a private session."""
    shuffle_for(session, few_rows=_has_few_rows(step))
    set_or_restore(session, _DELETION_VECTORS, "false" if is_small(spec.target_bytes) else None)


def _has_few_rows(step: Step) -> bool:
    """Return whether the changes of a step are few; False if their size is unknown.

    With many tasks, the materialised batch has many partitions, and a join splits the target into as many.
    """
    return 0 < (step.read.changed_bytes or 0) <= FEW_BYTES


def tuned(context: StepContext, merge: Merge, *, changed: int, rewritten: int, size: int | None) -> Merge:
    """Return a MERGE that rewrites whole files if deletion vectors would cost more, and writes no huge files.

    A source of few rows is broadcast, because Spark does not trust the size of a checkpoint and would
    needlessly shuffle all keys of the target.

    :param changed: number of rows of its source
    :param rewritten: maximum number of target rows that it updates or deletes
    :param size: number of bytes that were read for it, by the source's log; None if unknown
    """
    session, options, target_bytes = context.session, context.options, context.spec.target_bytes
    is_sent = changed <= MOST_SENT and size is not None and size <= _MOST_BYTES
    if is_sent:
        merge = replace(merge, source=merge.source.hint("broadcast"))
    if not is_sent or target_bytes is None or target_bytes > _ONE_TASK_TARGET:
        # The join shuffles the target, or the MERGE many rows of the files that it rewrites.
        shuffle_for(session, few_rows=False)
    copies = options.target_properties.get("delta.enableDeletionVectors", "true").lower() == "false"
    if not copies and changed < _MANY_ROWS:
        return merge
    if size and target_bytes is not None:
        # The sizes alone decide: a small target gets whole files, a small change gets deletion vectors.
        whole_files = is_small(target_bytes)
        written = size + target_bytes if whole_files else size
        vectors = not copies and size < _SMALL_SHARE * target_bytes
        if (whole_files or vectors) and written <= file_size(options):
            return merge
    rows, bytes_ = extent(session, merge.target, target_bytes)
    confs = {}
    if rewritten > _COPY_FROM * rows:
        confs[_DELETION_VECTORS] = "false"
    row_limit = rows_per_file(rows, bytes_, options)
    if row_limit is not None and int(value_of(session, _ROWS_PER_FILE) or 0) == 0:
        confs[_ROWS_PER_FILE] = str(row_limit)
    return replace(merge, confs={**merge.confs, **confs})


def has_statistics(shape: Shape, name: str) -> bool:
    """Return whether Delta keeps bounds of a column, which clustering needs."""
    kinds = (T.NumericType, T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return name in shape.values and isinstance(shape.schema[name].dataType, kinds)


def clustering_columns(shape: Shape, options: ApplyOptions) -> tuple[str, ...]:
    """Return the clustering columns: the configured ones, or else the first keys of a clusterable type."""
    if options.cluster_by is not None:
        return options.cluster_by
    if options.partition_by:
        return ()
    return tuple(key for key in shape.keys if has_statistics(shape, key))[:_MAX_CLUSTERING_COLUMNS]


def _partition_inputs(shape: Shape, options: ApplyOptions) -> list[str]:
    """Return the columns whose names occur in the expressions of partition columns.

    Their statistics let readers that filter on them skip the files of other partitions. A generated column
    does this for Spark alone, and Spark then loses rows if a reader's time zone is not UTC: it compares the
    partition's date, which is in UTC, with the filter's date in the reader's time zone.
    """
    texts = " ".join(text for text in options.partition_by.values() if text is not None)
    return [n for n in shape.values if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", texts, re.IGNORECASE)]


def properties(shape: Shape, options: ApplyOptions) -> dict[str, str]:
    """Return Delta's table properties of a new target; the user's properties have priority.

    :raises InvalidConfiguration: column mapping is combined with a published change feed
    """
    columns = dict.fromkeys((*shape.keys, *_partition_inputs(shape, options)))
    statistics = [name for name in columns if has_statistics(shape, name) and name not in shape.partitions]
    statistics += [c for c in clustering_columns(shape, options) if c not in statistics]
    if options.writes_events and has_statistics(shape, SEQUENCE):
        statistics.append(SEQUENCE)
    if shape.sequence_type is not None:
        statistics += [options.start_column, options.end_column]
    if shape.time_type is not None:
        statistics += [
            name
            for name, option in options.added_columns.items()
            if option in TIMES and name not in statistics
        ]
    table_properties = {
        "delta.enableDeletionVectors": "true",
        "delta.enableChangeDataFeed": "true" if options.publish_changes else "false",
    }
    if statistics:
        table_properties[STATISTICS_COLUMNS] = ",".join(map(quote, statistics))
    user_properties = {k: v for k, v in options.target_properties.items() if k.startswith("delta.")}
    table_properties |= mapping(target_schema(shape, options))
    if options.schema_evolution == "mirror":
        # Delta drops and renames columns of tables with column mapping only.
        table_properties[COLUMN_MAPPING] = "name"
    table_properties |= user_properties
    if (
        table_properties.get(COLUMN_MAPPING, "none") != "none"
        and table_properties["delta.enableChangeDataFeed"] == "true"
    ):
        raise InvalidConfiguration(
            "A new target cannot have column mapping (which the schema evolution 'mirror' and names with "
            "spaces or any of ,;{}()= need, also those of nested fields) and a published change feed at "
            "once: Delta refuses the write that makes such a table.",
            remedy="rename the columns with select or choose another schema evolution; or drop "
            "publish_changes.",
        )
    return table_properties


def outdated_statistics(session: SparkSession, spec: ApplySpec, shape: Shape) -> tuple[str, ...]:
    """Return the statement that a reset needs first, if it leaves out a column with statistics.

    An overwrite keeps the table's properties, and Delta refuses statistics of a column that does not exist: a
    reset to type 1 drops the start and end columns.
    """
    listed = look(session, spec.target_uri).properties.get(STATISTICS_COLUMNS, "")
    kept = {name.lower() for name in (*shape.values, *spec.options.added_columns)}
    if {name.strip(" `").lower() for name in listed.split(",") if name} <= kept:
        return ()
    return (f"ALTER TABLE {table(spec.target_uri)} UNSET TBLPROPERTIES ({string(STATISTICS_COLUMNS)})",)


def arranged(rows: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Range-partition and sort rows for a load, so that the key ranges of files do not overlap.

    The writer ignores ``clusterBy``; without this order, every file would span all keys.
    """
    order = [F.col(quote(name)) for name in (*options.partition_by, *clustering_columns(shape, options))]
    if not order:
        return rows
    return rows.repartitionByRange(*order).sortWithinPartitions(*order)


def complete(
    session: SparkSession, target: str, shape: Shape, options: ApplyOptions, *, is_new: bool
) -> None:
    """Set what the commit of a load cannot set: clustering, and properties that don't begin with ``delta.``.

    The writer ignores ``clusterBy`` and drops such properties. Each needs a separate commit after the load;
    after a crash in between, the next run completes them.

    :param is_new: this step created the target
    """
    cluster_columns = clustering_columns(shape, options)
    seen = None if is_new else look(session, target)
    if cluster_columns and (seen is None or seen.lacks_clustering(properties(shape, options))):
        session.sql(f"ALTER TABLE {table(target)} CLUSTER BY ({', '.join(map(quote, cluster_columns))})")
    set_missing(session, target, options, {} if seen is None else seen.properties)


def set_missing(
    session: SparkSession, target: str, options: ApplyOptions, existing: Mapping[str, str]
) -> None:
    """Set the user's properties that do not begin with ``delta.`` and that the table lacks."""
    user_properties = {k: v for k, v in options.target_properties.items() if not k.startswith("delta.")}
    missing = {k: v for k, v in user_properties.items() if k not in existing}
    if missing:
        session.sql(set_properties(target, missing))
