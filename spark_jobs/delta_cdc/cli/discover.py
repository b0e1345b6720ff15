"""``delta-cdc discover``: new tables where the groups of a configuration come from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.init import takes_search
from delta_cdc.cli.proposing import Known, Proposing, Search, report
from delta_cdc.config import is_code, load
from delta_cdc.config.combine import same_place
from delta_cdc.config.proposals import add as add_to
from delta_cdc.config.proposals import entries
from delta_cdc.core.arguments import names
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import plural
from delta_cdc.core.topics import is_topics, parse
from delta_cdc.core.variables import expand
from delta_cdc.delta_log.folders import DEPTH

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from delta_cdc.config import Configuration, Group

_PLACES = ("source", "log", "target")


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    parser = commands.add_parser(
        "discover",
        help="find new tables for the groups of a configuration (starts Spark here, to count keys)",
        description="For each group with discover, the command looks for tables that no pipeline of the "
        "configuration reads or writes, and prints pipelines for them, as delta-cdc init does. With add: "
        "true, it writes those with proven keys into the configuration: at the end of the file, or, of a "
        "folder, into discovered-GROUP.yaml. Exit code 1: there are new tables without a pipeline now.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a configuration: a file, or a folder")
    parser.add_argument("--group", metavar="NAME", help="only this group")
    takes_search(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if is_code(arguments.file):
        raise InvalidConfiguration(
            f"{arguments.file} is code, and discover is a key of YAML.", remedy="name a file *.yaml."
        )
    configuration = load(arguments.file)
    groups = {group.name: group for group, _ in configuration.chosen(arguments.group)}
    wanted = [group for group in groups.values() if group.settings.get("discover")]
    if not wanted:
        raise InvalidConfiguration(
            "No group has discover.",
            remedy="write discover: {tables: <folder, schema or topics>, target: <folder or schema>}.",
        )
    is_open = False
    for group in wanted:
        # What an earlier group got is known to the next one.
        proposing = Proposing(_search(group, arguments), _known(load(arguments.file))).run()
        report(proposing)
        whole = [one for one in proposing.proposals if one.is_whole]
        if whole and group.settings["discover"].get("add") is True:
            file = add_to(arguments.file, whole, group.name)
            print(f"{plural(len(whole), 'pipeline')} added to {file}: {', '.join(w.pipeline for w in whole)}")
            rest = [one for one in proposing.proposals if not one.is_whole]
        else:
            rest = proposing.proposals
        if rest:
            print(entries(rest, group.name), end="")
        elif not whole:
            print(f"# {group.name}: no new table")
        is_open = is_open or bool(rest)
    sys.stdout.flush()
    return 1 if is_open else 0


def _search(group: Group, arguments: argparse.Namespace) -> Search:
    given, settings = group.settings["discover"], group.settings
    return Search(
        tables=expand(given["tables"]),
        target=given["target"],
        depth=given.get("depth", DEPTH),
        max_bytes=arguments.max_bytes,
        leave_out=tuple(names("leave_out", given.get("leave_out")) or ()),
        storage_options=arguments.storage_options or settings.get("storage_options"),
        kafka_options=arguments.kafka_options or settings.get("kafka_options"),
        confs={**(settings.get("conf") or {}), **dict(arguments.confs)},
    )


def _known(configuration: Configuration) -> Known:
    places = list(_places(configuration))
    topics = [name for place in places if is_topics(place) for name in parse(place).names]
    pipelines = {table.pipeline for table in configuration.tables()}
    # Of a pipeline with several sources, the parts have names of their own: orders.north.
    pipelines |= {name.split(".")[0] for name in pipelines}
    return Known(
        places=frozenset(same_place(place) for place in places if not is_topics(place)),
        topics=frozenset(topics),
        pipelines=frozenset(pipelines),
    )


def _places(configuration: Configuration) -> Iterator[str]:
    """Yield the locations of a configuration that can be compared with those that are found."""
    for table in configuration.tables():
        for name in _PLACES:
            place = table.arguments.get(name)
            if isinstance(place, str) and "{{" not in place:
                try:
                    yield expand(place)
                except InvalidConfiguration:
                    sys.stderr.write(f"{table.pipeline}: {name} has a variable that is not set here.\n")
