"""One error tree: each error says what happened and what to do, and survives every border it crosses."""

from __future__ import annotations

import pickle

import pytest

from delta_cdc import errors

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


@pytest.mark.parametrize("name", ["Unheard", "annotations", "Any", "_rebuild"])
def test_an_error_without_a_name_here_is_a_failed_job(name: str) -> None:
    error = errors.DeltaCdcError.from_dict({"class": name, "message": "boom", "remedy": "look."})
    assert type(error) is errors.JobFailed
    assert name in error.message
    assert error.retryable


def test_every_error_explains_itself() -> None:
    assert [cls.__name__ for cls in NAMED if not cls.__doc__] == []
