"""One try of a run: what a process of Airflow keeps outside of itself, and what it announces."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.core.spec import ApplySpec, BatchSpec
from delta_cdc.core.steps import ranges_of
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.manifest_folder import folder_for
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.system.driver import FilePlans

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome


class Killed(BaseException):
    """The process of this try has ended."""


class _Plans(FilePlans):
    """Saved plans that a process keeps as long as it lives."""

    def __init__(self, path: Path, has_ended: Callable[[], bool]) -> None:
        super().__init__(path)
        self._has_ended = has_ended

    def set(self, key: str, value: dict[str, Any]) -> None:
        if self._has_ended():
            raise Killed
        super().set(key, value)

    def delete(self, key: str) -> None:
        if self._has_ended():
            raise Killed
        super().delete(key)


@dataclass
class Try:
    """A process that does work once.

    :param folder: where its saved plans lie, and what it announced: the next try finds both
    :param storage: options of the store
    :param has_ended: whether it was killed: then it stores nothing more
    :param is_mute: it is killed before an announcement is stored
    """

    spark: SparkSession
    folder: Path
    run_id: str
    storage: dict[str, str] | None = None
    has_ended: Callable[[], bool] = field(default=lambda: False)
    is_mute: bool = False

    def __post_init__(self) -> None:
        self.saved_plans = _Plans(self.folder / "plans.json", self.has_ended)

    @property
    def services(self) -> Services:
        return Services(
            execute=self.execute,
            saved_plans=self.saved_plans,
            announced=self.announced,
            say=lambda line: None,
        )

    def execute(self, spec: Any) -> Any:
        try:
            if isinstance(spec, ApplySpec):
                return job.execute(self.spark, self.storage, None, spec)
            if isinstance(spec, BatchSpec):
                spec = replace(spec, parts=tuple(map(self._with_manifests, spec.parts)))
            return job.run(self.spark, spec, storage_options=self.storage)
        finally:
            if self.has_ended():
                raise Killed

    def _with_manifests(self, part: Any) -> Any:
        """Return a part with the manifests of its ranges, which an operator writes before it starts Spark."""
        if not isinstance(part, ApplySpec):
            return part
        return prepared(part, folder_for(self.spark, ranges_of(part.steps), None), self.storage)

    # -- announcements, as Airflow stores them with the success of a task -----------------------------
    def announced(self, table: str, uri: str, table_id: str, number: int) -> int | None:
        """Return the number of the newest announced seal of a table."""
        return max(
            (
                one["seal"]
                for one in announcements(self.folder)
                if one["id"] == table_id and one["uri"] == uri
            ),
            default=None,
        )

    def publish(self, *outcomes: Outcome | None) -> bool:
        """Announce what runs did; return whether they did something."""
        done = [one for one in outcomes if one is not None and one.applied]
        if self.has_ended():
            raise Killed
        if self.is_mute:
            return bool(done)
        stored = [*announcements(self.folder), *map(_announcement, done)]
        (self.folder / "announced.json").write_text(json.dumps(stored))
        for one in filter(None, outcomes):
            forget_saved_plans(one, self.saved_plans)
        return bool(done)


def announcements(folder: Path) -> list[dict[str, Any]]:
    """Return what tries have announced, oldest first."""
    path = folder / "announced.json"
    return json.loads(path.read_text()) if path.exists() else []


def _announcement(outcome: Outcome) -> dict[str, Any]:
    is_ingest = outcome.kind == "ingest"
    versions = outcome.versions
    return {
        "pipeline": outcome.pipeline,
        "uri": outcome.log_table if is_ingest else outcome.target_table,
        "id": outcome.log_table_id if is_ingest else outcome.target_table_id,
        "seal": outcome.seal,
        "from": versions.starting_version if versions else None,
        "to": versions.ending_version if versions else None,
        "counts": outcome.counts,
    }
