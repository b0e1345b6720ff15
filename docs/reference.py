"""Write the pages of ``docs/reference/`` that come from the code: operators, functions, commands, options.

Run ``python docs/reference.py`` after a change of a docstring, an option or a command, and commit both; a
test compares them. ``docs/reference/errors.md`` is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from delta_cdc.core import errors
from delta_cdc.core.option import GROUPS, Option, in_group
from delta_cdc.core.options import APPLY, INGEST, INGEST_ALONE, READ

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.cli import Parser

FOLDER = Path(__file__).parent / "reference"
#: Folders that hold only what this script writes.
WRITTEN = ("operators", "functions", "commands")

_MADE = "<!--docs/reference.py-->"
#: Parameters that docstrings describe, and that mean what the option of this name means.
_AS_OPTION = ("single_driver",)
#: Heading, on the index page of a folder, above what several of its pages would repeat.
_SHARED = {"functions": "Parameters of several functions", "commands": "Arguments of several commands"}
#: How often and how long a meaning is that has its home there: on how many pages, with how many words.
_SEVERAL, _LONG = 2, 3
#: Functions that do what an operator does, and parameters that mean the same there.
_LIKE: dict[str, tuple[str, tuple[str, ...]]] = {
    "apply_changes": ("DeltaApplyChangesOperator", ()),
    "verify_table": ("DeltaVerifyOperator", ("target", "pipeline", "source", "current", "on_conflict")),
    "explain_row": ("DeltaWhyOperator", ("target", "key", "source", "at", "on_conflict", "max_bytes")),
    "erase_key": ("DeltaEraseOperator", ("purge", "quarantined_records", "dry_run")),
    "expire_events": ("DeltaExpireEventsOperator", ("horizon", "keep", "dry_run")),
    "commit_watermark": ("DeltaCommitWatermarkOperator", ("pipeline", "staging")),
    "DeltaVersionTrigger": ("DeltaVersionSensor", ("min_versions", "operations", "partitions")),
}
#: Parameters of the base of the operators that are those of Airflow's ``SparkSubmitOperator``.
_OF_AIRFLOW = {
    *("archives", "exclude_packages", "repositories", "total_executor_cores", "executor_cores"),
    *("executor_memory", "driver_memory", "keytab", "principal", "proxy_user", "num_executors"),
    *("status_poll_interval", "env_vars", "verbose", "spark_binary", "properties_file", "yarn_queue"),
    *("use_krb5ccache", "post_submit_commands", "track_driver_via_k8s_api", "yarn_track_via_rm_api"),
    *("yarn_rm_auth", "openlineage_inject_parent_job_info", "openlineage_inject_transport_info"),
    *("driver_class_path", "name"),
}
_TEMPLATES = (
    "A path may contain environment variables, as `${ENV}`. In `consumers` and `tables`, it may also be a "
    "catalog name. A relative path of a configuration counts from the folder of the DAG's file. *Templated* "
    "parameters may contain Jinja, or be the output of another task: alone, in a list or mapping, in "
    "`expand`, and in a mapped task group. "
    "If the table that a task writes is the output of another task, set `pipeline`.\n\n"
    'An empty text, `None` and the text `"None"` mean "not given", so `"{{ params.ending_version }}"` works '
    "with an empty form field. A list or mapping may also be a text: in JSON, or as Python writes it. Texts, "
    "also those that a template inserts, stay as they are with `render_template_as_native_obj=True`: "
    "`2026_01` stays `2026_01`. A value of the wrong type is an `InvalidConfiguration` when Airflow parses "
    "the DAG file, or, if it is rendered, when the task starts."
)
#: What the index page of the operators states once, so their tables do not.
_STATED = (
    ". A relative path counts from the folder of the DAG's file",
    "; ``${ENV}`` and catalog names are allowed",
    ". ``${ENV}`` and catalog names are allowed",
    ", ``${ENV}`` allowed",
)
#: The usage of a command that takes pipelines; the index page has it.
_USAGE = (
    "%(prog)s FILE [PIPELINE ...] [options]\n       %(prog)s SOURCE TARGET --pipeline NAME [options]\n"
    "       %(prog)s PIPELINE=TARGET ... [options]"
)
#: How the page of options writes kinds of values.
_SHORT = {
    "true or false": "bool",
    "a text": "text",
    "a text or a list of texts": "text, list",
    "a name": "name",
    "a mapping from names to values": "mapping",
    "the name of a pipeline, or a mapping from names of pipelines to their targets": "name, mapping",
    "a mapping from names to a check, or to {check: <SQL>, on_break: fail, quarantine or flag}": "mapping",
    "a list of columns, or a mapping from a column to its expression": "list, mapping",
}
_HOW_TO_NAME = "../../howto/status.md#how-to-name-tables-in-a-command"
#: Whose parameters are options.
_OPTIONS = {
    "DeltaApplyChangesOperator": APPLY,
    "DeltaIngestChangesOperator": INGEST,
    "DeltaReadChangesOperator": READ,
    "apply_changes": APPLY,
    "ingest_changes": INGEST_ALONE,
    "read_changes": READ,
    "plan_changes": READ,
}
#: By their modules. The functions of ``delta_cdc`` need no Airflow.
_FUNCTIONS = {
    "delta_cdc": (
        *("apply_changes", "ingest_changes", "read_changes", "plan_changes", "verify_table", "explain_row"),
        *("erase_key", "expire_events", "commit_watermark", "get_session", "named_in_plan"),
        *("publish_versions", "published", "create_views", "read_published"),
    ),
    "airflow_delta_cdc.dags": ("build_dags",),
    "airflow_delta_cdc.form": ("run_params", "run_arguments", "skip_waiting", "why_params", "why_arguments"),
    "airflow_delta_cdc.assets": (
        "delta_asset",
        "group_asset",
        "partitions_asset",
        "partition_predicate",
        "partition_values",
    ),
    "airflow_delta_cdc.triggers": ("watched_asset", "DeltaVersionTrigger"),
    "airflow_delta_cdc.deadline": ("freshness_deadline", "log_missed"),
}
#: Functions and operators whose options another operator's page has.
_SAME_OPTIONS: dict[str, tuple[str, Mapping[str, Option]]] = {
    "DeltaIngestChangesOperator": (
        "DeltaApplyChangesOperator",
        {name: APPLY[name] for name in APPLY if name not in ("source", "starting_timestamp")},
    ),
    "apply_changes": ("DeltaApplyChangesOperator", APPLY),
    "ingest_changes": ("DeltaIngestChangesOperator", INGEST_ALONE),
    "read_changes": ("DeltaReadChangesOperator", READ),
    "plan_changes": ("DeltaReadChangesOperator", READ),
}
#: What an option is for, in a few words; the page of options has its whole meaning.
_PHRASES = {
    "adapter": "what converts a record into an event",
    "adapter_options": "options of the adapter",
    "apply_as_deletes": "predicate: this event is a delete",
    "apply_as_truncates": "predicate: this event is a truncate",
    "approve": "text of a `LimitExceeded` that you approve",
    "column_list": "only these columns",
    "columns_to_update": "column that lists an event's columns",
    "delete_mode": "`hard`, `soft` or `new_version`",
    "delete_sequence": "the sequence of a delete",
    "discard_history": "allow `reset` of type 2",
    "dry_run": "write nothing",
    "ending_timestamp": "last time of the range",
    "ending_version": "last version of the range",
    "except_column_list": "all columns except these",
    "follow_links": "follow links that leave a local folder",
    "format": "`json`, `csv`, `parquet` or `avro`",
    "format_options": "options of the format",
    "freshness": "greatest age of a change not applied",
    "glob": "pattern for names of files",
    "ignore_null_updates": "NULL does not change a column",
    "ignore_null_updates_column_list": "the same, for these columns",
    "ignore_null_updates_except_column_list": "the same, for all columns except these",
    "initial_load": "what the first run loads",
    "insert_only": "the source never updates or deletes",
    "keys": "columns that identify a row",
    "lexical_order": "new names of files sort after old ones",
    "log": "the change log",
    "method": "how changes are read",
    "mode": "incremental, backfill, repair, reload, reset, …",
    "once": "load the source only once",
    "only_surviving": "no inserted rows that were deleted later",
    "pipeline": "the pipeline's name",
    "query": "one of the four change queries",
    "raw": "the change data feed as it is",
    "replay": "ingest records in quarantine again",
    "row_ids": "add Delta's row ids",
    "rules": "checks of inserted and updated rows",
    "schema": "the events' columns as DDL",
    "select": "expressions that compute the columns",
    "sequence_by": "what orders the events of a key",
    "shadow_of": "the pipeline that this one shadows",
    "shadowed_by": "the pipelines that shadow this one",
    "single_driver": "you let only one driver write",
    "snapshot_version_column": "what distinguishes full copies in a table",
    "source": "where changes come from",
    "source_kind": "`change_feed`, `change_log` or `snapshot`",
    "staging": "staging table of `DeltaReadChangesOperator`",
    "starting_timestamp": "skip what is older",
    "starting_version": "first version of the range",
    "stored_as_scd_type": "1: current rows; 2: history",
    "table": "the table to read",
    "take_over_from": "the pipeline's old name",
    "target": "the table that gets the changes",
    "target_kind": "`table`, or `change_log` of several sources",
    "track_history_column_list": "type 2: columns that make new versions",
    "track_history_except_column_list": "type 2: all columns except these",
    "where": "predicate: only these rows",
    "wide": "old and new values in one row",
}
#: A short use of each operator.
_EXAMPLES = {
    "DeltaApplyChangesOperator": """(
    task_id="apply",
    source="/lake/orders",
    target="/lake/orders_history",
    keys=["order_id"],
    stored_as_scd_type=2,
)""",
    "DeltaIngestChangesOperator": """(
    task_id="ingest",
    pipeline="orders",
    source="/lake/landing/orders",
    log="/lake/order_events",
    target="/lake/orders",
    keys=["id"],
    adapter_options={"operation_column": "op", "sequence_by": "lsn"},
)""",
    "DeltaReadChangesOperator": """(
    task_id="read", pipeline="orders", table="/lake/orders", staging="/lake/staging/orders"
)""",
    "DeltaCommitWatermarkOperator": """(
    task_id="commit",
    pipeline="orders",
    staging="/lake/staging/orders",
    ending_version="{{ ti.xcom_pull('read')['ending_version'] }}",
)""",
    "DeltaEnableChangeDataFeedOperator": '(task_id="enable", table="/lake/orders")',
    "DeltaEraseOperator": (
        '(task_id="erase", key={"customer_id": "17"}, config="pipelines.yaml", purge=True)'
    ),
    "DeltaExpireEventsOperator": """(
    task_id="expire", table="/lake/order_events", config="pipelines.yaml", keep="interval 7 days"
)""",
    "DeltaOptimizeOperator": '(task_id="optimize", tables=["/lake/orders", "/lake/customers"])',
    "DeltaVacuumOperator": '(task_id="vacuum", tables=["/lake/orders"], config="pipelines.yaml")',
    "DeltaVerifyOperator": '(task_id="verify", pipeline="orders", target="/lake/orders_history")',
    "DeltaVersionSensor": (
        '(task_id="wait", table="/lake/orders", pipeline="orders", target="/lake/orders_history")'
    ),
    "DeltaWhyOperator": '(task_id="why", pipeline="orders", target="/lake/orders", key={"order_id": "17"})',
}
_PARAM = re.compile(r"^:param (\w+): (.*)$")
#: A line of text may begin with a role, such as ``:class:``; that is no field.
_FIELD = re.compile(r":(?:param|return|raises)\b")
#: What a docstring has for readers of the code; the page has the links to the options.
_SEE_OPTIONS = re.compile(r"\s*:data:`delta_cdc\.core\.options\.[A-Z]+`\s+documents\s+the\s+options\.")
_CODE = re.compile(r"^\.\. code-block:: python\n\n((?:(?: {4}.*)?\n)+)", re.M)


def classes() -> list[type]:
    """Return the public operators and sensors, and the base they share."""
    from airflow_delta_cdc import operators, sensors
    from airflow_delta_cdc.operators.base import DeltaCdcOperator

    public = [getattr(operators, name) for name in operators.__all__]
    return [*public, *(getattr(sensors, name) for name in sensors.__all__), DeltaCdcOperator]


def functions() -> list[tuple[str, Callable[..., Any]]]:
    """Return the public functions, each with the module from which users import it."""
    return [
        (home, getattr(import_module(home), name)) for home, names in _FUNCTIONS.items() for name in names
    ]


def parameters(described: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the own parameters of a function or constructor by name, without ``self`` and ``kwargs``."""
    code = described.__init__ if inspect.isclass(described) else described
    # Airflow wraps every operator's constructor.
    found = inspect.signature(inspect.unwrap(code)).parameters
    return {name: p for name, p in found.items() if name not in ("self", "kwargs")}


