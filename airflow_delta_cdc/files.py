"""Read the configuration file of a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from delta_cdc.config import Configuration, Table


def configuration(operator: BaseOperator, context: Context, path: str) -> Configuration:
    """Read a configuration that a task names, and fill in the templates of its tables.

    :param operator: renders the templates
    :param path: path of a file or folder, relative to the folder of the DAG's file. ``${ENV}`` allowed
    :raises InvalidConfiguration: names every problem of the configuration
    """

    def rendered(table: Table) -> Table:
        return replace(table, arguments=operator.render_template(table.arguments, context))

    parsed = engine.load_configuration(str(Path(context["dag"].fileloc).parent / expand(path.strip())))
    groups = (
        replace(group, tables=tuple(rendered(table) for table in group.tables)) for group in parsed.groups
    )
    return replace(parsed, groups=tuple(groups))
