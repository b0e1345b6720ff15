"""Exported notebooks: cells of another language are comments, and may contain flows."""

from __future__ import annotations

import re

from delta_cdc.config.findings import Place
from delta_cdc.config.tree import Refused

_CELL = re.compile(r"\s*(?:#|--) COMMAND -{5}")
_MAGIC = re.compile(r"\s*(?:#|--) MAGIC\b(?:\s*%(\w+))?(.*)")
_FLOW = re.compile(r"\bAUTO\s+CDC\b|\bAPPLY\s+CHANGES\b|_auto_cdc_|\bapply_changes", re.IGNORECASE)
_LANGUAGES = ("sql", "python")


def refuse_flows_in_comments(text: str, name: str) -> None:
    """Refuse a notebook with a flow in a cell of another language, which would be left out.

    :param text: the content of the file
    :param name: its name in messages
    :raises Refused: names the line
    """
    language = ""
    for number, line in enumerate(text.split("\n"), 1):
        magic = _MAGIC.match(line)
        if magic is None:
            language = "" if _CELL.match(line) else language
            continue
        language = (magic[1] or language).lower()
        if language in _LANGUAGES and _FLOW.search(magic[2]):
            raise Refused(
                Place(name, number, 1),
                f"A flow is in a cell of the language {language}, which is a comment of this file.",
                "write the flows of each language in a file of their own.",
            )
