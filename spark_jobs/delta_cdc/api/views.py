"""Readers of what a group published: views for Spark, and tables for DuckDB, Polars and others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, PublicationUnreadable
from delta_cdc.core.publication import GROUP_HASH, GROUP_PROPERTY, Publication, hash_of_group
from delta_cdc.core.sql import table
from delta_cdc.core.uris import canonical_uri, is_name
from delta_cdc.run.publication import published, views_manifest, write_views

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession


def create_views(
    spark: SparkSession,
    manifest: str,
    schema: str,
    *,
    keep: int = 2,
    storage_options: Mapping[str, str] | None = None,
) -> Publication:
    """Make a schema with a view of each target, as of the versions that the newest publish of a group named.

    No catalog replaces many views at once. So each publish gets a schema of its own, ``<schema>_<number>``.
    Once all its views exist, the call names it, for readers, in a file that it replaces as a whole:
    ``sales.views.json`` for the manifest ``sales.json``. A repeated call does nothing, unless the schema was
    dropped. A call that ends after that of a later publish leaves the later one named.

    The view of a pipeline has its name, with ``_`` for each character that is no letter, digit or ``_``.

    :param spark: a session with Delta's extension and catalog
    :param manifest: path or URI of the group's manifest
    :param schema: what the names of the schemas begin with: ``schema`` or ``catalog.schema``
    :param keep: number of schemas that stay, this one included, for queries that are running; the call drops
        older ones of the group
    :param storage_options: options of the object store for reading and writing the manifests without Spark
    :return: the publish that is named; ``views`` is its schema, and ``tables[pipeline].view`` a view
    :raises PublicationUnreadable: there is no manifest, or the file is another one
    :raises InvalidConfiguration: ``keep`` is less than 1, or two pipelines would have the same view
    """
    if keep < 1:
        raise InvalidConfiguration("keep is less than 1.", remedy="give the number of schemas that stay.")
    publication = published(manifest, storage_options=storage_options).with_views(schema)
    try:
        named = published(views_manifest(manifest), storage_options=storage_options)
    except PublicationUnreadable:
        named = None
    is_named = named is not None and named.views == publication.views
    if is_named and named is not None and spark.catalog.databaseExists(named.views):
        return named
    for statement in publication.statements(schema):
        spark.sql(statement)
    shown = write_views(manifest, publication, storage_options)
    for old in _old(spark, shown, schema, keep):
        spark.sql(f"DROP SCHEMA {table(old)} CASCADE")
    return shown


def _old(spark: SparkSession, publication: Publication, schema: str, keep: int) -> Iterator[str]:
    """Yield the schemas of earlier publishes of the group, without those that stay."""
    catalog, _, base = schema.rpartition(".")
    within = f" IN {table(catalog)}" if catalog else ""
    pattern = re.compile(rf"{re.escape(base)}_([0-9]+)", re.IGNORECASE)
    numbers = []
    for row in spark.sql(f"SHOW SCHEMAS{within}").collect():
        match = pattern.fullmatch(row[0])
        if match is not None and int(match[1]) < publication.number:
            numbers.append(int(match[1]))
    marks = (
        f"({GROUP_HASH},{hash_of_group(publication.group)})",
        # Those of an earlier release.
        f"({GROUP_PROPERTY},{publication.group})",
    )
    for number in sorted(numbers, reverse=True)[keep - 1 :]:
        name = f"{schema}_{number}"
        described = spark.sql(f"DESCRIBE SCHEMA EXTENDED {table(name)}").collect()
        # Another schema may have such a name.
        if any(mark in str(row[1]) for row in described for mark in marks):
            yield name


@dataclass(frozen=True)
class PublishedTables:
    """The targets of a group, as of the versions of one publish.

    :param publication: what the publish named
    :param storage_options: options of the object store
    """

    publication: Publication
    storage_options: dict[str, str] | None = None

    def names(self) -> tuple[str, ...]:
        """Return the pipelines, sorted."""
        return tuple(sorted(self.publication.tables))

    def delta_table(self, pipeline: str) -> Any:
        """Return a target as a ``deltalake.DeltaTable`` at its version. Needs the package ``deltalake``.

        Polars reads it: ``polars.scan_delta(tables.delta_table("orders"))``.

        :raises InvalidConfiguration: the publish names no such pipeline, or its target by a catalog name
        """
        from deltalake import DeltaTable

        one = self.publication.table(pipeline)
        if is_name(one.target):
            raise InvalidConfiguration(
                f"The target of {pipeline} is {one.target}, a name in Spark's catalog.",
                remedy="read its view with Spark, or name the target by its location.",
            )
        location = canonical_uri(one.target)
        return DeltaTable(location, version=one.target_version, storage_options=self.storage_options)

    def arrow(self, pipeline: str, query: str = "") -> Any:
        """Return rows of a target as a ``pyarrow.Table``, without those that deletion vectors mask.

        DuckDB reads it: ``connection.register("orders", tables.arrow("orders"))``.

        :param query: SQL of DataFusion, in which the target has the name ``target``; "" returns all rows
        """
        import pyarrow as pa  # type: ignore[import-untyped]
        from deltalake import QueryBuilder

        builder = QueryBuilder().register("target", self.delta_table(pipeline))
        return pa.table(builder.execute(query or "SELECT * FROM target").read_all())


def read_published(manifest: str, *, storage_options: Mapping[str, str] | None = None) -> PublishedTables:
    """Return the targets of a group as of the versions that its newest publish named.

    The versions of the result do not change: read the manifest again for those of a later publish.

    :param manifest: path or URI of the group's manifest
    :param storage_options: options of the object store, for the manifest and the tables
    :raises PublicationUnreadable: there is no manifest, or the file is another one
    """
    options = dict(storage_options) if storage_options else None
    return PublishedTables(published(manifest, storage_options=options), options)
