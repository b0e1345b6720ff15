"""The XComs that the tasks of a group pass to each other: names, versions, and texts for people.

Who may edit XComs can change them. So none of them holds an argument of a table, and everything that a task
reads from one is checked here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError, InvalidXCom
from delta_cdc.core.quarantine import Held  # noqa: TC001 - codec reads the hints
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

T = TypeVar("T")

#: The most characters, values and levels of what an XCom holds about one table.
_MOST_CHARACTERS, _MOST_VALUES, _MOST_LEVELS = 256 * 1024, 10_000, 20
#: The largest number, and the largest version of a table.
_MOST = 2**63 - 1
_STAMP = re.compile(r"[0-9a-f]{12}")
_PARTS_OF_AN_ERROR = {"class", "message", "remedy"}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table's work, as ``detect_changes`` passes it on.

    :param pipeline: the pipeline's name
    :param fingerprint: :func:`fingerprint` of the arguments that the changes were detected with
    :param stamp: id of that detection; saved plans and answers of an earlier detection do not count
    :param found: the work, for people
    :param since: version of the target before the work, -1 if it does not exist; None if nothing is applied
    :param ends: the last version of the detected changes, by the key of the saved plan
    :param located: the locations of those of ``source``, ``log`` and ``target`` that are catalog names; the
        job compares them with the catalog before it writes
    :param failed: whether the detection failed
    """

    pipeline: str
    fingerprint: str
    stamp: str
    found: str
    since: int | None = None
    ends: dict[str, int] = field(default_factory=dict)
    located: dict[str, str] = field(default_factory=dict)
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What an application took for one table (:meth:`delta_cdc.run.outcomes.Effort.to_dict`)."""

    seconds: dict[str, float] = field(default_factory=dict)
    attempts_lost: int = 0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What ``run_spark`` answers about one table.

    :param item_stamp: the ``stamp`` of the :class:`Item`
    :param try_stamp: id of the try, so that the table's own task raises an error only once
    :param error: :meth:`delta_cdc.core.errors.DeltaCdcError.to_dict`
    :param saved_plans: the plans by which the table's own task recognizes the work, by their keys
    :param dry_run: the published dict of a dry run
    """

    item_stamp: str = ""
    status: Literal["", "applied", "ingested", "nothing", "planned", "failed", "unfinished"] = ""
    try_stamp: str = ""
    error: dict[str, str] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    saved_plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    dry_run: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What ``detect_changes`` tells ``publish`` about one table.

    :param target: location of the table that users read; ``publish`` believes it for a catalog name alone,
        and only to read versions there
    :param announced: the numbers of the seals of ``log`` and ``target`` that events have announced
    :param found: the work or the error, for people
    :param lag, in_quarantine: for people, too
    :param stamp: id of the detection, as in the :class:`Item`
    """

    status: Literal["work", "nothing", "failed", "left out"]
    target_version: int | None = None
    table_id: str | None = None
    version: int | None = None
    target: str | None = None
    announced: dict[str, int] = field(default_factory=dict)
    found: str = ""
    lag: dict[str, Any] | None = None
    in_quarantine: tuple[Held, ...] = ()
    stamp: str = ""


def fingerprint(work_fingerprint: str, table: Mapping[str, Any]) -> str:
    """Return a hash of the arguments of a table: the same in each task of a run.

    :param work_fingerprint: hash of the settings that determine the work, such as connections
    :param table: the arguments, with rendered templates and the values of the form
    """
    text = json.dumps([work_fingerprint, sorted(table.items())], default=str, skipkeys=True)
    return sha256(text.encode()).hexdigest()[:16]


# -- reading ----------------------------------------------------------------------------------------
def items(value: Any, pipelines: Collection[str]) -> tuple[list[Item], list[ConfigurationChanged]]:
    """Read the work of a run from the XCom of ``detect_changes``, and the errors of tables that are gone.

    :param pipelines: the tables that may have work: those of the task that the form of the run chooses
    :raises InvalidXCom: it is no list of work, of each table at most once
    """
    if not isinstance(value, list):
        raise _invalid("The work from detect_changes", f"it is {type(value).__name__}, not list")
    read = [_item(one) for one in value]
    names = [one.pipeline for one in read]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _invalid("The work from detect_changes", f"it has {twice} twice")
    found = [one for one in read if one.pipeline in pipelines]
    return found, [_gone(name) for name in names if name not in pipelines]


def item(value: Any, pipelines: Collection[str]) -> Item:
    """Read the work of one table.

    :param pipelines: see :func:`items`
    :raises InvalidXCom: it is no work
    :raises ConfigurationChanged: it is not that of one of these tables
    """
    read = _item(value)
    if read.pipeline not in pipelines:
        raise _gone(read.pipeline)
    return read


def _gone(pipeline: str) -> ConfigurationChanged:
    return ConfigurationChanged(
        f"The run does not include a pipeline {pipeline[:100]!r}, for which detect_changes found work: the "
        "configuration has no such pipeline now, or the form of the run does not choose it.",
        remedy="clear the run from its task detect_changes on, with all that follows. If no user changed the "
        "configuration, find out who edits the XComs of this DAG.",
    )


def _item(value: Any) -> Item:
    what = "The work from detect_changes"
    read = _read(Item, value, what)
    if not _STAMP.fullmatch(read.stamp):
        raise _invalid(what, f"stamp is {read.stamp[:100]!r}")
    versions = (*read.ends.values(), -1 if read.since is None else read.since)
    if min(versions) < -1:
        raise _invalid(what, f"{min(versions)} is no version")
    for name, uri in read.located.items():
        location(uri, f"{name} of {read.pipeline}")
    return read


def answer(value: Any, pipeline: str, item_stamp: str) -> Answer:
    """Read the answer of ``run_spark`` about one table.

    :param value: the XCom; None if the task returned nothing
    :param item_stamp: the ``stamp`` of the :class:`Item`
    :return: an empty answer if the task has not answered about this detection
    :raises InvalidXCom: it is no answer
    """
    what = "The answer of run_spark"
    if value is None:
        return Answer()
    if not isinstance(value, Mapping):
        raise _invalid(what, f"it is {type(value).__name__}, not dict")
    if pipeline not in value:
        return Answer()
    read = _read(Answer, value[pipeline], f"{what} about {pipeline}")
    if read.item_stamp != item_stamp:
        return Answer()
    if read.status == "failed" and not set(read.error) >= _PARTS_OF_AN_ERROR:
        raise _invalid(f"{what} about {pipeline}", "its error has no class, message or remedy")
    if min([0.0, *read.effort.seconds.values()]) < 0:
        raise _invalid(f"{what} about {pipeline}", "its effort is below 0")
    if read.status == "planned" and not isinstance(read.dry_run.get("dry_run"), dict):
        raise _invalid(f"{what} about {pipeline}", "it has no dry_run")
    return read


def error_of(found: Answer) -> DeltaCdcError:
    """Return the error of a failed table."""
    return DeltaCdcError.from_dict(found.error)


def summaries(value: Any) -> dict[str, Summary]:
    """Read the summaries of the tables of one detection.

    :param value: the XCom; None if the task did not get so far
    :raises InvalidXCom: it is no dict of summaries
    """
    what = "The XCom tables of detect_changes"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _invalid(what, f"it is {type(value).__name__}, not dict")
    return {str(name): _read(Summary, one, f"{what} about {name}") for name, one in value.items()}


def published(values: Iterable[Any], summaries: Mapping[str, Summary]) -> dict[str, Mapping[str, Any]]:
    """Read what the tasks of tables published about the detections of some summaries, by pipeline.

    After a clear, there may be fewer tasks. Airflow keeps the XComs of those that are gone, also if another
    task has published about the same pipeline since. A task of an older release published no stamp.

    :raises InvalidXCom: a value is no published dict
    """
    what = "The XCom of a table's task"
    found: dict[str, Mapping[str, Any]] = {}
    for value in values:
        _require_plain(value, what)
        if not isinstance(value, dict) or not isinstance(value.get("pipeline"), str):
            raise _invalid(what, "it is no dict with a pipeline")
        version = value.get("log_version")
        if version is not None and type(version) is not int:
            raise _invalid(what, f"log_version is {type(version).__name__}, not int")
        if not isinstance(value.get("ingested", value), dict):
            raise _invalid(what, "its ingested is no dict")
        summary = summaries.get(value["pipeline"])
        if summary is None or value.get("stamp") in (None, summary.stamp):
            found[value["pipeline"]] = value
    return found


def location(value: Any, name: str) -> str:
    """Read the location of a table that the DAG gives by its catalog name.

    :param name: the table, for the message
    :raises InvalidXCom: it is no path or URI
    """
    try:
        if isinstance(value, str) and value.isprintable() and not is_name(value):
            return value
    except DeltaCdcError:
        # Not one that the package could read either.
        pass
    raise _invalid(f"The location of {name[:100]}", f"{str(value)[:100]!r} is no path or URI")


def _read(type_: type[T], value: Any, what: str) -> T:
    _require_plain(value, what)
    try:
        return codec.decoded(type_, value)
    except UnreadableJson as error:
        raise _invalid(what, str(error)) from error


def _require_plain(value: Any, what: str) -> None:
    """Refuse a value that is not plain JSON, or larger than anything that a task returns.

    It does not recurse, so nothing that is nested deeply can exhaust the stack.
    """
    open_values: list[tuple[Any, int]] = [(value, 0)]
    n_values = n_characters = 0
    while open_values:
        one, level = open_values.pop()
        n_values += 1
        if isinstance(one, str):
            n_characters += len(one)
        elif isinstance(one, list) or (isinstance(one, dict) and all(isinstance(key, str) for key in one)):
            parts = [*one, *one.values()] if isinstance(one, dict) else one
            open_values.extend((part, level + 1) for part in parts)
        elif not _is_number(one):
            raise _invalid(what, f"it has a {type(one).__name__} that no task returns")
        too_large = n_values + len(open_values) > _MOST_VALUES or n_characters > _MOST_CHARACTERS
        if too_large or level > _MOST_LEVELS:
            raise _invalid(what, "it is larger than anything that a task returns")


def _is_number(value: Any) -> bool:
    """Return whether a value is null, a truth value, or a number that JSON and a database can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -_MOST <= value <= _MOST)


def _invalid(what: str, reason: str) -> InvalidXCom:
    return InvalidXCom(
        f"{what} is not what a task returned: {reason[:500]}.",
        remedy="clear the run from its task detect_changes on, with all that follows. If the error comes "
        "back, find out who edits the XComs of this DAG.",
    )
