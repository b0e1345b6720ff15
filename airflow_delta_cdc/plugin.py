"""The provider's Airflow plugin: macros for templates, and the page "Delta CDC"."""

from __future__ import annotations

from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from airflow_delta_cdc import __version__
from airflow_delta_cdc.page import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
    pull = partial(ti.xcom_pull, task_ids=task_ids, dag_id=dag_id, map_indexes=map_index)
    # This run first, whatever the key: an older run may have another one.
    for prior in (False, True) if include_prior_dates else (False,):
        # The value of a @task.delta_changes is the function's own.
        for key in ("watermark", "return_value"):
            published: dict[str, Any] | None = pull(key=key, include_prior_dates=prior)
            if published:
                return published
    return None


async def page(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer a request for the page, as an ASGI application.

    Every process of Airflow imports this module, and only API servers serve pages: the routes are imported
    at the first request.
    """
    await resolve_name("airflow_delta_cdc.page.app:app")(scope, receive, send)


def _place(destination: str, url_route: str) -> dict[str, Any]:
    """Return one place of Airflow's UI where the page appears; the module looks where it is."""
    return {
        # The UI finds the component by this name, also where one module serves several places.
        "name": "Delta CDC",
        # Relative, so that it also works where Airflow lies below a path.
        "bundle_url": f"delta-cdc/page.js?version={__version__}",
        "icon": f"delta-cdc/logo.svg?version={__version__}",
        "destination": destination,
        "url_route": url_route,
    }


class DeltaCdcPlugin(AirflowPlugin):
    """Registers ``macros.delta_cdc``, the page, and the listener that publishes its errors."""

    name = "delta_cdc"
    macros = [watermark]  # noqa: RUF012 - the base class declares it
    fastapi_apps = [{"app": page, "url_prefix": "/delta-cdc", "name": "Delta CDC"}]  # noqa: RUF012
    react_apps = [  # noqa: RUF012
        {**_place("nav", "delta-cdc"), "nav_top_level": True},
        _place("dag", "delta-cdc-dag"),
        _place("task_instance", "delta-cdc-task"),
    ]
    listeners = [errors]  # noqa: RUF012
