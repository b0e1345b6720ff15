"""Find the Delta table that a flow reads, through the datasets of the code that are plain reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.config.autocdc import clauses
from delta_cdc.config.autocdc.program import GIVE_THE_TABLE, Read, Value, key, table_name
from delta_cdc.config.tree import Refused

if TYPE_CHECKING:
    from delta_cdc.config.autocdc.code import Code
    from delta_cdc.config.autocdc.program import Flow, Program
    from delta_cdc.config.findings import Place

#: Options of a reader that make it begin later than the table does.
_STARTS = ("startingversion", "startingtimestamp")
#: Filters that leave the pre-images of a change feed out, without blanks and in lower case.
_NO_PRE_IMAGES = (
    "_change_type!='update_preimage'",
    "_change_type<>'update_preimage'",
    "_change_typein('insert','update_postimage','delete')",
    "not(_change_type='update_preimage')",
)


@dataclass(frozen=True)
class Found:
    """The table that a flow reads.

    :param table: a path or a catalog name
    :param place: where the code names it
    :param is_feed: whether the flow reads the table's change feed
    :param filters: predicates over its rows
    :param from_start: whether it reads the changes from version 0 on, without a first load
    """

    table: str
    place: Place
    is_feed: bool = False
    filters: tuple[str, ...] = ()
    from_start: bool = False


def found(flow: Flow, program: Program, code: Code) -> Found:
    """Return the table that a flow reads.

    :raises Refused: the code does more with the table than to read it
    """
    seen: set[str] = set()
    reads: list[Read] = []
    name, place = str(flow.source.value), flow.source.place
    if isinstance(flow.source.value, Read):
        reads.append(flow.source.value)
        name, place = flow.source.value.table, flow.source.value.place
    while True:
        program.used.add(key(name))
        given = code.source_of(name)
        if given is not None:
            return _combined(given, place, reads, program)
        if name.endswith("()"):
            raise Refused(
                place,
                f"The source is the function {name}, which returns copies.",
                f"write each copy as a version of a Delta table, and give this table as the source "
                f"{name[:-2]}: in sources of build_dags, or with --source {name[:-2]}=TABLE.",
            )
        read = _query_of(name, place, program, seen)
        if read is None:
            return _combined(_catalog_name(name, place, "source"), place, reads, program)
        if not flow.is_snapshot and not read.is_stream:
            raise Refused(
                read.place,
                f"{name} reads {read.table} as a whole, not as a stream.",
                "write spark.readStream, or STREAM(…) in SQL: the rows are events, and each is applied once.",
            )
        reads.append(read)
        name, place = read.table, read.place


def _query_of(name: str, place: Place, program: Program, seen: set[str]) -> Read | None:
    """Return the query of a dataset of the code; None for a table outside of it."""
    dataset = program.datasets.get(key(name)) if "/" not in name else None
    if dataset is None or not dataset.reads:
        return None
    if key(name) in seen:
        raise Refused(place, f"{name} reads itself.", "correct the name of the source.")
    seen.add(key(name))
    broken = next((argument for argument in clauses.ON_BREAK if argument in dataset.clauses), None)
    if broken not in (None, "expect_all"):
        raise Refused(
            dataset.clauses[str(broken)].place,
            f"{name} has expectations, which may drop rows.",
            GIVE_THE_TABLE,
        )
    if len(dataset.reads) > 1:
        raise Refused(place, f"{len(dataset.reads)} flows fill {name}.", GIVE_THE_TABLE)
    read = dataset.reads[0]
    if isinstance(read, Refused):
        read_place, message, remedy = read.finding
        raise Refused(read_place, f"The flow into {{target}} reads {name}. {message}", remedy)
    return read


def _catalog_name(name: str, place: Place, role: str) -> str:
    """Return a name of a catalog without back-ticks, or a path.

    :raises Refused: a part of the name needs back-ticks
    """
    text = table_name(name)
    parts = text.split(".")
    is_plain = all(part and all(letter.isalnum() or letter in "_-" for letter in part) for part in parts)
    if "/" not in text and (not is_plain or text.count(".") > 2):
        remedy = f"give its path with --{role} NAME=PATH, or rename it."
        raise Refused(place, f"The name {name} needs back-ticks.", remedy)
    if any(mark in text for mark in "${"):
        # Of a configuration, a run substitutes variables and templates.
        raise Refused(place, f"The path {name} has a variable.", f"give its path with --{role} NAME=PATH.")
    return text


def target_of(flow: Flow, code: Code) -> Value:
    """Return the table that a flow writes: the given one, or else its catalog name."""
    given = code.target_of(flow.target.value)
    name = given if given is not None else _catalog_name(flow.target.value, flow.target.place, "target")
    return Value(name, flow.target.place)


def _combined(table: str, place: Place, reads: list[Read], program: Program) -> Found:
    """Return what several reads in a chain read together."""
    is_feed, from_start = False, False
    for read in reads:
        for name, option in read.options.items():
            if name in clauses.FEED:
                is_feed = is_feed or option.value == "true"
            elif name in _STARTS:
                _check_start(name, option)
                from_start = True
            elif name in clauses.SIZES:
                program.notices.append(
                    f"{option.place}: {name} is left out: it changes no row. The option here is limits."
                )
            else:
                remedy = f"remove it, or {GIVE_THE_TABLE}"
                raise Refused(
                    option.place, f"The option {name} of the reader has no equivalent here.", remedy
                )
    filters = tuple(text for read in reads for text in read.filters)
    if is_feed:
        for text in filters:
            _check_feed_filter(text, reads[0].place)
        filters = ()
    return Found(table, place, is_feed, filters, from_start)


def _check_start(name: str, option: Value) -> None:
    if name != "startingversion" or option.value != "0":
        raise Refused(
            option.place,
            f"The reader begins at {name} {option.value}, so the flow lacks older rows.",
            "begin at version 0, or remove the option; initial_load in the configuration has more choices.",
        )


def _check_feed_filter(text: str, place: Place) -> None:
    if "".join(text.lower().split()).replace('"', "'") not in _NO_PRE_IMAGES:
        raise Refused(
            place,
            f"The change feed is filtered by {text}, which would keep rows that changed later.",
            "remove the filter, and write where in the configuration: a run then deletes rows that no longer "
            "match. Only _change_type != 'update_preimage' is known here.",
        )
