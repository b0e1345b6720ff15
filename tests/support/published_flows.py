"""Examples that the vendors publish for AUTO CDC, rebuilt: their code, their events, and their rows.

Databricks: "The AUTO CDC APIs" and its examples. Spark: the guide of declarative pipelines, "Auto CDC".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.config import Code, load

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Published:
    """An example.

    :param source: the source as the code names it
    :param batches: the rows that the source gets before each run; of copies, the whole copy
    :param expected: the rows of the target after the last run
    :param codes: the same flow by the suffixes of files, in the order of their variants
    :param options: the same flow in YAML
    :param committed: of copies: the commit time of each
    """

    source: str
    ddl: str
    batches: list[Rows]
    columns: str
    expected: Rows
    codes: dict[str, str]
    options: str
    committed: list[str] = field(default_factory=list)


USERS = [
    (124, "Raul", "Oaxaca", "INSERT", 1),
    (123, "Isabel", "Monterrey", "INSERT", 1),
    (125, "Mercedes", "Tijuana", "INSERT", 2),
    (126, "Lily", "Cancun", "INSERT", 2),
    (123, None, None, "DELETE", 6),
    (125, "Mercedes", "Guadalajara", "UPDATE", 6),
    (125, "Mercedes", "Mexicali", "UPDATE", 5),
    (123, "Isabel", "Chihuahua", "UPDATE", 5),
]
TRUNCATE = (None, None, None, "TRUNCATE", 3)
_USERS = "userId INT, name STRING, city STRING, operation STRING, sequenceNum INT"
_HISTORY = "userId, name, city, __START_AT, __END_AT"


def _users(more: str, *, truncates: bool = False, module: str = "from pyspark import pipelines as dp") -> str:
    """Return the flow of users in Python."""
    truncate = "apply_as_truncates = expr(\"operation = 'TRUNCATE'\"),\n  " if truncates else ""
    return f"""
{module}
from pyspark.sql.functions import col, expr

@dp.view
def users():
  return spark.readStream.table("cdc_data.users")

dp.create_streaming_table("target")

dp.create_auto_cdc_flow(
  target = "target",
  source = "users",
  keys = ["userId"],
  sequence_by = col("sequenceNum"),
  apply_as_deletes = expr("operation = 'DELETE'"),
  {truncate}except_column_list = ["operation", "sequenceNum"],
  {more}
)
"""


def _users_sql(more: str, *, truncates: bool = False) -> str:
    truncate = 'APPLY AS TRUNCATE WHEN operation = "TRUNCATE"\n' if truncates else ""
    return f"""
-- Create and populate the target table.
CREATE OR REFRESH STREAMING TABLE target;

CREATE FLOW target AS AUTO CDC INTO
  target
FROM
  stream(cdc_data.users)
KEYS
  (userId)
APPLY AS DELETE WHEN
  operation = "DELETE"
{truncate}SEQUENCE BY
  sequenceNum
COLUMNS * EXCEPT
  (operation, sequenceNum)
{more};
"""


_USERS_YAML = """
source_kind: change_log
keys: [userId]
sequence_by: sequenceNum
apply_as_deletes: operation = 'DELETE'
except_column_list: [operation, sequenceNum]
"""

# -- Spark's guide ----------------------------------------------------------------------------------
_EVENTS = """
from pyspark import pipelines as dp
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

SCHEMA = StructType([StructField("id", IntegerType()), StructField("version", LongType())])

@dp.table(name="cdc_events")
def cdc_events():
    return spark.readStream.schema(SCHEMA).json("file:///tmp/cdc_demo/events")

dp.create_streaming_table("customers")

dp.create_auto_cdc_flow(
    target="customers",
    source="cdc_events",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="op = 'DELETE'",
    except_column_list=["op"],
    stored_as_scd_type=1,
)
"""
_EVENTS_SQL = """
CREATE STREAMING TABLE customers;

