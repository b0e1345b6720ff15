"""A log of events and one target: each call is one run, as a user starts it or as a scheduler retries it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc import apply_changes, expire_events, job
from delta_cdc.core.option import filled
from delta_cdc.core.options import APPLY, ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.steps import ranges_of
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.manifest_folder import folder_for
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.consumers import Consumer
from tests.support.engine import newest, table_rows, versions
from tests.support.event_streams import FIRST
from tests.support.grouped import grouped

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

#: How Delta and the engine say that a plan came too late.
TOO_LATE = ("skipped", "conflict", "stale")


@dataclass
class LogFlow:
    """One log, one target, one configuration.

    :param arguments: those of ``apply_changes``, without source, target and pipeline
    :param said: what was done, for people
    :param results: of every run
    """

    spark: SparkSession
    log: str
    target: str
    arguments: Mapping[str, Any]
    pipeline: str = "events"
    said: list[str] = field(default_factory=list)
    results: list[Outcome] = field(default_factory=list)

    def apply(self, ending_version: int | None = None, **more: Any) -> Outcome:
        """Apply everything after the watermark up to a version of the log (default: the newest)."""
        asked: dict[str, Any] = {"source_kind": "change_log", **self.arguments, **more}
        self.said.append(f"apply to {ending_version}{f' with {more}' if more else ''}")
        result = apply_changes(
            self.spark,
            self.log,
            self.target,
            pipeline=self.pipeline,
            ending_version=ending_version,
            **grouped(asked),
        )
        self.results.append(result)
        return result

    @property
    def options(self) -> ApplyOptions:
        """Return the arguments as the planner gets them."""
        return filled(ApplyOptions, APPLY, {"source_kind": "change_log", **self.arguments})

    def planned(self, ending_version: int) -> ApplySpec | None:
        """Plan a run on the target as it is now, and leave it at that; None if it has nothing to do."""
        request = ApplyRequest(
            pipeline=self.pipeline,
            source=self.log,
            target=self.target,
            options=self.options,
            ending_version=ending_version,
            scratch=True,
        )
        spec = plan_apply(request).spec
        assert spec is None or isinstance(spec, ApplySpec), spec
        return spec

    def run_late(self, spec: ApplySpec) -> None:
        """Run a plan that another run has overtaken: nothing must come of it."""
        before = newest(self.target)
        result = job.run(self.spark, prepared(spec, folder_for(self.spark, ranges_of(spec.steps), None)))
        self.said.append(f"a plan up to {spec.steps[-1].ending_version} came late: {result.status}")
        assert result.status in TOO_LATE, result
        assert newest(self.target) == before, result

    def again(self, starting_version: int, ending_version: int) -> None:
        """Repeat a range that was applied: nothing must come of it."""
        before = newest(self.target)
        result = self.apply(ending_version, starting_version=starting_version)
        assert not result.applied, result
        assert newest(self.target) == before, result

    def through(self, ends: Sequence[int], draw: random.Random) -> LogFlow:
        """Apply up to each of ``ends``, with plans that come late and repetitions in between."""
        done = FIRST - 1
        for end in ends:
            overtaken = self.planned(ends[-1]) if draw.random() < 0.3 else None
            self.apply(end)
            if overtaken is not None:
                self.run_late(overtaken)
            if draw.random() < 0.3:
                self.again(done + 1, end)
            done = end
        return self

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        """Return the target's rows."""
        return table_rows(self.spark, self.target, where)

    @property
    def exists(self) -> bool:
        return bool(versions(self.target))


def expired(flows: Sequence[LogFlow], lowest: int) -> int:
    """Delete the events of a log that are below its lowest allowed sequence, and that no target needs.

    :param flows: the targets of the log
    :return: how many events were deleted
    """
    spark, log = flows[0].spark, flows[0].log
    consumers = [Consumer(flow.pipeline, log, flow.target) for flow in flows]
    done: int = expire_events(spark, log, consumers=consumers, horizon=str(lowest)).get("deleted", 0)
    return done


def cuts(draw: random.Random, batches: int, most: int) -> list[int]:
    """Draw the ends of at most so many runs over the versions of a log's batches."""
    inner = draw.sample(range(1, batches), min(batches, draw.randint(1, most)) - 1)
    return [FIRST - 1 + batch for batch in (*sorted(inner), batches)]