def described(cls: Callable[..., Any]) -> tuple[str, dict[str, str], list[str]]:
    """Return the docstring of a class or function as text, parameters by name, and errors."""
    text, fields = _divided(cls)
    params = {m[1]: m[2].strip() for m in map(_PARAM.match, fields) if m}
    raised = [line.removeprefix(":raises ").strip() for line in fields if line.startswith(":raises ")]
    options = _OPTIONS.get(cls.__name__, {})
    own = {name: _meaning(cls, options[name]) for name in parameters(cls) if name in options}
    groups = {
        name: f"{GROUPS[name]}{' (templated)' if inspect.isclass(cls) else ''}"
        for name in parameters(cls)
        if name in GROUPS
    }
    return text, own | groups | params, raised


def _divided(cls: Callable[..., Any]) -> tuple[str, list[str]]:
    text: list[str] = []
    fields: list[str] = []
    for line in (inspect.getdoc(cls) or "").splitlines():
        if _FIELD.match(line):
            fields.append(line)
        elif fields:
            fields[-1] += " " + line.strip()
        else:
            text.append(line)
    return "\n".join(text).strip(), fields


def _options(cls: Callable[..., Any]) -> dict[str, Option]:
    """Return the parameters of a function or class that are options and not described in its docstring."""
    written = {m[1] for m in map(_PARAM.match, _divided(cls)[1]) if m}
    options = _OPTIONS.get(cls.__name__, {})
    return {name: options[name] for name in parameters(cls) if name in options and name not in written}