CREATE FLOW customers AS AUTO CDC INTO customers
FROM STREAM(cdc_events)
KEYS (id)
APPLY AS DELETE WHEN op = 'DELETE'
SEQUENCE BY version
COLUMNS * EXCEPT (op);
"""
_EVENTS_TOGETHER = """
CREATE STREAMING TABLE customers
FLOW AUTO CDC
FROM STREAM cdc_events
KEYS (id)
SEQUENCE BY version
COLUMNS * EXCEPT (op)
APPLY AS DELETE WHEN op = 'DELETE';
"""

# -- copies -----------------------------------------------------------------------------------------
_PERIODIC = """
from pyspark import pipelines as dp

@dp.view(name="source")
def source():
  return spark.read.table("mycatalog.myschema.mytable")

dp.create_streaming_table("target")

dp.create_auto_cdc_from_snapshot_flow(
  target="target",
  source="source",
  keys=["key"],
  stored_as_scd_type=2
)
"""
_HISTORICAL = """
from pyspark import pipelines as dp

def exist(file_name):
  return os.path.exists(file_name)

def next_snapshot_and_version(latest_snapshot_version):
  latest_snapshot_version = latest_snapshot_version or 0
  next_version = latest_snapshot_version + 1
  file_name = "dir_path/filename_" + str(next_version) + ".csv"
  if exist(file_name):
    return (spark.read.load(file_name), next_version)
  else:
    return None

dp.create_streaming_live_table("target")

