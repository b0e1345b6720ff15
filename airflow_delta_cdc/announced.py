"""What the events of assets have announced: the events themselves are the record.

Airflow stores the events of a task together with its success. So whatever an event says was announced, and a
record of the provider's own, which a try would write before it succeeds, could be wrong.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.assets import group_asset, pipeline_alias
from airflow_delta_cdc.compat import has_newest_events, newest_events, one_question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Asset, AssetAlias, Context

    from delta_cdc.run.outbox import Announced

_log = logging.getLogger(__name__)

#: How many events of a pipeline are read: those of its last run, and, if they are of the other one of its log
#: and its target, these many.
_FEW, _MANY = 2, 200


def knows_events(context: Context) -> bool:
    """Return whether a task can ask for events: not before Airflow 3.2, nor in a context of a program."""
    return "inlet_events" in context and has_newest_events()


def announcements(
    context: Context, pipeline: str, known: Mapping[str, Mapping[str, int]], *, by_task: bool
) -> Announced | None:
    """Return what tells the engine which seals of a pipeline are announced; None if nothing can tell.

    :param known: see :func:`announced`, by pipeline
    :param by_task: whether the task announces the pipeline
    """
    if not by_task or not knows_events(context):
        return None
    return partial(announced, pipeline, known.get(pipeline, {}))


def announced(
    pipeline: str, known: Mapping[str, int], table: str, uri: str, table_id: str, number: int
) -> int | None:
    """Return the number of the newest seal that an event of a pipeline's table has announced.

    :param known: numbers that were announced, by ``log`` and ``target``; older ones may be missing
    :param table: ``log`` or ``target``
    :param uri: the table's location
    :param table_id: the table's id; a copy at another location has the same one
    :param number: number of the table's newest seal: if it is known, the function does not query Airflow
    :return: None if no such event is known, for example because Airflow does not answer
    """
    if known.get(table) == number:
        return number
    for most in (_FEW, _MANY):
        extras = list(_extras(pipeline_alias(pipeline), most))
        for extra in extras:
            seal, of_table = extra.get("seal"), (extra.get(f"{table}_table"), extra.get(f"{table}_table_id"))
            if of_table == (uri, table_id) and isinstance(seal, int):
                return seal
        if len(extras) < most:
            break
    return None


def announced_by_group(group: str) -> dict[str, dict[str, int]]:
    """Return the seals in a group's newest event: of each pipeline, the numbers by ``log`` and ``target``.

    :param group: the group's ``dag_id``
    """
    tables = next((extra.get("tables") for extra in _extras(group_asset(group), 1)), None)
    entries = tables.items() if isinstance(tables, dict) else ()
    return {
        pipeline: {table: number for table, number in entry["seals"].items() if isinstance(number, int)}
        for pipeline, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("seals"), dict)
    }


def _extras(key: Asset | AssetAlias, most: int) -> Iterator[dict[str, Any]]:
    """Yield what the newest events of an asset or an alias say, newest first."""
    try:
        with one_question:
            events = list(newest_events(key, most))
        for event in events:
            yield event.extra or {}
    except Exception as error:  # noqa: BLE001
        # What was announced is then announced again, which is allowed; not to announce it is not.
        _log.warning("The events of %s could not be read: %s", key.name, error)