def _shared(folder: str) -> dict[str, str]:
    """Return the parameters or arguments that several pages of a folder would repeat, with their meanings."""
    if folder == "commands":
        found = Counter(row for parser, _ in commands().values() for row in _arguments(parser))
    else:
        found = Counter(row for _, one in functions() for row in _own(one).items())
    # The most frequent meaning of a name comes last, and stays.
    return {
        name: meaning
        for (name, meaning), times in sorted(found.items(), key=lambda one: one[1])
        if times >= _SEVERAL and len(meaning.split()) >= _LONG
    }


def _own(cls: Callable[..., Any]) -> dict[str, str]:
    """Return the parameters that are no options, with their meanings in Markdown."""
    _, params, _ = described(cls)
    elsewhere = {*_options(cls), *(GROUPS if cls.__name__ in _OPTIONS else ()), "kwargs"}
    own = {name: meaning for name, meaning in params.items() if name not in elsewhere}
    for name in own:
        for stated in _STATED if cls in classes() else ():
            own[name] = own[name].replace(stated, "")
        if name in _AS_OPTION:
            own[name] = f"see {_link(name)}{' (templated)' if '(templated)' in own[name] else ''}"
    return {f"`{name}`": _markdown(meaning) for name, meaning in own.items()}


def _common(folder: str) -> str:
    """Return the section of an index page with what several pages of its folder would repeat."""
    rows = [f"- {name}: {meaning}" for name, meaning in sorted(_shared(folder).items())]
    return "\n".join([f"\n## {_SHARED[folder]}\n", *rows, ""])