dp.create_auto_cdc_from_snapshot_flow(
  target = "target",
  source = next_snapshot_and_version,
  keys = ["Key"],
  stored_as_scd_type = 2,
  track_history_column_list = ["TrackingColumn"]
)
"""

PUBLISHED: dict[str, Published] = {
    "databricks, type 1": Published(
        "cdc_data.users",
        _USERS,
        [USERS],
        "userId, name, city",
        [(124, "Raul", "Oaxaca"), (125, "Mercedes", "Guadalajara"), (126, "Lily", "Cancun")],
        {
            "py": _users("stored_as_scd_type = 1", truncates=True),
            "sql": _users_sql("STORED AS\n  SCD TYPE 1", truncates=True),
        },
        _USERS_YAML + "apply_as_truncates: operation = 'TRUNCATE'\n",
    ),
    "databricks, type 1, truncated": Published(
        "cdc_data.users",
        _USERS,
        [[*USERS, TRUNCATE]],
        "userId, name, city",
        [(125, "Mercedes", "Guadalajara")],
        {
            "py": _users("stored_as_scd_type = 1", truncates=True, module="import dlt as dp"),
            "sql": _users_sql("STORED AS SCD TYPE 1", truncates=True),
        },
        _USERS_YAML + "apply_as_truncates: operation = 'TRUNCATE'\n",
    ),
    "databricks, type 2": Published(
        "cdc_data.users",
        _USERS,
        [USERS],
        _HISTORY,
        [
            (123, "Isabel", "Monterrey", 1, 5),
            (123, "Isabel", "Chihuahua", 5, 6),
            (124, "Raul", "Oaxaca", 1, None),
            (125, "Mercedes", "Tijuana", 2, 5),
            (125, "Mercedes", "Mexicali", 5, 6),
            (125, "Mercedes", "Guadalajara", 6, None),
            (126, "Lily", "Cancun", 2, None),
        ],
        {"py": _users('stored_as_scd_type = "2"'), "sql": _users_sql("STORED AS\n  SCD TYPE 2")},
        _USERS_YAML + "stored_as_scd_type: 2\n",
    ),
    "databricks, type 2, tracked columns": Published(
        "cdc_data.users",
        _USERS,
        [USERS],
        _HISTORY,
        [
            (123, "Isabel", "Chihuahua", 1, 6),
            (124, "Raul", "Oaxaca", 1, None),
            (125, "Mercedes", "Guadalajara", 2, None),
            (126, "Lily", "Cancun", 2, None),
        ],
        {
            "py": _users('stored_as_scd_type = "2",\n  track_history_except_column_list = ["city"]'),
            "sql": _users_sql("STORED AS\n  SCD TYPE 2\nTRACK HISTORY ON * EXCEPT\n  (city)"),
        },
        _USERS_YAML + "stored_as_scd_type: 2\ntrack_history_except_column_list: [city]\n",
    ),
    "databricks, periodic copies": Published(
        "mycatalog.myschema.mytable",
        "key INT, value STRING",
        [[(1, "a1"), (2, "a2")], [(2, "b2"), (3, "a3")]],
        "key, value, date_format(__START_AT, 'yyyy-MM-dd HH:mm'), date_format(__END_AT, 'yyyy-MM-dd HH:mm')",
        [
            (1, "a1", "2024-01-01 00:00", "2024-01-01 12:00"),
            (2, "a2", "2024-01-01 00:00", "2024-01-01 12:00"),
            (2, "b2", "2024-01-01 12:00", None),
            (3, "a3", "2024-01-01 12:00", None),
        ],
        {"py": _PERIODIC},
        "source_kind: snapshot\nkeys: [key]\nstored_as_scd_type: 2\nsequence_by: _commit_timestamp\n",
        ["2024-01-01 00:00:00", "2024-01-01 12:00:00"],
    ),
    "databricks, historical copies": Published(
        "next_snapshot_and_version",
        "Key INT, TrackingColumn STRING, NonTrackingColumn STRING",
        [
            [(1, "a1", "b1"), (2, "a2", "b2"), (4, "a4", "b4")],
            [(2, "a2_new", "b2"), (3, "a3", "b3"), (4, "a4", "b4_new")],
        ],
        "Key, TrackingColumn, NonTrackingColumn, __START_AT, __END_AT",
        [
            (1, "a1", "b1", 1, 2),
            (2, "a2", "b2", 1, 2),
            (2, "a2_new", "b2", 2, None),
            (3, "a3", "b3", 2, None),
            (4, "a4", "b4_new", 1, None),
        ],
        {"py": _HISTORICAL},
        "source_kind: snapshot\nkeys: [Key]\nstored_as_scd_type: 2\n"
        "track_history_column_list: [TrackingColumn]\n",
    ),
    "spark, type 1, two runs": Published(
        "cdc_events",
        "id INT, name STRING, version BIGINT, op STRING",
        [
            [(1, "alice", 1, "UPSERT"), (2, "bob", 1, "UPSERT")],
            [
                (1, "alicia", 2, "UPSERT"),
                (2, "bob", 2, "DELETE"),
                (3, "carol", 1, "UPSERT"),
                (1, "alice", 1, "UPSERT"),
            ],
        ],
        "id, name, version",
        [(1, "alicia", 2), (3, "carol", 1)],
        {"py": _EVENTS, "sql": _EVENTS_SQL, "together.sql": _EVENTS_TOGETHER},
        "source_kind: change_log\nkeys: [id]\nsequence_by: version\napply_as_deletes: op = 'DELETE'\n"
        "except_column_list: [op]\n",
    ),
}


def arguments_of_code(
    example: Published, suffix: str, folder: Path, source: str, target: str
) -> dict[str, Any]:
    """Return the arguments of the flow of an example, read from its code."""
    file = folder / f"flows.{suffix}"
    file.write_text(example.codes[suffix], encoding="utf-8")
    name = "customers" if "customers" in example.codes[suffix] else "target"
    (table,) = load(file, Code({example.source: source}, {name: target})).tables()
    return table.arguments


def arguments_of_yaml(example: Published, folder: Path, source: str, target: str) -> dict[str, Any]:
    """Return the arguments of the flow of an example, read from YAML."""
    file = folder / "flows.yaml"
    lines = [f"source: {source}", f"target: {target}", *example.options.strip().splitlines()]
    name = "customers" if "cdc_events" in example.source else "target"
    file.write_text(f"pipelines:\n  {name}:\n" + "".join(f"    {line}\n" for line in lines), encoding="utf-8")
    (table,) = load(file).tables()
    return table.arguments
