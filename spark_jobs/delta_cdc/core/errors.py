"""The one error tree. Every message says what happened, where, and (``remedy``) what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class DeltaCdcError(Exception):
    """Base of every error this package raises on purpose.

    :param message: what happened and where (table, version), one sentence
    :param remedy: what to do about it, one sentence
    :param argument: name of the wrong argument; None if no single argument is wrong
    :param approval: the value of ``approve`` with which a person lets the same step pass; None: no value does
    """

    #: Whether the same call may succeed later without any change by a user.
    retryable: ClassVar[bool] = False
    #: Whether the rows, or values computed from them, cause the error: every attempt then fails.
    of_rows: ClassVar[bool] = False

    def __init_subclass__(cls, *, retryable: bool | None = None, of_rows: bool | None = None) -> None:
        cls.retryable = cls.retryable if retryable is None else retryable
        cls.of_rows = cls.of_rows if of_rows is None else of_rows

    def __init__(
        self, message: str, *, remedy: str, argument: str | None = None, approval: str | None = None
    ) -> None:
        self.message = message
        self.remedy = remedy
        self.argument = argument
        self.approval = approval
        space = "" if message.endswith("\n") else " "
        super().__init__(f"{message}{space}Remedy: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross process borders (result.json, Airflow's task runner): keep all parts.
        return DeltaCdcError.from_dict, (self.to_dict(),)

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form that ``result.json`` carries."""
        parts = {"class": type(self).__name__, "message": self.message, "remedy": self.remedy}
        optional = {"argument": self.argument, "approval": self.approval}
        return parts | {name: value for name, value in optional.items() if value is not None}

    @staticmethod
    def from_dict(data: dict[str, str]) -> DeltaCdcError:
        """Rebuild the named error that a job reported; an unknown class becomes :class:`JobFailed`."""
        name, message, remedy = data["class"], data["message"], data["remedy"]
        classes: list[type[DeltaCdcError]] = [DeltaCdcError, *named()]
        cls = next((cls for cls in classes if cls.__name__ == name), None)
        if cls is None:
            cls, message = JobFailed, f"{name}: {message}"
        return cls(message, remedy=remedy, argument=data.get("argument"), approval=data.get("approval"))


def named(base: type[DeltaCdcError] = DeltaCdcError) -> Iterator[type[DeltaCdcError]]:
    """Yield every error class below ``base``."""
    for cls in base.__subclasses__():
        yield cls
        yield from named(cls)


# -- tables and their state ---------------------------------------------------------------------
class TableNotFound(DeltaCdcError):
    """Nothing exists at the table's location."""


class NotADeltaTable(DeltaCdcError):
    """Files exist at the location, but no Delta log."""


class TableNameUnresolved(DeltaCdcError):
    """A catalog name was given where only a path or URI can be read without Spark."""


class TableNameMoved(DeltaCdcError):
    """A catalog name is the name of another location than the one that was planned or configured."""


class TableNameGone(DeltaCdcError):
    """The catalog no longer has a name: its table was dropped or renamed. The table itself still exists."""


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


class LogLineTooLong(DeltaCdcError):
    """A line of a transaction log is longer than the limit."""


class LogTooLarge(DeltaCdcError):
    """The names of a table's files, or of a commit's, take more memory than the limit."""


class SchemaChangeInRange(DeltaCdcError):
    """A schema change inside the range is more than an added column."""


class SourceTableReplaced(DeltaCdcError):
    """The source is not the table of the watermark."""


class SourceHistoryChanged(DeltaCdcError):
    """The source has the same id but another history (for instance, restored from a backup)."""


class TransactionRetentionSet(DeltaCdcError):
    """``delta.setTransactionRetentionDuration`` on the target would delete the recorded watermark."""


class TargetReplaced(DeltaCdcError):
    """Another writer replaced, overwrote or truncated the target after our last commit."""


class TargetRecreated(TargetReplaced):
    """The target was dropped while a job worked, and the job's append made it again without earlier rows."""


class TargetWithoutWatermark(DeltaCdcError):
    """The target holds rows, but no commit of this pipeline."""


