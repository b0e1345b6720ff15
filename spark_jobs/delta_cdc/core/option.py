"""What an option is, and how a table of options reads, checks and shows the values that users give.

The options themselves are fields of the classes in :mod:`delta_cdc.core.options`. Callers give everyday
options as arguments, and the others in the mappings ``limits``, ``policies``, ``layout`` and ``repair``.
:func:`flat` replaces these mappings by their options: the engine knows no groups.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.key_predicates import check_key_predicate
from delta_cdc.core.value_rules import value_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_T = TypeVar("_T")
#: How a seal treats an option: ``fixed``: the target's rows depend on it, so a run with another value fails;
#: ``changeable``: the same, but ``on_drift`` can accept another value; ``shown``: recorded, and not compared:
#: replay, expiry and verification read it; ``log``: the seal of a change log records it, for a replay and for
#: the next ingest, and a target's seal does not.
Recorded = Literal["fixed", "changeable", "shown", "log"]
#: The purpose of the options of each group.
GROUPS = {
    "limits": "Maximum sizes of a run and of a commit",
    "policies": "What a run does with invalid input or changed tables",
    "layout": "Columns, layout and properties of the tables that the pipeline creates",
    "repair": "With mode ``repair``: the keys to compute again, instead of a range",
}


@dataclass(frozen=True)
class Kind:
    """A kind of value, and its parser.

    :param name: identifies the kind for types, as in the model of a configuration
    :param expects: the form that a value must have; the end of "give …"
    :param read: parses a value, which may be rendered text; takes the option's name and the value, and
        returns None if the value is not given
    :param annotation: the type of a value in Python
    :param choices: the allowed words
    :param shown_as: the language in which Airflow shows a value: ``sql``, ``py`` or ``json``; "" for none
    :param is_sql: the value has SQL expressions: their order and case may be significant, white space is not
    """

    name: str
    expects: str
    read: Callable[[str, Any], Any]
    annotation: str = "str"
    choices: tuple[Any, ...] = ()
    shown_as: str = ""
    is_sql: bool = False


@dataclass(frozen=True)
class Option:
    """One option.

    :param doc: the meaning, without a full stop
    :param default: the value if not given, as signatures show it
    :param required: it has no default
    :param templated: whether the operators render it
    :param of_run: whether it belongs to one run only, so no configuration may contain it
    :param group: the mapping in which callers give it; "" for a separate argument
    :param recorded: how the seal of a target or of a change log records it; None: not at all
    :param of_one: a value fits only one pipeline, because each has its own versions and keys
    :param flag: ``delta-cdc plan`` and ``run`` set it with a flag
    """

    name: str
    kind: Kind
    doc: str
    default: Any = None
    required: bool = False
    templated: bool = True
    of_run: bool = False
    group: str = ""
    recorded: Recorded | None = None
    of_one: bool = False
    flag: bool = False

    @property
    def key(self) -> str:
        """Return the name within the group: ``repair_keys`` is ``keys`` in ``repair``."""
        return self.name.removeprefix(f"{self.group}_")

    def read(self, value: Any) -> Any:
        """Return a value as the engine uses it.

        :raises InvalidConfiguration: the value has the wrong type; names the option
        """
        parsed = self.kind.read(self.name, value)
        return self.default if parsed is None else parsed


def option(
    kind: Kind,
    doc: str,
    *,
    default: Any = None,
    omitted: Any = MISSING,
    recorded: Recorded | None = None,
    **more: Any,
) -> Any:
    """Return a field of a dataclass that is an option.

    :param default: the default of the field, as the engine uses it
    :param omitted: the value that means "not given" in signatures, if it is another one. For tuples and
        mappings it is None
    :param recorded: see :class:`Option`
    :param more: the other attributes of :class:`Option`
    """
    is_container = isinstance(default, tuple | dict)
    shown = (None if is_container else default) if omitted is MISSING else omitted
    metadata = {"option": Option("", kind, doc, shown, recorded=recorded, **more)}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def options_in(*classes: type) -> dict[str, Option]:
    """Return the options that are fields of dataclasses, by their names; a later class replaces an option."""
    return {
        one.name: replace(one.metadata["option"], name=one.name)
        for cls in classes
        for one in fields(cls)
        if "option" in one.metadata
    }


def filled(cls: type[_T], options: Mapping[str, Option], given: Mapping[str, Any], /, **more: Any) -> _T:
    """Create a dataclass whose fields are options.

    :param cls: the dataclass; a field that is not an option keeps its default, unless ``more`` has it
    :param options: a table of :mod:`delta_cdc.core.options`
    :param given: arguments by name, as people and templates write them; unknown ones are ignored
    :param more: fields set without parsing
    :raises InvalidConfiguration: a value has the wrong type; names the option
    """
    names = [f.name for f in fields(cls) if f.name in options and f.name not in more]  # type: ignore[arg-type]
    return cls(**{name: options[name].read(given.get(name)) for name in names}, **more)


def flat(options: Mapping[str, Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without groups: the options of each group replace the group's mapping.

    :param options: a table of :mod:`delta_cdc.core.options`, or a part of one
    :param given: arguments by name, as people and templates write them
    :raises InvalidConfiguration: a group is not a mapping, or has an unknown key
    """
    ungrouped = {name: value for name, value in given.items() if name not in GROUPS}
    for group in GROUPS:
        keys = in_group(options, group)
        for key, value in arguments.mapping(group, given.get(group)).items():
            if key not in keys:
                nearest = get_close_matches(key, keys, n=1)
                hint = f"did you mean {nearest[0]!r}? " if nearest else ""
                raise InvalidConfiguration(
                    f"{group} has the key {key!r}.",
                    remedy=f"{hint}Its keys are {', '.join(keys)}.",
                    argument=group,
                )
            ungrouped[keys[key].name] = value
    return ungrouped


