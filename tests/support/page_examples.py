"""What a database holds after some nights: DAGs, and runs with their tasks, XComs and events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply import refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a script would do, if a page took the text for HTML.
SCRIPT = "<img src=x onerror=\"document.title='owned'\">"
_HOUR = 3600


def table(name: str) -> dict[str, Any]:
    return {"source": f"s3://lake/bronze/{name}", "target": f"s3://lake/silver/{name}"}


def published(
    pipeline: str,
    version: int,
    *,
    versions: int = 1,
    behind: int = 0,
    behind_seconds: float = 0,
    kept_days: float = 25,
    ago: float = 600,
    counts: dict[str, int] | None = None,
    work: float = 9.5,
    **more: Any,
) -> dict[str, Any]:
    """Return what a task publishes about an apply.

    :param versions: how many it applied
    :param behind: how many it left
    """
    now = datetime.now(UTC)
    return {
        "pipeline": pipeline,
        "source_table": table(pipeline)["source"],
        "target_table": table(pipeline)["target"],
        "version": version,
        "starting_version": version - versions + 1,
        "ending_version": version,
        "applied": True,
        "target_version": version // 2,
        "counts": counts if counts is not None else {"inserted": 120, "updated": 14, "deleted": 2},
        "timestamp": (now - timedelta(seconds=ago)).isoformat(),
        "lag": {
            "source_version": version + behind,
            "versions": behind,
            "seconds": behind_seconds,
            "bytes": behind * 28_160,
            "readable_until": (now + timedelta(days=kept_days)).isoformat(timespec="seconds"),
        },
        "seconds": {"plan": 0.4, "start": 5.5, "work": work, "confirm": 0.2},
        **more,
    }


def idle(version: int, **more: Any) -> dict[str, Any]:
    """Return what a detection publishes about a table without work."""
    lag = {"source_version": version, "versions": 0, "seconds": 0.0, "readable_until": None}
    return {"status": "nothing", "target": None, "target_version": 3, "version": version, "lag": lag, **more}


def group_run(
    group: str,
    number: int,
    tables: list[dict[str, Any]],
    *,
    ago: float,
    detected: dict[str, Any] | None = None,
    failed: dict[str, dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Return one run of a group.

    :param tables: what its tables published
    :param detected: summaries of other tables
    :param failed: errors of tables that failed
    """
    errors = failed or {}
    names = [one["pipeline"] for one in tables]
    all_names = [*names, *errors]
    at = {name: index for index, name in enumerate(all_names)}
    working = {name: {"status": "work"} for name in all_names if name not in (detected or {})}
    tables = [
        {**one, "timestamp": (datetime.now(UTC) - timedelta(seconds=ago - 40)).isoformat()} for one in tables
    ]
    return {
        "dag_id": group,
        "run_id": f"scheduled__{number}",
        "state": "failed" if errors else "success",
        "ago": ago,
        "tasks": [
            {"task_id": "apply", "map_index": at[name], "name": name, "state": "failed"} for name in errors
        ],
        "xcoms": [
            {"task_id": "detect_changes", "key": "tables", "value": {**working, **(detected or {})}},
            *(
                {"task_id": "apply", "map_index": at[one["pipeline"]], "key": "return_value", "value": one}
                for one in tables
            ),
            *(
                {"task_id": "apply", "map_index": at[name], "key": "delta_cdc_error", "value": error}
                for name, error in errors.items()
            ),
        ],
        "events": [
            {"task_id": "apply", "map_index": at[one["pipeline"]], "pipeline": one["pipeline"], "extra": one}
            for one in tables
        ],
    }


def null_key(table: str, versions: str) -> dict[str, str]:
    """Return the error of a run over versions in which three rows have no key, as the engine writes it."""
    options = ApplyOptions(keys=("customer_id",))
    context: Any = SimpleNamespace(source=table, options=options)
    shape: Any = SimpleNamespace(keys=options.keys)
    rows: Any = None
    try:
        refusals.refuse({refusals.NULL_KEY: 3}, rows, shape, context, versions=versions)
    except DeltaCdcError as error:
        return {"class": type(error).__name__, "message": error.message, "remedy": error.remedy}
    raise AssertionError("nothing was refused")


