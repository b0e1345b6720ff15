"""``python -m tests.faulty_stores --rounds 1000 --seed 0``: work on stores that fail, and count the results.

``--work plans`` needs no JVM; ``--work jobs`` applies and ingests with Spark. With ``--state FILE``, an
interrupted command goes on where it was, and the table covers all its parts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.lake import lake_on
from tests.support.s3_gateway import gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faulty_stores.planning import Round

#: Seconds between two writes of the state.
_PART = 20.0


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faulty_stores", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each round has the next one")
    parser.add_argument("--state", type=Path, help="a file that keeps the next seed and what was seen")
    parser.add_argument("--work", choices=("plans", "jobs"), default="plans")
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    first, counts, failed = _read(given.state, given.seed)
    end, began, written = given.seed + given.rounds, time.monotonic(), 0.0
    with _player(given.work) as play:
        try:
            for seed in range(first, end):
                done = play(seed)
                result = "FAILED" if done.failed else done.result
                for kind in (*done.kinds, "rounds"):
                    counts[kind, result] += 1
                if done.failed:
                    failed.append(seed)
                    print(f"seed {seed}, {', '.join(sorted(done.kinds))}: {done.result}", flush=True)
                first = seed + 1
                if time.monotonic() - written > _PART:
                    written = time.monotonic()
                    _write(given.state, first, counts, failed)
        except KeyboardInterrupt:
            print("Interrupted.")
        _write(given.state, first, counts, failed)
    print(_table(counts))
    seconds = time.monotonic() - began
    print(f"Seeds {given.seed}-{first - 1} in {seconds:.0f} s: {len(failed)} failed {failed[:20]}.")
    return 1 if failed else 0


@contextmanager
def _player(work: str) -> Iterator[Callable[[int], Round]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faulty-stores-")))
        lake = stack.enter_context(lake_on(stack.enter_context(gateway(folder / "gateway"))))
        if work == "jobs":
            from tests.faulty_stores.jobs import Jobs

            yield stack.enter_context(Jobs.started(lake, folder / "disk")).play
        else:
            from tests.faulty_stores.planning import Planning

            yield Planning(lake, folder / "disk").play


def _table(counts: Counter[tuple[str, str]]) -> str:
    results = sorted({result for _, result in counts})
    kinds = sorted({kind for kind, _ in counts}, key=lambda kind: (kind == "rounds", kind))
    rows = [[kind, *(str(counts[kind, result]) for result in results)] for kind in kinds]
    lines = [f"{row[0]:14}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in (["", *results], *rows)]
    return "\n".join(lines)


def _read(state: Path | None, seed: int) -> tuple[int, Counter[tuple[str, str]], list[int]]:
    if state is None or not state.exists():
        return seed, Counter(), []
    kept: dict[str, Any] = json.loads(state.read_text(encoding="utf-8"))
    return kept["next"], Counter({(kind, result): n for kind, result, n in kept["counts"]}), kept["failed"]


def _write(state: Path | None, first: int, counts: Counter[tuple[str, str]], failed: list[int]) -> None:
    if state is not None:
        rows = [[kind, result, count] for (kind, result), count in sorted(counts.items())]
        draft = state.with_suffix(".draft")
        draft.write_text(json.dumps({"next": first, "failed": failed, "counts": rows}), encoding="utf-8")
        draft.replace(state)


if __name__ == "__main__":
    sys.exit(main())