def _meaning(cls: Callable[..., Any], option: Option) -> str:
    return f"{option.doc}{' (templated)' if option.templated and inspect.isclass(cls) else ''}"


def pages() -> dict[str, str]:
    """Return every page that this script writes, by its path in ``docs/reference/``."""
    made = {f"operators/{_file(cls)}": _page(cls, _home(cls)) for cls in classes()}
    made |= {f"functions/{one.__name__}.md": _page(one, home) for home, one in functions()}
    made |= {f"commands/{name}.md": _command(name, *found) for name, found in commands().items()}
    made["operators/index.md"] = _operators_index()
    made["functions/index.md"] = _functions_index()
    made["commands/index.md"] = _commands_index()
    made["options.md"] = options_page()
    return made


def pages_by_name() -> dict[str, str]:
    """Return the pages of operators, sensors and functions by their names in the code."""
    made = pages()
    found = {cls.__name__: made[f"operators/{_file(cls)}"] for cls in classes()}
    return found | {one.__name__: made[f"functions/{one.__name__}.md"] for _, one in functions()}


def _file(cls: type) -> str:
    return "common.md" if cls.__name__ == "DeltaCdcOperator" else f"{cls.__name__}.md"


def _index(title: str, intro: str, head: str, rows: list[tuple[str, str, str]]) -> str:
    """Return a page with a table of links: name, file and first sentence of each."""
    lines = [f"| [`{name}`]({file}) | {_markdown(first)} |" for name, file, first in rows]
    return "\n".join([f"# {title}\n", _MADE, f"\n{intro}\n", f"| {head} | |", "|---|---|", *lines, ""])


