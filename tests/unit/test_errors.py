"""One error tree: each error says what happened and what to do, and survives every border it crosses."""

from __future__ import annotations

import pickle

import pytest

from delta_cdc.core import errors
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.spec import JobResult
from delta_cdc.run import batch
from delta_cdc.spark import named_errors

NAMED = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.DeltaCdcError)
]


@pytest.mark.parametrize("name", ["Unheard of", "annotations", "Any", "named"])
def test_an_error_without_a_name_here_is_a_failed_job(name: str) -> None:
    error = errors.DeltaCdcError.from_dict({"class": name, "message": "boom", "remedy": "look."})
    assert type(error) is errors.JobFailed
    assert name in error.message
    assert error.retryable


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_an_error_comes_through_a_bundle_whole(cls: type[errors.DeltaCdcError]) -> None:
    """From a part in Spark's driver, by the result that is written as JSON, to the flow that asked for it."""
    error = cls("The table t is gone.", remedy="bring it back.", argument="source", approval="7-0a1b2c3d4e5f")
    part = JobResult("failed", error=error.to_dict())
    read = JobResult.from_json(JobResult("committed", parts=(part,)).to_json()).parts[0]
    assert read.error is not None
    for copy in (DeltaCdcError.from_dict(read.error), pickle.loads(pickle.dumps(error))):
        assert type(copy) is cls
        assert vars(copy) == vars(error)
        assert str(copy) == "The table t is gone. Remedy: bring it back."
        assert (copy.retryable, copy.of_rows, copy.argument) == (cls.retryable, cls.of_rows, "source")


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_an_apply_that_is_refused_for_its_rows_is_not_tried_again_by_the_worker(
    cls: type[errors.DeltaCdcError],
) -> None:
    error = cls("The rows are wrong.", remedy="correct them.")
    then = JobResult("failed", error=error.to_dict())
    found = batch._failed_then(then)
    assert (found is not None) is (cls.of_rows or cls is errors.LimitExceeded)
    assert not (cls.of_rows and cls.retryable), "what is refused for its rows is refused again"


def test_a_new_error_needs_no_second_entry() -> None:
    class Unheard(errors.NullKey):
        """Of another module, and below a class of ours."""

    try:
        copy = DeltaCdcError.from_dict(Unheard("No.", remedy="do.").to_dict())
        assert type(copy) is Unheard
        assert copy.of_rows
        assert Unheard in errors.named()
    finally:
        # Else the tree of other tests would have it, too.
        Unheard.__name__ = "gone"


def test_every_error_explains_itself() -> None:
    assert [cls.__name__ for cls in NAMED if not cls.__doc__] == []


def test_removes_that_the_feed_cannot_read_need_a_reload() -> None:
    error = named_errors.named(
        Exception("[DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA] RemoveFile created without"),
        "s, versions 1-2",
    )
    assert type(error) is errors.ReadMethodUnavailable
    assert not error.retryable
    assert "mode='reload'" in error.remedy
