"""What a run's job committed counts as the run's own, though the job planned it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.spec import ApplySpec, JobResult
    from delta_cdc.run.outcomes import Outcome


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), and a target that is through with 2."""
    made = Tables.made_in(tmp_path)
    made.sealed(2)
    return made


def look(
    tables: Tables, since: int | None, run_id: str = "r", saved_plans: PlansInMemory | None = None
) -> Outcome:
    def never(spec: ApplySpec) -> JobResult:
        raise AssertionError("nothing is left to do")

    return run(
        tables.request(run_id=run_id),
        Services(
            execute=never, saved_plans=saved_plans or PlansInMemory(), say=lambda line: None, since=since
        ),
    )


def test_commits_of_this_run_after_the_version_before(tables: Tables) -> None:
    tables.sealed(4, 101, start=3)
    tables.sealed(5, 102, start=5)
    ours = look(tables, since=0)
    assert ours.applied
    assert (str(ours.versions), ours.target_version) == ("3-5", 2)
    assert str(look(tables, since=1).versions) == "5-5"


def test_commits_of_others_and_of_before(tables: Tables) -> None:
    tables.sealed(5, 101, start=3)
    assert not look(tables, since=0, run_id="another").applied
    assert not look(tables, since=1).applied
    assert not look(tables, since=None).applied
    assert not look(tables, since=0, run_id="").applied


def test_a_saved_plan_names_no_commit_of_another_run(tables: Tables) -> None:
    """Who edits the store of the saved plans cannot make another run's commit the work of this one."""
    tables.sealed(5, 101, start=3, fingerprint="plan:101")
    saved = {"fingerprints": ["plan"], "planned_version": 0}
    for run_id, is_applied in (("r", True), ("another", False)):
        plans = PlansInMemory()
        plans.set("pin:p:source-id", saved)
        assert look(tables, None, run_id, plans).applied is is_applied


def test_a_seal_on_top_takes_nothing_back(tables: Tables) -> None:
    tables.sealed(5, 101, start=3)
    tables.sealed(5, 102, start=3, kind="renew")
    assert look(tables, since=0).applied
    tables.target.restore(0)
    tables.sealed(5, 103, start=3, kind="renew")
    assert not look(tables, since=0).applied, "but a RESTORE does"
