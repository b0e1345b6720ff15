"""What one publish of a group named: a version of each of its targets, which belong together."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import InvalidConfiguration, PublicationUnreadable
from delta_cdc.core.sql import quote, string, table
from delta_cdc.core.storage_options import hadoop_uri
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: The version of the manifest's JSON. A reader refuses unknown ones.
FORMAT = 1
#: The properties of a schema of views: the group, and its hash. Only such schemas are dropped. Spark hides
#: the value of a property that may be a secret or an address, such as the group url_events.
GROUP_PROPERTY, GROUP_HASH = "delta_cdc.group", "delta_cdc.groupHash"
#: What Spark's session catalog refuses in the name of a view.
_NOT_IN_NAMES = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True)
class PinnedTable:
    """One target, as of the version that a publish named.

    :param target: path, URI or catalog name
    :param target_version: the version of the target
    :param version: the watermark: the version of the source that it contains; None for a change log
    :param seals: numbers of the announced seals, by ``log`` and ``target``
    :param table_id: Delta's id of the table; "" if it is not known
    :param view: name of its view in the schema of views; "" without views
    """

    target: str
    target_version: int
    version: int | None = None
    seals: dict[str, int] = field(default_factory=dict)
    table_id: str = ""
    view: str = ""

    def is_older(self, other: PinnedTable) -> bool:
        """Return whether this is an earlier version of the same table.

        The versions of another table, such as one that was made again at the same place, cannot be compared.
        """
        if self.target != other.target or self.target_version >= other.target_version:
            return False
        return self.table_id == other.table_id or not (self.table_id and other.table_id)


@dataclass(frozen=True)
class Publication:
    """The versions that one publish named. Its JSON is the manifest of the group.

    :param number: rises with each publish of a group: epoch milliseconds, if the clock does not go back
    :param tables: the targets, by their pipelines
    :param views: the schema with a view of each target; "" without views
    """

    group: str
    number: int
    tables: dict[str, PinnedTable]
    views: str = ""
    format: int = FORMAT

    def to_json(self) -> str:
        """Return the content of a manifest."""
        return codec.dumps(codec.encoded(self))

    @classmethod
    def from_json(cls, content: bytes | str, place: str) -> Publication:
        """Read a manifest.

        :param place: its location, for the error
        :raises PublicationUnreadable: it is no manifest, or one of a later release
        """
        try:
            found = codec.decoded(cls, codec.parsed(content))
        except UnreadableJson as error:
            raise _unreadable(place, f"is no manifest of a group ({error})") from error
        if found.format != FORMAT:
            raise _unreadable(place, f"has format {found.format}, and this release reads format {FORMAT}")
        return found

    def follows(self, earlier: Publication) -> bool:
        """Return whether no table of this publish is older than in another one.

        Versions of a table only rise. So a publish that names an older version of a table is that of an
        earlier run, whose task was slow or was cleared, even if it names a newer version of another table.
        """
        both = self.tables.keys() & earlier.tables.keys()
        return not any(self.tables[name].is_older(earlier.tables[name]) for name in both)

    def table(self, pipeline: str) -> PinnedTable:
        """Return the target of a pipeline.

        :raises InvalidConfiguration: the publish names no such pipeline
        """
        if pipeline not in self.tables:
            raise InvalidConfiguration(
                f"The publish {self.number} of group {self.group} names no pipeline {pipeline}.",
                remedy=f"use one of {', '.join(sorted(self.tables))}.",
            )
        return self.tables[pipeline]

    def schema_of_views(self, schema: str) -> str:
        """Return the schema of this publish's views: a new one for each publish.

        :param schema: what its name begins with, ``schema`` or ``catalog.schema``
        """
        return f"{schema}_{self.number}"

    def statements(self, schema: str) -> Iterator[str]:
        """Yield the SQL statements that make a schema with a view of each target.

        :param schema: what its name begins with
        :raises InvalidConfiguration: two targets would have the same view
        """
        views = view_names(self.tables)
        name = table(self.schema_of_views(schema))
        values = {GROUP_PROPERTY: self.group, GROUP_HASH: hash_of_group(self.group)}
        properties = ", ".join(f"{string(one)} = {string(value)}" for one, value in values.items())
        yield f"CREATE SCHEMA IF NOT EXISTS {name} WITH DBPROPERTIES ({properties})"
        for pipeline, one in sorted(self.tables.items()):
            location = one.target if is_name(one.target) else hadoop_uri(one.target)
            yield (
                f"CREATE OR REPLACE VIEW {name}.{quote(views[pipeline])} AS "
                f"SELECT * FROM {table(location)} VERSION AS OF {one.target_version}"
            )

    def with_views(self, schema: str) -> Publication:
        """Return the publish with the schema of its views, and their names.

        :raises InvalidConfiguration: two targets would have the same view
        """
        views = view_names(self.tables)
        tables = {pipeline: replace(one, view=views[pipeline]) for pipeline, one in self.tables.items()}
        return replace(self, views=self.schema_of_views(schema), tables=tables)


def hash_of_group(group: str) -> str:
    """Return the hash of a group's name (SHA-256, hexadecimal)."""
    return hashlib.sha256(group.encode()).hexdigest()


def view_names(pipelines: Iterable[str]) -> dict[str, str]:
    """Return the name of the view of each pipeline: each character but letters, digits and "_" becomes "_".

    :raises InvalidConfiguration: two pipelines would have the same view; a catalog ignores case
    """
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for pipeline in sorted(pipelines):
        name = _NOT_IN_NAMES.sub("_", pipeline)
        other = taken.setdefault(name.lower(), pipeline)
        if other != pipeline:
            raise InvalidConfiguration(
                f"The pipelines {other} and {pipeline} would have the same view, {name}.",
                remedy="rename one of them; a view's name has only letters, digits and _, and ignores case.",
            )
        names[pipeline] = name
    return names


def pinned(tables: Mapping[str, Any]) -> dict[str, PinnedTable]:
    """Read the map that a publish names in its event.

    :param tables: ``{pipeline: {target, target_version, version, seals, table_id}}``
    :raises InvalidConfiguration: it is another value
    """
    try:
        return {
            pipeline: one if isinstance(one, PinnedTable) else codec.decoded(PinnedTable, one)
            for pipeline, one in tables.items()
        }
    except (UnreadableJson, AttributeError) as error:
        raise InvalidConfiguration(
            f"The versions of a publish cannot be read: {error}.",
            remedy='give the map "tables" of an event of the group\'s asset.',
        ) from error


def _unreadable(place: str, problem: str) -> PublicationUnreadable:
    return PublicationUnreadable(
        f"{place} {problem}.",
        remedy="name the manifest of the group; if it is damaged, delete it: the next publish writes it "
        "again.",
    )
