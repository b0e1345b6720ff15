"""The provider's Airflow plugin: macros for templates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol


def watermark(
    ti: RuntimeTaskInstanceProtocol,
    task_ids: str,
    *,
    dag_id: str | None = None,
    include_prior_dates: bool = True,
    map_index: int = -1,
) -> dict[str, Any] | None:
    """Return the watermark that an apply task published last, for use in templates.

    ``{{ macros.delta_cdc.watermark(ti, "apply")["version"] }}``. Airflow's own ``xcom_pull`` returns a list
    of all runs' values if ``include_prior_dates`` is set and no map index is given; this macro returns one.

    :param ti: the running task instance, ``ti`` in templates
    :param task_ids: id of the apply task, with its task groups
    :param dag_id: the DAG of that task; None is the running one
    :param include_prior_dates: take an earlier run's value if this run has none
    :param map_index: map index of a mapped task; -1 for a task that isn't mapped
    """
    pull = partial(
        ti.xcom_pull,
        task_ids=task_ids,
        dag_id=dag_id,
        include_prior_dates=include_prior_dates,
        map_indexes=map_index,
    )
    # The value of a @task.delta_changes is the function's own.
    published: dict[str, Any] | None = pull(key="watermark") or pull(key="return_value")
    return published


class DeltaCdcPlugin(AirflowPlugin):
    """Registers ``macros.delta_cdc``."""

    name = "delta_cdc"
    macros = [watermark]  # noqa: RUF012 - the base class declares it
