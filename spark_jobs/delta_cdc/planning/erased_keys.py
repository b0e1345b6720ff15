"""Finds which erased keys a run leaves out, from the logs alone.

The table's property says whether it has a ledger. A table that someone replaced, or that was dropped and is
loaded again, has lost it: then the seal says so, or the ledger that still lies beside the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.erasure import SEALED, ErasedKeys, ledger_of
from delta_cdc.core.errors import NotADeltaTable, TableNotFound
from delta_cdc.core.properties import ERASED
from delta_cdc.delta_log.table import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.planning.reconcile import RecordedWatermark


async def left_out(
    table: str,
    recorded: RecordedWatermark | None,
    storage_options: dict[str, str] | None = None,
    *,
    source: tuple[str, Mapping[str, str]] | None = None,
) -> ErasedKeys:
    """Return the ledgers whose keys a run leaves out. Only a run without a seal costs a request.

    :param table: location of the table that the run writes
    :param recorded: what its log shows; None if the table does not exist
    :param source: location and properties of the source, if it is a table
    """
    of_source = ""
    if source is not None and ERASED in source[1]:
        of_source = ledger_of(source[0])
    marker = recorded.target.configuration.get(ERASED, "") if recorded is not None else ""
    seal = recorded.seal if recorded is not None else None
    sealed = seal.state.configuration.get(SEALED) if seal is not None else None
    has_ledger = bool(marker or sealed)
    if not has_ledger and seal is None:
        has_ledger = await _exists(ledger_of(table), storage_options)
    is_new = bool(marker) and seal is not None and sealed != marker
    return ErasedKeys(of_source, ledger_of(table) if has_ledger else "", marker, is_new)


async def _exists(ledger: str, storage_options: dict[str, str] | None) -> bool:
    try:
        await DeltaLog(ledger, storage_options).snapshot()
    except (TableNotFound, NotADeltaTable):
        return False
    return True
