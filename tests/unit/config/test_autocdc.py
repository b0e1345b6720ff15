"""AUTO CDC code, Python and SQL, becomes the configuration that YAML would be, or is refused by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.config import Code, load, models
from delta_cdc.config.autocdc import clauses
from delta_cdc.core.errors import InvalidConfiguration
from tests.support.published_flows import PUBLISHED, arguments_of_code, arguments_of_yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Read = Callable[..., dict[str, Any]]

HEAD = """\
from pyspark import pipelines as dp
from pyspark.sql import functions as F
from pyspark.sql.functions import col, expr
"""


def flow(*more: str, before: str = "", source: str = '"c.s.events"', head: str = HEAD) -> str:
    """Return a flow in Python with further arguments; it begins in line 5 if nothing is before it."""
    lines = ["dp.create_auto_cdc_flow(", '    target="users",', f"    source={source},", '    keys=["id"],']
    given = [f"    {text}," for text in more if not text.startswith("sequence_by")]
    order = next((text for text in more if text.startswith("sequence_by")), 'sequence_by="seq"')
    return "\n".join([head, *([before] if before else []), *lines, f"    {order},", *given, ")", ""])


def flow_sql(*more: str, source: str = "STREAM(c.s.events)", keys: str = "KEYS (id)") -> str:
    order = [] if any(text.startswith("SEQUENCE BY") for text in more) else ["SEQUENCE BY seq"]
    return "\n".join(
        [f"CREATE FLOW users AS AUTO CDC INTO users FROM {source} {keys}", *order, *more, ";", ""]
    )


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return the arguments of the one flow of a code."""

    def arguments(text: str, **given: Any) -> dict[str, Any]:
        suffix = "py" if "import" in text else "sql"
        file = tmp_path / f"flows.{suffix}"
        file.write_text(text, encoding="utf-8")
        (table,) = load(file, Code(**given)).tables()
        return table.arguments

    return arguments


@pytest.fixture
def refusal(read: Read) -> Callable[..., str]:
    """Return the first finding of a code, without its folder: ``py:5:1: …``."""

    def finding(text: str, **given: Any) -> str:
        with pytest.raises(InvalidConfiguration) as caught:
            read(text, **given)
        lines = str(caught.value).splitlines()
        assert "finding" in lines[0]
        return re.sub(r"^\S*flows\.", "", lines[1])

    return finding


BASE = {
    "pipeline": "users",
    "source": "c.s.events",
    "target": "users",
    "source_kind": "change_log",
    "keys": ["id"],
    "sequence_by": "seq",
}


def test_a_flow(read: Read) -> None:
    assert read(flow()) == read(flow_sql()) == BASE


_SEVERAL_SQL = """
CREATE OR REFRESH STREAMING TABLE users;
CREATE FLOW eu AS AUTO CDC INTO users FROM STREAM(c.s.eu) KEYS (id)
  APPLY AS DELETE WHEN op = 'D' SEQUENCE BY seq COLUMNS * EXCEPT (op) STORED AS SCD TYPE 2;
CREATE FLOW us AS AUTO CDC INTO users FROM STREAM(c.s.us) KEYS (id)
  SEQUENCE BY at STORED AS SCD TYPE 2;
CREATE FLOW old AS AUTO CDC ONCE INTO users FROM STREAM(c.s.old) KEYS (id)
  SEQUENCE BY at STORED AS SCD TYPE 2;
"""
_SEVERAL_PY = f"""{HEAD}
dp.create_streaming_table("users")
more = {{"old": {{"once": True}}, "us": {{}}}}
dp.create_auto_cdc_flow(
    target="users", source="c.s.eu", name="eu", keys=["id"], sequence_by="seq", stored_as_scd_type=2,
    apply_as_deletes="op = 'D'", except_column_list=["op"],
)
for region, once in {{"us": False, "old": True}}.items():
    dp.create_auto_cdc_flow(
        target="users", source=f"c.s.{{region}}", name=region, keys=["id"], sequence_by="at", once=once,
        stored_as_scd_type=2,
    )
"""
_SEVERAL_YAML = """
pipelines:
  users:
    group: flows
    target: users
    keys: [id]
    stored_as_scd_type: 2
    track_history_except_column_list: []
    sources:
      eu: {source: c.s.eu, source_kind: change_log, sequence_by: seq, apply_as_deletes: op = 'D',
           except_column_list: [op]}
      us: {source: c.s.us, source_kind: change_log, sequence_by: at}
      old: {source: c.s.old, source_kind: change_log, sequence_by: at, once: true}
groups: {flows: {}}
"""


def test_several_flows_into_one_target_are_its_sources(tmp_path: Path) -> None:
    found = {}
    for suffix, text in (("sql", _SEVERAL_SQL), ("py", _SEVERAL_PY), ("yaml", _SEVERAL_YAML)):
        file = tmp_path / f"flows.{suffix}"
        file.write_text(text, encoding="utf-8")
        found[suffix] = {one.arguments["pipeline"]: one.arguments for one in load(file).tables()}
    assert found["sql"] == found["py"] == found["yaml"]
    assert found["py"].keys() == {"users.eu", "users.us", "users.old", "users"}
    assert found["py"]["users.old"]["once"] is True
    assert found["py"]["users"]["sequence_by"] == "_sequence"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(tmp_path: Path, name: str) -> None:
    """Python, SQL and YAML have one meaning."""
    example = PUBLISHED[name]
    from_yaml = arguments_of_yaml(example, tmp_path, "/lake/s", "/lake/t")
    for suffix in example.codes:
        from_code = arguments_of_code(example, suffix, tmp_path, "/lake/s", "/lake/t")
        normal = {
            key: value.replace('"', "'") if isinstance(value, str) else value
            for key, value in from_code.items()
        }
        if normal.get("stored_as_scd_type") == 1:
            del normal["stored_as_scd_type"]
        assert normal == from_yaml


