"""``delta-cdc import``: the YAML file that is equivalent to AUTO CDC code."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from delta_cdc.config import Code, imported
from delta_cdc.config.tree import scalar
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH = 110


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    parser = commands.add_parser(
        "import",
        help="write AUTO CDC code, Python or SQL, as a configuration (starts no Spark, runs no code)",
        description="The command reads create_auto_cdc_flow and create_auto_cdc_from_snapshot_flow in "
        "Python, or AUTO CDC INTO and APPLY CHANGES INTO in SQL, and prints the equivalent YAML. It does not "
        "run the code. On standard error, it names what it leaves out. A clause without an equivalent is an "
        "error with its place. Exit code 2: the code cannot be read.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the code: a *.py or *.sql file")
    parser.add_argument(
        "--source", dest="sources", action="append", type=_pair, default=[], metavar="NAME=TABLE",
        help="the Delta table that a source of the code stands for: a path, a URI or a catalog name; "
        "repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--target", dest="targets", action="append", type=_pair, default=[], metavar="NAME=TABLE",
        help="the same for a target; repeatable",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the YAML to this new file")
    parser.set_defaults(run=_run)


def _pair(text: str) -> tuple[str, str]:
    name, _, table = text.partition("=")
    if not name.strip() or not table.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=TABLE")
    return name.strip(), table.strip()


def _run(arguments: argparse.Namespace) -> int:
    code = Code(sources=dict(arguments.sources), targets=dict(arguments.targets))
    content, notices = imported(arguments.file, code)
    for notice in notices:
        sys.stderr.write(f"{notice}\n")
    text = yaml_of(content)
    if arguments.output is None:
        print(text, end="")
        return 0
    try:
        with arguments.output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidConfiguration(
            f"{arguments.output} cannot be written: {error.strerror}.",
            remedy="name a new file in a folder that exists.",
        ) from error
    return 0


def yaml_of(content: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in the order of its keys.

    A text that the reader of configurations would take for another value gets quotes.
    """
    return str(yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes lists of plain values in one line, and quotes texts that look like other values."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values each time: the reader refuses aliases."""
        return True


def _text(dumper: _Dumper, value: str) -> Any:
    is_plain = scalar(value) == value and isinstance(scalar(value), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else "'")


def _list(dumper: _Dumper, value: list[Any]) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