def in_group(options: Mapping[str, Option], group: str) -> dict[str, Option]:
    """Return the options of a group, by their keys in the group."""
    return {one.key: one for one in options.values() if one.group == group}


def parameters(options: Mapping[str, Option], *, templated: bool = False) -> tuple[str, ...]:
    """Return the names of the arguments with which callers give options: a group counts as one argument.

    :param templated: return only arguments that the operators render
    """
    selected = [one for one in options.values() if one.templated or not templated]
    alone = [one.name for one in selected if not one.group]
    return (*alone, *(group for group in GROUPS if any(one.group == group for one in selected)))


def kinds(options: Mapping[str, Option]) -> dict[str, Kind]:
    """Return the kinds of the arguments with which callers give options: a group is one mapping."""
    of_groups = {group: replace(MAPPING, read=partial(_read_group, options)) for group in GROUPS}
    return {
        name: of_groups[name] if name in of_groups else options[name].kind for name in parameters(options)
    }


def _read_group(options: Mapping[str, Option], group: str, value: Any) -> dict[str, Any]:
    return {name: options[name].read(item) for name, item in flat(options, {group: value}).items()}


# -- kinds --------------------------------------------------------------------------------------
def choice(*choices: str) -> Kind:
    """Return the kind whose values are the given words."""
    read = partial(arguments.one_of, choices)
    return Kind("choice", f"one of {', '.join(choices)}", read, choices=choices)


def some_of(*choices: str) -> Kind:
    """Return the kind of an argument that is a list of some choices."""
    expects = f"one or more of {', '.join(choices)}"
    return Kind("names", expects, partial(arguments.some_of, choices), _SEQUENCE_OF)


def _predicate(name: str, value: Any) -> str | None:
    text = arguments.text(name, value)
    if text is not None:
        check_key_predicate(text)
    return text


_A_NAME = "a name; one that looks like a number needs quotes"
_A_TEXT = "a text; one that looks like a number needs quotes"
_TEXTS = "a text or a list of texts"
_A_MAPPING = "a mapping from names to values"
_SEQUENCE_OF = "Sequence[str] | str"