#: Each clause with an option: the argument in Python, the clause in SQL, the key and its value.
MAPPED: list[tuple[str, str, str, Any]] = [
    ('where="a > 1"', "WHERE a > 1", "where", "a > 1"),
    ("ignore_null_updates=True", "IGNORE NULL UPDATES", "ignore_null_updates", True),
    (
        'ignore_null_updates_column_list=["a", "b.c"]',
        "IGNORE NULL UPDATES ON (a, b.c)",
        "ignore_null_updates_column_list",
        ["a", "b.c"],
    ),
    (
        'ignore_null_updates_except_column_list=["a"]',
        "IGNORE NULL UPDATES ON * EXCEPT (a)",
        "ignore_null_updates_except_column_list",
        ["a"],
    ),
    ("apply_as_deletes=expr(\"op = 'D'\")", "APPLY AS DELETE WHEN op = 'D'", "apply_as_deletes", "op = 'D'"),
    ("apply_as_truncates=\"op = 'T'\"", "APPLY AS TRUNCATE WHEN op = 'T'", "apply_as_truncates", "op = 'T'"),
    ("sequence_by=F.struct('a', col('b'))", "SEQUENCE BY struct(a, b)", "sequence_by", ["a", "b"]),
    ('sequence_by=F.expr("to_date(a)")', "SEQUENCE BY to_date(a)", "sequence_by", "to_date(a)"),
    ('column_list=[col("id"), "v"]', "COLUMNS id, v", "column_list", ["id", "v"]),
    ('except_column_list=["op"]', "COLUMNS * EXCEPT (op)", "except_column_list", ["op"]),
    ('columns_to_update="cols"', "COLUMNS TO UPDATE cols", "columns_to_update", "cols"),
    ('stored_as_scd_type="1"', "STORED AS SCD TYPE 1", "stored_as_scd_type", 1),
    ('name="f"', "", "pipeline", "f"),
    ("once=True", "", "once", True),
]


@pytest.mark.parametrize(("python", "sql", "key", "value"), MAPPED, ids=[one[0][:40] for one in MAPPED])
def test_a_clause_is_an_option(read: Read, python: str, sql: str, key: str, value: Any) -> None:
    expected = {**BASE, key: value}
    assert read(flow(python)) == expected
    if sql:
        assert read(flow_sql(sql)) == expected


@pytest.mark.parametrize(
    ("python", "sql", "key", "value"),
    [
        ('track_history_column_list=["a"]', "TRACK HISTORY ON (a)", "track_history_column_list", ["a"]),
        (
            'track_history_except_column_list=["a"]',
            "TRACK HISTORY ON * EXCEPT (a)",
            "track_history_except_column_list",
            ["a"],
        ),
    ],
)
def test_tracked_columns(read: Read, python: str, sql: str, key: str, value: Any) -> None:
    expected = {**BASE, "stored_as_scd_type": 2, key: value}
    assert (
        read(flow("stored_as_scd_type=2", python)) == read(flow_sql("STORED AS SCD TYPE 2", sql)) == expected
    )


def test_the_columns_of_the_sequence_are_tracked_if_the_target_gets_them(read: Read) -> None:
    """As in AUTO CDC, where each event then begins a version; the option's default leaves them out."""
    history = {**BASE, "stored_as_scd_type": 2}
    every = {"track_history_except_column_list": []}
    type_2 = "stored_as_scd_type=2"
    assert read(flow(type_2)) == {**history, **every}
    assert read(flow(type_2, 'column_list=["id", "v"]')) == {**history, "column_list": ["id", "v"]}
    assert read(flow(type_2, 'except_column_list=["SEQ"]')) == {**history, "except_column_list": ["SEQ"]}
    two = read(flow(type_2, 'sequence_by=F.struct("seq", "n")', 'except_column_list=["seq"]'))
    assert two["track_history_except_column_list"] == []


def test_every_clause_has_an_option_or_a_reason() -> None:
    keys = {
        *models.table_keys(),
        "pipeline",
        *(f"{group}.{key}" for group, keys in models.IN_GROUPS.items() for key in keys),
    }
    for clause in (*clauses.EVENTS, *clauses.TABLE):
        assert bool(clause.option) + bool(clause.instead) + bool(clause.reason) == 1, clause
        assert not clause.option or clause.option in keys, clause
    mapped = {one[2] for one in MAPPED} | {
        "keys",
        "track_history_column_list",
        "track_history_except_column_list",
    }
    assert mapped == {clause.option for clause in clauses.EVENTS if clause.option}


