"""Make the tree of a configuration from a file with AUTO CDC code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.config.autocdc import convert, python, sql
from delta_cdc.config.autocdc.notebook import refuse_flows_in_comments
from delta_cdc.config.autocdc.program import Read
from delta_cdc.config.findings import Findings, Place
from delta_cdc.config.tree import Refused, from_value, read_file
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.config.autocdc.code import Code
    from delta_cdc.config.autocdc.program import Program
    from delta_cdc.config.tree import Node

_READERS = {".py": python.read, ".sql": sql.read}


def tree_of(path: Path, code: Code, findings: Findings) -> tuple[Node | None, list[str]]:
    """Return the tree of the configuration that a file with code defines, and notices of what is left out.

    :param code: what the caller gives besides the file
    :param findings: receives the problems
    :return: no tree if there are problems
    """
    notices: list[str] = []

    def parse(text: str, name: str, findings: Findings) -> Node | None:
        refuse_flows_in_comments(text, name)
        program, errors = _READERS[path.suffix](text, name)
        root = None
        if not errors:
            root, errors = convert.configuration(program, code, name)
            notices.extend(program.notices)
        for refused in errors:
            findings.add(*refused.finding)
        if errors:
            findings.is_partial = True
            return None
        _check(program, code, name)
        if root is not None and code.defaults:
            root.value["defaults"] = from_value(dict(code.defaults), findings, "defaults")
            root.keys["defaults"] = Place("defaults")
        return root

    return read_file(path, str(path), findings, parse), notices


def _check(program: Program, code: Code, name: str) -> None:
    """Refuse code without a flow, and tables for names that it does not have.

    :raises Refused: names the problem
    """
    if not program.flows:
        raise Refused(
            Place(name, 1, 1),
            "The file has no AUTO CDC flow.",
            "name a file with create_auto_cdc_flow or create_auto_cdc_from_snapshot_flow (Python), or with "
            "CREATE FLOW … AS AUTO CDC INTO, CREATE STREAMING TABLE … FLOW AUTO CDC or APPLY CHANGES INTO "
            "(SQL).",
        )
    names = [flow.source.value for flow in program.flows]
    read = [one.table if isinstance(one, Read) else str(one) for one in names]
    read += [one.table for data in program.datasets.values() for one in data.reads if isinstance(one, Read)]
    try:
        code.check(
            [*read, *(one.name for one in program.datasets.values())], [f.target.value for f in program.flows]
        )
    except InvalidConfiguration as error:
        raise Refused(Place(name), error.message, error.remedy) from error
