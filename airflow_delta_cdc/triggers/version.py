"""Wait in the triggerer until a Delta table has new changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from delta_cdc.errors import DeltaCdcError, UnsupportedTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

#: Longest pause after failed looks, in seconds; a longer poll interval stays as it is.
LONGEST_BACKOFF = 300.0


class DeltaVersionTrigger(BaseTrigger):
    """Fire once, as soon as a table has enough commits that change data after a baseline.

    Looks at the table's log without a JVM and without blocking the event loop. A table that doesn't exist
    yet is waited for. A store that fails or is slow makes the pause longer, never ends the trigger.

    The event holds either ``table``, ``table_id``, ``version`` and ``previous_version``, or ``error`` with
    a named error that waiting can't repair.

    :param table: path or URI of the table
    :param baseline_version: commits after this version count; -1 counts all
    :param min_versions: how many commits that change data it takes
    :param poll_interval: seconds between two looks
    :param storage_options: options of the object store; no secrets, they are kept in Airflow's database
    """

    def __init__(
        self,
        *,
        table: str,
        baseline_version: int,
        min_versions: int = 1,
        poll_interval: float = 30.0,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.baseline_version = baseline_version
        self.min_versions = min_versions
        self.poll_interval = poll_interval
        self.storage_options = dict(storage_options) if storage_options else None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class's path and what its constructor needs."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "baseline_version": self.baseline_version,
                "min_versions": self.min_versions,
                "poll_interval": self.poll_interval,
                "storage_options": self.storage_options,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, pause, look again; yield one event and end."""
        from delta_cdc.waiting import Watch

        try:
            watch = Watch(
                self.table,
                baseline_version=self.baseline_version,
                min_versions=self.min_versions,
                storage_options=self.storage_options,
            )
        except DeltaCdcError as error:
            # The location itself is wrong: a catalog name, an unknown scheme.
            yield _event({"error": error.to_dict()})
            return
        failures = 0
        while True:
            try:
                news = await watch.look()
                failures = 0
            except UnsupportedTable as error:
                yield _event({"error": error.to_dict()})
                return
            except Exception as error:  # noqa: BLE001
                # Whatever a store can raise: the triggerer must not go down with it.
                failures += 1
                news = None
                self.log.warning("Cannot look at %s (try %s): %s", self.table, failures, _short(error))
            if news is not None:
                yield _event(news.to_dict())
                return
            await asyncio.sleep(self.pause(failures))

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failed looks in a row."""
        longest = max(self.poll_interval, LONGEST_BACKOFF)
        return float(min(self.poll_interval * 2 ** min(failures, 16), longest))


def _event(payload: dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]


def _short(error: Exception) -> str:
    return error.message if isinstance(error, DeltaCdcError) else f"{type(error).__name__}: {error}"