#: What is refused, with the beginning of the finding and a part of its remedy.
REFUSED: list[tuple[str, str, str]] = [
    (
        flow('system_sequence_by="b"'),
        "py:10:24: system_sequence_by (SYSTEM SEQUENCE BY) has no",
        "bitemporal",
    ),
    (flow('spark_conf={"a": "b"}'), "py:10:16: spark_conf has no equivalent", "conf in the defaults"),
    (
        flow('stored_as_scd_type="bitemporal"'),
        "py:10:24: stored_as_scd_type (STORED AS) is bitemporal",
        "1 or 2",
    ),
    (flow("stored_as_scd_type=3"), "py:10:24: stored_as_scd_type (STORED AS) is 3", "1 or 2"),
    (
        flow('apply_as_delete="x"'),
        "py:10:21: create_auto_cdc_flow has no argument apply_as_delete",
        "did you mean",
    ),
    (flow("apply_as_deletes=made()"), "py:10:22: made() cannot be read as SQL", "expr("),
    (flow('apply_as_deletes=F.upper("op") == "D"'), "py:10:22: F.upper('op') cannot be read", "expr("),
    (flow("column_list=[1]"), "py:10:18: 1 is no text", "write a text"),
    (flow('column_list=["a.b"]'), "py:10:18: 'a.b' is a qualified name", "alone"),
    (flow("column_list=COLUMNS"), "py:10:17: COLUMNS is no list", "write a list"),
    (flow('except_column_list="op"'), "py:10:24: 'op' is no list", "write a list"),
    (flow("**more"), "py:10:7: create_auto_cdc_flow gets arguments from more", "each argument"),
    (flow('keys=["id"]'), "py:10:10: keys is given twice", "keep one"),
    (
        flow("ignore_null_updates=True", 'columns_to_update="c"'),
        "py:11:23: The pipeline users:",
        "one of them",
    ),
    (flow(source="feed()"), "py:7:12: feed() is no literal", "not run"),
    (flow(source='spark.conf.get("source")'), "py:7:12: spark.conf.get('source') is no literal", "not run"),
    (
        flow(before="while T:\n    dp.create_auto_cdc_flow(target='x')"),
        "py:6:5: create_auto_cdc_flow is in",
        "left margin",
    ),
    (
        flow(before="make = dp.create_auto_cdc_flow"),
        "py:5:8: create_auto_cdc_flow is in a loop",
        "left margin",
    ),
    (
        flow(before='dp.apply_changes("t", "s", ["k"], "q", "where")'),
        "py:5:40: 'where' has no name",
        "names of the arguments",
    ),
    (flow(before='dp.apply_changes("t", "s")'), "py:5:1: apply_changes has no keys", "give keys"),
    (
        flow(before='dp.apply_changes("t", "s", ["k"])'),
        "py:5:1: The flow into t has no sequence_by",
        "orders the events",
    ),
    (
        flow() + flow(head=""),
        "py:13:12: Two flows into users have the name users",
        "own name",
    ),
    (
        flow('name="a"') + flow('name="b"', "stored_as_scd_type=2", head=""),
        "py:19:24: The flows into users differ in stored_as_scd_type; the first one is in line 5",
        "same value",
    ),
    (
        flow('name="a"') + flow('name="b"', head="").replace('keys=["id"]', 'keys=["k"]'),
        "py:16:10: The flows into users differ in keys",
        "same value",
    ),
    (
        flow('name="a"') + flow('name="b"', "apply_as_truncates=\"op = 'T'\"", head=""),
        "py:19:24: Several flows write users, and this one has apply_as_truncates",
        "remove it",
    ),
    (
        flow('name="a"') + flow('name="b"', 'columns_to_update="c"', head=""),
        "py:19:23: Several flows write users, and this one has columns_to_update",
        "append to one",
    ),
    (
        flow('name="a"') + flow('name="b c"', head=""),
        "py:18:10: Several flows write users, and the name b c fits no source",
        "letters",
    ),
    (
        flow('name="a"') + 'dp.create_auto_cdc_from_snapshot_flow(target="users", source="s", keys=["id"])',
        "py:12:1: Several flows write users, and this one reads full copies",
        "sources",
    ),
    (HEAD, "py:1:1: The file has no AUTO CDC flow", "create_auto_cdc_flow"),
    ("import dlt\nx = (", "py:2:5: It is no Python: '(' was never closed", "correct"),
    ("import dlt\nx = '\0'", "py:", "correct"),
    (
        flow_sql("SYSTEM SEQUENCE BY b"),
        "sql:3:1: system_sequence_by (SYSTEM SEQUENCE BY) has no",
        "bitemporal",
    ),
    (flow_sql("STORED AS BITEMPORAL"), "sql:3:1: stored_as_scd_type (STORED AS) is bitemporal", "1 or 2"),
    (flow_sql("STORED AS SCD TYPE 3"), "sql:3:1: stored_as_scd_type (STORED AS) is 3", "1 or 2"),
    (flow_sql("MERGE SCHEMA"), "sql:3:1: 'MERGE' begins no clause of AUTO CDC", "use some of KEYS"),
    (flow_sql("COLUMNS (a) MERGE"), "sql:3:13: 'MERGE' begins no clause of AUTO CDC", "use some of KEYS"),
    (flow_sql("COLUMNS (a.b)"), "sql:3:10: a.b is a qualified name", "alone"),
    (flow_sql("COLUMNS (a"), "sql:4:1: ", ")"),
    (flow_sql("COLUMNS (a)", "COLUMNS (b)"), "sql:4:1: COLUMNS is given twice", "keep one"),
    (
        flow_sql("APPLY AS DELETE WHEN"),
        "sql:4:1: The end of the statement is where a predicate is",
        "predicate",
    ),
    (flow_sql("APPLY AS DELETE WHEN (a = 1"), "sql:3:22: The bracket is not closed", "close"),
    (
        flow_sql("APPLY AS DELETE WHEN op = '${del}'"),
        "sql:3:22: Here is a variable of the pipeline",
        "its value",
    ),
    (flow_sql("APPLY AS DELETE WHEN op = 'D"), "sql:3:27: The quote ' is not closed", "close it"),
    (flow_sql("/* not closed"), "sql:3:1: The comment is not closed", "*/"),
    (
        flow_sql(source="c.s.events"),
        "sql:1:47: The source c.s.events is not read as a stream",
        "STREAM(c.s.events)",
    ),
    (flow_sql(source="STREAM read_files('x')"), "sql:1:47: read_files(…) is no plain read", "Delta table"),
    (
        flow_sql(source="(SELECT a FROM STREAM x)"),
        "sql:1:48: The query is no plain read",
        "SELECT * FROM STREAM",
    ),
    (
        flow_sql(source="(SELECT * FROM STREAM x WHERE a GROUP BY b)"),
        "sql:1:79: The query is no plain",
        "SELECT *",
    ),
    (flow_sql(source="STREAM(`my table`)"), "sql:1:47: The name `my table` needs back-ticks", "--source"),
    (flow_sql(keys=""), "sql:1:13: The pipeline users: keys", "key"),
    (
        "CREATE FLOW f AS MERGE",
        "sql:1:18: 'MERGE' is where AUTO CDC INTO or INSERT INTO is expected",
        "AUTO CDC",
    ),
    (
        "CREATE FLOW f AS AUTO CDC FROM SNAPSHOT INTO t",
        "sql:1:18: AUTO CDC FROM SNAPSHOT has no form in SQL here",
        "source_kind: snapshot",
    ),
    (
        "CREATE STREAMING TABLE t FLOW AUTO CDC FROM SNAPSHOT s",
        "sql:1:31: AUTO CDC FROM SNAPSHOT has no form",
        "in Python",
    ),
    ("USE CATALOG c;", "sql:1:1: 'USE' begins no statement of a pipeline", "USE is not needed"),
    (
        "CREATE STREAMING TABLE t (id INT);" + flow_sql(),
        "sql:1:27: The table has a list of columns",
        "select",
    ),
    (
        "CREATE STREAMING TABLE t WITH ROW FILTER f ON (a);",
        "sql:1:26: WITH ROW FILTER has no equivalent",
        "row filters",
    ),
    (
        "CREATE STREAMING TABLE t SCHEDULE EVERY 1 HOUR;",
        "sql:1:26: SCHEDULE has no equivalent",
        "schedule in the defaults",
    ),
    (
        "CREATE STREAMING TABLE t OPTIONS (a = 1);",
        "sql:1:26: 'OPTIONS' begins no clause",
        "COMMENT, TBLPROPERTIES",
    ),
    (
        "CREATE STREAMING TABLE users USING parquet;" + flow_sql(),
        "sql:1:30: format (USING) has no",
        "write delta",
    ),
    (
        flow(before='dp.create_streaming_table("users", schema="id INT")'),
        "py:5:43: schema ((columns)) has no",
        "select",
    ),
    (
        flow(before='dp.create_streaming_table("users", row_filter="f")'),
        "py:5:47: row_filter (WITH ROW",
        "row filters",
    ),
]


