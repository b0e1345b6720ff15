"""Names and URIs of Delta tables as Airflow assets: one factory, so that they never disagree."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from airflow_delta_cdc.arguments import expand, is_template
from delta_cdc.errors import InvalidConfiguration, TableNameUnresolved

if TYPE_CHECKING:
    from typing import Any


def delta_asset(table: str) -> Asset:
    """Return the asset of a Delta table.

    The same table always gives the same name and URI, however it is written (``s3a://`` or ``s3://``,
    with or without a trailing slash, as a path or as ``file://``). ``${ENV}`` is filled in.

    :param table: path, URI, or ``catalog.schema.table`` name; literal or with ``${ENV}``, not Jinja
    :raises InvalidConfiguration: for a template, or a variable that is not set
    """
    if is_template(table):
        raise InvalidConfiguration(
            f"The asset of {table!r} is needed when the DAG file is parsed, before templates are filled in.",
            remedy="write the table literally, or with ${ENVIRONMENT_VARIABLE}.",
        )
    uri = _uri(expand(table))
    return Asset(name=uri, uri=uri)


def watched_asset(table: str, **arguments: Any) -> Asset:
    """Return an asset whose watcher makes an event whenever the table has new commits that change data.

    .. code-block:: python

        with DAG("orders_current", schedule=[watched_asset(ORDERS)]): ...

    It is not the asset of :func:`delta_asset`: that one is named by every task that reads or writes the
    table, and Airflow drops the watcher of an asset as soon as it parses a DAG that names the asset without
    it. For the same reason different arguments give different assets; the same arguments, in whatever DAG,
    share one asset and one watcher.

    :param table: path or URI; literal or with ``${ENV}``, not Jinja
    :param arguments: of :class:`~airflow_delta_cdc.triggers.DeltaVersionTrigger`, but for ``asset_name``
    :raises InvalidConfiguration: for a template, or a variable that is not set
    :raises TableNameUnresolved: for a catalog name
    """
    from airflow.sdk import AssetWatcher

    from airflow_delta_cdc.triggers import DeltaVersionTrigger
    from delta_cdc.log import canonical_uri

    name = f"watch:{delta_asset(table).name}"
    if arguments:
        text = json.dumps(arguments, sort_keys=True, default=str)
        name = f"{name}#{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    # One spelling, because the trigger's arguments have to be the same wherever the asset is made.
    trigger = DeltaVersionTrigger(table=canonical_uri(expand(table)), asset_name=name, **arguments)
    uri = f"x-delta-{_quoted(name)}"
    return Asset(name=name, uri=uri, watchers=[AssetWatcher(name=name, trigger=trigger)])


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Return the alias under which a pipeline announces what it applied: ``delta_cdc:<pipeline>``."""
    return AssetAlias(f"delta_cdc:{pipeline}")


def group_asset(group: str) -> Asset:
    """Return the asset of a group: its events hold the versions of all its targets that go together.

    ``event.extra["tables"]`` is ``{pipeline: {target, target_version, version}}``.

    :param group: name of the group
    """
    return Asset(name=f"delta_cdc:group:{group}", uri=f"x-delta-cdc-group://{_quoted(group)}")


def group_alias(group: str) -> AssetAlias:
    """Return the alias under which a group announces its :func:`group_asset`: ``delta_cdc:group:<name>``."""
    return AssetAlias(f"delta_cdc:group:{group}")


def _uri(table: str) -> str:
    from delta_cdc.log import canonical_uri

    try:
        location = canonical_uri(table)
    except TableNameUnresolved:
        return f"x-delta://{_quoted(table.strip().lower())}"
    return _quoted(location if "://" in location else f"file://{location}")


def _quoted(path: str) -> str:
    """Percent-encode what a URI may not hold (metadata databases store asset URIs as ASCII)."""
    return quote(path, safe="/:@%!$&'()*+,;=~-._")
