"""The last task of a group: publish the versions of all its targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.announced import announced, announced_by_group, knows_events
from airflow_delta_cdc.assets import group_alias, group_asset
from airflow_delta_cdc.groups import xcoms
from airflow_delta_cdc.groups.base import GroupOperator, has_target, is_dry, template_error
from airflow_delta_cdc.groups.detect_changes import detecting
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError, InvalidXCom
from delta_cdc.core.text_table import grid
from delta_cdc.core.uris import is_name
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.groups.xcoms import Summary

#: The arguments that say which table of a pipeline users read.
_NAMES = ("pipeline", "log", "target")


class PublishOperator(GroupOperator):
    """Publish the versions of all targets of a group, including those that did not change.

    The XCom ``return_value`` is ``{pipeline: {target, target_version, version, seals, table_id}}``:
    ``version`` is the watermark of the target as of its ``target_version``, ``table_id`` is Delta's id of
    the target ("" if it is not known), and ``seals`` has the numbers of the newest seals of ``target``
    and ``log`` that their events have announced. If this run applied changes, or the newest event of the
    group lacks one of these seals, the asset of the group (:func:`airflow_delta_cdc.assets.group_asset`)
    gets an event with the same map.

    :param group: the group's ``dag_id``
    :param detections: ids of the tasks that detected changes
    :param applies: ids of the mapped tasks that applied them
    :param manifest: path or URI of a file that gets the same map, replaced as a whole; may have
        ``${VARIABLES}``. A dry run does not write it
    """

    ui_color = "#e8f1d4"

    def __init__(
        self,
        *,
        group: str,
        detections: Sequence[str],
        applies: Sequence[str],
        manifest: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.detections = detections
        self.applies = applies
        self.manifest = manifest
        self.producing = [group_asset(group)]
        self.add_outlets([group_alias(group), *self.producing])

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the versions of all targets, and announce them if they changed since the last event."""
        summaries: dict[str, Summary] = {}
        named: dict[str, dict[str, Any]] = {}
        environment = self.get_template_env()
        is_dry_run = False
        for task_id in self.detections:
            detected = context["ti"].xcom_pull(task_ids=task_id, key="tables", map_indexes=-1)
            summaries |= xcoms.summaries(detected)
            detection = detecting(self, task_id)
            is_dry_run = is_dry_run or is_dry(detection.form(context).arguments)
            for table in detection.tables:
                names = {name: table[name] for name in _NAMES if name in table}
                named[table["pipeline"]] = self.rendered(names, context, environment)
        done = xcoms.published(self._done(context), summaries)
        known = announced_by_group(self.group) if knows_events(context) else None
        versions_by_pipeline: dict[str, Any] = {}
        changed = any(done[pipeline].get("applied") is True for pipeline in done.keys() & named.keys())
        for pipeline in sorted(named.keys() & summaries.keys()):
            versions = self._versions(named[pipeline], summaries[pipeline], done.get(pipeline))
            if versions is not None:
                seals = _seals(pipeline, summaries[pipeline], done.get(pipeline), known)
                changed = changed or (known is not None and seals != known.get(pipeline, {}))
                versions_by_pipeline[pipeline] = {**versions, "seals": seals}
        if self.manifest is not None and versions_by_pipeline and not is_dry_run:
            # Before the event: a DAG that it starts may read the file.
            engine.publish_versions(
                expand(self.manifest),
                self.group,
                versions_by_pipeline,
                unknown=named.keys() - versions_by_pipeline.keys(),
                storage_options=self.options_of_storage(),
            )
        if changed:
            extra: dict[str, Any] = {"group": self.group, "tables": versions_by_pipeline}
            context["outlet_events"][group_alias(self.group)].add(group_asset(self.group), extra=extra)
        rows = [
            {"table": pipeline, "watermark": one["version"], "target version": one["target_version"]}
            for pipeline, one in versions_by_pipeline.items()
        ]
        self.log.info("%d targets.\n%s", len(rows), grid(rows))
        return versions_by_pipeline

    def _done(self, context: Context) -> Iterator[dict[str, Any]]:
        """Yield the dicts that the tables' own tasks published."""
        for task in self.applies:
            pulled = context["ti"].xcom_pull(task_ids=task)
            # If a mapped task pushed only one value, Airflow returns that value, not a list.
            yield from (value for value in (pulled if isinstance(pulled, list) else [pulled]) if value)

    def _versions(
        self, table: Mapping[str, Any], summary: Summary, published: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return the versions of one target; None if it has no version.

        :param table: its names, from the DAG
        :param summary: its summary from the detection
        :param published: the dict that its task published; None if no task worked on it
        """
        try:
            if (error := template_error(table)) is not None:
                raise error
            written = "target" if has_target(table) else "log"
            target = arguments.table(written, table.get(written))
            if published is not None and "target_table" not in published:
                # A log without a target has no watermark. A dry run without a log has no version.
                return _entry(target, published.get("log_version"), None, published.get("log_table_id"))
            if published is None and summary.status != "left out":
                return _entry(target, summary.target_version, summary.version, summary.table_id)
            # Read both versions now, from one state of the target: another run may have committed after this
            # one.
            location = target
            if is_name(target):
                stored = summary.target or (published or {}).get("target_table")
                location = xcoms.location(stored, table["pipeline"])
            versions = engine.versions_of(table["pipeline"], location, self.options_of_storage())
        except DeltaCdcError as error:
            if published is not None or isinstance(error, InvalidXCom):
                raise
            self.log.warning("Skipped %s, because its versions cannot be read: %s", table["pipeline"], error)
            return None
        return _entry(target, *versions) if versions is not None else None


def _entry(
    target: str, target_version: int | None, version: int | None, table_id: str | None
) -> dict[str, Any] | None:
    if target_version is None:
        return None
    return {
        "target": target,
        "target_version": target_version,
        "version": version,
        "table_id": table_id or "",
    }


def _seals(
    pipeline: str,
    summary: Summary,
    published: Mapping[str, Any] | None,
    known: Mapping[str, Mapping[str, int]] | None,
) -> dict[str, int]:
    """Return the seals of a pipeline that are announced.

    The XCom of a table's task is no proof that its event was stored: a user may have marked the task as
    successful.

    :param known: the seals in the group's newest event; None: the events are not known
    """
    if known is None:
        return {}
    seals = {**known.get(pipeline, {}), **summary.announced}
    if published is not None:
        for table, written in (("log", published.get("ingested", published)), ("target", published)):
            uri, table_id = written.get(f"{table}_table"), written.get(f"{table}_table_id")
            number = announced(pipeline, {}, table, uri, table_id, -1) if uri and table_id else None
            if number is not None:
                seals[table] = number
    return seals