@pytest.mark.parametrize(("code", "begins", "remedy"), REFUSED, ids=[one[1][:50] for one in REFUSED])
def test_refused(refusal: Callable[..., str], code: str, begins: str, remedy: str) -> None:
    """With the place, what is wrong, and what to write."""
    found = refusal(code)
    assert found.startswith(begins)
    assert remedy in found.partition("Remedy: ")[2]


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        (
            flow() + "# COMMAND ----------\n# MAGIC %sql\n# MAGIC CREATE FLOW f AS AUTO CDC INTO t",
            "py:13:1: A flow is in a cell",
        ),
        (flow_sql() + "-- MAGIC %python\n-- MAGIC dp.create_auto_cdc_flow(", "sql:5:1: A flow is in a cell"),
        (flow() + "dp.create_auto_cdc_flow_v2()\n", "py:11:1: create_auto_cdc_flow_v2 is no function"),
        (flow() + "make = dp.create_auto_cdc_flow_v2\n", "py:11:8: create_auto_cdc_flow_v2 is in a loop"),
        (
            flow_sql() + "CREATE OR REFRESH FLOW g AS AUTO CDC INTO t",
            "sql:4:1: The statement has AUTO CDC in an",
        ),
        (
            flow_sql() + "CREATE STREAMING TABLE t AS APPLY CHANGES INTO t",
            "sql:4:1: The statement has AUTO CDC",
        ),
        (flow_sql() + "CREATE VIEW v AS SELECT 1; SET a = AUTO CDC", "sql:4:28: The statement has AUTO CDC"),
    ],
)
def test_no_flow_is_left_out(refusal: Callable[..., str], code: str, begins: str) -> None:
    assert refusal(code).startswith(begins)


def test_other_cells_of_a_notebook_are_left_out(read: Read) -> None:
    notebook = (
        "# MAGIC %sql\n# MAGIC SELECT 1\n# COMMAND ----------\n# MAGIC %md\n# MAGIC ## AUTO CDC of users\n"
    )
    assert read(notebook + flow()) == BASE


# -- names and values -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("head", "call"),
    [
        ("import dlt", "dlt.create_auto_cdc_flow"),
        ("import dlt", "dlt.apply_changes"),
        ("import dlt as live", "live.apply_changes"),
        ("from dlt import *", "apply_changes"),
        ("from dlt import apply_changes as cdc", "cdc"),
        ("import pyspark.pipelines", "pyspark.pipelines.create_auto_cdc_flow"),
        ("import pyspark.pipelines as sdp", "sdp.create_auto_cdc_flow"),
        ("from pyspark.pipelines import create_auto_cdc_flow", "create_auto_cdc_flow"),
        (
            "try:\n    from pyspark import pipelines as dp\nexcept ImportError:\n    dp = None",
            "dp.apply_changes",
        ),
    ],
)
def test_modules(read: Read, head: str, call: str) -> None:
    assert read(f'{head}\n{call}("users", "c.s.events", ["id"], "seq")') == BASE


def test_a_default_that_one_flow_writes_is_no_contradiction(tmp_path: Path) -> None:
    first, second, given = 'name="a"', 'name="b"', "stored_as_scd_type=1"
    for code in (
        flow(first) + flow(second, given, head=""),
        flow(first, given) + flow(second, head=""),
    ):
        (tmp_path / "flows.py").write_text(code, encoding="utf-8")
        names = {table.pipeline for table in load(tmp_path / "flows.py").tables()}
        assert names == {"users", "users.a", "users.b"}


