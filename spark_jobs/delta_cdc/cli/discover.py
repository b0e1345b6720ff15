"""``delta-cdc discover``: new tables where the groups of a configuration come from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from delta_cdc.cli.common import exit_code
from delta_cdc.cli.init import takes_search
from delta_cdc.cli.proposing import Brokers, Known, Proposing, Search, report
from delta_cdc.config import is_code, load
from delta_cdc.config.combine import is_template, same_place
from delta_cdc.config.proposals import add as add_to
from delta_cdc.config.proposals import entries
from delta_cdc.core.arguments import names
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration
from delta_cdc.core.text_table import plural
from delta_cdc.core.topics import is_topics, parse
from delta_cdc.core.uris import is_name
from delta_cdc.core.variables import expand, has_variable
from delta_cdc.delta_log.folders import DEPTH

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from delta_cdc.config import Configuration, Group
    from delta_cdc.config.proposals import Proposal

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
    codes = [0]
    earlier: list[_Place] = []
    for group in wanted:
        try:
            codes.append(_discover(group, arguments, earlier))
        except DeltaCdcError as error:
            sys.stderr.write(f"{group.name}: {type(error).__name__}: {error}\n")
            codes.append(exit_code(error))
    sys.stdout.flush()
    return max(codes)


def _discover(group: Group, arguments: argparse.Namespace, earlier: list[_Place]) -> int:
    """Print, or add, the new tables of a group; return the exit code.

    :param earlier: the places of what earlier groups got, whether it is added or not; grows
    """
    search, configuration = _search(group, arguments), load(arguments.file)
    places = [*_places(configuration), *earlier]
    proposing = Proposing(search, _known(configuration, earlier)).run()
    report(proposing)
    found = proposing.proposals
    if not found:
        print(f"# {group.name}: no new table")
        return 0
    doubts = list(dict.fromkeys(f"{one}: {why}" for one in places if (why := _not_compared(one, search))))
    earlier += [place for one in found for place in _places_of(one.pipeline, one.values, group.settings)]
    whole = [one for one in found if one.is_whole]
    is_added = bool(whole) and group.settings["discover"].get("add") is True
    if doubts:
        sys.stderr.write(_in_doubt(group.name, doubts, is_added=is_added))
        is_added = False
    if is_added:
        _add(arguments.file, found, group)
    rest = [one for one in found if not (is_added and one.is_whole)]
    if rest:
        print(entries(rest, _group_of(group)), end="")
    return 1 if rest else 0


def _add(file: Path, proposals: list[Proposal], group: Group) -> None:
    """Add the proposals that are whole.

    :raises DeltaCdcError: they cannot be added; all proposals are printed
    """
    whole = [one for one in proposals if one.is_whole]
    try:
        changed = add_to(file, whole, group.name, is_alone=group.is_alone)
    except DeltaCdcError:
        print(entries(proposals, _group_of(group)), end="")
        raise
    print(f"{plural(len(whole), 'pipeline')} added to {changed}: {', '.join(one.pipeline for one in whole)}")


def _group_of(group: Group) -> str | None:
    return None if group.is_alone else group.name


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
        # A new pipeline gets those of its group, also if the command line names others for the search.
        brokers=_brokers(given["tables"], settings).names,
    )


# -- what the configuration has already ---------------------------------------------------------
@dataclass(frozen=True)
class _Place:
    """A place of a pipeline.

    :param argument: the argument that has it
    :param text: the place as written
    :param settings: of the pipeline's group
    """

    pipeline: str
    argument: str
    text: str
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"the {self.argument} of the pipeline {self.pipeline}, {self.text}"

    @property
    def unknown(self) -> str:
        """Return why the place is not known here; "" if it is."""
        if is_template(self.text):
            return "only a run fills its template"
        return "its variable is not set here" if has_variable(self.text) else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics of a place that is known."""
        place = expand(self.text)
        return parse(place).names if is_topics(place) else ()

    @property
    def brokers(self) -> Brokers:
        """Return the brokers of the topics of a place that is known."""
        return _brokers(self.text, self.settings)


def _brokers(address: str, settings: Mapping[str, Any]) -> Brokers:
    return Brokers.of(expand(address), settings.get("kafka_options"), settings.get("kafka_conn_id"))


def _places(configuration: Configuration) -> Iterator[_Place]:
    """Yield the places of all pipelines."""
    for group, table in configuration.chosen():
        yield from _places_of(table.pipeline, table.arguments, group.settings)
        for place in table.removed:
            yield _Place(table.pipeline, "removed source", place, group.settings)


def _places_of(pipeline: str, arguments: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[_Place]:
    for name in _PLACES:
        place = arguments.get(name)
        if isinstance(place, str):
            yield _Place(pipeline, name, place, settings)


def _known(configuration: Configuration, earlier: Iterable[_Place] = ()) -> Known:
    earlier = list(earlier)
    places = [place for place in (*_places(configuration), *earlier) if not place.unknown]
    # Of a pipeline with several sources, the parts have names of their own: orders.north.
    names = {table.pipeline for table in configuration.tables()} | {place.pipeline for place in earlier}
    return Known(
        places=frozenset(same_place(expand(place.text)) for place in places if not place.topics),
        topics=frozenset(
            (topic, broker) for place in places for topic in place.topics for broker in place.brokers.names
        ),
        pipelines=frozenset(names | {name.split(".")[0] for name in names}),
    )


def _not_compared(place: _Place, search: Search) -> str:
    """Return why a place cannot be compared with what a search finds and proposes; "" if it can."""
    finds_topics = is_topics(search.tables)
    if is_topics(place.text) and not finds_topics:
        return ""
    if place.unknown or place.topics:
        return place.unknown or (_other_brokers(place, search) if finds_topics else "")
    known = expand(place.text)
    has_name, finds_names = is_name(known), not finds_topics and is_name(search.tables)
    if has_name and not finds_topics and not finds_names:
        return "it is a catalog name, and the new tables have locations"
    if place.argument == "target" and has_name != search.is_schema:
        return f"it is a {'catalog name' if has_name else 'location'}, and the new targets are not"
    schemas = [
        *([search.tables] if finds_names else []),
        *([expand(search.target)] if search.is_schema else []),
    ]
    if has_name and any(_is_short(known, schema) for schema in schemas):
        return "it has more or fewer parts than the new names"
    return ""


def _is_short(name: str, schema: str) -> bool:
    """Return whether a name has more or fewer parts than those of a schema, and may be one of them."""
    parts, of_schema = name.lower().split("."), schema.lower().split(".")
    return len(parts) != len(of_schema) + 1 and parts[-2:-1] in ([], of_schema[-1:])


def _other_brokers(place: _Place, search: Search) -> str:
    """Return why the topics of a place may be those of a search; "" if their brokers answer it."""
    prefix = urlsplit(search.tables).path.removeprefix("/")
    if place.brokers.are_given or place.brokers.names & search.all_brokers:
        return ""
    is_near = any(topic.startswith(prefix) for topic in place.topics)
    return "the configuration does not give its brokers" if is_near else ""


def _in_doubt(group: str, doubts: list[str], *, is_added: bool) -> str:
    """Return the line about proposals that the configuration may have already."""
    more = f" (and {plural(len(doubts) - 1, 'more place')})" if len(doubts) > 1 else ""
    result = "nothing is added: " if is_added else ""
    return (
        f"{group}: {result}discover cannot compare the new tables with {doubts[0]}{more}. Compare them "
        "yourself before you add the printed lines.\n"
    )
