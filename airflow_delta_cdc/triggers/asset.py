"""An asset with a watcher: DAGs that it schedules wake up whenever a Delta table has new commits."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from airflow.sdk import Asset, AssetWatcher

from airflow_delta_cdc.arguments import expand
from airflow_delta_cdc.assets import delta_asset, quoted
from airflow_delta_cdc.triggers.base import interval_of
from airflow_delta_cdc.triggers.version import DeltaVersionTrigger
from delta_cdc.core.uris import canonical_uri


def watched_asset(table: str, **arguments: Any) -> Asset:
    """Return an asset whose watcher makes an event whenever the table has new commits that change data.

    .. code-block:: python

        with DAG("orders_current", schedule=[watched_asset(ORDERS)]):
            ...

    Calls with equal arguments, in any DAG, share one asset and one watcher. Calls with different arguments
    return different assets.

    The asset is not the one of :func:`delta_asset`, which has no watcher, and which tasks that read or write
    the table have as inlet or outlet. If both had the same name, Airflow would remove the watcher when it
    parses the DAGs of these tasks.

    :param table: path or URI; literal or with ``${ENV}``, not Jinja
    :param arguments: arguments of :class:`~airflow_delta_cdc.triggers.DeltaVersionTrigger`, except
        ``asset_name``
    :raises InvalidConfiguration: the table is a template, or a variable is not set
    :raises TableNameUnresolved: the table is a catalog name
    """

    name = f"watch:{delta_asset(table).name}"
    if arguments.get("poll_interval") is not None:
        arguments["poll_interval"] = interval_of(arguments["poll_interval"])
    if arguments:
        text = json.dumps(arguments, sort_keys=True, default=str)
        name = f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    # Normalize the location: the trigger's arguments have to be equal in all DAGs that use the asset.
    trigger = DeltaVersionTrigger(table=canonical_uri(expand(table)), asset_name=name, **arguments)
    uri = f"x-delta-{quoted(name)}"
    return Asset(name=name, uri=uri, watchers=[AssetWatcher(name=name, trigger=trigger)])