def test_another_module_with_such_a_function_has_no_flow(refusal: Callable[..., str]) -> None:
    assert "no AUTO CDC flow" in refusal('import other\nother.apply_changes("t", "s", ["k"], "q")')


def test_constants_of_the_module(read: Read) -> None:
    before = 'CATALOG = "c"\nKEYS = ["id"]\nDELETES: str = "op = \'D\'"\nLATE = expr("x")\n'
    code = flow("apply_as_deletes=DELETES", "where=LATE", before=before, source='f"{CATALOG}.s.events"')
    assert read(code.replace('keys=["id"]', "keys=KEYS")) == {
        **BASE,
        "apply_as_deletes": "op = 'D'",
        "where": "x",
    }


@pytest.mark.parametrize(
    "before",
    [
        'NAME = "a"\nNAME = "b"',
        'NAME = "a"\nif True:\n    NAME = "b"',
        'NAME = "a"\nfor NAME in (): pass',
        'NAME = "a"\ndef f():\n    global NAME\n    NAME = "b"',
        'NAME = "a"\nNAME += "b"',
        'NAME = "a"\nfrom x import y as NAME',
        "NAME = made()",
        "A = B\nB = A\nNAME = A",
    ],
)
def test_a_name_without_one_value_is_refused(refusal: Callable[..., str], before: str) -> None:
    assert re.match(
        r"py:\d+:\d+: .*(is no literal|nested too deeply)", refusal(flow(before=before, source="NAME"))
    )


def test_a_list_that_the_code_changes_is_refused(refusal: Callable[..., str]) -> None:
    code = flow("column_list=COLUMNS", before='COLUMNS = ["a"]\nCOLUMNS.append("b")')
    assert "COLUMNS is no list of columns" in refusal(code)


@pytest.mark.parametrize(
    ("python", "sql"),
    [
        ('col("op") == "D"', "op = 'D'"),
        ('F.col("op") == F.lit("it\'s")', "op = 'it\\'s'"),
        ('(col("a") != -1) | ~col("b").isNull()', "(a != -1) OR (NOT (b IS NULL))"),
        ('(col("a") >= 1) & col("b").isin("x", "y")', "(a >= 1) AND (b IN ('x', 'y'))"),
        ('col("s.op").isNotNull()', "s.op IS NOT NULL"),
        ('col("__$operation") == 1', "`__$operation` = 1"),
        ('expr("a") == True', "(a) = true"),
        ('"__$op"', "`__$op`"),
    ],
)
def test_columns_become_sql(read: Read, python: str, sql: str) -> None:
    assert read(flow(f"apply_as_deletes={python}"))["apply_as_deletes"] == sql


@pytest.mark.parametrize(
    "text",
    [
        'col("a") == None',
        'col("a") + 1',
        'col("a") < col("b") < 1',
        "col()",
        "F.struct()",
        "lambda: 1",
        "col(*A)",
    ],
)
def test_other_columns_are_refused(refusal: Callable[..., str], text: str) -> None:
    assert "cannot be read" in refusal(flow(f"apply_as_deletes={text}"))


def test_empty_values_count_as_left_out(read: Read) -> None:
    code = flow(
        "column_list=[]",
        "once=False",
        "spark_conf={}",
        "apply_as_deletes=None",
        "track_history_column_list=[]",
    )
    assert read(code) == BASE


# -- SQL ------------------------------------------------------------------------------------------
def test_sql_is_read_in_any_form(read: Read) -> None:
    text = (
        """
    -- first; a comment
    create or refresh streaming table users; /* ; */
    Create Flow `users` Comment 'of us; all' As auto cdc into `users`
      from stream c . s . events as_is_no_alias_here
    """.replace(" as_is_no_alias_here", "")
        + """
      keys (`id`) columns * except (`a;b`, "op") sequence by seq -- last
      apply as delete when `op` = 'a;b' and case when x then true end and columns > 1; ;
    """.replace(', "op"', "")
    )
    assert read(text) == {
        **BASE,
        "except_column_list": ["a;b"],
        "apply_as_deletes": "`op` = 'a;b' and case when x then true end and columns > 1",
    }


@pytest.mark.parametrize(
    "text",
    [
        "APPLY CHANGES INTO LIVE.users FROM stream(LIVE.events) KEYS (id) SEQUENCE BY seq",
        "AUTO CDC INTO users FROM STREAM events KEYS (id) SEQUENCE BY seq",
        "CREATE STREAMING TABLE users FLOW AUTO CDC FROM STREAM(events) KEYS (id) SEQUENCE BY seq",
        "CREATE STREAMING LIVE TABLE t; APPLY CHANGES INTO users FROM STREAM(events) KEYS id SEQUENCE BY seq",
        "APPLY CHANGES INTO users FROM (SELECT * FROM STREAM events) KEYS id SEQUENCE BY seq",
    ],
)
def test_forms_of_a_flow(read: Read, text: str) -> None:
    assert read(text) == {**BASE, "source": "events"}


def test_a_comment_in_a_predicate_is_left_out(read: Read) -> None:
    code = flow_sql("APPLY AS DELETE WHEN a -- now\n  = /* b */ 1")
    assert read(code)["apply_as_deletes"] == "a = 1"


@pytest.mark.parametrize(
    "order",
    [
        *(
            "time",
            "end",
            "`order by`",
            "ts AT TIME ZONE 'UTC'",
            "a + INTERVAL 1 DAY",
            "CASE WHEN a THEN b ELSE c END",
        ),
        *("row_number() OVER (PARTITION BY a ORDER BY b)", "a :: INT", "m['k']", "coalesce(a, b)"),
    ],
)
def test_an_expression_ends_where_the_next_clause_begins(read: Read, order: str) -> None:
    expected = {**BASE, "sequence_by": order, "column_list": ["id"]}
    assert read(flow_sql(f"SEQUENCE BY {order}", "COLUMNS id")) == expected


