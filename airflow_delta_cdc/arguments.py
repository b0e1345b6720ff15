"""Arguments of tasks: templates, environment variables, and values needed when a DAG is parsed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.definitions._internal.types import ArgNotSet

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import flat, kinds, parameters
from delta_cdc.core.variables import expand, has_variable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import BaseOperator as _Base

    from delta_cdc.core.option import Kind, Option

if not TYPE_CHECKING:
    _Base = object

__all__ = [
    "RenderedArguments",
    "attributes",
    "expand",
    "is_literal",
    "is_template",
    "named_tables",
    "pipeline_name",
    "renderers",
    "taken",
]

#: An operator's ``log`` is its logger.
_ATTRIBUTES = {"log": "log_table"}
#: What a Jinja template contains, unless a DAG changes it.
_MARKERS = ("{{", "{%", "{#")
#: Texts of values that exist only at run time, if an f-string contains them. (The output of a task becomes a
#: template there.)
_UNRESOLVED = ("MappedArgument(", "XComArg(")
#: The kinds that consist of texts, so that a number which a template renders means its digits.
_TEXTS = ("name", "names", "text")


def is_template(value: Any) -> bool:
    """Return whether a value is unknown at parse time: a Jinja template, or another task's output."""
    return not isinstance(value, str) or any(marker in value for marker in _MARKERS)


def is_literal(value: Any) -> bool:
    """Return whether a table is known when the DAG file is parsed."""
    return not is_template(value) and bool(value) and not has_variable(value)


def _is_known(value: Any) -> bool:
    """Return whether a value is complete when the DAG file is parsed, also inside lists and mappings."""
    if isinstance(value, str):
        return not is_template(value) and not has_variable(value)
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_known, value))
    return value is None or isinstance(value, bool | int | float | Decimal | date | PurePath)


def attributes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the attributes of an operator for its arguments."""
    return tuple(_ATTRIBUTES.get(name, name) for name in names)


class RenderedArguments(_Base):
    """How all operators and sensors render and read their arguments.

    A text without a template stays as it is. A template renders to a text. With
    ``render_template_as_native_obj``, a template that is one expression renders to the value of the
    expression; Airflow itself also turns each text that looks like a Python literal into its value.

    A class lists the kind of each argument in ``kinds``. A literal value of another kind is an error when
    Airflow parses the DAG file, a rendered one when the task starts.
    """

    #: The kind of each argument, by its name.
    kinds: ClassVar[dict[str, Kind]]

    def render_template(
        self, content: Any, context: Any, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render a template, and the templates in a list or mapping; a sentinel of Airflow becomes None.

        :param seen_oids: the ids of values that Airflow has resolved, as mapped XComs: they are no templates
        """
        if isinstance(content, ArgNotSet):
            return None
        if seen_oids is not None and id(content) in seen_oids:
            return content
        if not isinstance(content, str) or content.endswith(tuple(self.template_ext)):
            return super().render_template(content, context, jinja_env, seen_oids)
        jinja_env = jinja_env or self.get_template_env()
        return _rendered(content, context, jinja_env) if _has_template(content, jinja_env) else content

    def check_literals(self) -> None:
        """Read the arguments that are known when the DAG file is parsed.

        :raises InvalidConfiguration: a value is of another kind; names the argument
        """
        for name, kind in self.kinds.items():
            value = getattr(self, _ATTRIBUTES.get(name, name), None)
            if arguments.is_given(value) and _is_known(value):
                _refuse_unresolved(name, value)
                kind.read(name, value)

    def read_arguments(self) -> None:
        """Read all arguments, once they are rendered; a number that stands for a text becomes the text.

        :raises InvalidConfiguration: a value is of another kind; names the argument
        """
        for name, kind in self.kinds.items():
            attribute = _ATTRIBUTES.get(name, name)
            value = getattr(self, attribute)
            if kind.name in _TEXTS:
                value = _as_text(value)
                setattr(self, attribute, value)
            kind.read(name, value)


def _has_template(text: str, jinja_env: Any) -> bool:
    """Return whether Jinja would change a text. To compile every text would take long in large groups."""
    starts = (
        jinja_env.variable_start_string,
        jinja_env.block_start_string,
        jinja_env.comment_start_string,
        jinja_env.line_statement_prefix,
        jinja_env.line_comment_prefix,
    )
    return any(start in text for start in starts if start)


def _rendered(text: str, context: Any, jinja_env: Any) -> Any:
    """Render a template to its text. With Jinja's native types, the value of its only expression stays."""
    from jinja2 import Undefined

    template = jinja_env.from_string(text)
    try:
        parts = list(template.root_render_func(template.new_context({**template.globals, **context}, True)))
        if len(parts) == 1 and not isinstance(parts[0], Undefined):
            return parts[0]
        return "".join(map(str, parts))
    except Exception:  # noqa: BLE001 - raised again, with the line of the template
        jinja_env.handle_exception()


def _as_text(value: Any) -> Any:
    """Return a number or a time as text, also inside a list; any other value unchanged."""
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    is_text = isinstance(value, int | float | Decimal | date) and not isinstance(value, bool)
    return str(value) if is_text else value


def _refuse_unresolved(name: str, value: Any) -> None:
    """Refuse a text with a value that exists only at run time: the task would use the text of an object."""
    if isinstance(value, str) and any(found in value for found in _UNRESOLVED):
        raise arguments.refused(
            name,
            value,
            "an f-string cannot contain the argument of a mapped task group, or the result of map, zip or "
            "concat. Pass the value itself, or build the text in a task.",
        )


def renderers(options: Mapping[str, Option]) -> dict[str, str]:
    """Return the languages in which Airflow shows options, by their attributes."""
    shown = {_ATTRIBUTES.get(name, name): kind.shown_as for name, kind in kinds(options).items()}
    return {name: language for name, language in shown.items() if language}


def taken(operator: Any, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the options of an operator by their names, without groups.

    :raises InvalidConfiguration: a group is no mapping, or has an unknown key
    """
    names = parameters(options)
    return flat(options, {name: getattr(operator, _ATTRIBUTES.get(name, name)) for name in names})


def pipeline_name(pipeline: str | None, *tables: Any) -> str:
    """Return the name of a pipeline; it must be known when the DAG file is parsed.

    :param pipeline: the name, if the user gives one
    :param tables: the tables that it writes; the default name is the last part of the first given table
    :raises InvalidConfiguration: no name is given, and that table is the output of another task
    """
    if pipeline:
        return pipeline
    table = next(filter(None, tables), "")
    if not isinstance(table, str):
        raise InvalidConfiguration(
            "The task has no pipeline. It has no default either, because the table is the output of another "
            "task.",
            remedy="set pipeline.",
            argument="pipeline",
        )
    return arguments.last_part(os.path.expandvars(table))


def named_tables(operator: Any, *choices: str) -> list[str]:
    """Return the tables in exactly one of a task's arguments; an empty list if that is ``schema``.

    :param choices: names of the arguments
    :raises InvalidConfiguration: several arguments are given, or no table
    """
    given_names = [name for name in choices if arguments.is_given(getattr(operator, name))]
    if len(given_names) != 1:
        raise InvalidConfiguration(
            f"The task {operator.task_id} has {' and '.join(given_names) or 'no table'}.",
            remedy=f"set exactly one of {', '.join(choices)}.",
        )
    if given_names == ["schema"]:
        return []
    names = arguments.names("tables", getattr(operator, given_names[0]))
    if not names:
        raise InvalidConfiguration("tables is empty.", remedy="name at least one table.")
    return list(dict.fromkeys(expand(name.strip()) for name in names))