def _first(cls: Callable[..., Any]) -> str:
    """Return the first sentence of a docstring, on one line."""
    paragraph = " ".join(_divided(cls)[0].partition("\n\n")[0].split())
    return re.split(r"(?<=[^.]\.) ", paragraph)[0]


def _operators_index() -> str:
    rows = [(cls.__name__, _file(cls), _first(cls)) for cls in classes()[:-1]]
    rows.append(("Common to all operators", "common.md", "Parameters that every operator takes."))
    intro = (
        "Import operators from `airflow_delta_cdc.operators`, sensors from `airflow_delta_cdc.sensors`. "
        f"{_TEMPLATES}"
    )
    return _index("Operators and sensors", intro, "class", rows).replace(
        "[`Common to all operators`]", "[Common to all operators]"
    )


def _functions_index() -> str:
    rows = [(one.__name__, f"{one.__name__}.md", _first(one)) for _, one in functions()]
    intro = (
        "The functions of `delta_cdc` need PySpark and no Airflow. Those of `airflow_delta_cdc` belong in "
        "DAG files."
    )
    return _index("Functions", intro, "function", rows) + _common("functions")


def commands() -> dict[str, tuple[Parser, str]]:
    """Return the parser and the line in the help of each subcommand, by name."""
    from delta_cdc.cli import command_line

    found = command_line().commands
    assert found is not None
    return {name: (parser, _sentence(found.lines[name])) for name, parser in found.parsers.items()}