# -- sources --------------------------------------------------------------------------------------
def _reads(query: str, decorator: str = "@dp.table", name: str = "feed") -> str:
    return f"{decorator}\ndef {name}():\n    '''Events.'''\n    return {query}\n"


@pytest.mark.parametrize(
    ("query", "source", "where"),
    [
        ('spark.readStream.table("a.b")', "a.b", None),
        ('spark.readStream.format("delta").load("s3://lake/x")', "s3://lake/x", None),
        ('dp.read_stream("a.b")', "a.b", None),
        (
            'spark.readStream.option("maxBytesPerTrigger", 1).table("LIVE.b").where("x").where(col("y")==2)',
            "b",
            "(x) AND (y = 2)",
        ),
    ],
)
def test_a_plain_read_is_followed(read: Read, query: str, source: str, where: str | None) -> None:
    expected = {**BASE, "source": source} | ({"where": where} if where else {})
    assert read(flow(before=_reads(query), source='"feed"')) == expected


def test_reads_are_followed_through_datasets(read: Read) -> None:
    before = _reads('spark.readStream.table("raw.t")', name="bronze") + _reads(
        'dp.read_stream("LIVE.bronze").filter("a")', "@dp.temporary_view(name='feed')", "other"
    )
    assert read(flow(before=before, source='"feed"')) == {**BASE, "source": "raw.t", "where": "a"}
    table = "CREATE STREAMING TABLE b AS SELECT * FROM STREAM raw.t WHERE x;"
    sql = f"{table} CREATE VIEW v AS SELECT * FROM STREAM(b);"
    assert read(sql + flow_sql("WHERE y", source="STREAM(v)")) == {
        **BASE,
        "source": "raw.t",
        "where": "(x) AND (y)",
    }
    fill = "CREATE STREAMING TABLE b; CREATE FLOW f AS INSERT INTO b BY NAME SELECT * FROM STREAM raw.t;"
    assert read(fill + flow_sql(source="STREAM(b)")) == {**BASE, "source": "raw.t"}


def test_a_given_table_ends_the_search(read: Read) -> None:
    before = _reads('spark.readStream.schema(S).json("/x")')
    assert (
        read(flow(before=before, source='"feed"'), sources={"FEED": "/lake/feed"})["source"] == "/lake/feed"
    )
    given = {"sources": {"c.s.events": "/lake/e"}, "targets": {"users": "s3://lake/u"}}
    assert read(flow(), **given) == {**BASE, "source": "/lake/e", "target": "s3://lake/u"}


FEED = _reads(
    'spark.readStream.option("readChangeFeed", "true").table("a.b")'
    ".filter(\"_change_type != 'update_preimage'\")"
)
_FEED_FLOW = (
    'sequence_by="_commit_version"',
    "apply_as_deletes=expr(\"_change_type = 'delete'\")",
    'except_column_list=["_change_type", "_commit_version", "_commit_timestamp", "x"]',
)


def test_a_change_feed_is_a_change_feed(read: Read) -> None:
    expected = {
        "pipeline": "users",
        "source": "a.b",
        "target": "users",
        "source_kind": "change_feed",
        "keys": ["id"],
        "except_column_list": ["x"],
    }
    assert read(flow(*_FEED_FLOW, before=FEED, source='"feed"')) == expected
    start = FEED.replace(".table(", '.option("startingVersion", 0).table(')
    assert read(flow(*_FEED_FLOW, before=start, source='"feed"'))["initial_load"] == {"from_version": 0}
    timed = [text.replace('"_commit_version"', 'col("_commit_timestamp")', 1) for text in _FEED_FLOW]
    timed[2] = _FEED_FLOW[2]
    history = read(flow(*timed, "stored_as_scd_type=2", before=FEED, source='"feed"'))
    assert history["sequence_by"] == "_commit_timestamp"


