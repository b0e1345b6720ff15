"""The last task of a group: which versions of all its targets go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.assets import group_alias, group_asset
from airflow_delta_cdc.groups.base import GroupOperator
from delta_cdc.core.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context


class PublishOperator(GroupOperator):
    """Publish the versions of all targets of a group, those that did not change included.

    The XCom ``return_value`` is ``{pipeline: {target, target_version, version}}``: who reads each target as
    of its ``target_version`` sees it at ``version``, its watermark. Where something was applied in this run,
    the asset of the group (:func:`airflow_delta_cdc.assets.group_asset`) gets an event with the same map.

    :param group: name of the group
    :param detections: ids of the tasks that detected changes
    :param applies: ids of the mapped tasks that worked on them
    """

    ui_color = "#e8f1d4"

    def __init__(
        self, *, group: str, detections: Sequence[str], applies: Sequence[str], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.detections = detections
        self.applies = applies
        self.add_outlets([group_alias(group)])

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the versions of what was worked on; those of the others are known."""
        found: dict[str, Any] = {}
        for task in self.detections:
            found |= context["ti"].xcom_pull(task_ids=task, key="tables", map_indexes=-1) or {}
        done = {one["pipeline"]: one for one in self._done(context)}
        together: dict[str, Any] = {}
        for pipeline, one in sorted(found.items()):
            versions = self._versions(pipeline, one, done.get(pipeline))
            if versions is not None:
                together[pipeline] = versions
        if any(one.get("applied") for one in done.values()):
            extra: dict[str, Any] = {"group": self.group, "tables": together}
            context["outlet_events"][group_alias(self.group)].add(group_asset(self.group), extra=extra)
        self.log.info("%d targets.", len(together))
        return together

    def _done(self, context: Context) -> Iterator[dict[str, Any]]:
        """Yield what the tables' own tasks published."""
        for task in self.applies:
            pulled = context["ti"].xcom_pull(task_ids=task)
            # Of a mapped task that pushed one value alone, Airflow gives that value and no list of it.
            yield from (one for one in (pulled if isinstance(pulled, list) else [pulled]) if one)

    def _versions(
        self, pipeline: str, found: Mapping[str, Any], done: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return the versions of one target; None without a version.

        :param found: what was seen of it
        :param done: what was published of it; None where it was not worked on
        """

        if done is not None and "target_table" not in done:
            # Of a log there is nothing but its version.
            log = done.get("log_table")
            return _entry(log, done["log_version"], None) if log else None
        if done is None and found["status"] != "left out":
            return _entry(found["target"], found["target_version"], found["version"])
        # Read now, both from one state of the target: another run may have committed on top of ours.
        target = found["target"] if done is None else done["target_table"]
        try:
            now = engine.versions_of(pipeline, target, self.options_of_storage())
        except DeltaCdcError as error:
            if done is not None:
                raise
            self.log.warning("%s is left out: %s", pipeline, error)
            return None
        return _entry(target, *now) if now is not None else None


def _entry(target: str | None, target_version: int | None, version: int | None) -> dict[str, Any] | None:
    if target_version is None:
        return None
    return {"target": target, "target_version": target_version, "version": version}