def _sentence(text: str) -> str:
    """Return a line of the help as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def _commands_index() -> str:
    rows = [(f"delta-cdc {name}", f"{name}.md", line) for name, (_, line) in commands().items()]
    intro = (
        "Exit codes: 0 success, 1 a finding (a named error, a pipeline that needs attention), 2 wrong usage. "
        f"[How to name tables in a command]({_HOW_TO_NAME}):\n\n"
        f"```text\n{_forms(_USAGE, 'COMMAND')}\n```"
    )
    return _index("Commands", intro, "command", rows) + _common("commands")


def _command(name: str, parser: Parser, line: str) -> str:
    shared = _shared("commands")
    own = [(shown, text) for shown, text in _arguments(parser) if shared.get(shown) != text]
    # A flag with the name of its option needs no line of its own.
    flags = [
        shown for shown, text in own if text == _link(shown.strip("`-").partition(" ")[0].replace("-", "_"))
    ]
    rows = [f"- {shown}: {text}" for shown, text in own if shown not in flags]
    also = [shown.split(", ")[0] for shown, text in _arguments(parser) if shared.get(shown) == text]
    lines = [f"# delta-cdc {name}\n", _MADE, f"\n{_text(line)}\n"]
    if parser.usage and parser.usage != _USAGE:
        lines.append(f"```text\n{_forms(parser.usage, name)}\n```\n")
    lines.append(f"{_text(parser.description or '')}\n")
    lines += [*rows, ""] if rows else []
    if flags:
        lines.append(f"[Options](../options.md) as flags: {', '.join(flags)}.\n")
    if also:
        lines.append(f"[Also](index.md#{_anchor('commands')}) {', '.join(also)}.\n")
    return "\n".join(lines)


def _forms(usage: str, name: str) -> str:
    """Return the forms of a command, one in a line."""
    return "\n".join(form.strip() for form in (usage % {"prog": f"delta-cdc {name}"}).splitlines())


def _arguments(parser: Parser) -> list[tuple[str, str]]:
    """Return the arguments of a command as a user writes them, with their meanings in Markdown."""
    options = {**READ, **INGEST, **APPLY}
    tables = (READ, INGEST, APPLY)
    homes = {_text(one.doc.replace("``", "")): name for table in tables for name, one in table.items()}
    found = []
    for action in parser.arguments:
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        value = "" if action.nargs == 0 else f" {_value(action)}"
        if action.option_strings:
            shown = ", ".join(f"`{flag}{value}`" for flag in action.option_strings)
        else:
            shown = f"`{_value(action)}`"
        text = _text((action.help or "") % {"default": action.default, "prog": parser.prog})
        option = options.get(action.dest)
        if option and text.startswith("default: ") and set(action.choices or ()) <= set(option.kind.choices):
            text = f"{_link(action.dest)}; {text}"
        for doc, name in homes.items():
            if text.startswith(doc):
                text = f"{_link(name)}{text.removeprefix(doc)}"
                break
        found.append((shown, text))
    return found


def _link(option: str) -> str:
    """Return a link to an option; on the site, it leads to the option's own page."""
    return f"[`{option}`](../options.md)"


def _anchor(folder: str) -> str:
    return _SHARED[folder].lower().replace(" ", "-")