@pytest.mark.parametrize(
    ("before", "more", "begins"),
    [
        (
            FEED,
            ('sequence_by="v"', *_FEED_FLOW[1:]),
            "The source is a change feed, and sequence_by is no version",
        ),
        (FEED, _FEED_FLOW[:1] + _FEED_FLOW[2:], "The source is a change feed, and apply_as_deletes"),
        (
            FEED,
            (_FEED_FLOW[0], "apply_as_deletes=\"op = 'D'\"", _FEED_FLOW[2]),
            "The source is a change feed, and apply",
        ),
        (
            FEED,
            _FEED_FLOW[:2],
            "users would get the columns _change_type, _commit_timestamp, _commit_version",
        ),
        (
            FEED,
            (*_FEED_FLOW[:2], 'except_column_list=["_change_type"]'),
            "users would get the columns _commit_timestamp",
        ),
        (
            FEED,
            (*_FEED_FLOW[:2], 'column_list=["_change_type"]'),
            "users would get the columns _change_type of",
        ),
        (
            FEED.replace("_change_type !=", "x !="),
            _FEED_FLOW,
            "The change feed is filtered by x != 'update_preimage'",
        ),
        (
            FEED.replace(".table(", '.option("startingVersion", 5).table('),
            _FEED_FLOW,
            "The reader begins at startingversion 5",
        ),
        (
            FEED.replace(".table(", '.option("skipChangeCommits", True).table('),
            _FEED_FLOW,
            "The option skipchangecommits",
        ),
        (_reads('spark.read.table("a.b")'), (), "feed reads a.b as a whole, not as a stream"),
        (_reads('spark.read.table("a.b")', "@dp.materialized_view"), (), "feed reads a.b as a whole"),
        (_reads('spark.readStream.table("feed")'), (), "feed reads itself"),
        (
            _reads('spark.readStream.load("/x")'),
            (),
            "The flow into users reads feed. spark.readStream.load('/x') is no",
        ),
        (_reads('spark.readStream.format("kafka").load()'), (), "The flow into users reads feed. "),
        (
            _reads('spark.readStream.table("a.b").withColumn("x", col("y"))'),
            (),
            "The flow into users reads feed. ",
        ),
        (
            _reads('spark.readStream.table("a.b")', "@dp.table\n@dp.expect_or_drop('a', 'b')"),
            (),
            "The flow into users reads feed. feed has @dp.expect_or_drop",
        ),
        (
            "@dp.table\ndef feed():\n    x = 1\n    return spark.readStream.table('a')\n",
            (),
            "The flow into users reads feed. The function feed is more than",
        ),
        (
            "dp.create_streaming_table('feed')\n"
            + 2 * _reads('spark.readStream.table("a.b")', "@dp.append_flow(target='feed')"),
            (),
            "2 flows fill feed",
        ),
        (
            "dp.create_streaming_table('feed', expect_all_or_drop={'a': 'b'})\n"
            + _reads('spark.readStream.table("a.b")', "@dp.append_flow(target='feed')"),
            (),
            "feed has expectations",
        ),
    ],
)
def test_a_source_that_is_more_is_refused(
    refusal: Callable[..., str], before: str, more: tuple[str, ...], begins: str
) -> None:
    assert refusal(flow(*more, before=before, source='"feed"')).split(": ", 1)[1].startswith(begins)


@pytest.mark.parametrize(
    ("definition", "begins"),
    [
        (
            "@dp.table\ndef feed(T='b'):\n    return spark.readStream.table(T)\n",
            "The function feed has parameters",
        ),
        ("@dp.table\n@retried\ndef feed():\n    return spark.readStream.table('b')\n", "feed has @retried"),
        (
            "if U:\n    @dp.table\n    def feed():\n        return spark.readStream.table('b')\n",
            "feed is defined in a loop, a condition",
        ),
    ],
)
def test_a_function_that_may_return_something_else_is_refused(
    refusal: Callable[..., str], definition: str, begins: str
) -> None:
    """A parameter hides a constant of the module, and another decorator may change the result."""
    assert f"reads feed. {begins}" in refusal(flow(before=f"T = 'a'\n{definition}", source='"feed"'))


def test_a_name_that_the_module_defines_itself_is_no_import(refusal: Callable[..., str]) -> None:
    code = 'from dlt import *\ndef apply_changes(*_): pass\napply_changes("t", "s", ["k"], "q")\n'
    assert "no AUTO CDC flow" in refusal(code)


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        (flow("where=\"a = '{{ x }}'\""), "A text contains {{"),
        (flow_sql("APPLY AS DELETE WHEN a = '{% x %}'"), "A text contains {{"),
        (
            flow(before='dp.create_streaming_table("users", table_properties={"{{ a }}": "b"})'),
            "A text contains",
        ),
        (flow(source='"/lake/$x"'), "The path /lake/$x has a variable"),
        (flow(source='"/lake/{{ x }}"'), "The path /lake/{{ x }} has a variable"),
    ],
)
def test_what_a_run_would_substitute_is_refused(refusal: Callable[..., str], code: str, begins: str) -> None:
    assert refusal(code).split(": ", 1)[1].startswith(begins)


def test_a_target_that_another_query_fills_is_refused(refusal: Callable[..., str]) -> None:
    before = _reads('spark.readStream.table("a.b")', name="users")
    assert "users is the target of an AUTO CDC flow and of another query" in refusal(flow(before=before))


# -- copies ---------------------------------------------------------------------------------------
COPIES = """
import dlt
def next_copy(version):
    return None
dlt.create_auto_cdc_from_snapshot_flow(target="t", source={source}, keys=["k"], stored_as_scd_type={type})
"""


def test_copies(read: Read) -> None:
    expected = {
        "pipeline": "t",
        "source": "a.b",
        "target": "t",
        "source_kind": "snapshot",
        "keys": ["k"],
        "stored_as_scd_type": 2,
        "sequence_by": "_commit_timestamp",
    }
    assert read(COPIES.format(source='"a.b"', type=2)) == expected
    del expected["sequence_by"]
    given = {"sources": {"next_copy": "/lake/copies"}}
    assert read(COPIES.format(source="next_copy", type=2), **given) == {**expected, "source": "/lake/copies"}
    assert "sequence_by" not in read(COPIES.format(source='"a.b"', type=1))


@pytest.mark.parametrize(("type_", "older"), [(2, True), (1, False)])
def test_the_import_says_which_copies_the_first_run_takes(
    tmp_path: Path, capsys: Any, type_: int, older: bool
) -> None:
    """A history of Databricks has all copies; current rows need only the newest."""
    file = tmp_path / "copies.py"
    file.write_text(COPIES.format(source="next_copy", type=type_), encoding="utf-8")
    assert main(["import", str(file), "--source", "next_copy=/lake/copies"]) == 0
    notices = capsys.readouterr().err
    assert ("only the newest copy of /lake/copies" in notices) is older
    assert ("initial_load: {from_version: N}" in notices) is older


@pytest.mark.parametrize(
    ("source", "begins"),
    [
        ("next_copy", "The source is the function next_copy(), which returns copies"),
        ("lambda v: None", "The source is a function of copies"),
        ("other", "other is no literal"),
    ],
)
def test_a_function_of_copies_needs_a_table(refusal: Callable[..., str], source: str, begins: str) -> None:
    assert refusal(COPIES.format(source=source, type=2)).split(": ", 1)[1].startswith(begins)


