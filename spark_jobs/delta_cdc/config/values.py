"""Check that values match the types of their keys."""

from __future__ import annotations

import re
from difflib import get_close_matches
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from delta_cdc.config import models
from delta_cdc.config.combine import is_template
from delta_cdc.config.findings import nearest, shown
from delta_cdc.core.arguments import seconds
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.groups import ON_CHANGE
from delta_cdc.core.option import SPAN
from delta_cdc.core.options import INGEST
from delta_cdc.core.times import start

if TYPE_CHECKING:
    from delta_cdc.config.findings import Findings, Place
    from delta_cdc.config.tree import Node

_PRESETS = (
    "@once",
    "@continuous",
    "@hourly",
    "@daily",
    "@midnight",
    "@weekly",
    "@monthly",
    "@quarterly",
    "@yearly",
    "@annually",
)
_CRON_FIELDS = (5, 6)
#: Keys of a DAG that may contain no template.
_LITERAL = ("dag_id", "owner", "description", "pool", "queue", "manifest")
#: Python's durations end at 2.7 million years, and Airflow adds them to dates.
_LONGEST_SPAN = 100 * 366 * 86_400
#: The width of Airflow's column.
_LONGEST_TAG = 100
_SPANS = ("retry_delay", "execution_timeout")
_CALLBACKS = ("on_failure_callback", "on_success_callback", "on_retry_callback", "on_late_callback")


def check(given: dict[str, Any], nodes: dict[str, Node], where: str, findings: Findings) -> set[str]:
    """Report invalid values.

    :param given: values by their keys, only known keys
    :param nodes: the trees of the values
    :param where: the owner of the keys, for messages
    :return: the keys of invalid values
    """
    wrong: dict[str, list[tuple[Place, int]]] = {}
    values = {name: value for name, value in given.items() if value is not None}
    for error in _errors(values):
        name, *inner = error["loc"]
        surplus = error["type"] == "extra_forbidden"
        wrong.setdefault(name, []).append(nodes[name].follow(inner, to_key=surplus))
    for name, places in wrong.items():
        # Among the alternatives, the user probably meant the one that matches deepest.
        place, _ = max(places, key=itemgetter(1))
        message = f"{name} of {where} is {_shown(name, given[name])}."
        expected = models.expectations()[name]
        findings.add(place, message, f"give {expected}{_near(expected, given[name])}.")
    for name in set(_FORMS) & set(values) - set(wrong):
        remedy = next(filter(None, (form(values[name]) for form in _FORMS[name])), "")
        if remedy:
            wrong[name] = []
            findings.add(nodes[name].place, f"{name} of {where} is {shown(values[name])}.", remedy)
    return set(wrong)


def _shown(name: str, value: Any) -> str:
    """Return a value for a message; of a mapping that may have a secret, only its form."""
    if name not in models.MAY_HAVE_SECRETS:
        return shown(value)
    if not isinstance(value, dict):
        return f"no mapping (type {type(value).__name__})"
    return "a mapping with a value that is no text"


def _errors(given: dict[str, Any]) -> list[Any]:
    from pydantic import ValidationError

    try:
        models.adapter().validate_python(given)
    except ValidationError as error:
        return list(error.errors(include_url=False, include_context=False, include_input=False))
    return []


def _near(expected: str, value: Any) -> str:
    """Return a hint with the nearest choice, if there is one."""
    if not isinstance(value, str) or not expected.startswith("one of "):
        return ""
    words = re.findall(r"[a-z_]{4,}", expected.removeprefix("one of "))
    near = get_close_matches(value.strip().lower(), words, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


# -- texts with their own syntax ------------------------------------------------------------------
def setting(name: str, value: Any) -> Any:
    """Return the stored form of a group's setting: durations in seconds, callbacks as a list."""
    if name in _SPANS and isinstance(value, str):
        return seconds(value)
    if name in _CALLBACKS and isinstance(value, str):
        return [value]
    if name == "schedule" and isinstance(value, dict) and isinstance(value.get("assets"), str):
        return {"assets": [value["assets"]]}
    return value


def _span(value: Any) -> str:
    length = seconds(value) if isinstance(value, str) else value
    if length is None:
        return f"give {models.expectations()['retry_delay']}."
    return "" if length <= _LONGEST_SPAN else "give at most 100 years."


def _literal(value: Any) -> str:
    """Refuse a template in a value that a DAG file needs: no task renders it."""
    texts = value if isinstance(value, list) else [value]
    has_template = any(isinstance(text, str) and is_template(text) for text in texts)
    return "give a literal value: only a task renders a template." if has_template else ""


def _tags(value: list[str]) -> str:
    is_short = all(0 < len(tag) <= _LONGEST_TAG for tag in value)
    return "" if is_short else f"give tags of 1 to {_LONGEST_TAG} characters."


def _date(value: Any) -> str:
    try:
        start("start_date", value)
    except InvalidConfiguration as error:
        return f"give a date as 2026-01-31, or with a time: {error.remedy}"
    return ""


def _schedule(value: Any) -> str:
    if isinstance(value, dict):
        return _assets(value["assets"])
    if not isinstance(value, str) or value == ON_CHANGE or value in _PRESETS:
        return ""
    if value.startswith("@") or re.fullmatch(r"[A-Za-z_\-]+", value):
        return nearest(value, (*_PRESETS, ON_CHANGE))
    return "" if _is_cron(value) else "give the five fields of cron, as '*/15 * * * *', in quotes."


def _assets(tables: str | list[str]) -> str:
    names = [tables] if isinstance(tables, str) else tables
    if not all(name.strip() for name in names) or not names:
        return "name at least one table, as {assets: [<table>, …]}; or null for no schedule."
    if any(is_template(name) or name.strip().lower().startswith("kafka:") for name in names):
        return "name Delta tables, by literal paths, URIs or catalog names."
    return ""


def _is_cron(text: str) -> bool:
    try:
        # The library that Airflow's schedules use.
        from croniter import croniter
    except ImportError:
        return len(text.split()) in _CRON_FIELDS
    return len(text.split()) in _CRON_FIELDS and bool(croniter.is_valid(text))


_FORMS = {
    **dict.fromkeys(_LITERAL, (_literal,)),
    **{name: (_span,) for name, one in INGEST.items() if one.kind is SPAN},
    "retry_delay": (_span,),
    "execution_timeout": (_span,),
    "start_date": (_date,),
    "schedule": (_schedule,),
    "tags": (_literal, _tags),
}
