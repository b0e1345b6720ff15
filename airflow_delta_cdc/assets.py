"""Delta tables as Airflow assets: one place defines their names and URIs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from airflow.sdk import Asset, AssetAlias

from airflow_delta_cdc.arguments import expand, is_literal, is_template
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.partitions import partition_predicate as partition_predicate
from delta_cdc.core.partitions import partition_values as partition_values
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import BaseOperator

#: The group of all assets and aliases of this provider.
GROUP = "delta_cdc"
#: What the names of the aliases begin with: of pipelines, and of groups.
ALIAS_OF_PIPELINE = "delta_cdc:"
ALIAS_OF_GROUP = f"{ALIAS_OF_PIPELINE}group:"
#: Characters of a URI that stay as they are.
_SAFE = "/:@!$&'()*+,;=~-._"
#: What the URI of a watched asset ends with if its watcher has arguments.
_DIGEST = re.compile("%23[0-9a-f]{8}$")


def delta_asset(table: str) -> Asset:
    """Return the asset of a Delta table.

    Every spelling of a table (``s3a://`` or ``s3://``, with or without a trailing slash, as a path or as
    ``file://``) gives an asset with the same name and URI. The function replaces ``${ENV}`` with its value.

    :param table: path, URI, or ``catalog.schema.table`` name; literal or with ``${ENV}``, not Jinja
    :raises InvalidConfiguration: the table is a template, or a variable is not set
    """
    if is_template(table):
        raise InvalidConfiguration(
            f"Airflow needs the asset of {table!r} when it parses the DAG file, before it renders templates.",
            remedy="write the table without Jinja, or with ${ENVIRONMENT_VARIABLE}.",
        )
    uri = _uri(expand(table))
    return Asset(name=uri, uri=uri, group=GROUP)


def asset_of(table: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a Delta table, for hooks that report what they read and write (``x-delta``).

    :param table: see :func:`delta_asset`
    :param extra: kept with the asset
    """
    asset = delta_asset(table)
    return Asset(name=asset.name, uri=asset.uri, group=GROUP, extra=extra or {})


def location_of(asset: Asset) -> str:
    """Return the location or the name of the table that an asset of this module is about."""
    scheme, _, location = asset.uri.partition(":")
    return unquote(_DIGEST.sub("", location) if scheme == "x-delta-watch" else location)


def partitions_asset(table: str) -> Asset:
    """Return the asset of a Delta table's partitions, for DAGs that run once for each changed partition.

    .. code-block:: python

        schedule = PartitionedAssetTimetable(assets=partitions_asset(ORDERS))
        with DAG("orders_by_day", schedule=schedule):
            ...

    From Airflow 3.3 on, each task that applies changes to the table adds one event for each partition that it
    changed, if a DAG uses the asset. The key of the partition is in ``dag_run.partition_key``, such as
    ``country=DE/day=2026-11-28``; :func:`partition_values` and :func:`partition_predicate` read it. If more
    than 100 partitions changed, there is one event with the key ``all``.

    The asset is not the one of :func:`delta_asset`, whose event is of the whole table: a DAG that waits for
    the table gets one event for a run, however many partitions it changed.

    :param table: see :func:`delta_asset`
    :raises InvalidConfiguration: the table is a template, or a variable is not set
    """
    name = f"partitions:{delta_asset(table).name}"
    return Asset(name=name, uri=f"x-delta-{quoted(name)}", group=GROUP)


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Return the alias by which a pipeline adds events of its tables: ``delta_cdc:<pipeline>``."""
    return AssetAlias(f"{ALIAS_OF_PIPELINE}{pipeline}", group=GROUP)


def written_assets(tables: Iterable[Any]) -> list[Asset]:
    """Return the assets of tables that a task writes; a templated table, and None, have none.

    As outlets they tell Airflow which task produces them. The task drops them before it runs
    (``producing`` of the operators), because Airflow would make an event for each of them.
    """
    return [delta_asset(table) for table in dict.fromkeys(filter(is_literal, tables))]


def declare_assets(
    operator: BaseOperator, source: Any, pipeline: Any = None, *, written: Iterable[Any] = ()
) -> list[Asset]:
    """Add the asset of a source to a task's inlets; to its outlets, the alias of a pipeline and its tables.

    A templated table has no asset, and a templated pipeline no alias.

    :param written: tables that the task writes
    :return: the outlets of :func:`written_assets` that are new; what a user gives as an outlet gets an event
        with each success
    """
    if is_literal(source):
        operator.add_inlets([delta_asset(source)])
    if not pipeline or is_template(pipeline):
        return []
    producing = [asset for asset in written_assets(written) if asset not in operator.outlets]
    operator.add_outlets([pipeline_alias(pipeline), *producing])
    return producing


def group_asset(group: str) -> Asset:
    """Return the asset of a group, whose events contain the versions of all its targets.

    ``event.extra["tables"]`` is ``{pipeline: {target, target_version, version, seals, table_id}}``.

    :param group: the group's ``dag_id``
    """
    uri = f"x-delta-cdc-group://{quoted(group)}"
    return Asset(name=f"{ALIAS_OF_GROUP}{group}", uri=uri, group=GROUP)


def group_alias(group: str) -> AssetAlias:
    """Return the alias by which a group adds events of :func:`group_asset`: ``delta_cdc:group:<dag_id>``."""
    return AssetAlias(f"{ALIAS_OF_GROUP}{group}", group=GROUP)


def _uri(table: str) -> str:
    try:
        location = canonical_uri(table)
    except TableNameUnresolved:
        return f"x-delta://{_encoded(table.strip().lower())}"
    return _encoded(location if "://" in location else f"file://{location}")


def _encoded(location: str) -> str:
    """Percent-encode a location: of different ones, the results differ, because % is encoded, too."""
    return quote(location, safe=_SAFE)


def quoted(uri: str) -> str:
    """Percent-encode the characters that a URI may not contain (databases store asset URIs as ASCII).

    :param uri: it may have encoded parts, which stay
    """
    return quote(uri, safe=f"{_SAFE}%")
