"""The one error tree. Every message says what happened, where, and (``remedy``) what to do."""

from __future__ import annotations

from typing import Any, ClassVar


class DeltaCdcError(Exception):
    """Base of every error this package raises on purpose.

    :param message: what happened and where (table, version), one sentence
    :param remedy: what to do about it, one sentence
    """

    #: Whether the same call may succeed later without anybody doing anything.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} Remedy: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (result.json, Airflow's task runner): keep both parts.
        return _rebuild, (type(self).__name__, self.message, self.remedy)

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form that ``result.json`` carries."""
        return {"class": type(self).__name__, "message": self.message, "remedy": self.remedy}

    @staticmethod
    def from_dict(data: dict[str, str]) -> DeltaCdcError:
        """Rebuild the named error that a job reported; an unknown class becomes :class:`JobFailed`."""
        return _rebuild(data["class"], data["message"], data["remedy"])


# -- tables and their state ---------------------------------------------------------------------
class TableNotFound(DeltaCdcError):
    """Nothing exists at the table's location."""


class NotADeltaTable(DeltaCdcError):
    """Files exist at the location, but no Delta log."""


class TableNameUnresolved(DeltaCdcError):
    """A catalog name was given where only a path or URI can be read without Spark."""


class UnsupportedTable(DeltaCdcError):
    """The table uses a Delta feature this reader does not know or must not read by path."""


class ChangeFeedDisabled(DeltaCdcError):
    """Change data feed is off in (part of) the range."""


class VersionsExpired(DeltaCdcError):
    """Versions of the range are no longer readable: log cleaned or past retention."""


class LogGap(DeltaCdcError):
    """A commit file inside the range is missing."""


class CorruptLog(DeltaCdcError):
    """A file of the transaction log is damaged."""


class SchemaChangeInRange(DeltaCdcError):
    """A schema change inside the range is more than an added column."""


class SourceTableReplaced(DeltaCdcError):
    """The source is another table than the one the watermark speaks of."""


class SourceHistoryChanged(DeltaCdcError):
    """The source has the same id but another history (for instance, restored from a backup)."""


class TransactionRetentionSet(DeltaCdcError):
    """``delta.setTransactionRetentionDuration`` on the target would forget the proof."""


class TargetReplaced(DeltaCdcError):
    """Somebody else replaced, overwrote or truncated the target after our last commit."""


class TargetWithoutProof(DeltaCdcError):
    """The target holds rows, but no commit of this pipeline."""


class TargetChangedUnderneath(DeltaCdcError):
    """The target was restored or replaced between planning and our commit."""


class PipelineAdopted(DeltaCdcError):
    """Another pipeline has taken the target over (``adopt_from``)."""


class UnsafeLogStore(DeltaCdcError):
    """The target is on S3, and Spark's log store is safe for one driver only."""


class SealUnreadable(DeltaCdcError):
    """A commit of the pipeline carries a seal of another release, or none."""


class ProofExpired(DeltaCdcError):
    """The commit that carried the watermark was cleaned from the target's log."""


# -- configuration and input --------------------------------------------------------------------
class InvalidConfiguration(DeltaCdcError):
    """Arguments that don't go together or that name nothing."""


class ConfigurationDrift(DeltaCdcError):
    """The target was built with another configuration than the one given now."""


class RangeNotContiguous(DeltaCdcError):
    """An explicit start would leave versions unapplied, or an explicit end is not there yet."""


class RangeTooLong(DeltaCdcError):
    """The range has more versions than one lazy DataFrame can hold."""


class CaptureUnavailable(DeltaCdcError):
    """The changes of a version cannot be read the way that was asked for, or in any way."""


class ColumnNotFound(DeltaCdcError):
    """A key, tracked, partition or clustering column does not exist in the source."""


class ReservedColumnName(DeltaCdcError):
    """A column has a name that the change feed or the target's own columns need."""


class InvalidExpression(DeltaCdcError):
    """A SQL expression of the configuration does not resolve, or has an unusable type."""


class NullKey(DeltaCdcError):
    """A key column is NULL in the source."""


class NullSequence(DeltaCdcError):
    """The sequence expression gives NULL."""


class KeyNotUnique(DeltaCdcError):
    """Two rows of the source share one key."""


class SequenceNotIncreasing(DeltaCdcError):
    """The sequence of a key does not increase along its commits."""


class TiedEvents(DeltaCdcError):
    """Different events of one key have the same sequence, and nothing says which of them counts."""


class LateBeyondHorizon(DeltaCdcError):
    """An event lies below the lateness horizon of its change log."""


