"""Check by the engine's own rules whether the arguments of a table can be combined."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from delta_cdc.config.findings import shown
from delta_cdc.core.errors import DeltaCdcError, TableNameUnresolved
from delta_cdc.core.rules import check_apply
from delta_cdc.core.uris import canonical_uri
from delta_cdc.planning.ingest_request import checked
from delta_cdc.run.table_arguments import requests

if TYPE_CHECKING:
    from collections.abc import Collection

    from delta_cdc.config.configuration import Table
    from delta_cdc.config.findings import Findings, Place

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_TABLES = ("source", "target", "log")
#: Arguments whose content is not checked, so a template in them is as valid as its rendered value.
_FREE = (
    "target",
    "log",
    "where",
    "apply_as_deletes",
    "apply_as_truncates",
    "delete_sequence",
    "columns_to_update",
    "snapshot_version_column",
    "target_properties",
)
_OPENING = "The configuration cannot be used: "


def check(
    table: Table,
    places: dict[str, Place],
    place: Place,
    findings: Findings,
    *,
    inherited: Collection[str] = (),
) -> None:
    """Report arguments that cannot be combined or have no effect.

    :param places: the places of the arguments
    :param place: the place of the pipeline
    :param inherited: the arguments that the pipeline has from its group or from the defaults
    """
    # The target of the original is not known yet (delta_cdc.config.shadows).
    given = {
        name: value
        for name, value in table.arguments.items()
        if name != "shadow_of" or not isinstance(value, str)
    }
    has_log = "log" in given
    kind, of_logs = given.get("source_kind"), "change_feed" if given.get("insert_only") else "change_log"
    if has_log and kind not in (None, of_logs):
        # The engine's own message would name arguments that the user did not write.
        message = f"The pipeline {table.pipeline}: source_kind is {kind!r}, and log is given."
        findings.add(places.get("source_kind", place), message, "leave it out: a log holds events.")
        return
    # The source decides whether files or a topic are ingested.
    free = _FREE if has_log else (*_FREE, "source")
    if any(is_template(value) for name, value in given.items() if name not in free):
        return
    argument = ""
    try:
        for argument in (name for name in _TABLES if name in given):
            given[argument] = _filled(given[argument])
            if argument != "source" or not has_log:
                given[argument] = _located(given[argument])
        argument = ""
        # A source that begins with a variable may be files or topics.
        is_known = not _VARIABLE.match(table.arguments["source"])
        ingest, apply = requests(given, ingest=has_log and is_known)
        if ingest is not None:
            checked(ingest)
        if apply is not None:
            check_apply(apply)
    except (DeltaCdcError, OSError) as error:
        if isinstance(error, DeltaCdcError):
            argument = argument or error.argument or ""
            reason, remedy = error.message.removeprefix(_OPENING), error.remedy
        else:
            of_argument = f"{shown(given[argument])}: " if argument in given else ""
            reason = f"{of_argument}{error}."
            remedy = "correct the path, or the rights to it and to the folders above."
        if argument in inherited:
            remedy = f"{remedy} {argument} is inherited; {argument}: null in the pipeline leaves it out."
        findings.add(places.get(argument, place), f"The pipeline {table.pipeline}: {reason}", remedy)


def _filled(text: str) -> str:
    """Return a location with placeholders for variables that are not set here."""
    return _VARIABLE.sub(lambda variable: f"unset-{variable[1]}", os.path.expandvars(text))


def _located(table: str) -> str:
    """Replace a catalog name by a placeholder path: only the run resolves it."""
    try:
        canonical_uri(table)
    except TableNameUnresolved:
        return f"/catalog/{table}"
    return table


def same_place(location: str) -> str:
    """Return a text that is equal for all spellings of a table's location."""
    try:
        return canonical_uri(_filled(location))
    except (DeltaCdcError, OSError):
        # A catalog name, whose case does not count; or a location that is reported elsewhere.
        return location.strip().rstrip("/").lower()


def unwatchable(table: Table) -> str:
    """Return why a schedule ``on_change`` cannot watch the source of a table; "" if it can."""
    source = str(table.arguments.get("source", ""))
    if "log" in table.arguments:
        return "is no table"
    if is_template(source):
        return "is only known at run time"
    return "is a catalog name" if _located(_filled(source)) != _filled(source) else ""


def is_template(value: Any) -> bool:
    """Return whether a value contains Jinja anywhere."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(map(is_template, value.values()))
    return isinstance(value, list) and any(map(is_template, value))
