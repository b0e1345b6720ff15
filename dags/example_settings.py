"""What the example DAGs share: where their tables are, and the form that *Trigger* shows."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import Param

#: Folder (or URI prefix) of the tables. ``make demo`` and ``make up`` set the variable for their Airflow.
TABLES = os.environ.get("DELTA_CDC_EXAMPLE_TABLES") or str(
    Path(__file__).resolve().parents[1] / ".demo" / "run" / "tables"
)

#: Seconds that the sensors wait for changes before they give way.
WAIT = float(os.environ.get("DELTA_CDC_EXAMPLE_WAIT", "60"))

#: Whether the sensors wait in the triggerer. ``make demo`` runs the DAGs without one.
DEFERRABLE = os.environ.get("DELTA_CDC_EXAMPLE_DEFERRABLE", "true") == "true"


def table(name: str) -> str:
    """Return the path of an example table."""
    return f"{TABLES}/{name}"


def version_range() -> dict[str, Param]:
    """Return the Params of the trigger form. All empty: apply what is new since the watermark."""
    return {
        "starting_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="First version",
            description="First version of the source to apply, inclusive. "
            "Empty: go on right after the watermark.",
        ),
        "ending_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Last version",
            description="Last version of the source to apply, inclusive. Empty: the newest one.",
        ),
        "max_versions": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Most versions at once",
            description="Apply at most this many versions. Empty: no limit.",
        ),
    }


def run_form() -> dict[str, Param]:
    """Return the Params of an apply task's form: a range of versions, and what the run does.

    All as they are: apply what is new since the watermark.
    """
    return {
        **version_range(),
        "mode": Param(
            "incremental",
            type="string",
            enum=["incremental", "repair", "reload"],
            title="Mode",
            description="repair: compute the keys again that changed in the versions above, or those below. "
            "reload: compute all keys again.",
        ),
        "repair_keys": Param(
            None,
            type=["null", "string"],
            title="Keys to repair",
            description="Mode repair: a predicate over the key columns, in the place of versions.",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Show in the log what would be done, and write nothing.",
        ),
    }


#: Arguments that hand the form to an operator. An empty field arrives as "None", which means: not given.
FORM = {
    "starting_version": "{{ params.starting_version }}",
    "ending_version": "{{ params.ending_version }}",
    "max_versions": "{{ params.max_versions }}",
}

#: The same for :func:`run_form`.
RUN_FORM = {
    **FORM,
    "mode": "{{ params.mode }}",
    "repair_keys": "{{ params.repair_keys }}",
    "dry_run": "{{ params.dry_run }}",
}