def _value(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    metavar = action.metavar if isinstance(action.metavar, str) else choices
    return f"[{metavar} ...]" if action.nargs == "*" else metavar


def _text(text: str) -> str:
    """Return a text of the help as Markdown."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _page(cls: Callable[..., Any], home: str) -> str:
    text, _, raised = described(cls)
    common = cls.__name__ == "DeltaCdcOperator"
    like, _ = _LIKE.get(cls.__name__, ("", ()))
    if like and not inspect.isclass(cls):
        # What the operator does is on its page.
        text = text.partition("\n\n")[0]
    lines = [
        f"# {'Common to all operators' if common else cls.__name__}\n",
        _MADE,
        f"\n```python\nfrom {home} import {cls.__name__}{_example(cls)}\n```\n",
        _markdown(_SEE_OPTIONS.sub("", text)),
    ]
    note = _templated_note(cls)
    lines += [f"\n{note}"] if note else []
    own = _own_list(cls)
    lines += [*_option_lists(cls), *(row.replace(" *(templated)*", "") if note else row for row in own)]
    returned = [line.partition(":return: ")[2] for line in _divided(cls)[1] if line.startswith(":return:")]
    lines += [f"\nReturns: {_markdown(line)}" for line in returned]
    if raised:
        lines += ["\n## Errors\n", *_errors(raised)]
    if home.startswith("airflow_delta_cdc.op") and not common:
        lines.append("\nConnections and Spark: [common to all operators](common.md).")
    if home.startswith("airflow_delta_cdc.sens"):
        lines.append(
            "\nMore parameters (`timeout`, `mode`, `soft_fail`) are those of Airflow's `BaseSensorOperator`."
        )
    return "\n".join(lines) + "\n"


def _example(cls: Callable[..., Any]) -> str:
    """Return a use of an operator, for the block with its import; "" for others."""
    found = _EXAMPLES.get(cls.__name__)
    return f"\n\n{cls.__name__}{found}" if found else ""


def _templated_note(cls: Callable[..., Any]) -> str:
    """Return which parameters are templated, if most of them are; otherwise "", and the tables mark each."""
    _, params, _ = described(cls)
    templated = {name for name in parameters(cls) if "(templated)" in params[name]}
    fixed = [f"`{name}`" for name in parameters(cls) if name not in templated]
    if len(templated) < 2 * len(fixed) or not templated:
        return ""
    return f"All parameters are *templated*{', except ' if fixed else ''}{', '.join(fixed)}."


def _option_lists(cls: Callable[..., Any]) -> list[str]:
    """Return the parameters that are options, each with a phrase or a link to a page that has them."""
    options, signature = _options(cls), parameters(cls)
    if not options:
        return []
    like, same = _SAME_OPTIONS.get(cls.__name__, ("", {}))
    rows, others = [], []
    for name in options:
        default = _default(signature[name])
        required = signature[name].default is inspect.Parameter.empty
        noted = "" if default in ("`None`", "`False`") or required else f" ({default})"
        if name in same:
            others.append(f"`{name}`{' (required)' if required else ''}")
        else:
            rows.append(f"- {_link(name)}{' (required)' if required else noted}: {_PHRASES[name]}")
    groups = [
        f"[`{name}`](../options.md#{name})"
        for name in signature
        if name in GROUPS and in_group(_OPTIONS[cls.__name__], name)
    ]
    lines = []
    if rows:
        lines += ["\n[Options](../options.md), by default `None` or `False`:\n", *rows]
    if others:
        lines.append(f"\nOptions as in [`{like}`](../operators/{like}.md): {', '.join(others)}.")
    return [*lines, f"\nMappings of options: {', '.join(groups)}."] if groups else lines


def _own_list(cls: Callable[..., Any]) -> list[str]:
    """Return the parameters that are no options; those that another page describes have a link."""
    signature = parameters(cls)
    shared = {} if cls in classes() else _shared("functions")
    like, same = _LIKE.get(cls.__name__, ("", ()))
    rows = []
    elsewhere: dict[str, list[str]] = {}
    for name, meaning in _own(cls).items():
        default = _default(signature.get(name.strip("`")))
        shown = name if default == "`None`" else f"{name} ({default})"
        if cls.__name__ == "DeltaCdcOperator" and name.strip("`") in _OF_AIRFLOW:
            also = f"{shown} *(templated)*" if "*(templated)*" in meaning else shown
            elsewhere.setdefault("Airflow's `SparkSubmitOperator`", []).append(also)
        elif name.strip("`") in same:
            elsewhere.setdefault(f"[`{like}`](../operators/{like}.md)", []).append(shown)
        elif shared.get(name) == meaning:
            elsewhere.setdefault(f"[several functions](index.md#{_anchor('functions')})", []).append(shown)
        else:
            rows.append(f"- {shown}: {meaning}")
    links = [f"As in {where}: {', '.join(names)}." for where, names in elsewhere.items()]
    return [line for part in (rows, links) if part for line in ("", *part)]


def options_page() -> str:
    """Return the page with all options of applies, ingests and reads."""
    takers: Mapping[str, Mapping[str, Option]] = {"apply": APPLY, "ingest": INGEST, "read": READ}
    sections: dict[str, list[str]] = {group: [] for group in ("", *GROUPS)}
    for name in sorted(dict.fromkeys(name for options in takers.values() for name in options)):
        found = {taker: options[name] for taker, options in takers.items() if name in options}
        docs: dict[str, list[str]] = {}
        for taker, option in found.items():
            docs.setdefault(_markdown(option.doc), []).append(taker)
        if len(docs) == 1:
            meaning = next(iter(docs))
        else:
            meaning = " ".join(f"*{' and '.join(who).capitalize()}:* {doc}." for doc, who in docs.items())
        option = next(iter(found.values()))
        if option.key != name:
            meaning = f"Given as `{option.key}`. {meaning}"
        value = _markdown(option.kind.expects).removesuffix("; one that looks like a number needs quotes")
        if value.startswith("one of ") and all(f"`{word}`" in meaning for word in option.kind.choices):
            value = "word, mapping" if "mapping" in value else "word"
        if len(docs) == 1 and list(found) != ["apply", "ingest"]:
            meaning = f"*{'All' if len(found) == len(takers) else ', '.join(found).capitalize()}.* {meaning}"
        value = _SHORT.get(value, value.replace("a whole number >= ", "int ≥"))
        default = _defaults(found).removeprefix("`None`")
        sections[option.group].append(f"| `{name}` | {value} | {default} | {meaning} |")
    intro = (
        "Options of `apply_changes` and `DeltaApplyChangesOperator` (*apply*), of "
        "`DeltaIngestChangesOperator` (*ingest*), and of `read_changes` and `DeltaReadChangesOperator` "
        "(*read*). [`ingest_changes`](functions/ingest_changes.md) has those of an ingest, without those of "
        "the apply. Keys of a [configuration file](configuration.md) have the same names. Some options are "
        'keys of a mapping: `limits={"max_versions": 100}`. If its meaning begins with no kind, an option '
        "is one of applies and ingests. A *word* is one of those in the meaning. An empty default is "
        "`None`."
    )
    head = ["| option | value | default | meaning |", "|---|---|---|---|"]
    lines = ["# Options\n", _MADE, f"\n{intro}\n", "<!-- a page for each row: options -->\n"]
    for group, rows in sections.items():
        lines += [f"## {group or 'Arguments'}\n"]
        lines += [f"{_markdown(GROUPS[group])}:\n"] if group else []
        lines += [*head, *rows, ""]
    return "\n".join(lines)


def _defaults(found: Mapping[str, Option]) -> str:
    """Return the default of an option, or, if it differs, that of each taker."""
    defaults: dict[str, list[str]] = {}
    for taker, option in found.items():
        defaults.setdefault(f"`{option.default!r}`", []).append(taker)
    if len(defaults) == 1:
        return next(iter(defaults))
    return ", ".join(f"{text} ({' and '.join(who)})" for text, who in defaults.items())


def _home(cls: type) -> str:
    return cls.__module__ if cls.__name__ == "DeltaCdcOperator" else cls.__module__.rpartition(".")[0]


def _default(parameter: inspect.Parameter | None) -> str:
    """Return a default as code; empty if there is no default, or if it is taken from elsewhere."""
    if parameter is None:
        return ""
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return "optional"
    if parameter.default is inspect.Parameter.empty:
        return "required"
    value: Any = parameter.default
    return f"`{value!r}`"


def _errors(raised: list[str]) -> list[str]:
    """Return a line with links to the errors, and one for each meaning that the page of errors lacks."""
    found = [tuple(line.partition(": ")[::2]) for line in raised]
    named = {name: f"[`{name}`](../errors.md)" if hasattr(errors, name) else f"`{name}`" for name, _ in found}
    own = [f"- {named[name]}: {_markdown(meaning)}" for name, meaning in found if _is_own(name, meaning)]
    usual = ", ".join(named[name] for name, meaning in found if not _is_own(name, meaning))
    return [*own, *([f"- {usual}"] if usual else [])]


def _is_own(name: str, meaning: str) -> bool:
    """Return whether an error means something of its own here: a wrong argument, an error of Airflow."""
    return bool(meaning) and (name == "InvalidConfiguration" or not hasattr(errors, name))


def _markdown(text: str) -> str:

    text = re.sub(r":(?:class|func|meth|data|mod):`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`").replace("|", "\\|")
    text = _CODE.sub(lambda found: f"```py\n{dedent(found[1]).strip()}\n```\n\n", f"{text}\n").strip()
    text = re.sub(r"`docs/([\w/-]+)\.md`", _page_link, text)
    return text.replace("(templated)", "*(templated)*")


def _page_link(found: re.Match[str]) -> str:
    """Return a link to a page that a docstring names; these pages lie in ``reference/…/``."""
    page = FOLDER.parent / f"{found[1]}.md"
    title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}](../../{found[1]}.md)"


def stale() -> list[Path]:
    """Return the files in the written folders that no page has."""
    made = {FOLDER / path for path in pages()}
    return [path for name in WRITTEN for path in (FOLDER / name).glob("*") if path not in made]


if __name__ == "__main__":
    for path, page in pages().items():
        (FOLDER / path).parent.mkdir(exist_ok=True, parents=True)
        (FOLDER / path).write_text(page, encoding="utf-8")
    for file in stale():
        file.unlink()
