"""Select a subcommand's pipelines: all subcommands name tables in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.cli.common import refuse
from delta_cdc.config import load
from delta_cdc.config.findings import nearest
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import APPLY, filled
from delta_cdc.core.spec import ApplyOptions, SourceKind
from delta_cdc.core.validation import options_of
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from delta_cdc.config import Group, Table
    from delta_cdc.core.watermark import Seal

#: Arguments that replace a missing seal, as attributes of the arguments.
FIRST_LOAD = ("source_kind", "keys", "sequence_by")

_SUFFIXES = (".yaml", ".yml")
_HELP = (
    "a configuration (a file or folder), and of it some pipelines or all; or a source and its target, with "
    "--pipeline; or pipelines, each with a table whose seal knows the rest"
)


@dataclass(frozen=True)
class Chosen:
    """One pipeline.

    :param source: the table that the target is applied from, the change log if there is one; None takes the
        seal's
    :param target: for SOURCE TARGET and PIPELINE=TARGET, the named table; None if a configuration has only a
        change log
    :param log: the change log, if a configuration has one
    :param table: its entry in a configuration
    :param group: its group there
    """

    pipeline: str
    source: str | None = None
    target: str | None = None
    log: str | None = None
    table: Table | None = None
    group: Group | None = None

    @property
    def written(self) -> list[str]:
        """Return the tables that it writes."""
        return [place for place in (self.log, self.target) if place is not None]

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Return the options of the object store, if a configuration has some."""
        return self.group.settings.get("storage_options") if self.group is not None else None


