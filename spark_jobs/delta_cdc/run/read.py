"""The flow of a read into staging."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.requests import ReadRequest
from delta_cdc.core.spec import JobResult, ReadSpec
from delta_cdc.core.uris import canonical_uri, short_name
from delta_cdc.planning.plan import Plan
from delta_cdc.planning.read import plan_read_async
from delta_cdc.planning.written import bytes_of
from delta_cdc.run.loop import Own, Run, described_range
from delta_cdc.run.outcomes import Outcome, counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit


class Reading(Run[ReadRequest, Plan, ReadSpec]):
    """One read into staging, as the one open batch.

    If an open batch still continues the watermark, it is returned unchanged. If an earlier try staged only
    the first part of a batch, this run stages the rest. The log of the staging table confirms the batch.
    """

    async def plan(self) -> Plan:
        return await plan_read_async(self.request, self.memory())

    def written_table(self) -> str:
        return canonical_uri(self.request.staging)

    def described(self, plan: Plan, named: Callable[[str], str] = str) -> str:
        return described_range(plan, self.written_table(), named)

    async def publish_nothing(self, plan: Plan) -> Outcome:
        if plan.batch is None:
            done = "the target already has" if self.request.target is not None else "earlier runs committed"
            self.say(
                f"Nothing to read: {plan.source.uri} is at version {plan.source.version}, and {done} all of "
                "its changes."
            )
            return self._result(plan, applied=False, batch=None)
        made_by = plan.batch[0].step.fingerprint.rpartition(":")[0]
        ours = made_by in self.saved(plan.plan_key).fingerprints
        return self._result(plan, applied=ours, batch=plan.batch)

    async def publish(self, plan: Plan, own: Own, result: JobResult | None) -> Outcome:
        if plan.versions is None:
            sealed, commit = own.found[-1]
            self.say(
                f"0 rows: wrote watermark {sealed.watermark} in version {commit.version} of "
                f"{short_name(self.written_table())}."
            )
            return replace(self._result(plan, applied=False, batch=None), watermark=sealed.watermark)
        done = self._result(
            plan, applied=True, batch=own.found[-1], counts=result.counts if result is not None else None
        )
        self.say(
            f"{counted(done.counts)}: {self.described(plan, short_name)}, version {done.staging_version}."
        )
        return done

    def _result(
        self,
        plan: Plan,
        *,
        applied: bool,
        batch: tuple[Seal, Commit] | None,
        counts: dict[str, int] | None = None,
    ) -> Outcome:
        recorded = plan.recorded
        seal = recorded.seal if recorded is not None else None
        staged_counts = _staged_counts(*batch) if batch is not None else {}
        target = self.request.target
        return Outcome(
            kind="read",
            applied=applied,
            versions=plan.versions,
            watermark=seal.watermark if seal is not None else None,
            counts=counts or staged_counts,
            target_version=recorded.target.version if recorded is not None and target is not None else None,
            pipeline=self.request.pipeline,
            seal=batch[0].number if batch else None,
            source_table=canonical_uri(self.request.source),
            target_table=canonical_uri(target) if target is not None else None,
            target_table_id=recorded.target.table_id if recorded is not None and target is not None else None,
            staging=self.written_table(),
            staging_version=batch[1].version if batch else None,
            rows=staged_counts.get("rows", 0),
            plan_key=plan.plan_key,
            bytes_written=bytes_of([batch[1]]) if batch is not None and applied else 0,
            effort=self.effort,
        )


def _staged_counts(seal: Seal, commit: Commit) -> dict[str, int]:
    """Return the counts of a batch from the log: those of earlier commits, plus the rows of its last commit.

    The change types of the last commit's rows were not known when the job sealed it.
    """
    added = commit.info.metric("numOutputRows") or 0
    earlier_counts = seal.step.counts
    return (
        dict(earlier_counts)
        if not added and earlier_counts
        else {"rows": earlier_counts.get("rows", 0) + added}
    )
