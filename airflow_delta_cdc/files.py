"""Read the configuration file of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import is_template
from airflow_delta_cdc.failures import unrendered
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import BaseOperator, Context

    from delta_cdc.config import Configuration, Table
    from delta_cdc.planning.consumers import Consumer


def configuration(context: Context, path: str) -> Configuration:
    """Read a configuration that a task names. The templates of its tables are not filled in: those of one
    table may fail in this task, which may not need the table.

    :param path: path of a file or folder, relative to the folder of the DAG's file. ``${ENV}`` allowed
    :raises InvalidConfiguration: names every problem of the configuration
    """
    return engine.load_configuration(str(Path(context["dag"].fileloc).parent / expand(path.strip())))


def rendered(operator: BaseOperator, context: Context, table: Table) -> dict[str, Any]:
    """Return the arguments of a table, with the templates filled in.

    :param operator: renders the templates
    :raises InvalidConfiguration: the templates cannot be rendered in this task
    """
    return _rendered(operator, context, table.pipeline, table.arguments)


def consumers(operator: BaseOperator, context: Context, tables: Configuration) -> list[Consumer]:
    """Return the pipelines of a configuration as consumers, with the templates of their tables filled in.

    A consumer whose templates cannot be rendered in this task has the error.
    """
    return [_consumer(operator, context, one) for one in tables.consumers()]


def _consumer(operator: BaseOperator, context: Context, one: Consumer) -> Consumer:
    written: dict[str, Any] = {"source": one.source, "target": one.target}
    templated = tuple(name for name, text in written.items() if is_template(text))
    one = replace(one, templated=templated)
    # One by one: if only the target fails, the source still shows which table it reads.
    for name in templated:
        try:
            one = replace(one, **_rendered(operator, context, one.pipeline, {name: written[name]}))
        except DeltaCdcError as error:
            one = replace(one, error=error, source=None if name == "source" else one.source)
    return one


def _rendered(
    operator: BaseOperator, context: Context, pipeline: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return dict(operator.render_template(dict(given), context))
    except Exception as error:
        then = (
            "Then clear the task. If only the pipeline's own DAG has the values, use a variable of Airflow."
        )
        raise unrendered(pipeline, error, then) from error
