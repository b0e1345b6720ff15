"""A configuration after reading: groups of tables, each with the settings that apply to it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from delta_cdc.config.findings import nearest
from delta_cdc.core.change_log import collectors
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.planning.consumers import Consumer

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Table:
    """One pipeline.

    :param arguments: arguments of the operators by name, as given, including ``pipeline``; texts may contain
        Jinja and ``${ENV}``. A source may also have ``inherits_take_over``
        (:class:`delta_cdc.core.requests.ApplyRequest`)
    :param own_application: whether it gets its own Spark application
    :param place: its place in the configuration, for people
    :param sources: the pipelines that collect, or have collected, the changes that it applies
    :param removed: the tables of its sources that are removed
    """

    pipeline: str
    arguments: dict[str, Any]
    own_application: bool = False
    place: str = ""
    sources: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def collects(self) -> bool:
        """Return whether it appends to a change log, as other pipelines may do."""
        return bool(self.arguments.get("target_kind") == "change_log")

    @property
    def appends_to(self) -> str | None:
        """Return the location of the change log to which it appends; None without one."""
        return self.arguments.get("target" if self.collects else "log")

    @property
    def once(self) -> bool:
        """Return whether it loads its source once."""
        return self.arguments.get("once") is True


@dataclass(frozen=True)
class Group:
    """Pipelines that run in one DAG. A pipeline without a group forms a group with its own name.

    :param settings: the given settings of DAG, tasks and application: times as ISO 8601 text, durations in
        seconds, callbacks as lists of dotted names, ``dag_id`` with the group's name filled in
    :param tables: its tables, sorted by the pipelines' names; the sources of a pipeline come before it
    :param place: its place in the configuration, for people
    :param is_alone: whether it is a pipeline without a group
    """

    name: str
    settings: dict[str, Any]
    tables: tuple[Table, ...]
    place: str = ""
    is_alone: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the group's content, without places: SHA-256, hexadecimal."""
        tables = [
            {"arguments": table.arguments, "own_application": table.own_application} for table in self.tables
        ]
        content = {"name": self.name, "settings": self.settings, "tables": tables}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Configuration:
    """The content of one source: a file, a folder or a mapping.

    :param groups: its groups, sorted by their names
    """

    groups: tuple[Group, ...]

    def tables(self) -> tuple[Table, ...]:
        """Return all pipelines, sorted by their names."""
        tables = (table for group in self.groups for table in group.tables)
        return tuple(sorted(tables, key=lambda table: table.pipeline))

    def chosen(
        self,
        group: str | None = None,
        pipelines: Sequence[str] | None = None,
        *,
        with_sources: bool = False,
    ) -> list[tuple[Group, Table]]:
        """Return the selected tables, each with its group.

        :param group: select only this group; None selects all
        :param pipelines: select only these pipelines; None selects all
        :param with_sources: select also the pipelines that collect the changes that a selected one applies
        :raises InvalidConfiguration: a name does not exist
        """
        names = [one.name for one in self.groups]
        _refuse_unknown("group", () if group is None else [group], names)
        tables = [(one, table) for one in self.groups if group in (None, one.name) for table in one.tables]
        _refuse_unknown("pipeline", pipelines or (), [table.pipeline for _, table in tables])
        if pipelines is None:
            return tables
        selected = set(pipelines)
        if with_sources:
            selected |= collectors([table.arguments for _, table in tables], pipelines)
        return [(one, table) for one, table in tables if table.pipeline in selected]

    def consumers(self) -> tuple[Consumer, ...]:
        """Return the pipelines of the configuration as consumers of their source tables.

        Files and topics are not tables: for a pipeline that ingests them, the source table is the log. A
        pipeline that loads its source once needs no old versions of it.
        """
        return tuple(
            Consumer(
                pipeline=table.pipeline,
                source=table.arguments.get("log") or table.arguments["source"],
                target=table.arguments["target"],
            )
            for table in self.tables()
            if table.arguments.get("target") and not table.once
        )


def _refuse_unknown(kind: str, names: Sequence[str], valid: Sequence[str]) -> None:
    for name in names:
        if name not in valid:
            message = f"The configuration has no {kind} {name!r}."
            raise InvalidConfiguration(message, remedy=nearest(name, valid))
