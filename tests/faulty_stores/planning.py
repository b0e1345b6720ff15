"""Rounds without Spark: the reader of logs, and the planner of applies, on a store that fails.

The same question goes to the store past its faults. Its answer is the only one that may come under faults, or
a named error that lets the caller try again. If the store breaks a promise (its listing lags), the answer may
be that of the table as it was some files ago, and the error another one.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.delta_log import checkpoint
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.run.publication import publish_versions, published
from tests.support import faulty_disk, faulty_proxy
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_proxy import Throttled, Weather, no_fault
from tests.support.logs import FEED, LogTable
from tests.support.looks import LOOKS, OUTCOMES, comparable, planned, worlds
from tests.support.random_logs import DeltalakeHistory, clean_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.lake import Lake

#: A round that takes longer hangs: each request ends within two seconds, and is sent three times at most.
HANGS = 90.0
#: How many of the newest files a listing that lags may lack.
_LACKING = 3
_AGES = [ages for ages in itertools.product(range(_LACKING + 1), repeat=2) if any(ages)]
_HISTORIES = 6
_SHORT = ("cleaned", "increment")
_PATIENT = {"timeout": "20s"}
_IMPATIENT = {"max_retries": "1", "retry_timeout": "2s", "timeout": "2s"}
LAGGING = {*faulty_proxy.LAGGING, *faulty_disk.LAGGING}


@dataclass(frozen=True)
class Round:
    """What came of a round.

    :param kinds: the faults that struck
    :param result: ``true``, ``older``, ``named``, ``of a lag``; a failure is a sentence
    """

    kinds: frozenset[str]
    result: str

    @property
    def failed(self) -> bool:
        """Return whether a rule was broken."""
        return self.result not in ("true", "older", "named", "of a lag")


class Planning:
    """Logs in a bucket, and on a disk.

    :param disk: an empty folder
    :param short: a few of the logs
    """

    def __init__(self, lake: Lake, disk: Path, *, short: bool = False) -> None:
        self.lake, self.disk = lake, disk
        self._true: dict[tuple[str, str, tuple[int, int]], Any] = {}
        self.names: list[str] = []
        made = disk / "logs"
        for name in worlds(made):
            if not short or name in _SHORT:
                self._ages(made, name)
            else:
                shutil.rmtree(made / name)
        for seed in range(0 if short else _HISTORIES):
            self._history(made, seed)
        with_vectors(made / "vectors" / "source")
        self._ages(made, "vectors")
        lake.upload(made)

    def _history(self, made: Path, seed: int) -> None:
        name = f"history {seed}"
        history = DeltalakeHistory(made / name / "source", seed)
        for _ in range(18):
            history.step()
        clean_log(history.ledger, Random(seed))
        self._ages(made, name)

    def _ages(self, made: Path, name: str) -> None:
        """Keep the logs as they were one, two and three files ago, too."""
        self.names.append(name)
        for lacking, half in itertools.product(range(1, _LACKING + 1), ("source", "target")):
            other = made / f"{name}-{lacking}" / half
            if not (made / name / half).exists():
                continue
            shutil.copytree(made / name / half, other)
            log = sorted(
                (other / "_delta_log").iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name)
            )
            for file in log[-lacking:]:
                file.unlink() if file.is_file() else None

    # -- a round ------------------------------------------------------------------------------------
    def play(self, seed: int) -> Round:
        """Look into a log, or publish versions, under the faults of a seed."""
        draw = Random(seed)
        if draw.random() < 0.15:
            return self._published(seed, draw)
        name = draw.choice(self.names)
        look = (
            draw.choice(["plan", "plan", *LOOKS, "masked"]) if name in OUTCOMES else draw.choice(list(LOOKS))
        )
        look = "masked" if name == "vectors" and draw.random() < 0.7 else look
        on_disk = draw.random() < 0.3
        # Large checkpoints are read by ranges.
        ranges = mock.patch.object(checkpoint, "_WHOLE", 0) if draw.random() < 0.5 else nullcontext()
        began = time.monotonic()
        with ranges:
            true = self._truth(name, look, (0, 0), on_disk=on_disk)
            with (self._disk_faults if on_disk else self._bucket_faults)(draw) as struck:
                found = self._answer(name, look, on_disk=on_disk)
                kinds = frozenset(struck())
            if time.monotonic() - began > HANGS:
                return Round(kinds, f"{name}, {look}: it took {time.monotonic() - began:.0f} s")
            result = self._judged(found, true, kinds)
            if result == "other":
                older = (self._truth(name, look, age, on_disk=on_disk) for age in _AGES)
                # A job compares the commits that its plan was made from with those that it finds.
                allowed = _is_named(found) or "torn" in kinds
                result = "older" if found in older else "of a lag" if allowed else "other"
        if result == "other":
            result = f"{str(found)[:600]} instead of {str(true)[:600]}"
        made = Round(kinds, result)
        return Round(kinds, f"{name}, {look}: {result}") if made.failed else made

    def _published(self, seed: int, draw: Random) -> Round:
        """Publish three times, each time until it succeeds; the last one counts."""
        on_disk = draw.random() < 0.3
        root = str(self.disk / "published") if on_disk else self.lake.uri("published")
        manifest = f"{root}/{seed}/versions.json"
        options = None if on_disk else {**self.lake.options, **_IMPATIENT}
        kinds: set[str] = set()
        errors: list[DeltaCdcError] = []
        for version in range(1, 4):
            tables = {"p": {"target": "s3://lake/t", "target_version": version, "table_id": "t"}}
            with (self._disk_faults if on_disk else self._bucket_faults)(draw) as struck:
                for _ in range(3):
                    try:
                        publish_versions(manifest, "g", tables, storage_options=options)
                        break
                    except DeltaCdcError as error:
                        errors.append(error)
                kinds |= struck()
            if draw.random() < 0.5:
                publish_versions(manifest, "g", tables, storage_options=options)
        publish_versions(manifest, "g", tables, storage_options=options)
        self.lake.proxy.settled()
        last = published(manifest, storage_options=options)
        wrong = [str(error) for error in errors if not error.retryable or str(seed) not in error.message]
        if last.tables["p"].target_version != version:
            wrong.append(f"the manifest has {last}")
        return Round(frozenset(kinds), f"publish: {wrong}" if wrong else "named" if errors else "true")

    @staticmethod
    def _judged(found: Any, true: Any, kinds: frozenset[str]) -> str:
        if found == true:
            return "true"
        if _is_named(found) and found[1] in ("StoreUnavailable", "StoreRefused") and kinds:
            return (
                "named" if "Remedy: " in found[2] and "logs/" in found[2] else f"it names no table: {found}"
            )
        return "other" if kinds & LAGGING else f"{str(found)[:600]} instead of {str(true)[:600]}"

    def _truth(self, name: str, look: str, ages: tuple[int, int], *, on_disk: bool) -> Any:
        """Return the answer without faults.

        :param ages: how many files the logs of source and target lack
        """
        key = (f"{name} {on_disk}", look, ages)
        if key not in self._true:
            self.lake.proxy.faults = no_fault
            self._true[key] = self._answer(name, look, ages, on_disk=on_disk)
        return self._true[key]

    def _answer(self, name: str, look: str, ages: tuple[int, int] | None = None, *, on_disk: bool) -> Any:
        root = str(self.disk / "logs") if on_disk else self.lake.uri("logs")
        aged = [f"{name}-{age}" if age else name for age in ages or (0, 0)]
        source, target = f"{root}/{aged[0]}/source", f"{root}/{aged[1]}/target"
        options = None if on_disk else {**self.lake.options, **(_PATIENT if ages else _IMPATIENT)}
        try:
            if look == "plan":
                found: Any = asyncio.run(planned(source, target, options))
            else:
                log = DeltaLog(source, options)
                found = comparable(run_sync(masked(log) if look == "masked" else LOOKS[look](log)))
        except DeltaCdcError as error:
            found = ("error", type(error).__name__, str(error))
        for one in aged:
            found = _named_as(found, f"/{one}/", f"/{name}/")
        return found

    @contextmanager
    def _bucket_faults(self, draw: Random) -> Iterator[Callable[[], set[str]]]:
        kinds = [*faulty_proxy.KINDS, *faulty_proxy.ODD, *faulty_proxy.LAGGING]
        chosen = draw.sample(kinds, draw.choice((1, 2, len(kinds))))
        weather = Weather(draw.randrange(1 << 30), draw.choice((0.05, 0.2, 0.5)), chosen)
        proxy = self.lake.proxy
        proxy.struck.clear()
        proxy.faults = Throttled(draw.uniform(0.1, 3), weather) if draw.random() < 0.03 else weather
        try:
            yield proxy.kinds_struck  # type: ignore[misc]
        finally:
            proxy.faults = no_fault

    @contextmanager
    def _disk_faults(self, draw: Random) -> Iterator[Callable[[], set[str]]]:
        kinds = [*faulty_disk.KINDS, *faulty_disk.LAGGING]
        chosen = set(draw.sample(kinds, draw.choice((1, 2, len(kinds)))))
        rate, chance = draw.choice((0.05, 0.2, 0.5)), Random(draw.randrange(1 << 30))

        def decide(_operation: str, _file: Path, fitting: tuple[faulty_disk.Kind, ...]) -> Any:
            possible = sorted(chosen & set(fitting))
            return chance.choice(possible) if possible and chance.random() < rate else None

        with FaultyDisk(self.disk, decide).installed() as disk:
            yield lambda: {kind for _, kind in disk.struck}


def with_vectors(folder: Path) -> LogTable:
    """Make a log whose last file has a deletion vector in a file of its own."""
    import struct
    import uuid
    import zlib

    from delta_cdc.delta_log import deletion_vectors
    from tests.support.vectors import bits

    made = LogTable(folder, table_id="vectors-id", configuration=FEED).create()
    for _ in range(3):
        made.append()
    data = deletion_vectors.all_but(bits({0, 2, 4}), 10)
    name = uuid.UUID(int=7)
    stored = b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{name}.bin").write_bytes(stored)
    add = made.add()
    add["add"]["deletionVector"] = {
        "storageType": "u",
        "pathOrInlineDv": deletion_vectors.encode(name.bytes),
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": 7,
    }
    made.commit("WRITE", add)
    return made


async def masked(log: DeltaLog) -> Any:
    """Return the masked rows of the files that the newest commit added."""
    version = await log.newest_version()
    added = [action async for action in log.actions(version) if type(action).__name__ == "Add"]
    return version, [await log.masked(file) for file in added]


def _is_named(found: Any) -> bool:
    return isinstance(found, tuple) and len(found) == 3 and found[0] == "error"


def _named_as(found: Any, old: str, new: str) -> Any:
    if isinstance(found, str):
        return found.replace(old, new)
    return (*found[:2], found[2].replace(old, new)) if _is_named(found) else found
