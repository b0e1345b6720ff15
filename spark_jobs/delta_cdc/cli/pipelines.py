"""Which pipelines a subcommand is about: every subcommand that takes tables takes them in the same way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.arguments import sequences
from delta_cdc.checks import options_of
from delta_cdc.cli.common import refuse
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import ApplyOptions, SourceKind
from delta_cdc.variables import expand

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from delta_cdc.config import Group, Table
    from delta_cdc.watermark import Seal

#: What stands in for a seal, as attributes of the arguments.
FIRST_LOAD = ("source_kind", "keys", "sequence_by")

_SUFFIXES = (".yaml", ".yml")
_HELP = (
    "a configuration (a file or folder), and of it some pipelines or all; or a source and its target, with "
    "--pipeline; or pipelines, each with a table whose seal knows the rest"
)


@dataclass(frozen=True)
class Chosen:
    """One pipeline.

    :param source: what the target is applied from, the change log where there is one; None leaves it to the
        seal
    :param target: of SOURCE TARGET and of PIPELINE=TARGET whichever table was named; None where a
        configuration has a change log alone
    :param log: the change log, where a configuration has one
    :param table: what a configuration says of it
    :param group: the group that it is in there
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
        """Return the options of the object store, where a configuration says some."""
        return self.group.settings.get("storage_options") if self.group is not None else None


def takes_pipelines(parser: argparse.ArgumentParser, *more: str) -> None:
    """Declare how a subcommand takes its tables.

    :param more: other forms of its own
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
    """Return the pipeline of a subcommand that is about one.

    :raises InvalidConfiguration: it names several
    """
    found = chosen(arguments)
    if len(found) > 1:
        names = ", ".join(one.pipeline for one in found[:10])
        raise InvalidConfiguration(f"This is about one pipeline, and {names} are named.", remedy="name one.")
    return found[0]


def groups_of(found: Sequence[Chosen]) -> list[Group]:
    """Return the groups of a configuration that some pipelines are in."""
    return list({one.group.name: one.group for one in found if one.group is not None}.values())


def before_the_first_load(parser: argparse.ArgumentParser) -> None:
    """Declare what stands in for a seal that is not there yet."""
    told = parser.add_argument_group("before the first load, without a configuration")
    told.add_argument("--source-kind", choices=get_args(SourceKind), help="default: change_feed")
    told.add_argument("--key", "--keys", dest="keys", action="append", metavar="COLUMN", help="repeatable")
    told.add_argument("--sequence-by", action="append", metavar="SQL", help="repeatable; of a change log")


def options_told(arguments: argparse.Namespace, seal: Seal | None) -> ApplyOptions | None:
    """Return the options of the seal, or, where there is none, what the command line says of them.

    :return: None where neither says anything
    :raises InvalidConfiguration: both do
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
    return ApplyOptions(
        keys=tuple(given.get("keys", ())),
        source_kind=given.get("source_kind", ApplyOptions.source_kind),
        sequence_by=sequences(given.get("sequence_by")),
    )


def source_of(one: Chosen, seal: Seal | None) -> str:
    """Return what a target is applied from.

    :raises InvalidConfiguration: nothing says it
    """
    found = one.source or (seal.source_uri if seal is not None else None)
    if found is None:
        raise InvalidConfiguration(
            f"{one.target} holds no seal of pipeline {one.pipeline} that names its source.",
            remedy="write SOURCE TARGET, with --pipeline.",
        )
    return found


def is_configuration(text: str) -> bool:
    """Tell a configuration, a file or a folder of them, from a table."""
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
    """Read a configuration, and return the groups with those of their tables that are asked for.

    :param file: file or folder
    :param group: only this one
    :param pipelines: only these
    :raises InvalidConfiguration: for a configuration that is none, or a name that is not in it
    """
    from delta_cdc.config import load
    from delta_cdc.config.findings import nearest

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
    """Tell PIPELINE=TARGET from a path, which may have an equals sign, too."""
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
