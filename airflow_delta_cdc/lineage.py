"""OpenLineage: the tables that a task reads and writes, with versions, rows and columns.

Only Airflow's OpenLineage provider calls this, so its packages are imported in functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_delta_cdc import engine
from airflow_delta_cdc.assets import location_of
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError, TableNameUnresolved
from delta_cdc.core.sql import quote
from delta_cdc.core.topics import is_topics
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset

#: Counts of rows that are in the written table afterwards.
_WRITTEN = ("inserted", "updated", "events")
_ALIAS = "delta_cdc_source"


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One movement of rows: an ingest, an apply or a read.

    :param source: path, URI, topics or catalog name, as the user wrote it
    :param reads_table: False for files and topics
    :param source_location: the location of the source, if known
    :param source_version: the newest version that was read
    :param target: the written table, as the user wrote it
    :param target_location: its location, if known
    :param target_version: the version that was written
    :param rows: rows written; None if nothing was written
    :param size: bytes written
    :param select: projections from the source
    """

    source: str
    target: str
    reads_table: bool = True
    source_location: str | None = None
    source_version: int | None = None
    target_location: str | None = None
    target_version: int | None = None
    rows: int | None = None
    size: int | None = None
    select: Sequence[str] = ()


def facets(given: Mapping[str, Any], published: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
    """Return the lineage of a task.

    :param given: arguments of its table: options of an apply, an ingest or a read
    :param published: what it published; None before its end, or if it failed
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    flows = list(_flows(given, published or {}))
    return OperatorLineage(
        inputs=[dataset for flow in flows for dataset in _inputs(flow)],
        outputs=[dataset for flow in flows for dataset in _outputs(flow)],
        run_facets=_run_facets(published) if published else {},
    )


def dataset_of(asset: Asset, lineage_context: Any) -> Any:
    """Return the dataset of a table whose partitions, or whose commits, an asset is about.

    :return: the same dataset as that of the table in :func:`facets`; None if its location is not known
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset

    names, _ = _names(location_of(asset), None)
    return Dataset(namespace=names[0][0], name=names[0][1]) if names else None


# -- what moved -----------------------------------------------------------------------------------
def _flows(given: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[Flow]:
    if arguments.is_given(given.get("table")):
        wrote = bool(published.get("applied"))
        yield Flow(
            source=given["table"],
            source_location=published.get("source_table"),
            source_version=published.get("ending_version"),
            target=given["staging"],
            target_location=published.get("staging"),
            target_version=published.get("staging_version") if wrote else None,
            rows=published.get("rows") if wrote else None,
            size=published.get("bytes_written") if wrote else None,
            select=arguments.projections("select", given.get("select")),
        )
        return
    has_target = arguments.is_given(given.get("target"))
    source = given["source"]
    if engine.is_ingested(given):
        ingested = published.get("ingested") if has_target else published
        ingested = ingested or {}
        wrote = bool(ingested.get("applied"))
        yield Flow(
            source=source,
            target=given["log"],
            reads_table=False,
            target_location=ingested.get("log_table"),
            target_version=ingested.get("log_version") if wrote else None,
            **_written(ingested),
        )
        source = given["log"]
    if has_target:
        wrote = bool(published.get("applied"))
        yield Flow(
            source=source,
            source_location=published.get("source_table"),
            source_version=published.get("ending_version"),
            target=given["target"],
            target_location=published.get("target_table"),
            target_version=published.get("target_version") if wrote else None,
            select=arguments.projections("select", given.get("select")),
            **_written(published),
        )


def _written(published: Mapping[str, Any]) -> dict[str, Any]:
    if not published.get("applied"):
        return {}
    counts = published["counts"]
    return {"rows": sum(counts.get(name, 0) for name in _WRITTEN), "size": published["bytes_written"]}


# -- datasets -------------------------------------------------------------------------------------
def _names(table: str, location: str | None) -> tuple[list[tuple[str, str]], str | None]:
    """Return namespace and name of each dataset that a table, folder or list of topics stands for, as Spark's
    integration names them, and the catalog name if the table has one.

    A catalog name whose location is unknown has no dataset.
    """
    try:
        text = expand(table).strip()
        if is_topics(text):
            parts = urlsplit(text)
            namespace = f"kafka://{parts.netloc.split(',')[0]}"
            return [(namespace, topic) for topic in parts.path[1:].split(",")], None
        uri, catalog_name = _located(text, location)
    except DeltaCdcError:
        # The location is not known yet, or the task fails with this error itself.
        return [], None
    if "://" not in uri:
        return [("file", uri)], catalog_name
    parts = urlsplit(uri)
    return [(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))], catalog_name


def _located(table: str, location: str | None) -> tuple[str, str | None]:
    """Return the location of a table, and its catalog name if it was given by name.

    :raises TableNameUnresolved: the location of a catalog name is unknown
    """
    try:
        return canonical_uri(table), None
    except TableNameUnresolved:
        if location is None:
            raise
        return location, table


def _dataset_facets(
    catalog_name: str | None, version: int | None, *, is_table: bool = True
) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, storage_dataset, symlinks_dataset

    found: dict[str, Any] = {}
    if is_table:
        found["storage"] = storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet")
    if version is not None:
        found["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version))
    if catalog_name is not None:
        identifier = symlinks_dataset.Identifier(namespace="spark", name=catalog_name, type="TABLE")
        found["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])
    return found


def _inputs(flow: Flow) -> list[Any]:
    from openlineage.client.event_v2 import InputDataset

    names, catalog_name = _names(flow.source, flow.source_location)
    own = _dataset_facets(catalog_name, flow.source_version, is_table=flow.reads_table)
    return [InputDataset(namespace=namespace, name=name, facets=own) for namespace, name in names]


def _outputs(flow: Flow) -> list[Any]:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    names, catalog_name = _names(flow.target, flow.target_location)
    own = _dataset_facets(catalog_name, flow.target_version)
    columns = _column_lineage(flow)
    if columns is not None:
        own["columnLineage"] = columns
    wrote: dict[str, Any] = {}
    if flow.rows is not None:
        wrote["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=flow.rows, size=flow.size
        )
    return [
        OutputDataset(namespace=namespace, name=name, facets=own, outputFacets=wrote)
        for namespace, name in names
    ]


# -- columns --------------------------------------------------------------------------------------
def _column_lineage(flow: Flow) -> Any:
    """Return which columns of the source each projection reads; None where ``select`` does not tell."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage
    from openlineage_sql import parse

    names, _ = _names(flow.source, flow.source_location)
    projections = [text for text in flow.select if text.strip() != "*"]
    if not names or not projections:
        return None
    namespace, name = names[0]
    fields = {}
    for projection in projections:
        sql = f"INSERT INTO delta_cdc_target SELECT {projection} FROM {quote(_ALIAS)}"
        parsed = parse([sql], "databricks")
        for column in parsed.column_lineage if parsed is not None and not parsed.errors else ():
            # `a.b` is the leaf b of the struct a, which the parser takes for a table.
            read = [
                one.name if one.origin is None or one.origin.name == _ALIAS else one.origin.name
                for one in column.lineage
            ]
            is_same = projection.strip().strip("`") == column.descendant.name
            how = lineage.Transformation(type="DIRECT", subtype="IDENTITY" if is_same else "TRANSFORMATION")
            fields[column.descendant.name] = lineage.Fields(
                inputFields=[
                    lineage.InputField(namespace=namespace, name=name, field=field, transformations=[how])
                    for field in dict.fromkeys(read)
                ]
            )
    return lineage.ColumnLineageDatasetFacet(fields=fields) if fields else None


# -- the run --------------------------------------------------------------------------------------
def _run_facets(published: Mapping[str, Any]) -> dict[str, Any]:
    """Return a facet with pipeline, range and counts of the run."""
    from openlineage.client.facet_v2 import RunFacet

    names = ("pipeline", "starting_version", "ending_version", "counts", "lag", "seconds", "attempts_lost")
    known = {name: published[name] for name in names if published.get(name) is not None}
    return {"delta_cdc": RunFacet().with_additional_properties(**known)}
