"""Whether the arguments of a table go together: the engine's own checks say so."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from delta_cdc.config.findings import shown
from delta_cdc.errors import DeltaCdcError, TableNameUnresolved

if TYPE_CHECKING:
    from delta_cdc.config.configuration import Table
    from delta_cdc.config.findings import Findings
    from delta_cdc.config.tree import Place

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_TABLES = ("source", "target", "log")
#: Texts that no check looks into: a template in them is as good as what it renders to.
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


def check(table: Table, places: dict[str, Place], place: Place, findings: Findings) -> None:
    """Find arguments that do not go together, or that say nothing.

    :param places: where they stand
    :param place: where the pipeline stands
    """
    given = dict(table.arguments)
    kind, of_logs = given.get("source_kind"), "change_feed" if given.get("insert_only") else "change_log"
    if "log" in given and kind not in (None, of_logs):
        # The engine's own sentence would be about arguments that nobody wrote.
        message = f"The pipeline {table.pipeline}: source_kind is {kind!r}, and log is given."
        findings.add(places.get("source_kind", place), message, "leave it out: what a log holds are events.")
        return
    if any(is_template(value) for name, value in given.items() if name not in _free(given)):
        return
    asked = ""
    try:
        for asked in (name for name in _TABLES if name in given):
            given[asked] = _filled(given[asked])
            if asked != "source" or "log" not in given:
                given[asked] = _located(given[asked])
        asked = ""
        _ask(given, told=not _VARIABLE.match(table.arguments["source"]))
    except DeltaCdcError as error:
        said = error.message.removeprefix(_OPENING)
        message = f"The pipeline {table.pipeline}: {said}"
        findings.add(places.get(asked) or _pointed(said, places) or place, message, error.remedy)
    except OSError as error:
        message = f"The pipeline {table.pipeline}: {shown(given.get(asked))}: {error.strerror}."
        findings.add(places.get(asked, place), message, "correct the path.")


def _free(given: dict[str, Any]) -> tuple[str, ...]:
    # Whether files or a topic are ingested is told by the source.
    return _FREE if "log" in given else (*_FREE, "source")


def _ask(given: dict[str, Any], *, told: bool) -> None:
    from delta_cdc.tables import requests

    ingest, apply = requests(given, ingest="log" in given and told)
    if ingest is not None:
        ingest.check()
    if apply is not None:
        apply.check()


def _filled(text: str) -> str:
    """Return a location with something in the place of variables that are not set here."""
    return _VARIABLE.sub(lambda found: f"unset-{found[1]}", os.path.expandvars(text))


def _located(table: str) -> str:
    """Return a location in the place of a catalog name: where that is, only the run finds out."""
    from delta_cdc.log.store import canonical_uri

    try:
        canonical_uri(table)
    except TableNameUnresolved:
        return f"/catalog/{table}"
    return table


def is_template(value: Any) -> bool:
    """Return whether Jinja stands anywhere in a value."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(map(is_template, value.values()))
    return isinstance(value, list) and any(map(is_template, value))


def _pointed(said: str, places: dict[str, Place]) -> Place | None:
    """Return where the first key stands that a message names."""
    for word in re.findall(r"[a-z_]+", said):
        if word in places:
            return places[word]
    return None
