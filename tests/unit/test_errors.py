"""One error tree: each error says what happened and what to do, and survives every border it crosses."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core import arguments, errors
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.rules import check_options
from delta_cdc.core.spec import JobResult
from delta_cdc.run import batch

if TYPE_CHECKING:
    from collections.abc import Callable

NAMED = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.DeltaCdcError)
]


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_an_error_crosses_processes_whole(cls: type[errors.DeltaCdcError]) -> None:
    error = cls("The table t is gone.", remedy="bring it back.")
    for copy in (pickle.loads(pickle.dumps(error)), errors.DeltaCdcError.from_dict(error.to_dict())):
        assert type(copy) is cls
        assert str(copy) == str(error) == "The table t is gone. Remedy: bring it back."
        assert (copy.message, copy.remedy) == (error.message, error.remedy)


@pytest.mark.parametrize("name", ["Unheard of", "annotations", "Any", "named"])
def test_an_error_without_a_name_here_is_a_failed_job(name: str) -> None:
    error = errors.DeltaCdcError.from_dict({"class": name, "message": "boom", "remedy": "look."})
    assert type(error) is errors.JobFailed
    assert name in error.message
    assert error.retryable


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_an_error_comes_through_a_bundle_whole(cls: type[errors.DeltaCdcError]) -> None:
    """From a part in Spark's driver, by the result that is written as JSON, to the flow that asked for it."""
    error = cls("The table t is gone.", remedy="bring it back.", argument="source")
    part = JobResult("failed", error=error.to_dict())
    read = JobResult.from_json(JobResult("committed", parts=(part,)).to_json()).parts[0]
    assert read.error is not None
    for copy in (DeltaCdcError.from_dict(read.error), pickle.loads(pickle.dumps(error))):
        assert type(copy) is cls
        assert vars(copy) == vars(error)
        assert (copy.retryable, copy.of_rows, copy.argument) == (cls.retryable, cls.of_rows, "source")


@pytest.mark.parametrize("cls", NAMED, ids=lambda cls: cls.__name__)
def test_an_apply_that_is_refused_for_its_rows_is_not_tried_again_by_the_worker(
    cls: type[errors.DeltaCdcError],
) -> None:
    error = cls("The rows are wrong.", remedy="correct them.")
    then = JobResult("failed", error=error.to_dict())
    found = batch._failed_then(SimpleNamespace(then=then))  # type: ignore[arg-type]
    assert (found is not None) is cls.of_rows
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


@pytest.mark.parametrize(
    ("refused", "argument"),
    [
        (lambda: arguments.whole_number("max_versions", "few"), "max_versions"),
        (lambda: arguments.initial_load("initial_load", {"from_version": "few"}), "initial_load"),
        (lambda: arguments.names("keys", 1), "keys"),
        (lambda: arguments.flag("single_driver", "perhaps"), "single_driver"),
        (lambda: arguments.required("source", " "), "source"),
        (lambda: arguments.conflict("on_conflict", "most"), "on_conflict"),
        (lambda: arguments.columns("keys", ["where", "where"]), "keys"),
        (
            lambda: check_options(ApplyOptions(keys=("id",), column_list=("a",), except_column_list=("b",))),
            "column_list",
        ),
    ],
)
def test_a_wrong_argument_is_named_beside_the_message(
    refused: Callable[[], object], argument: str | None
) -> None:
    with pytest.raises(errors.InvalidConfiguration) as error:
        refused()
    assert error.value.argument == argument
