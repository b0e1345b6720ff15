"""The last task of a group: which versions of all its targets go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.assets import group_alias, group_asset
from airflow_delta_cdc.groups.base import GroupOperator
from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class CutOperator(GroupOperator):
    """Publish the versions of all targets of a group, those that did not change included.

    The XCom ``return_value`` is ``{pipeline: {target, target_version, version}}``: who reads each target as
    of its ``target_version`` sees it at ``version``, its watermark. Where something was applied in this run,
    the asset of the group (:func:`airflow_delta_cdc.assets.group_asset`) gets an event with the same map.

    :param group: name of the group
    :param looks: ids of the tasks that looked at the tables
    :param applies: ids of the mapped tasks that worked on them
    """

    ui_color = "#e8f1d4"

    def __init__(self, *, group: str, looks: Sequence[str], applies: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.looks = looks
        self.applies = applies
        self.add_outlets([group_alias(group)])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Read the versions of what was worked on; those of the others are known."""
        found: dict[str, Any] = {}
        for task in self.looks:
            found |= context["ti"].xcom_pull(task_ids=task, key="tables", map_indexes=-1) or {}
        cut: dict[str, Any] = {
            pipeline: versions
            for pipeline, one in sorted(found.items())
            if (versions := self._versions(pipeline, one)) is not None
        }
        if self._applied(context):
            extra: dict[str, Any] = {"group": self.group, "tables": cut}
            context["outlet_events"][group_alias(self.group)].add(group_asset(self.group), extra=extra)
        self.log.info("%d targets.", len(cut))
        return cut

    def _applied(self, context: Context) -> bool:
        for task in self.applies:
            told = context["ti"].xcom_pull(task_ids=task)
            # Of a mapped task that pushed one value alone, Airflow gives that value and no list of it.
            if any(one and one.get("applied") for one in (told if isinstance(told, list) else [told])):
                return True
        return False

    def _versions(self, pipeline: str, found: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the versions of one target: what was seen of it, unless it was worked on."""
        if found["status"] == "nothing":
            known = found["target_version"] is not None
            return {name: found[name] for name in ("target", "target_version", "version")} if known else None
        from delta_cdc.flow import versions_of

        try:
            now = versions_of(pipeline, found["target"], self.options_of_storage())
        except DeltaCdcError as error:
            if found["status"] == "work":
                raise
            self.log.warning("%s is left out: %s", pipeline, error)
            return None
        if now is None:
            return None
        return {"target": found["target"], "target_version": now[0], "version": now[1]}