class TargetHistoryChanged(DeltaCdcError):
    """A commit of the table is not the one that was made: overwritten, forged or put back from a backup."""


class TargetChangedUnderneath(DeltaCdcError):
    """The target was restored or replaced between planning and our commit."""


class QuarantineMissing(DeltaCdcError):
    """The rows that a pipeline has set aside are not beside its target, as after a move of the target."""


class PipelineTakenOver(DeltaCdcError):
    """Another pipeline has taken the target over (``take_over_from``)."""


class UnsafeLogStore(DeltaCdcError):
    """The target is on S3 or on a disk, and commits there are safe for one driver only."""


class SealUnreadable(DeltaCdcError):
    """A commit of the pipeline carries a seal of another release, or no seal."""


class WatermarkExpired(DeltaCdcError):
    """The commit that carried the watermark was cleaned from the target's log."""


# -- configuration and input --------------------------------------------------------------------
class InvalidConfiguration(DeltaCdcError):
    """Arguments conflict, or name something that does not exist."""


class ConfigurationDrift(DeltaCdcError):
    """The target was built with another configuration than the one given now."""


class RangeNotContiguous(DeltaCdcError):
    """An explicit start would leave versions unapplied, or an explicit end does not exist yet."""


class RangeTooLong(DeltaCdcError):
    """The range has more versions than one lazy DataFrame can hold."""


class ReadMethodUnavailable(DeltaCdcError):
    """The changes of a version cannot be read by the requested method, or by any method."""


class ColumnNotFound(DeltaCdcError):
    """A key, tracked, partition or clustering column does not exist in the source."""


class ReservedColumnName(DeltaCdcError):
    """A column has a name that the change feed or the target's own columns need."""


class InvalidExpression(DeltaCdcError, of_rows=True):
    """A SQL expression of the configuration does not resolve, or has an unusable type."""


class NullKey(DeltaCdcError, of_rows=True):
    """A key column is NULL in the source."""


class NullSequence(DeltaCdcError, of_rows=True):
    """The sequence expression gives NULL."""


class KeyNotUnique(DeltaCdcError, of_rows=True):
    """Two rows of the source share one key."""


class SequenceNotIncreasing(DeltaCdcError, of_rows=True):
    """The sequence of a key does not increase along its commits."""


class SequenceNotBelowEnd(DeltaCdcError, of_rows=True):
    """A sequence is not below the value that the end column of open rows has (``end_value``)."""


class ConflictingEvents(DeltaCdcError, of_rows=True):
    """Different events of one key have the same sequence, and no rule decides between them."""


class TooLate(DeltaCdcError, of_rows=True):
    """An event is below the allowed lateness of its change log."""


class NotAppendOnly(DeltaCdcError, of_rows=True):
    """Events of a change log were updated or deleted."""


class SnapshotNotAscending(DeltaCdcError, of_rows=True):
    """A snapshot is not newer than the one applied before it."""


class EmptyCopy(DeltaCdcError):
    """A full copy of the source has no rows, so every row of the target would go."""


class LimitExceeded(DeltaCdcError):
    """A commit would change more rows than a limit allows, or needs an approval, and no person gave it."""


class InvalidEvent(DeltaCdcError, of_rows=True):
    """An event names columns that do not exist."""


class RuleBroken(DeltaCdcError, of_rows=True):
    """Rows break a rule of the pipeline (``rules``)."""


class SourceNotFound(DeltaCdcError):
    """The path, prefix or topic to ingest from does not exist."""


class SourceUnreadable(DeltaCdcError):
    """A file to ingest does not match its format."""


class NoEventYet(SourceUnreadable):
    """The first batch has no valid event, so the columns of the log are unknown."""


class InvalidRecord(DeltaCdcError):
    """Records cannot be decoded, or are not events of a known kind, and quarantine is not allowed."""


class OffsetsExpired(DeltaCdcError):
    """A topic no longer holds records that were not ingested yet."""


class TopicReplaced(DeltaCdcError):
    """A topic ends before the offset that was ingested last: it was recreated."""