# -- targets --------------------------------------------------------------------------------------
def test_the_clauses_of_a_target(read: Read) -> None:
    before = (
        'dp.create_streaming_table(name="users", comment="all", '
        'table_properties={"quality": "gold", "pipelines.a": "1"}, cluster_by=["id"], path="/lake/u", '
        'format="delta", cluster_by_auto=True, expect_all={"a": "x"},'
        ' expect_all_or_drop={"b": "y"}, expect_all_or_fail={"c": "z"})'
    )
    rules = {"a": {"check": "x", "on_break": "flag"}, "b": {"check": "y", "on_break": "quarantine"}, "c": "z"}
    layout = {
        "target_comment": "all",
        "target_properties": {"quality": "gold"},
        "cluster_by": ["id"],
        "target_location": "/lake/u",
    }
    assert read(flow(before=before)) == {**BASE, **layout, "rules": rules}
    sql = (
        "CREATE STREAMING TABLE IF NOT EXISTS users (CONSTRAINT a EXPECT (x), CONSTRAINT b EXPECT (y) ON "
        "VIOLATION DROP ROW, CONSTRAINT c EXPECT (z) ON VIOLATION FAIL UPDATE) COMMENT 'all' "
        "TBLPROPERTIES ('quality' = 'gold') "
        "CLUSTER BY (id) LOCATION '/lake/u' USING delta;"
    )
    assert read(sql + flow_sql()) == {**BASE, **layout, "rules": rules}
    by_path = read(sql + flow_sql(), targets={"users": "/lake/v"})
    assert (by_path["target"], "target_location" in by_path, "target_comment" in by_path) == (
        "/lake/v",
        False,
        False,
    )


def test_partitions(read: Read) -> None:
    before = 'dp.create_streaming_table("users", partition_cols=["day"])'
    assert read(flow(before=before))["partition_by"] == ["day"]


# -- given by the caller --------------------------------------------------------------------------
def test_names_that_the_code_lacks_are_refused(refusal: Callable[..., str]) -> None:
    assert "No flow of the code has the source evens. Remedy: use some of c.s.events" in refusal(
        flow(), sources={"evens": "/x"}
    )
    assert "No flow of the code has the target user" in refusal(flow(), targets={"user": "/x"})


def test_code_settings_need_code() -> None:
    with pytest.raises(InvalidConfiguration, match="sources given for a mapping, which is no AUTO CDC code"):
        load({"pipelines": {}}, Code(sources={"a": "b"}))


def test_the_flows_of_a_file_are_a_group(tmp_path: Path) -> None:
    file = tmp_path / "my flows.py"
    file.write_text(flow() + 'dp.apply_changes("more", "s", ["k"], "q")\n', encoding="utf-8")
    (group,) = load(file, Code(defaults={"schedule": "@hourly", "keys": ["z"]})).groups
    assert (group.name, group.settings["schedule"]) == ("my_flows", "@hourly")
    assert [(table.pipeline, table.place) for table in group.tables] == [
        ("more", f"{file}:11"),
        ("users", f"{file}:6"),
    ]


# -- the command ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "code", [flow('name="12:30"', "where=\"a = 'x: y # z'\"", 'column_list=["1e5", "yes"]'), flow_sql()]
)
def test_import(tmp_path: Path, capsys: Any, code: str) -> None:
    """The YAML has the meaning of the code, and the command does not replace a file."""
    file = tmp_path / ("flows.py" if "import" in code else "flows.sql")
    file.write_text(code.replace("12:30", "1e5"), encoding="utf-8")
    written = tmp_path / "flows.yaml"
    assert main(["import", str(file), "--source", "c.s.events=/lake/e", "--target", "users=/lake/u"]) == 0
    written.write_text(capsys.readouterr().out, encoding="utf-8")
    given = Code({"c.s.events": "/lake/e"}, {"users": "/lake/u"})
    (from_yaml,), (from_code,) = load(written).groups, load(file, given).groups
    assert from_yaml.fingerprint == from_code.fingerprint
    output = ["import", str(file), "--output", str(written)]
    assert main(output) == 2
    written.unlink()
    assert main(output) == 0
    assert load(written).groups[0].fingerprint == load(file).groups[0].fingerprint


def test_import_names_what_it_leaves_out(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "f.sql"
    file.write_text(
        "SET a = b; CREATE MATERIALIZED VIEW m AS SELECT 1;" + flow_sql("WHERE x"), encoding="utf-8"
    )
    assert main(["import", str(file)]) == 0
    notices = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"{file}:").partition(" is ")[0] for line in notices] == [
        "1: 'SET' …",
        "3: where (WHERE): a row that does not match",
        "1: m (view)",
    ]


def test_import_takes_code_only(tmp_path: Path, capsys: Any) -> None:
    assert main(["import", str(tmp_path / "flows.yaml")]) == 2
    assert "no file with AUTO CDC code" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["import", "f.sql", "--source", "a"])


def test_a_command_on_code_with_names_of_a_catalog_says_how_to_convert_it(
    tmp_path: Path, capsys: Any
) -> None:
    file = tmp_path / "flows.py"
    file.write_text(flow(), encoding="utf-8")
    assert main(["plan", str(file)]) == 1
    assert "delta-cdc import takes locations as --source and --target" in capsys.readouterr().err


def test_lint_reads_code(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "flows.py"
    file.write_text(flow('spark_conf={"a": "b"}'), encoding="utf-8")
    assert main(["lint", str(file)]) == 1
    assert capsys.readouterr().out.startswith(f"{file}:10:16: spark_conf has no equivalent here.")
