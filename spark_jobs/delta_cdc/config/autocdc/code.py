"""What the caller gives besides the code: the places of tables, and settings of the DAG."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc.program import key
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Code:
    """What the caller gives besides the code of a pipeline.

    :param sources: names in the code, and the tables that they stand for: paths, URIs or catalog names
    :param targets: the same for the tables that flows write
    :param defaults: keys of ``defaults`` of a configuration, such as ``schedule``
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> list[str]:
        """Return the names of what is given."""
        return [name for name in ("sources", "targets", "defaults") if getattr(self, name)]

    def source_of(self, name: str) -> str | None:
        """Return the table that the caller gives for a source; None without one."""
        return _found(self.sources, name.removesuffix("()"))

    def target_of(self, name: str) -> str | None:
        """Return the table that the caller gives for a target; None without one."""
        return _found(self.targets, name)

    def check(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Refuse names that the code does not have.

        :param sources: the names that the code reads
        :param targets: the names that it writes
        :raises InvalidConfiguration: names the first one
        """
        for role, given, there in (("source", self.sources, sources), ("target", self.targets, targets)):
            known = {key(name.removesuffix("()")): name for name in there}
            for name in given:
                if key(name) not in known:
                    raise InvalidConfiguration(
                        f"No flow of the code has the {role} {name}.",
                        remedy=f"use some of {', '.join(sorted(set(known.values())))}.",
                        argument=f"{role}s",
                    )


def _found(tables: Mapping[str, str], name: str) -> str | None:
    return next((table for given, table in tables.items() if key(given) == key(name)), None)
