"""Reads the arguments of one table, as people write them, into requests for an ingest and an apply.

The operators, the task groups and ``delta-cdc run`` all read arguments here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments as read
from delta_cdc.core.change_log import completed, description
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.guard import approved_version
from delta_cdc.core.option import filled, in_group
from delta_cdc.core.options import APPLY, BOUNDS_OF_THE_INGEST, INGEST, ApplyOptions, IngestOptions
from delta_cdc.core.requests import ApplyRequest, IngestRequest
from delta_cdc.core.times import iso
from delta_cdc.core.topics import is_topics
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_ingested(given: Mapping[str, Any]) -> bool:
    """Return whether a table's changes come from files or topics, through a change log."""
    return read.is_given(given.get("log"))


def replays(given: Mapping[str, Any]) -> bool:
    """Return whether a run reads the records in the quarantine of a table's change log again, and no source.

    A repair of what is in quarantine is about both quarantines of a table: its log's and its target's.
    """
    if not is_ingested(given) or APPLY["mode"].read(given.get("mode")) != "repair":
        return False
    return read.flag("repair_quarantined", given.get("repair_quarantined"))


def pipeline_of(given: Mapping[str, Any]) -> str:
    """Return the pipeline of a table: the given one, or the last part of the name of its target, else of its
    log.

    Any text but an empty one is a name, as in a configuration: also ``none``.

    :raises InvalidConfiguration: for values that are not texts
    """
    name = given.get("pipeline")
    if isinstance(name, str) and name.strip():
        return name.strip()
    if read.is_given(name):
        return read.required("pipeline", name)
    table = next((given[name] for name in ("target", "log") if read.is_given(given.get(name))), None)
    return read.last_part(read.table("target", table))


def requests(
    given: Mapping[str, Any],
    *,
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
    kafka_options: dict[str, str] | None = None,
    scratch: bool = True,
    ingest: bool = True,
) -> tuple[IngestRequest | None, ApplyRequest | None]:
    """Read the arguments of one table.

    :param given: arguments by their names: options of an ingest if ``log`` is given, else of an apply
        (:mod:`delta_cdc.core.options`)
    :param kafka_options: options of Kafka's client, for a table that comes from topics
    :param scratch: see :class:`delta_cdc.core.requests.ApplyRequest`
    :param ingest: False applies the content of the log, and does not read the log's source
    :return: the ingest and the apply; None for one that is not requested
    :raises InvalidConfiguration: for an invalid value. :func:`delta_cdc.core.rules.check_apply` and
        :func:`delta_cdc.core.rules.check_ingest` check which values go together
    """
    common: dict[str, Any] = {
        "pipeline": pipeline_of(given),
        "run_id": run_id,
        "storage_options": storage_options,
    }
    if not is_ingested(given):
        return None, apply_request(given, scratch=scratch, **common)
    if read.flag("once", given.get("once")):
        raise InvalidConfiguration(
            "once and log are both given.",
            remedy="leave once out: an ingest takes each file and each record once.",
            argument="once",
        )
    batch = None
    if ingest:
        # One call may read many tables, and only some of them come from topics.
        topics = is_topics(read.table("source", given.get("source")))
        ingested = given
        if replays(given):
            # Its limits are for the source.
            limits = (*BOUNDS_OF_THE_INGEST, *in_group(INGEST, "limits"))
            ingested = {**given, **dict.fromkeys(limits), "replay": True}
        batch = ingest_request(ingested, kafka_options=kafka_options if topics else None, **common)
    is_appended = read.flag("insert_only", given.get("insert_only"))
    if not read.is_given(given.get("target")) or (batch is not None and batch.replay and is_appended):
        # A target without keys has nothing to repair: the next run applies the events.
        return batch, None
    apply = apply_request(_log_arguments(given, ingest=ingest), scratch=scratch, **common)
    # The log may not exist yet, and its properties are set only in the commit after its first batch.
    described = description(insert_only=apply.options.insert_only)
    return batch, replace(apply, options=completed(apply.options, described))


