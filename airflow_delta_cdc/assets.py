"""Delta tables as Airflow assets: one place defines their names and URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from airflow_delta_cdc.arguments import expand, is_literal, is_template
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import BaseOperator

#: The group of all assets and aliases of this provider.
GROUP = "delta_cdc"
#: What the names of the aliases begin with: of pipelines, and of groups.
ALIAS_OF_PIPELINE = "delta_cdc:"
ALIAS_OF_GROUP = f"{ALIAS_OF_PIPELINE}group:"


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

    ``event.extra["tables"]`` is ``{pipeline: {target, target_version, version, seals}}``.

    :param group: name of the group
    """
    uri = f"x-delta-cdc-group://{quoted(group)}"
    return Asset(name=f"{ALIAS_OF_GROUP}{group}", uri=uri, group=GROUP)


def group_alias(group: str) -> AssetAlias:
    """Return the alias by which a group adds events of :func:`group_asset`: ``delta_cdc:group:<name>``."""
    return AssetAlias(f"{ALIAS_OF_GROUP}{group}", group=GROUP)


def _uri(table: str) -> str:
    try:
        location = canonical_uri(table)
    except TableNameUnresolved:
        return f"x-delta://{quoted(table.strip().lower())}"
    return quoted(location if "://" in location else f"file://{location}")


def quoted(path: str) -> str:
    """Percent-encode the characters that a URI may not contain (databases store asset URIs as ASCII)."""
    return quote(path, safe="/:@%!$&'()*+,;=~-._")
