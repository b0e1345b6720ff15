"""Select the pipelines of a subcommand, by the same arguments in all subcommands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from delta_cdc.cli.common import refuse
from delta_cdc.config import CODE_SUFFIXES, SUFFIXES, Table, load
from delta_cdc.config.combine import is_template
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Container, Mapping, Sequence

    from delta_cdc.config import Group
    from delta_cdc.core.watermark import Seal


_HELP = (
    "FILE: a configuration (a file or a folder), with all its pipelines, or only those that you name after "
    "it. SOURCE TARGET: the tables of one pipeline. PIPELINE=TARGET: a target or a change log, whose seal "
    "contains the source and the options"
)

#: Connections need Airflow; a file may use these arguments instead.
_INSTEAD_OF = {"delta_conn_id": "storage_options", "kafka_conn_id": "kafka_options"}
#: The arguments that name the tables that a pipeline writes.
WRITTEN = ("log", "target")

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Chosen:
    """One pipeline that the command line names.

    :param table: its arguments; without a configuration only ``target``, and ``source`` for SOURCE TARGET
    :param group: its group in a configuration; None without a configuration
    :param connected: see :attr:`settings`; None: no connection was looked up
    """

    table: Table
    group: Group | None = None
    connected: Mapping[str, Any] | None = None

    @property
    def pipeline(self) -> str:
        """Return the pipeline's name."""
        return self.table.pipeline

    @property
    def log(self) -> str | None:
        """Return the change log, if a configuration has one."""
        return self.location("log")

    @property
    def source(self) -> str | None:
        """Return the table that the target is applied from: the change log, or else the source, or None."""
        return self.log or self.location("source")

    @property
    def target(self) -> str | None:
        """Return the target; None if a configuration has only a change log."""
        return self.location("target")

    @property
    def written(self) -> list[str]:
        """Return the tables that the pipeline writes."""
        return [place for place in map(self.location, WRITTEN) if place is not None]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings of its group, with the options that the group's connections give."""
        if self.connected is not None:
            return self.connected
        return self.group.settings if self.group is not None else {}

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Return the options of the object store, if the configuration or a connection has any."""
        return self.settings.get("storage_options")

    def location(self, name: str) -> str | None:
        """Return the table of an argument; None without it.

        :raises InvalidConfiguration: it names an environment variable that is not set here
        """
        location = self.table.arguments.get(name)
        if not location or self.group is None:
            # A shell has already substituted the variables of a command line.
            return location
        try:
            return expand(str(location))
        except InvalidConfiguration as error:
            raise at_its_place(self, error) from error


def takes_pipelines(parser: argparse.ArgumentParser, *more: str) -> None:
    """Add the arguments that name a subcommand's tables.

    :param more: further forms that this subcommand accepts
    """
    forms = ("FILE [PIPELINE ...]", "SOURCE TARGET --pipeline NAME", "PIPELINE=TARGET ...", *more)
    parser.usage = "\n       ".join(f"%(prog)s {form} [options]" for form in forms)
    parser.add_argument("tables", nargs="+", metavar="TABLE", help=_HELP)
    parser.add_argument(
        "--pipeline", dest="pipelines", action="append", metavar="NAME",
        help="with SOURCE TARGET: the pipeline's name; with FILE: only this pipeline, repeatable",
    )  # fmt: skip
    parser.add_argument("--group", metavar="NAME", help="with FILE: only the pipelines of this group")


def chosen(arguments: argparse.Namespace, *, with_sources: bool = False) -> list[Chosen]:
    """Return the pipelines that a command line names.

    :param with_sources: see :meth:`delta_cdc.config.Configuration.chosen`

    :raises InvalidConfiguration: the command line names no pipeline, or a name is not in the configuration
    """
    first, *others = arguments.tables
    if is_configuration(first):
        for text in others:
            if is_pair(text) or is_configuration(text):
                raise _no_pair(text)
        names = [*others, *(arguments.pipelines or ())] or None
        found = load(first).chosen(arguments.group, names, with_sources=with_sources)
        groups = {group.name: group for group, _ in found}
        settings = {name: connected(arguments, group) for name, group in groups.items()}
        _note_connections(list(settings.values()))
        return [Chosen(table, group, settings[group.name]) for group, table in found]
    refuse(arguments, ("group",), "without a configuration")
    if len(arguments.tables) == 2 and not any(is_pair(text) for text in arguments.tables):
        tables = [_source_and_target(first, others[0], arguments.pipelines or ())]
    else:
        tables = [_pair(text) for text in arguments.tables]
        refuse(arguments, ("pipelines",), "with PIPELINE=TARGET")
    of_the_store = connected(arguments)
    return [Chosen(table, connected=of_the_store) for table in tables]


def _note_connections(groups: Sequence[Mapping[str, Any]]) -> None:
    """Write to standard error which connections of Airflow were not looked up.

    :param groups: the settings of each group
    """
    for conn, options in _INSTEAD_OF.items():
        ids = sorted({str(group[conn]) for group in groups if group.get(conn) and not group.get(options)})
        if ids:
            sys.stderr.write(
                f"{conn} {', '.join(ids)} is Airflow's and not looked up here: what the environment names "
                f"is used, unless the file gives {options}; the commands of airflow delta-cdc look it up.\n"
            )


def connected(arguments: argparse.Namespace, group: Group | None = None) -> Mapping[str, Any]:
    """Return the settings of a group; under Airflow, with the options that its connections give.

    :param group: None without a configuration
    """
    settings: Mapping[str, Any] = arguments.connect(arguments, group.settings if group is not None else {})
    return settings


def the_one(arguments: argparse.Namespace) -> Chosen:
    """Return the pipeline of a subcommand that accepts only one.

    :raises InvalidConfiguration: the command line names several pipelines
    """
    pipelines = chosen(arguments)
    if len(pipelines) > 1:
        names = ", ".join(one.pipeline for one in pipelines[:10])
        raise InvalidConfiguration(f"This command takes one pipeline, not {names}.", remedy="name one.")
    return pipelines[0]


def each(pipelines: Sequence[Chosen], make: Callable[[Chosen], _Made]) -> list[_Made | InvalidConfiguration]:
    """Return what a function makes of each pipeline, or the error of a pipeline that cannot be used here.

    :raises InvalidConfiguration: no pipeline can be used
    """
    made = [made_or_error(one, make) for one in pipelines]
    errors = [one for one in made if isinstance(one, InvalidConfiguration)]
    if errors and len(errors) == len(made):
        raise errors[0]
    return made


def made_or_error(
    one: Chosen, make: Callable[[Chosen], _Made], names: Container[str] | None = None
) -> _Made | InvalidConfiguration:
    """Return what a function makes of a pipeline, or the error of a pipeline that cannot be used here.

    :param names: the arguments that the function reads; None: all
    """
    try:
        refuse_templates(one, names)
        return make(one)
    except InvalidConfiguration as error:
        return error


def refuse_templates(one: Chosen, names: Container[str] | None = None) -> None:
    """Refuse a pipeline of a configuration whose arguments contain templates.

    :param names: the arguments that matter; None: all
    :raises InvalidConfiguration: an argument contains a template
    """
    given = one.table.arguments if one.group is not None else {}
    found = [name for name, value in given.items() if (names is None or name in names) and is_template(value)]
    if found:
        error = InvalidConfiguration(
            f"{', '.join(found)} contains a template, which only Airflow renders.",
            remedy="write a value instead, or do this in Airflow.",
            argument=found[0],
        )
        raise at_its_place(one, error)


def at_its_place(one: Chosen, error: InvalidConfiguration) -> InvalidConfiguration:
    """Return an error of a configured pipeline, with its name and its place."""
    where = f"The pipeline {one.pipeline} in {one.table.place}:"
    return InvalidConfiguration(f"{where} {error.message}", remedy=error.remedy, argument=error.argument)


def source_of(one: Chosen, seal: Seal | None) -> str:
    """Return the source of a target.

    :raises InvalidConfiguration: neither the arguments nor the seal name it
    """
    source = one.source or (seal.source_uri if seal is not None else None)
    if source is None:
        raise InvalidConfiguration(
            f"{one.target} has no watermark of pipeline {one.pipeline} that names its source.",
            remedy="write SOURCE TARGET, with --pipeline.",
        )
    return source


def is_configuration(text: str) -> bool:
    """Return whether a text names a configuration, a file or a folder of them, and not a table."""
    path = Path(text)
    # Path("") would be the working directory.
    if not text.strip():
        return False
    if not path.is_dir():
        return path.suffix in (*SUFFIXES, *CODE_SUFFIXES)
    return not (path / "_delta_log").is_dir() and any(entry.suffix in SUFFIXES for entry in path.iterdir())


def is_pair(text: str) -> bool:
    """Return whether a text is PIPELINE=TARGET, not a path that contains an equals sign."""
    return "=" in text and not Path(text).exists() and "/" not in text.partition("=")[0]


def _source_and_target(source: str, target: str, names: Sequence[str]) -> Table:
    if len(names) != 1:
        problem = f"{len(names)} pipelines are named" if names else "the pipeline is not named"
        raise InvalidConfiguration(
            f"{source} and {target} are given as source and target, and {problem}.",
            remedy="name it with --pipeline; write PIPELINE=TARGET for a target alone.",
        )
    return Table(names[0], {"source": source, "target": target})


def _pair(text: str) -> Table:
    pipeline, _, target = text.partition("=")
    if not is_pair(text) or not pipeline or not target:
        raise _no_pair(text)
    return Table(pipeline, {"target": target})


def _no_pair(text: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{text!r} names no pipeline and target.",
        remedy="write PIPELINE=TARGET for each, for instance orders=/lake/orders; or SOURCE TARGET with "
        "--pipeline; or one configuration, followed by the names of some of its pipelines.",
    )
