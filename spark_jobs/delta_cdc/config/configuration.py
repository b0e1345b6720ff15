"""What a configuration says, once it is read: groups of tables, each with what stands nearest to it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_cdc.maintain.consumers import Consumer


@dataclass(frozen=True)
class Table:
    """One pipeline.

    :param arguments: arguments of the operators by their names, as they were given, ``pipeline`` among them;
        texts may hold Jinja and ``${ENV}``
    :param own_application: it gets a Spark application of its own
    :param place: where it stands, for people
    """

    pipeline: str
    arguments: dict[str, Any]
    own_application: bool = False
    place: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what it says, without the place."""
        return {"arguments": self.arguments, "own_application": self.own_application}


@dataclass(frozen=True)
class Group:
    """Pipelines that run in one DAG. A pipeline without a group is one of its own name.

    :param settings: what is said of DAG, tasks and application, as far as it is: times as ISO 8601 text,
        spans in seconds, callbacks as lists of dotted names, ``dag_id`` filled in
    :param tables: sorted by the pipelines' names
    :param place: where it stands, for people
    """

    name: str
    settings: dict[str, Any]
    tables: tuple[Table, ...]
    place: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Return what identifies all that is said of it, wherever it stands: SHA-256, hexadecimal."""
        tables = [table.to_dict() for table in self.tables]
        return _hashed({"name": self.name, "settings": self.settings, "tables": tables})


@dataclass(frozen=True)
class Configuration:
    """All that was read from one source.

    :param groups: sorted by their names
    :param files: what was read, sorted; empty for a mapping
    """

    groups: tuple[Group, ...]
    files: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Return what identifies all that is said: SHA-256, hexadecimal."""
        return _hashed([group.fingerprint for group in self.groups])

    def tables(self) -> tuple[Table, ...]:
        """Return all pipelines, sorted by their names."""
        found = (table for group in self.groups for table in group.tables)
        return tuple(sorted(found, key=lambda table: table.pipeline))

    def consumers(self) -> tuple[Consumer, ...]:
        """Return who reads which Delta table, as far as the configuration knows.

        Files and topics are no table: of a pipeline that takes them, the target reads the log.
        """
        from delta_cdc.maintain.consumers import Consumer

        return tuple(
            Consumer(
                pipeline=table.pipeline,
                source=table.arguments.get("log") or table.arguments["source"],
                target=table.arguments["target"],
            )
            for table in self.tables()
            if table.arguments.get("target")
        )


def _hashed(said: Any) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
