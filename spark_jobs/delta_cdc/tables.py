"""The arguments of one table, as people write them, and the work that they ask for.

One place for everybody who keeps tables by their arguments: the operators, groups of them, and
``delta-cdc run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc import arguments as read
from delta_cdc.variables import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.flow import Piece
    from delta_cdc.plan import ApplyRequest, IngestRequest

#: What an apply takes of one table, with the defaults of those that may be left out; None stands for the
#: others as well.
APPLY_DEFAULTS: dict[str, Any] = {
    "pipeline": None,
    "source": None,
    "target": None,
    "source_kind": "change_feed",
    "keys": None,
    "insert_only": False,
    "stored_as_scd_type": 1,
    "sequence_by": None,
    "delete_sequence": None,
    "starting_version": None,
    "ending_version": None,
    "starting_timestamp": None,
    "ending_timestamp": None,
    "max_versions": None,
    "max_bytes": None,
    "milestone_versions": None,
    "milestone_bytes": None,
    "where": None,
    "select": None,
    "apply_as_deletes": None,
    "apply_as_truncates": None,
    "column_list": None,
    "except_column_list": None,
    "track_history_column_list": None,
    "track_history_except_column_list": None,
    "ignore_null_updates": False,
    "ignore_null_updates_column_list": None,
    "ignore_null_updates_except_column_list": None,
    "columns_to_update": None,
    "start_column": "__START_AT",
    "end_column": "__END_AT",
    "on_tie": "fail",
    "on_invalid": "fail",
    "delete_mode": "hard",
    "initial_load": "snapshot",
    "partition_by": None,
    "cluster_by": None,
    "target_properties": None,
    "publish_changes": False,
    "schema_evolution": "additive",
    "mode": "incremental",
    "discard_history": False,
    "repair_keys": None,
    "repair_quarantined": False,
    "on_late": "fail",
    "on_drift": "fail",
    "on_source_replaced": "fail",
    "on_target_replaced": "fail",
    "on_versions_expired": "fail",
    "adopt_from": None,
    "snapshot_version_column": None,
    "single_driver": False,
}

#: The same for a table whose changes are brought into a change log first.
INGEST_DEFAULTS: dict[str, Any] = {
    **APPLY_DEFAULTS,
    "log": None,
    "format": "json",
    "adapter": "plain",
    "adapter_options": None,
    "schema": None,
    "format_options": None,
    "max_files": None,
    "max_offsets": None,
    "glob": None,
    "lexical_order": False,
    "on_invalid": "quarantine",
    "on_expired": "fail",
    "replay": False,
    "source_kind": None,
    "log_properties": None,
}

#: What no other reader takes as a text.
_FLAGS = ("insert_only", "publish_changes", "single_driver")
#: Of these, what bounds an ingest and not the apply behind it.
_BOUNDS_OF_THE_INGEST = ("starting_timestamp", "max_bytes")


def is_ingested(given: Mapping[str, Any]) -> bool:
    """Return whether a table's changes come from files or topics, by way of a change log."""
    return read.is_given(given.get("log"))


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

    :param given: arguments by their names, those of :data:`INGEST_DEFAULTS` where ``log`` is given, else
        those of :data:`APPLY_DEFAULTS`; beside them ``dry_run`` and ``staging``
    :param kafka_options: options of Kafka's client, for a table that comes from topics
    :param scratch: see :class:`delta_cdc.plan.ApplyRequest`
    :param ingest: False applies what the log holds, and leaves its source alone
    :return: what is to be ingested, and what is to be applied
    :raises InvalidConfiguration: for a value that is none. Whether they go together, ``check()`` of each says
    """
    to_store: dict[str, Any] = {"run_id": run_id, "storage_options": storage_options}
    ingested = is_ingested(given)
    whole = {**(INGEST_DEFAULTS if ingested else APPLY_DEFAULTS), **given}
    whole |= {name: read.flag(name, whole[name]) for name in _FLAGS}
    if not ingested:
        return None, _apply(whole, scratch=scratch, **to_store)
    batch = _ingest(whole, kafka_options, **to_store) if ingest else None
    if not read.is_given(whole["target"]):
        return batch, None
    return batch, _apply(_of_the_log(whole, ingest=ingest), scratch=scratch, **to_store)


def piece(
    given: Mapping[str, Any],
    *,
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
    kafka_options: dict[str, str] | None = None,
    scratch: bool = True,
    ingest: bool = True,
    mirror: Callable[[], Any] | None = None,
) -> Piece:
    """Return the share of one table in a bundle; see :func:`requests` and :class:`delta_cdc.flow.Piece`."""
    from delta_cdc.flow import Piece

    batch, apply = requests(
        given,
        run_id=run_id,
        storage_options=storage_options,
        kafka_options=kafka_options,
        scratch=scratch,
        ingest=ingest,
    )
    return Piece(ingest=batch, apply=apply, mirror=mirror)


def _apply(given: Mapping[str, Any], **connected: Any) -> ApplyRequest:
    from delta_cdc.plan import ApplyRequest

    number, staging = read.whole_number, given.get("staging")
    return ApplyRequest(
        pipeline=read.required("pipeline", given["pipeline"]),
        source=expand(read.required("source", given["source"])),
        target=expand(read.required("target", given["target"])),
        options=read.apply_options(**{name: given[name] for name in _OPTIONS}),
        starting_version=number("starting_version", given["starting_version"]),
        ending_version=number("ending_version", given["ending_version"]),
        starting_timestamp=read.text(given["starting_timestamp"]),
        ending_timestamp=read.text(given["ending_timestamp"]),
        max_versions=number("max_versions", given["max_versions"], minimum=1),
        max_bytes=number("max_bytes", given["max_bytes"], minimum=1),
        milestone_versions=number("milestone_versions", given["milestone_versions"], minimum=1),
        milestone_bytes=number("milestone_bytes", given["milestone_bytes"], minimum=1),
        adopt_from=read.text(given["adopt_from"]),
        single_driver=given["single_driver"],
        initial_load=read.initial_load(given["initial_load"]),
        staging=expand(staging) if read.is_given(staging) and staging else None,
        **connected,
        **read.run_choices(
            mode=given["mode"],
            discard_history=given["discard_history"],
            repair_keys=given["repair_keys"],
            repair_quarantined=given["repair_quarantined"],
            on_drift=given["on_drift"],
            on_source_replaced=given["on_source_replaced"],
            on_target_replaced=given["on_target_replaced"],
            on_versions_expired=given["on_versions_expired"],
            dry_run=given.get("dry_run"),
        ),
    )


def _ingest(
    given: Mapping[str, Any], kafka_options: dict[str, str] | None, **connected: Any
) -> IngestRequest:
    from delta_cdc.ingest.topics import is_topics
    from delta_cdc.plan import IngestRequest

    number, source = read.whole_number, expand(read.required("source", given["source"]))
    return IngestRequest(
        pipeline=read.required("pipeline", given["pipeline"]),
        source=source,
        log=expand(read.required("log", given["log"])),
        options=read.ingest_options(
            source=given["source"],
            format=given["format"],
            adapter=given["adapter"],
            adapter_options=given["adapter_options"],
            keys=given["keys"],
            schema=given["schema"],
            format_options=given["format_options"],
            insert_only=given["insert_only"],
            on_invalid=given["on_invalid"],
            cluster_by=given["cluster_by"],
            log_properties=given["log_properties"],
        ),
        starting_timestamp=read.text(given["starting_timestamp"]),
        max_files=number("max_files", given["max_files"], minimum=1),
        max_bytes=number("max_bytes", given["max_bytes"], minimum=1),
        max_offsets=number("max_offsets", given["max_offsets"], minimum=1),
        glob=read.text(given["glob"]),
        lexical_order=read.flag("lexical_order", given["lexical_order"]),
        replay=read.flag("replay", given["replay"]),
        on_expired=read.text(given["on_expired"]) or "fail",
        single_driver=given["single_driver"],
        kafka_options=kafka_options if is_topics(source) else None,
        **connected,
    )


def _of_the_log(given: Mapping[str, Any], *, ingest: bool) -> dict[str, Any]:
    """Return the arguments of the apply whose source is the log."""
    # A sequence of the user's own may be NULL where that of the log never is.
    checked = given["insert_only"] or not read.is_given(given["sequence_by"])
    taken = dict.fromkeys(_BOUNDS_OF_THE_INGEST) if ingest else {}
    return read.of_ingested_log(
        {
            **given,
            "source": given["log"],
            "on_invalid": "fail" if checked else given["on_invalid"],
            **taken,
            "staging": None,
        }
    )


#: What :func:`delta_cdc.arguments.apply_options` reads.
_OPTIONS = (
    "source_kind",
    "keys",
    "stored_as_scd_type",
    "sequence_by",
    "delete_sequence",
    "where",
    "select",
    "apply_as_deletes",
    "apply_as_truncates",
    "column_list",
    "except_column_list",
    "track_history_column_list",
    "track_history_except_column_list",
    "ignore_null_updates",
    "ignore_null_updates_column_list",
    "ignore_null_updates_except_column_list",
    "columns_to_update",
    "insert_only",
    "start_column",
    "end_column",
    "on_tie",
    "on_invalid",
    "delete_mode",
    "on_late",
    "snapshot_version_column",
    "partition_by",
    "cluster_by",
    "target_properties",
    "publish_changes",
    "schema_evolution",
)