def apply_request(given: Mapping[str, Any], **known: Any) -> ApplyRequest:
    """Return the apply that arguments request.

    :param given: options of an apply
    :param known: fields of the request that are not read from the arguments
    :raises InvalidConfiguration: for an invalid value
    """
    run = {**given, **_times(given), "mode": APPLY["mode"].read(given.get("mode"))}
    approved = APPLY["approve"].read(given.get("approve"))
    if approved is not None and not _has_own_end(run):
        # What was approved ends there, whatever the source has got since.
        run["ending_version"] = approved_version(approved)
    options = known.pop("options", None) or filled(ApplyOptions, APPLY, given)
    # No option: a configuration sets it for a source (delta_cdc.config.sources).
    inherits = read.flag("inherits_take_over", given.get("inherits_take_over"))
    return filled(ApplyRequest, APPLY, run, options=options, inherits_take_over=inherits, **known)


def _has_own_end(run: Mapping[str, Any]) -> bool:
    """Return whether something else than an approval says where an apply ends."""
    given = ["ending_version", "ending_timestamp", "staging"]
    if run["mode"] == "reset":
        # With a start, what was approved is the load before it, and changes follow.
        given += ["starting_version", "starting_timestamp"]
        if APPLY["initial_load"].read(run.get("initial_load")) != "snapshot":
            return True
    return run["mode"] == "repair" or any(read.is_given(run.get(name)) for name in given)


def placed(request: ApplyRequest, source: str, target: str) -> ApplyRequest:
    """Return an apply with the locations of its tables; tables that were given by name keep their names, too.

    :param source: location of the source
    :param target: location of the target
    :raises InvalidConfiguration: ``target_location`` is given, and the target by its location, too
    """
    target_name = request.target.strip() if is_name(request.target) else ""
    if request.target_location is not None and not target_name:
        raise InvalidConfiguration(
            f"target_location is {request.target_location}, and the target is the location {request.target}.",
            remedy="name the target by its catalog name, or leave target_location out.",
            argument="target_location",
        )
    return replace(
        request,
        source=source,
        target=target,
        source_name=request.source.strip() if is_name(request.source) else "",
        target_name=target_name,
    )


def placed_ingest(request: IngestRequest, log: str) -> IngestRequest:
    """Return an ingest with the location of its log; a log that was given by name keeps its name, too."""
    return replace(request, log=log, log_name=request.log.strip() if is_name(request.log) else "")


def ingest_request(given: Mapping[str, Any], **known: Any) -> IngestRequest:
    """Return the ingest that arguments request.

    :param given: options of an ingest
    :param known: fields of the request that are not read from the arguments
    :raises InvalidConfiguration: for an invalid value
    """
    options = ingest_options(given)
    return filled(IngestRequest, INGEST, {**given, **_times(given)}, options=options, **known)


def _times(arguments: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the times of a range as ISO 8601 with an offset."""
    return {name: iso(name, arguments.get(name)) for name in ("starting_timestamp", "ending_timestamp")}


def ingest_options(given: Mapping[str, Any]) -> IngestOptions:
    """Return the options that describe an external change set.

    :param given: options of an ingest; ``source`` only decides between topics and files
    :raises InvalidConfiguration: for an invalid value
    """
    kind: Any = "kafka" if is_topics(str(given.get("source")).strip()) else "files"
    return filled(IngestOptions, INGEST, given, source_kind=kind)


def _log_arguments(arguments: Mapping[str, Any], *, ingest: bool) -> dict[str, Any]:
    """Return the arguments of the apply whose source is the log."""
    # The user's sequence column may be NULL; the sequence of the log never is.
    appended = read.flag("insert_only", arguments.get("insert_only"))
    checked = appended or not read.is_given(arguments.get("sequence_by"))
    if not read.is_given(arguments.get("source_kind")):
        arguments = {**arguments, "source_kind": "change_feed" if appended else "change_log"}
    return {
        **arguments,
        "source": arguments["log"],
        "on_invalid": "fail" if checked else INGEST["on_invalid"].read(arguments.get("on_invalid")),
        "staging": None,
        **(dict.fromkeys(BOUNDS_OF_THE_INGEST) if ingest else {}),
    }