class NotAppendOnly(DeltaCdcError):
    """Events of a change log were updated or deleted."""


class SnapshotNotAscending(DeltaCdcError):
    """A snapshot is not newer than the one applied before it."""


class InvalidEvent(DeltaCdcError):
    """An event names columns that do not exist."""


class SourceNotFound(DeltaCdcError):
    """There is no such path, prefix or topic to ingest from."""


class SourceUnreadable(DeltaCdcError):
    """A file to ingest cannot be read as what its format says."""


class InvalidRecord(DeltaCdcError):
    """Records cannot be decoded, or are no events of a known kind, and may not go to quarantine."""


class OffsetsExpired(DeltaCdcError):
    """A topic no longer holds records that were not ingested yet."""


class TopicReplaced(DeltaCdcError):
    """A topic ends before the offset that was ingested last: it was made anew."""


class TablesFailed(DeltaCdcError):
    """Some tables of a bundle failed; the others are through."""

    retryable = True


class TablesRefused(TablesFailed):
    """Some tables of a bundle failed, each for what a retry does not change; the others are through."""

    retryable = False


class NotInsertOnly(DeltaCdcError):
    """An ``insert_only`` source updated or deleted rows."""


class TargetSchemaClash(DeltaCdcError):
    """The target's columns cannot take the rows that are to be written."""


class TargetConstraintViolated(DeltaCdcError):
    """Rows break a rule of the table that they are written to: a constraint, a length, append-only."""


class ForbiddenConf(DeltaCdcError):
    """A Spark conf is set under which loss of data would be silent."""


class SpecUnreadable(DeltaCdcError):
    """The job's spec is of an unknown version, or its hash is wrong."""


class WrongReader(DeltaCdcError):
    """What answered is not a change data feed (a reader that ignores ``readChangeFeed``)."""


# -- staging ------------------------------------------------------------------------------------
class BatchNotApplicable(DeltaCdcError):
    """The staged batch is not complete, or not every change of its range, so no apply can take it."""


class NoOpenBatch(DeltaCdcError):
    """There is no complete batch in staging that could be committed."""


class OtherBatchOpen(DeltaCdcError):
    """The open batch in staging is not the one that is to be committed."""


# -- maintenance --------------------------------------------------------------------------------
class VacuumWouldLose(DeltaCdcError):
    """A consumer would lose versions that it has not read."""


class ConsumerUnreadable(DeltaCdcError):
    """How far a consumer of a table is cannot be told."""


# -- running ------------------------------------------------------------------------------------
class ConfigurationChanged(DeltaCdcError):
    """The configuration of a group is another one than the work was found with."""


class SparkConnectionNotFound(DeltaCdcError):
    """``spark_conn_id`` names a connection that does not exist."""


class DeltaConnectionNotFound(DeltaCdcError):
    """``delta_conn_id`` names a connection that does not exist."""


class KafkaConnectionNotFound(DeltaCdcError):
    """``kafka_conn_id`` names a connection that does not exist."""


class DeployModeUnsupported(DeltaCdcError):
    """The connection's deploy mode cannot run Python applications."""


class EnvironmentNotReady(DeltaCdcError):
    """Java, Spark or the Delta JARs are missing or too old."""


class JobFailed(DeltaCdcError):
    """The Spark application ended without a result, or with an error that has no name here."""

    retryable = True


class JobRefused(DeltaCdcError):
    """Spark or Delta refused the work, and would do so again: for its rows, its SQL, or a table."""


class SparkServerUnreachable(DeltaCdcError):
    """The Spark Connect server does not answer; nothing was started."""

    retryable = True


class SparkServerLost(DeltaCdcError):
    """The Spark Connect server, or the session on it, went away while the job ran."""

    retryable = True


class ExecutorLost(DeltaCdcError):
    """An executor died with rows that the job had computed and still needed."""

    retryable = True


class ConcurrentModification(DeltaCdcError):
    """Another writer kept winning the race for the target."""

    retryable = True


class StoreUnavailable(DeltaCdcError):
    """The object store did not answer or refused."""

    retryable = True


class OutcomeUnknown(DeltaCdcError):
    """Whether the commit happened could not be found out; a retry will find out."""

    retryable = True


class VerificationFailed(DeltaCdcError):
    """A verification found something."""


def _rebuild(name: str, message: str, remedy: str) -> DeltaCdcError:
    cls = globals().get(name)
    if isinstance(cls, type) and issubclass(cls, DeltaCdcError):
        return cls(message, remedy=remedy)
    return JobFailed(f"{name}: {message}", remedy=remedy)