NAME = Kind("name", _A_NAME, arguments.name)
PIPELINE = Kind("name", _A_NAME, arguments.pipeline)
TABLE = Kind("name", _A_NAME, arguments.table)
OPTIONAL_TABLE = Kind("name", _A_NAME, arguments.optional_table)
ADAPTER = Kind("name", _A_NAME, arguments.adapter)
TEXT = Kind("text", _A_TEXT, arguments.text)
SQL = Kind("text", _A_TEXT, arguments.text, shown_as="sql", is_sql=True)
PREDICATE = Kind("text", "a predicate over the key columns", _predicate, is_sql=True)
NAMES = Kind("names", _TEXTS, arguments.names, _SEQUENCE_OF)
LISTED = Kind("names", _TEXTS, arguments.listed, _SEQUENCE_OF)
KEYS = Kind("names", _TEXTS, lambda name, value: arguments.columns(name, value) or (), _SEQUENCE_OF)
SEQUENCE = Kind("names", _TEXTS, arguments.sequences, _SEQUENCE_OF, is_sql=True)
PROJECTIONS = Kind("names", _TEXTS, arguments.projections, _SEQUENCE_OF, shown_as="py", is_sql=True)
#: An empty list differs from a list that is not given.
COLUMNS = Kind("names", _TEXTS, arguments.columns, _SEQUENCE_OF)
COUNT = Kind("count", "a whole number >= 0", arguments.whole_number, "int")
POSITIVE = Kind("positive", "a whole number >= 1", partial(arguments.whole_number, minimum=1), "int")
SPAN = Kind("span", "seconds, or a text like '5 minutes'", arguments.span, "float | str")
ROW_LIMIT = Kind(
    "row_limit", "a whole number of rows, or a share such as '5 %'", arguments.row_limit, "int | str"
)
APPROVAL = Kind("text", _A_TEXT, arguments.approval_text)
FLAG = Kind("flag", "true or false", arguments.flag, "bool")
SCD_TYPE = Kind("scd_type", "1 or 2", arguments.scd_type, "int", (1, 2))
CONFLICT = Kind(
    "conflict",
    "one of fail, quarantine, or a mapping {last_by: [<column>, …]}",
    arguments.conflict,
    "str | Mapping[str, Any]",
    arguments.CONFLICTS,
)
INITIAL_LOAD = Kind(
    "initial_load",
    "one of snapshot, none, or a mapping {from_version: N} or {none_at: V}",
    arguments.initial_load,
    "str | Mapping[str, int | str]",
    arguments.INITIAL_LOADS,
)
PARTITIONS = Kind(
    "partitions",
    "a list of columns, or a mapping from a column to its expression",
    arguments.partitions,
    "Sequence[str] | Mapping[str, str | None] | str",
    is_sql=True,
)
PROPERTIES = Kind("texts", _A_MAPPING, arguments.properties, "Mapping[str, Any]", shown_as="json")
VALUE_RULES = Kind(
    "value_rules",
    "a mapping from names to a check, or to {check: <SQL>, on_break: fail, quarantine or flag}",
    value_rules,
    "Mapping[str, Any]",
    shown_as="json",
    is_sql=True,
)
PIPELINE_TABLES = Kind(
    "pipeline_tables",
    "the name of a pipeline, or a mapping from names of pipelines to their targets",
    arguments.pipeline_tables,
    "Mapping[str, str] | str",
    shown_as="json",
)
SETTINGS = Kind("texts", _A_MAPPING, arguments.settings, "Mapping[str, str]")
MAPPING = Kind("mapping", _A_MAPPING, arguments.mapping, "Mapping[str, Any]", shown_as="json")
KEY_VALUES = Kind(
    "key_values",
    "a mapping from key columns to values, or a text such as id=17, line=3",
    arguments.key_values,
    "Mapping[str, Any] | str",
)
SIZE = Kind("size", "bytes, or a text like 20GiB", arguments.size, "int | str")
MAPPINGS = Kind("mappings", "a list of mappings", arguments.mappings, "Sequence[Mapping[str, Any]]")
MODE = choice(*arguments.MODES)
FAIL_OR_RELOAD = choice("fail", "reload")
ON_DRIFT = choice("fail", "accept", "repair")