def nights() -> dict[str, Any]:
    """A group with one failed table, one late and one quiet; a pipeline alone; names of all kinds."""
    sales = ["orders_history", "customers", "order_lines", "payments", "refunds"]
    dags = [
        {
            "group": "sales",
            "pipelines": {name: table(name) for name in sales},
            "backfill": True,
            "paused": False,
        },
        {"dag_id": "parcels", "pipelines": {"parcel_history": table("parcel_history")}, "paused": False},
        {"dag_id": "archive", "pipelines": {"old_orders": table("old_orders")}, "paused": True},
        {"dag_id": "strange", "pipelines": {SCRIPT: table("strange")}, "paused": False},
    ]
    runs: list[dict[str, Any]] = []
    for number in range(24):
        ago = (24 - number) * _HOUR
        wave = [
            published(
                name,
                20 + number * 2,
                versions=2,
                counts={
                    "inserted": 90 + (number * 37 + at * 53) % 110,
                    "updated": (number * 29 + at * 31) % 70,
                    "deleted": (number * 7 + at) % 9,
                    **({"quarantined": 3} if name == "payments" and number % 9 == 5 else {}),
                },
                work=6 + (number * 5 + at * 3) % 7,
                behind=max(0, number - 20) * 3 if name == "order_lines" else 0,
                behind_seconds=max(0, number - 20) * 2500.0 if name == "order_lines" else 0,
            )
            for at, name in enumerate(sales)
            if not (name == "refunds" and number > 3) and not (name == "customers" and number == 23)
        ]
        errors = {}
        if number == 23:
            errors["customers"] = null_key(table("customers")["source"], "versions 65-71")
        lag = {"source_version": 71, "versions": 7, "seconds": 4200.0, "readable_until": None}
        others = {"refunds": idle(26)} | (
            {
                "customers": {
                    "status": "work",
                    "version": 64,
                    "target": table("customers")["target"],
                    "lag": lag,
                }
            }
            if errors
            else {}
        )
        runs.append(group_run("sales", number, wave, ago=ago, detected=others, failed=errors))
    behind = published("parcel_history", 11, behind=6, behind_seconds=9000, kept_days=1.2, ago=7200)
    for number, extra in enumerate((published("parcel_history", 8, ago=20000), behind)):
        runs.append(
            {
                "dag_id": "parcels",
                "run_id": f"manual__{number}",
                "ago": 20000 - number * 12800,
                "xcoms": [{"task_id": "apply", "key": "return_value", "value": extra}],
                "events": [{"task_id": "apply", "pipeline": "parcel_history", "extra": extra}],
            }
        )
    strange = {
        "class": "DeltaCdcError",
        "message": f"Column {SCRIPT} is missing.",
        "remedy": f"add {SCRIPT}.",
    }
    runs.append(
        {
            "dag_id": "strange",
            "run_id": "manual__1",
            "state": "failed",
            "tasks": [{"task_id": "apply", "state": "failed"}],
            "xcoms": [{"task_id": "apply", "key": "delta_cdc_error", "value": strange}],
        }
    )
    # A look that went well mends nothing.
    runs.append({"dag_id": "strange", "run_id": "manual__2", "conf": {"dry_run": True}})
    return {"dags": dags, "runs": runs}


#: Groups of a company, with their tables.
_COMPANY = {
    "finance": ("invoices", "ledger_entries", "exchange_rates", "cost_centers", "credit_notes"),
    "logistics": ("shipments", "stock_levels", "warehouses", "carriers", "returns"),
    "crm": ("contacts", "accounts", "consents", "tickets"),
}


def company() -> dict[str, Any]:
    """The nights of a company, for pictures: with all tasks of a group, and without names of this project."""
    night = nights()
    dags = [one for one in night["dags"] if one.get("dag_id") != "strange"]
    runs = [one for one in night["runs"] if one["dag_id"] != "strange"]
    for at, (group, names) in enumerate(_COMPANY.items()):
        pipelines = {name: table(name) for name in names}
        dags.append({"group": group, "pipelines": pipelines, "why": group == "crm", "paused": False})
        for number in range(24):
            tables = [
                published(
                    name,
                    400 + at * 130 + place * 17 + number * 2,
                    versions=2,
                    counts={
                        "inserted": 40 + (number * 41 + place * 67 + at * 29) % 260,
                        "updated": (number * 31 + place * 43) % 120,
                        "deleted": (number * 5 + place) % 7,
                    },
                    work=5 + (number * 3 + place) % 6,
                )
                for place, name in enumerate(names)
            ]
            runs.append(group_run(group, number, tables, ago=(24 - number) * _HOUR - 300 * at))
    for run in runs:
        if run["dag_id"] == "sales" or run["dag_id"] in _COMPANY:
            run["run_id"] = (
                f"scheduled__{datetime.now(UTC) - timedelta(seconds=run['ago']):%Y-%m-%dT%H}:00:00"
            )
            # The rule of publish: none_failed.
            published_too = "success" if run["state"] == "success" else "upstream_failed"
            run.setdefault("tasks", []).extend(
                {"task_id": name, "state": state}
                for name, state in (("run_spark", "success"), ("publish", published_too))
            )
            for one in run["xcoms"]:
                # The name of a map index, which Airflow shows.
                if one.get("map_index", -1) >= 0 and "pipeline" in one["value"]:
                    name = {"name": one["value"]["pipeline"], "state": "success"}
                    run["tasks"].append({"task_id": "apply", "map_index": one["map_index"], **name})
    return {"dags": dags, "runs": runs}


def thousand(
    *, groups: int = 14, tables: int = 50, alone: int = 300, runs: Sequence[int] = range(3)
) -> dict[str, Any]:
    """A thousand pipelines: some in groups, some in DAGs of their own.

    :param runs: the numbers of the runs of each DAG, one in an hour
    """
    dags: list[dict[str, Any]] = []
    done: list[dict[str, Any]] = []
    for group in range(groups):
        names = [f"g{group}_t{at}" for at in range(tables)]
        dags.append({"group": f"group_{group}", "pipelines": {name: table(name) for name in names}})
    dags += [
        {"dag_id": f"dag_{at}", "pipelines": {f"alone_{at}": table(f"alone_{at}")}} for at in range(alone)
    ]
    # In the order of their times, as a database has them.
    for number in runs:
        ago = (runs[-1] + 1 - number) * _HOUR
        for one in dags:
            names = list(one["pipelines"])
            if "group" in one:
                wave = [published(name, 10 + number) for name in names[:-1]]
                failed = {names[-1]: null_key(names[-1], "versions 11-12")}
                done.append(group_run(one["group"], number, wave, ago=ago, failed=failed))
                continue
            extra = published(names[0], 10 + number)
            done.append(
                {
                    "dag_id": one["dag_id"],
                    "run_id": f"manual__{number}",
                    "ago": ago,
                    "xcoms": [{"task_id": "apply", "key": "return_value", "value": extra}],
                    "events": [{"task_id": "apply", "pipeline": names[0], "extra": extra}],
                }
            )
    return {"dags": dags, "runs": done}
