"""Plans an OPTIMIZE from the log alone, and skips one that would change nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core import maintenance_tags
from delta_cdc.core.errors import InvalidConfiguration, LogGap, VersionsExpired
from delta_cdc.core.maintenance_tags import asked
from delta_cdc.core.spec import OptimizeSpec
from delta_cdc.core.uris import spark_uri
from delta_cdc.delta_log.table import DeltaLog

if TYPE_CHECKING:
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState

#: How many commits back to search for the last OPTIMIZE.
_MOST_COMMITS = 500
_BATCH = 50


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest:
    """The arguments of an OPTIMIZE; see :class:`delta_cdc.core.spec.OptimizeSpec`.

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
        """Validate the arguments.

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
    """The plan of an OPTIMIZE.

    :param spec: the job; None if nothing is to be done
    :param found: for users: ``table``, files and bytes (0) and ``note``
    """

    spec: OptimizeSpec | None
    found: dict[str, Any]


async def plan_optimize(request: OptimizeRequest) -> Optimize:
    """Determine whether an OPTIMIZE would change anything. Starts no process and writes nothing.

    :raises InvalidConfiguration: see :class:`OptimizeRequest`
    """
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
    """Return why an OPTIMIZE would change nothing; None if it may change something."""
    files, masked, folders = await asyncio.to_thread(
        lambda: (state.num_files, state.num_masked_files, state.num_folders)
    )
    if not files:
        return "the table is empty"
    if spec.purge:
        return None if masked else "no row is masked"
    is_plain = not spec.zorder_by and "clustering" not in state.features
    if is_plain and files == folders and not masked:
        # Compaction would commit nothing, so the log would never show that it ran.
        return "there is one file, or one in each partition"
    try:
        last = await _last_like(log, state, spec)
    except (VersionsExpired, LogGap):
        return None
    return f"no file has come since version {last}, which did the same" if last is not None else None


async def _last_like(log: DeltaLog, state: TableState, spec: OptimizeSpec) -> int | None:
    """Return the version that already did what the spec requests, if nothing was written since."""
    for end in range(state.version, max(-1, state.version - _MOST_COMMITS), -_BATCH):
        for commit in reversed(await log.commits(range(max(0, end - _BATCH + 1), end + 1))):
            if is_like(commit, spec):
                return commit.version
            if commit.n_adds or commit.n_removes or commit.metadata is not None:
                # New properties, such as clustering columns, may require another layout.
                return None
    return None


def is_like(commit: Commit, spec: OptimizeSpec) -> bool:
    """Return whether a commit is an OPTIMIZE that did what a spec requests, ours or another writer's."""
    info = commit.info
    if info.operation != "OPTIMIZE":
        return False
    said = maintenance_tags.read(info.user_metadata, "optimize")
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
