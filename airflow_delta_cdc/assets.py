"""Delta tables as Airflow assets: one place defines their names and URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from airflow_delta_cdc.arguments import expand, is_literal, is_template
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: What the names of the aliases begin with: of pipelines, and of groups.
ALIAS_OF_PIPELINE = "delta_cdc:"
ALIAS_OF_GROUP = f"{ALIAS_OF_PIPELINE}group:"


def delta_asset(table: str) -> Asset:
    """Return the asset of a Delta table.

    A table has the same name and URI in every spelling (``s3a://`` or ``s3://``, with or without a trailing
    slash, as a path or as ``file://``). ``${ENV}`` is replaced by its value.

    :param table: path, URI, or ``catalog.schema.table`` name; literal or with ``${ENV}``, not Jinja
    :raises InvalidConfiguration: the table is a template, or a variable is not set
    """
    if is_template(table):
        raise InvalidConfiguration(
            f"The asset of {table!r} is needed when the DAG file is parsed, before templates are filled in.",
            remedy="write the table literally, or with ${ENVIRONMENT_VARIABLE}.",
        )
    uri = _uri(expand(table))
    return Asset(name=uri, uri=uri)


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Return the alias by which a pipeline adds events of its tables: ``delta_cdc:<pipeline>``."""
    return AssetAlias(f"{ALIAS_OF_PIPELINE}{pipeline}")


def declare_assets(operator: BaseOperator, source: Any, pipeline: Any = None) -> None:
    """Add the asset of a source to a task's inlets, and the alias of a pipeline to its outlets.

    A templated table has no asset, and a templated pipeline no alias.
    """
    if is_literal(source):
        operator.add_inlets([delta_asset(source)])
    if pipeline and not is_template(pipeline):
        operator.add_outlets([pipeline_alias(pipeline)])


def group_asset(group: str) -> Asset:
    """Return the asset of a group, whose events hold the versions of all its targets.

    ``event.extra["tables"]`` is ``{pipeline: {target, target_version, version}}``.

    :param group: name of the group
    """
    return Asset(name=f"{ALIAS_OF_GROUP}{group}", uri=f"x-delta-cdc-group://{quoted(group)}")


def group_alias(group: str) -> AssetAlias:
    """Return the alias by which a group adds events of :func:`group_asset`: ``delta_cdc:group:<name>``."""
    return AssetAlias(f"{ALIAS_OF_GROUP}{group}")


def _uri(table: str) -> str:
    try:
        location = canonical_uri(table)
    except TableNameUnresolved:
        return f"x-delta://{quoted(table.strip().lower())}"
    return quoted(location if "://" in location else f"file://{location}")


def quoted(path: str) -> str:
    """Percent-encode the characters that a URI may not contain (databases store asset URIs as ASCII)."""
    return quote(path, safe="/:@%!$&'()*+,;=~-._")
