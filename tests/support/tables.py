"""A source, a target and a staging table as hand-written logs, and plans made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest, ReadRequest
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.read import plan_read
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, changed, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delta_cdc.planning.plan import Plan

NOW = EPOCH + 3_600 * SECOND
KEYED = ApplyOptions(keys=("id",))


@dataclass
class Tables:
    """A source with versions 0-5 (all but 0 change data), and where its target is to lie."""

    source: LogTable
    target: LogTable
    staging: LogTable

    def request(self, **changes: Any) -> ApplyRequest:
        made = ApplyRequest(
            pipeline="p", source=self.source.uri, target=self.target.uri, options=KEYED, run_id="r"
        )
        return replace(made, **changes)

    def apply(
        self,
        saved: int | None = None,
        now: int = NOW,
        backup: Callable[[], Any] | None = None,
        **changes: Any,
    ) -> Plan:
        memory = Memory(end=lambda _: saved, backup=backup, now_ms=now)
        return plan_apply(self.request(**changes), memory)

    def read(self, saved: int | None = None, **changes: Any) -> Plan:
        made = ReadRequest(
            pipeline="p", source=self.source.uri, staging=self.staging.uri, target=self.target.uri
        )
        return plan_read(replace(made, **changes), Memory(end=lambda _: saved, now_ms=NOW))

    def source_newest(self) -> int:
        return max(v for v in range(self.source.version + 1) if self.source.file(v).exists())

    def sealed(self, watermark: int, number: int = 100, **changes: Any) -> None:
        planned = None
        if self.target.version >= 0:
            newest = self.target.version
            planned = TableVersion(self.target.table_id, newest, self.target.sha256(newest))
        self.target.write_seal(seal(number, watermark, source=self.source, planned_on=planned, **changes))

    def staged(self, number: int, start: int, end: int, batch: str = "changes", **changes: Any) -> int:
        made = seal(number, end, source=self.source, start=start, kind="read", **changes)
        return self.staging.write_seal(changed(made, configuration={"batch": batch}), operation="WRITE")

    @classmethod
    def made_in(cls, folder: Path) -> Tables:
        """Make the source; target and staging don't exist yet."""
        source = LogTable(folder / "source", table_id="source-id", configuration=dict(FEED)).create()
        for _ in range(5):
            source.append()
        return cls(source, LogTable(folder / "target"), LogTable(folder / "staging", table_id="st"))
