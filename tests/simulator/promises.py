"""What each store promises: which of its faults a schedule may draw.

A store keeps its own promise in the simulator, and breaks everything that it does not promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Promise:
    """What a store, with the log store that writes to it, promises.

    :param scheme: of the locations; ``file`` is a disk
    :param safe: a commit file is never created twice; otherwise the writer looks first, and replaces then
    :param lag: how many steps pass until readers of the plain files see a new commit
    :param torn: a reader may see the beginning of a commit file while it is written: at the latest, the file
        is whole when the next version is committed. No store that Delta supports does this
    :param stale: a listing may lack the newest objects
    """

    scheme: str
    safe: bool = True
    lag: int = 0
    torn: bool = False
    stale: bool = False

    def has(self, step: str, fault: str) -> bool:
        """Return whether a step and a fault can be met at this store."""
        given = {"torn": self.torn, "stale": self.stale}
        return given.get(fault, True) and not (step.endswith("commit_put") and self.safe)


#: HDFS is missing: the log's reader has no client for it, and refuses its locations.
PROMISES = {
    "gs": Promise("gs"),
    "abfss": Promise("abfss"),
    "s3, conditional writes": Promise("s3"),
    "s3, one driver's store": Promise("s3", safe=False),
    "s3, DynamoDB": Promise("s3", lag=40),
    "s3, listings that lag": Promise("s3", stale=True),
    "disk, our log store": Promise("file"),
    "disk, Delta's log store": Promise("file", safe=False),
    "disk, files that are seen while they are written": Promise("file", torn=True),
}


@dataclass(frozen=True)
class Rule:
    """One thing that the simulator relies on, or breaks, at a store.

    :param kept_by: whether a store promises it
    :param tests: kind of store, and a test on a real one
    :param broken: tests which show that a store without the promise breaks it
    :param missing: kinds of stores without a test
    """

    text: str
    tests: tuple[tuple[str, str], ...]
    kept_by: Callable[[Promise], bool] = lambda _: True
    broken: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


_LOG_STORE = "integration/object_storage/test_log_store.py::"
_DISK = "integration/recovery/test_disk_commits.py::"
_HERE = "integration/object_storage/test_promises.py::"
_SHORT = "unit/log/test_short_answers.py::"

#: The store of the simulator, ``store.py``, does the same. GCS and ABFS have no server here.
RULES = (
    Rule(
        "a version is created once",
        (
            ("s3", _LOG_STORE + "test_every_commit_is_one_conditional_request"),
            ("s3", _HERE + "test_one_of_many_creations_succeeds"),
            ("disk", _DISK + "test_a_driver_that_was_frozen_overwrites_nothing"),
        ),
        lambda promise: promise.safe,
        (
            _LOG_STORE + "test_deltas_default_loses_commits",
            _DISK + "test_deltas_default_overwrites_a_commit",
        ),
    ),
    Rule(
        "a request whose answer is lost may have been carried out, and its repetition is refused",
        (
            ("s3", _LOG_STORE + "test_an_answer_that_was_lost_is_no_conflict"),
            ("s3", _HERE + "test_the_own_file_after_a_lost_answer_is_not_taken_for_a_written_one"),
            ("disk", _DISK + "test_a_file_of_a_commit"),
        ),
    ),
    Rule(
        "a request that arrives twice changes nothing that was written in between",
        (("s3", _HERE + "test_a_request_that_arrives_again_changes_nothing_that_was_written_since"),),
        missing=("disk",),
    ),
    Rule(
        "a listing is complete and up to date",
        tuple((kind, _HERE + "test_a_listing_is_complete_sorted_and_up_to_date") for kind in ("s3", "disk")),
        lambda promise: not promise.stale,
        (_HERE + "test_a_listing_that_lags_shows_an_older_table",),
    ),
    Rule(
        "a reader sees whole files",
        (
            ("s3", _HERE + "test_a_body_that_a_client_goes_on_with_is_whole"),
            ("disk", _DISK + "test_a_driver_that_was_frozen_overwrites_nothing"),
        ),
        lambda promise: not promise.torn,
        (_HERE + "test_a_file_that_is_seen_while_it_is_written_has_another_hash",),
    ),
    Rule(
        "a new commit is seen at once",
        tuple((kind, _HERE + "test_a_listing_is_complete_sorted_and_up_to_date") for kind in ("s3", "disk")),
        lambda promise: promise.lag == 0,
        (_HERE + "test_a_listing_that_lags_shows_an_older_table",),
    ),
    Rule(
        "a short answer, or a range of another object, is an error",
        (
            ("s3", _HERE + "test_an_odd_answer_is_no_answer"),
            ("disk", _SHORT + "test_a_short_answer_is_a_failure_of_the_store"),
            ("disk", _SHORT + "test_ranges_of_two_files_are_not_one_file"),
        ),
    ),
    Rule(
        "a request that is refused or throttled is an error that a retry may follow",
        (
            ("s3", _HERE + "test_a_store_that_throttles_for_a_while_is_waited_for"),
            ("disk", _SHORT + "test_a_file_without_rights_is_not_the_fault_of_a_connection"),
            ("disk", _DISK + "test_a_disk_that_fails_is_no_disk_without_hard_links"),
        ),
    ),
)
