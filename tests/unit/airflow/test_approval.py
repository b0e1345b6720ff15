"""A change beyond a limit, and a person who answers: what the task asks, and how it continues."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskAwaitingInput
from airflow.sdk.log import mask_secret

from airflow_delta_cdc import approval
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core.errors import LimitExceeded
from delta_cdc.core.spec import BatchSpec, JobResult, Spec
from tests.support.logs import FEED, LogTable

TEXT = "5-0a1b2c3d4e5f"
STOPPED = LimitExceeded("It would delete 6 of 20 rows.", remedy="look.", approval=TEXT)


class Person:
    """The questions that Airflow gets, and the jobs that Spark gets: the first one is stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.questions: list[dict[str, Any]] = []
        self.specs: list[Spec] = []
        self.errors: list[LimitExceeded] = [STOPPED]
        name = "airflow.sdk.execution_time.hitl.upsert_hitl_detail"
        monkeypatch.setattr(name, lambda **question: self.questions.append(question))
        monkeypatch.setattr(DeltaCdcOperator, "run_job", lambda _, context, spec: self.run(spec))
        monkeypatch.setattr(DeltaCdcOperator, "forget_job", lambda _, context: None)

    def run(self, spec: Spec) -> JobResult:
        self.specs.append(spec)
        error = self.errors.pop(0) if self.errors else LimitExceeded("no job", remedy="no remedy")
        failed = JobResult("failed", error=error.to_dict())
        return JobResult("committed", parts=(failed,)) if isinstance(spec, BatchSpec) else failed


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    return Person(monkeypatch)


@pytest.fixture
def source(tmp_path: Any) -> LogTable:
    made = LogTable(tmp_path / "source", configuration=dict(FEED)).create()
    for _ in range(5):
        made.append()
    return made


def operator(source: LogTable, **more: Any) -> DeltaApplyChangesOperator:
    target = f"{source.path}-target"
    given = {"pipeline": "orders", "source": source.uri, "target": target, "keys": ["id"], **more}
    return DeltaApplyChangesOperator(task_id="apply", **given)


CONTEXT: Any = {"run_id": "r", "ti": SimpleNamespace(id="the-try")}
WAIT = {"policies": {"on_limit": "wait"}}


def answer(option: str) -> dict[str, Any]:
    return {"chosen_options": [option], "params_input": {}, "responded_by_user": {"id": "1", "name": "Ann"}}


def test_without_the_policy_the_task_fails(source: LogTable, person: Person) -> None:
    with pytest.raises(LimitExceeded, match="6 of 20"):
        operator(source).execute(CONTEXT)
    assert person.questions == []


def test_the_task_asks_and_continues_with_exactly_what_was_approved(source: LogTable, person: Person) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        operator(source, **WAIT).execute(CONTEXT)
    (question,) = person.questions
    assert question["ti_id"] == "the-try"
    assert question["options"] == [approval.APPROVE, approval.REJECT]
    assert ("orders" in question["subject"], question["body"]) == (True, STOPPED.message)
    assert parked.value.kwargs == {"text": TEXT}
    # Airflow makes the task again, and calls this method with the answer.
    task = operator(source, **WAIT)
    source.append()
    continues = getattr(task, parked.value.method_name)
    # If the change is another one by now, the task fails: Airflow would show its first question again.
    person.errors = [STOPPED]
    with pytest.raises(LimitExceeded, match="6 of 20"):
        continues(CONTEXT, **(parked.value.kwargs or {}), event=answer(approval.APPROVE))
    (_, spec) = person.specs
    assert spec.guard.approved == TEXT  # type: ignore[attr-defined]
    assert spec.steps[-1].ending_version == 5  # type: ignore[attr-defined]
    assert len(person.questions) == 1


def test_the_question_has_no_secret(source: LogTable, person: Person) -> None:
    mask_secret("s3cr3t-of-the-lake")
    person.errors = [LimitExceeded("s3://a?key=s3cr3t-of-the-lake: 6 rows.", remedy="look.", approval=TEXT)]
    with pytest.raises(TaskAwaitingInput):
        operator(source, **WAIT).execute(CONTEXT)
    assert person.questions[0]["body"] == "s3://a?key=***: 6 rows."


@pytest.mark.parametrize(
    "event",
    [
        answer(approval.REJECT),
        {"error": "x", "error_type": "timeout"},
        None,
        "forged",
        {"chosen_options": []},
    ],
)
def test_any_other_answer_applies_nothing(source: LogTable, person: Person, event: Any) -> None:
    with pytest.raises(LimitExceeded, match="did not approve the change, so it was not written"):
        operator(source, **WAIT).answered(CONTEXT, text=TEXT, event=event)
    assert person.specs == []


def test_an_error_without_an_approval_is_raised(source: LogTable, person: Person) -> None:
    person.errors = [LimitExceeded("It would load 3 rows.", remedy="look whether the source is whole.")]
    with pytest.raises(LimitExceeded, match="load 3"):
        operator(source, **WAIT).execute(CONTEXT)
    assert person.questions == []