def takes_pipelines(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the arguments that name a subcommand's tables.

    :param more: further forms that this subcommand accepts
    """
    forms = ("FILE [PIPELINE ...]", "SOURCE TARGET --pipeline NAME", "PIPELINE=TARGET ...", *more)
    parser.usage = "\n       ".join(f"%(prog)s {form} [options]" for form in forms)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help=_HELP)
    parser.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME",
        help="of SOURCE TARGET its name; of a configuration only this one, repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--group", metavar="NAME", help="of a configuration: only the pipelines of this group"
    )


def chosen(arguments: argparse.Namespace) -> list[Chosen]:
    """Return the pipelines that a command line names.

    :raises InvalidConfiguration: it names none, or a name is not in the configuration
    """
    first, *others = arguments.tables
    if is_configuration(first):
        _refuse_pairs(others)
        names = [*others, *(arguments.pipelines or ())]
        return [_of_file(group, table) for group, tables in tables_of(first, arguments.group, names)
                for table in tables]  # fmt: skip
    refuse(arguments, ("group",), "without a configuration")
    if len(arguments.tables) == 2 and not any(is_pair(text) for text in arguments.tables):
        return [_source_and_target(first, others[0], arguments.pipelines or ())]
    pairs = [_pair(text) for text in arguments.tables]
    refuse(arguments, ("pipelines",), "with PIPELINE=TARGET")
    return pairs


def the_one(arguments: argparse.Namespace) -> Chosen:
    """Return the pipeline of a subcommand that accepts only one.

    :raises InvalidConfiguration: it names several
    """
    found = chosen(arguments)
    if len(found) > 1:
        names = ", ".join(one.pipeline for one in found[:10])
        raise InvalidConfiguration(f"This is about one pipeline, and {names} are named.", remedy="name one.")
    return found[0]


def groups_of(found: Sequence[Chosen]) -> list[Group]:
    """Return the configuration groups of some pipelines."""
    return list({one.group.name: one.group for one in found if one.group is not None}.values())


def before_the_first_load(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that replace a seal before the first load."""
    told = parser.add_argument_group("before the first load, without a configuration")
    told.add_argument("--source-kind", choices=get_args(SourceKind), help="default: change_feed")
    told.add_argument("--key", "--keys", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    told.add_argument("--sequence-by", action="append", metavar="SQL", help="repeatable; of a change log")


def options_told(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions | None:
    """Return the options of the seal or, without a seal, those of the command line.

    :return: None if neither has any
    :raises InvalidConfiguration: both have some
    """
    given = {name: getattr(arguments, name) for name in FIRST_LOAD if getattr(arguments, name)}
    if seal is None:
        return _options_given(given) if given else None
    if given:
        raise InvalidConfiguration(
            f"{', '.join(given)} given, and the pipeline has a watermark (seal {seal.number}).",
            remedy="leave them out: the seal says what the target was built with.",
        )
    return options_of(seal)


def _options_given(given: dict[str, Any]) -> ApplyOptions:
    return filled(ApplyOptions, APPLY, given)


def source_of(one: Chosen, seal: Seal | None) -> str:
    """Return the source of a target.

    :raises InvalidConfiguration: neither the arguments nor the seal name it
    """
    found = one.source or (seal.source_uri if seal is not None else None)
    if found is None:
        raise InvalidConfiguration(
            f"{one.target} holds no seal of pipeline {one.pipeline} that names its source.",
            remedy="write SOURCE TARGET, with --pipeline.",
        )
    return found


def is_configuration(text: str) -> bool:
    """Return whether a text names a configuration, a file or a folder of them, and not a table."""
    path = Path(text)
    # An empty text would be the working directory.
    if not text.strip():
        return False
    if not path.is_dir():
        return path.suffix in _SUFFIXES
    return not (path / "_delta_log").is_dir() and any(entry.suffix in _SUFFIXES for entry in path.iterdir())


def tables_of(
    file: str, group: str | None = None, pipelines: Sequence[str] | None = None
) -> list[tuple[Group, tuple[Table, ...]]]:
    """Read a configuration, and return the groups with their requested tables.

    :param file: file or folder
    :param group: only this one
    :param pipelines: only these
    :raises InvalidConfiguration: the configuration is invalid, or a name is not in it
    """
    read = load(file).groups
    groups = [found for found in read if group in (None, found.name)]
    if not groups:
        names = [found.name for found in read]
        raise InvalidConfiguration(f"{file} has no group {group!r}.", remedy=nearest(str(group), names))
    known = [table.pipeline for found in groups for table in found.tables]
    for name in pipelines or ():
        if name not in known:
            raise InvalidConfiguration(f"{file} has no pipeline {name!r}.", remedy=nearest(name, known))
    wanted = set(pipelines or known)
    found_in = [(found, tuple(t for t in found.tables if t.pipeline in wanted)) for found in groups]
    return [(found, tables) for found, tables in found_in if tables]


def _of_file(group: Group, table: Table) -> Chosen:
    given: dict[str, Any] = {
        name: expand(str(table.arguments[name]))
        for name in ("source", "log", "target")
        if table.arguments.get(name)
    }
    log, target = given.get("log"), given.get("target")
    return Chosen(table.pipeline, log or given.get("source"), target, log, table, group)


def _source_and_target(source: str, target: str, names: Sequence[str]) -> Chosen:
    if len(names) != 1:
        said = f"{len(names)} pipelines are named" if names else "the pipeline is not named"
        raise InvalidConfiguration(
            f"{source} and {target} are given as source and target, and {said}.",
            remedy="name it with --pipeline; write PIPELINE=TARGET for a target alone.",
        )
    return Chosen(names[0], source, target)


def is_pair(text: str) -> bool:
    """Return whether a text is PIPELINE=TARGET and not a path, which may contain an equals sign, too."""
    return "=" in text and not Path(text).exists() and "/" not in text.partition("=")[0]


def _pair(text: str) -> Chosen:
    pipeline, _, target = text.partition("=")
    if not is_pair(text) or not pipeline or not target:
        raise _no_pair(text)
    return Chosen(pipeline, None, target)


def _refuse_pairs(texts: Sequence[str]) -> None:
    for text in texts:
        if is_pair(text) or is_configuration(text):
            raise _no_pair(text)


def _no_pair(text: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{text!r} names no pipeline and target.",
        remedy="write PIPELINE=TARGET for each, for instance orders=/lake/orders; or SOURCE TARGET with "
        "--pipeline; or one configuration, and behind it the names of some of its pipelines.",
    )
