"""A driver to be killed: one apply in a process of its own, with an embedded Spark.

Usage: ``python -m tests.system.driver <source> <target> <scd type> <pins file> [<JSON>]``, the last with more
of the request. Prints what is to be published, and never says that it was: one that is not killed
stands for a worker that dies right before.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from delta_cdc import get_session, job
from delta_cdc.core import failpoints
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services


class FilePlans:
    """SavedPlans in a file, as Airflow's task state store keeps them over tries."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> dict[str, Any] | None:
        return self._all().get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        self._write({**self._all(), key: value})

    def delete(self, key: str) -> None:
        self._write({name: v for name, v in self._all().items() if name != key})

    def _all(self) -> dict[str, Any]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def _write(self, plans: dict[str, Any]) -> None:
        # Another try may read at the same time, and as in Airflow's database, it never sees half of a write.
        draft = self._path.with_suffix(f".{uuid4().hex}")
        draft.write_text(json.dumps(plans))
        draft.replace(self._path)


def request(source: str, target: str, scd: int, **more: Any) -> ApplyRequest:
    """Return the request that a driver and its retry share."""
    return ApplyRequest(
        pipeline="flow",
        source=source,
        target=target,
        options=ApplyOptions(keys=("id",), stored_as_scd_type=scd),
        **more,
    )


def main() -> None:
    source, target, scd, saved_plans, *more = sys.argv[1:]
    logging.basicConfig(format="%(message)s")
    logging.getLogger("delta_cdc").setLevel(logging.INFO)
    spark = get_session("driver", cores=1, quick_start=True)
    failpoints.install_from_environment()
    result = run(
        request(source, target, int(scd), **(json.loads(more[0]) if more else {})),
        Services(execute=partial(job.run, spark), saved_plans=FilePlans(Path(saved_plans))),
    )
    print(json.dumps(result.to_dict()))


if __name__ == "__main__":
    main()