class TablesFailed(DeltaCdcError, retryable=True):
    """Some tables of a batch failed; the others succeeded."""


class TablesRefused(TablesFailed, retryable=False):
    """Some tables of a batch failed, each for a reason that a retry does not change; the others succeeded."""


class NotInsertOnly(DeltaCdcError, of_rows=True):
    """An ``insert_only`` source updated or deleted rows."""


class TargetSchemaClash(DeltaCdcError, of_rows=True):
    """The target's columns cannot hold the rows to write."""


class TargetConstraintViolated(DeltaCdcError, of_rows=True):
    """Rows violate a rule of the table that they are written to: a constraint, a length, append-only."""


class ForbiddenConf(DeltaCdcError):
    """A Spark conf is set that would cause silent data loss."""


class SpecUnreadable(DeltaCdcError):
    """The job's spec is of an unknown version, or its hash is wrong."""


class WrongReader(DeltaCdcError):
    """The result is not a change data feed (a reader ignored ``readChangeFeed``)."""


# -- staging ------------------------------------------------------------------------------------
class BatchNotApplicable(DeltaCdcError):
    """The staged batch is incomplete, or lacks changes of its range, so no apply can use it."""


class NoOpenBatch(DeltaCdcError):
    """Staging holds no complete batch that could be committed."""


class OtherBatchOpen(DeltaCdcError):
    """The open batch in staging is not the one to commit."""


# -- maintenance --------------------------------------------------------------------------------
class VacuumWouldLose(DeltaCdcError):
    """A consumer would lose versions that it has not read."""


class ConsumerUnreadable(DeltaCdcError):
    """The progress of a table's consumer cannot be determined."""


class PublicationUnreadable(DeltaCdcError):
    """The manifest of a group, with the versions that its publish named, is missing or another file."""


# -- running ------------------------------------------------------------------------------------
class ConfigurationChanged(DeltaCdcError):
    """The arguments of a table of a group are not those that its work was found with."""


class InvalidXCom(DeltaCdcError):
    """An XCom that another task of the group left was changed after it."""


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


class VersionsUnsupported(EnvironmentNotReady):
    """The versions of Spark, its client and Delta do not work together."""


class SparkRestricted(EnvironmentNotReady):
    """This Spark refuses a conf, a function or a call that correct rows depend on."""


class JobFailed(DeltaCdcError, retryable=True):
    """The Spark application ended without a result, or with an error that has no class here."""

    #: What the job read (:attr:`delta_cdc.core.spec.JobResult.reading`); not part of the JSON form.
    reading: str | None = None


class JobRefused(DeltaCdcError):
    """Spark or Delta refused the work, and would refuse it again: because of rows, SQL, or a table."""


class SparkServerUnreachable(DeltaCdcError, retryable=True):
    """The Spark Connect server does not answer; no job started."""


class SparkServerLost(DeltaCdcError, retryable=True):
    """The Spark Connect server, or the session on it, went away while the job ran."""


class ExecutorLost(DeltaCdcError, retryable=True):
    """An executor died with computed rows that the job still needed."""


class ConcurrentModification(DeltaCdcError, retryable=True):
    """Another writer kept winning the race for the target."""


class StoreUnavailable(DeltaCdcError, retryable=True):
    """The object store did not answer or refused."""


class StoreRefused(StoreUnavailable, retryable=True):
    """The object store refused access: a right or a credential is missing, or has expired."""


class OutcomeUnknown(DeltaCdcError, retryable=True):
    """A job reported a commit that the log does not show; a retry reads the log again."""


class VerificationFailed(DeltaCdcError):
    """A verification found a problem."""


class PromotionRefused(DeltaCdcError):
    """A shadow must not replace its original now."""


def invalid(what: str, remedy: str, argument: str | None = None) -> InvalidConfiguration:
    """Build the error for a configuration that cannot be used.

    :param what: a clause without a full stop
    :param remedy: a sentence
    :param argument: the first argument that is wrong
    """
    return InvalidConfiguration(
        f"The configuration cannot be used: {what}.", remedy=remedy, argument=argument
    )
