"""Files that a task names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.variables import expand

if TYPE_CHECKING:
    from airflow.sdk import Context


def beside_dag(context: Context, path: str) -> str:
    """Return where a file or folder is that a task names: a relative path counts from the DAG's file.

    :param path: ``${ENV}`` allowed
    :raises InvalidConfiguration: an environment variable is not set
    """
    return str(Path(context["dag"].fileloc).parent / expand(path.strip()))
