"""Plans an OPTIMIZE from the log alone: whether it would do anything."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import InvalidConfiguration, LogGap, VersionsExpired
from delta_cdc.maintain import marks
from delta_cdc.maintain.optimize import asked
from delta_cdc.spec import OptimizeSpec

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState

#: So many commits back the last OPTIMIZE is looked for.
_MOST_COMMITS = 500
_BATCH = 50


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest:
    """What an OPTIMIZE is asked to do; see :class:`delta_cdc.spec.OptimizeSpec`.

    :param table: path or URI
    """

    table: str
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    purge: bool = False
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        if self.purge and (self.zorder_by or self.full):
            given = "zorder_by" if self.zorder_by else "full"
            raise InvalidConfiguration(
                f"purge and {given} are both given.",
                remedy="run two tasks: one purges the masked rows, the other lays the files out.",
            )
        if self.full and (self.zorder_by or self.where is not None):
            given = "zorder_by" if self.zorder_by else "where"
            raise InvalidConfiguration(
                f"full and {given} are both given.",
                remedy="full is for clustered tables, which have neither; leave one of them out.",
            )


@dataclass(frozen=True)
class Optimize:
    """What there is to do.

    :param spec: None where nothing is
    :param found: for people: ``table``, files and bytes (0) and ``note``
    """

    spec: OptimizeSpec | None
    found: dict[str, Any]


async def plan_optimize(request: OptimizeRequest) -> Optimize:
    """Decide whether an OPTIMIZE would do anything. Starts no process and writes nothing.

    :raises InvalidConfiguration: see :class:`OptimizeRequest`
    """
    from delta_cdc.log.store import spark_uri
    from delta_cdc.log.table import DeltaLog

    request.check()
    log = DeltaLog(request.table, request.storage_options)
    state = await log.snapshot()
    spec = OptimizeSpec(
        run_id=request.run_id,
        table_uri=spark_uri(request.table),
        where=request.where,
        zorder_by=request.zorder_by,
        full=request.full,
        purge=request.purge,
        single_driver=request.single_driver,
    )
    found = {
        "table": log.uri,
        "files_added": 0,
        "files_removed": 0,
        "bytes_added": 0,
        "bytes_removed": 0,
        "note": "",
    }
    why = await _needless(log, state, spec)
    return Optimize(spec, found) if why is None else Optimize(None, {**found, "note": why})


async def _needless(log: DeltaLog, state: TableState, spec: OptimizeSpec) -> str | None:
    """Say why nothing is to be done; None where something may be."""
    files, masked, folders = await asyncio.to_thread(
        lambda: (state.num_files, state.num_masked_files, state.num_folders)
    )
    if not files:
        return "the table is empty"
    if spec.purge:
        return None if masked else "no row is masked"
    is_plain = not spec.zorder_by and "clustering" not in state.features
    if is_plain and files == folders and not masked:
        # Compaction commits nothing then, so that the log would never tell that it was done.
        return "there is one file, or one in each partition"
    try:
        last = await _last_like(log, state, spec)
    except (VersionsExpired, LogGap):
        return None
    return f"no file has come since version {last}, which did the same" if last is not None else None


async def _last_like(log: DeltaLog, state: TableState, spec: OptimizeSpec) -> int | None:
    """Return the version that laid the files out as asked, if nothing was written since."""
    for end in range(state.version, max(-1, state.version - _MOST_COMMITS), -_BATCH):
        for commit in reversed(await log.commits(range(max(0, end - _BATCH + 1), end + 1))):
            if is_like(commit, spec):
                return commit.version
            if commit.n_adds or commit.n_removes or commit.metadata is not None:
                # New properties, clustering columns among them, may ask for another layout.
                return None
    return None


def is_like(commit: Commit, spec: OptimizeSpec) -> bool:
    """Tell whether a commit is an OPTIMIZE that did what a spec asks for, ours or somebody else's."""
    info = commit.info
    if info.operation != "OPTIMIZE":
        return False
    said = marks.read(info.user_metadata, "optimize")
    if said is not None:
        return all(said.get(name) == value for name, value in asked(spec).items())
    given = info.operation_parameters
    return (
        spec.where is None
        and _listed(given.get("predicate")) == []
        and _listed(given.get("zOrderBy")) == list(spec.zorder_by)
        and (not spec.full or str(given.get("isFull", "false")).lower() == "true")
        and str(given.get("auto", "false")).lower() == "false"
    )


def _listed(given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return given
