"""Expressions of the user are functions of the row alone: Spark's plan of each is judged, not its text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc import ingest_changes, read_changes
from delta_cdc.core.errors import InvalidExpression
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import SourceFile
from delta_cdc.spark.changes import states
from delta_cdc.spark.ingest.decoding import Decoding
from delta_cdc.spark.sessions import private_session
from delta_cdc.spark.silence_loggers import quietly
from tests.support.engine import session_like
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

#: With columns that are called like functions, in their own ways.
COLUMNS = (
    "id BIGINT, v STRING, at TIMESTAMP, ntz TIMESTAMP_NTZ, d DATE, n DECIMAL(10, 2), x DOUBLE, b BINARY, "
    "a ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<p: INT, `now()`: INT, today: DATE>, j VARIANT, "
    "`now()` INT, `current_user` STRING, user STRING, version INT, localtimestamp TIMESTAMP, `ti``ck` INT, "
    "`version()` INT"
)
#: Spark shows of its plan but 25 arguments, unless told otherwise.
LONG = f"coalesce({', '.join('v' for _ in range(30))}, current_user())"

CHANCE = "it is not deterministic for Spark"
CLOCK, SESSION = "the current time", "depends on the session"
MANY, SUBQUERY, USERS = "several rows", "a subquery", "a user's function"
#: Expression -> what the error says of it.
REFUSED: dict[str, str] = {
    "uuid()": CHANCE,
    "UUID ( )": CHANCE,
    "rand()": CHANCE,
    "rand(1)": CHANCE,
    "randn()": CHANCE,
    "random() < 0.5": CHANCE,
    "uniform(1, 5)": CHANCE,
    "randstr(5)": CHANCE,
    "shuffle(a)": CHANCE,
    "`uuid`()": CHANCE,
    "system.builtin.uuid()": CHANCE,
    "concat(v, 'x', cast(rand() AS string))": CHANCE,
    "transform(a, e -> e + rand())": CHANCE,
    "CASE WHEN id > 1 THEN uuid() ELSE v END": CHANCE,
    "monotonically_increasing_id()": CHANCE,
    "spark_partition_id()": CHANCE,
    "input_file_name()": CHANCE,
    "input_file_block_start()": CHANCE,
    "input_file_block_length()": CHANCE,
    "reflect('java.util.UUID', 'randomUUID')": CHANCE,
    "java_method('java.lang.System', 'nanoTime')": CHANCE,
    "try_reflect('java.lang.System', 'nanoTime')": CHANCE,
    "aes_encrypt(v, '0000111122223333')": "uses a random one",
    "aes_encrypt(v, '0000111122223333', 'CBC')": "uses a random one",
    "now()": CLOCK,
    "now/**/()": CLOCK,
    "current_timestamp": CLOCK,
    "Current_Timestamp()": CLOCK,
    "current_date": CLOCK,
    "curdate()": CLOCK,
    "localtimestamp()": CLOCK,
    "unix_timestamp()": CLOCK,
    "at > current_timestamp() - INTERVAL 1 DAY": CLOCK,
    "datediff(current_date(), d)": CLOCK,
    "transform(a, e -> e + unix_timestamp())": CLOCK,
    "s.p > 1 AND v = 'now()' AND at < now()": CLOCK,
    "`now()` > 1 AND at < now()": CLOCK,
    "d = date'today'": "date'today'",
    "timestamp'now'": "timestamp'now'",
    "TIMESTAMP_NTZ /* of a kind */ ' Tomorrow '": "TIMESTAMP_NTZ' Tomorrow '",
    'timestamp_ltz"yesterday"': "timestamp_ltz",
    "date r'today UTC'": "date",
    "cast('now' AS timestamp)": CLOCK,
    "cast('to' 'day' AS date)": CLOCK,
    "try_cast('today UTC' AS timestamp_ntz)": CLOCK,
    "at < 'now'": CLOCK,
    "d IN ('2024-01-01', 'today')": CLOCK,
    "d BETWEEN '2024-01-01' AND 'yesterday'": CLOCK,
    "date('today')": CLOCK,
    "to_date('today')": CLOCK,
    "to_timestamp('now')": CLOCK,
    "year('now')": CLOCK,
    "v = 'now' OR d = 'now'": CLOCK,
    "coalesce(d, 'tomorrow')": CLOCK,
    "cast('today+01:00' AS date)": CLOCK,
    "cast(concat('to', 'day') AS date)": CLOCK,
    "to_date(lower('TODAY'))": CLOCK,
    "to_timestamp_ntz(trim(' now '))": CLOCK,
    "try_to_timestamp(substr('xnow', 2))": CLOCK,
    "extract(YEAR FROM concat('no', 'w'))": CLOCK,
    "year(reverse('won')) + 1": CLOCK,
    "d < element_at(array('x', 'today'), 2)": CLOCK,
    "d IN ('2024-01-01', CASE WHEN true THEN 'today' END)": CLOCK,
    "d BETWEEN '2024-01-01' AND coalesce(NULL, 'yesterday')": CLOCK,
    "cast(cast(X'746f646179' AS string) AS date)": CLOCK,
    "cast(concat(chr(110), chr(111), chr(119)) AS date)": CLOCK,
    "transform(a, e -> datediff(concat('no', 'w'), d) + e)": CLOCK,
    "TIMESTAMP'12:30'": "TIMESTAMP'12:30'",
    "at > '12:30'": CLOCK,
    "cast('T12' AS timestamp)": CLOCK,
    "hour(concat('12', ':30'))": CLOCK,
    "to_timestamp(concat('T', '12')) < at": CLOCK,
    "cast(array('12:30') AS array<timestamp>)": CLOCK,
    "cast(parse_json('\"12:30\"') AS timestamp)": CLOCK,
    "from_json('{\"a\": \"12:30\"}', 'a TIMESTAMP').a": CLOCK,
    "from_csv('12:30', 'a TIMESTAMP').a": CLOCK,
    "try_variant_get(parse_json('\"12:30\"'), '$', 'timestamp')": CLOCK,
    "current_user()": SESSION,
    "user()": SESSION,
    "session_user()": SESSION,
    "current_catalog()": SESSION,
    "current_database()": SESSION,
    "current_schema()": SESSION,
    "current_timezone()": SESSION,
    "current_path()": SESSION,
    "version()": SESSION,
    "concat(v, current_schema())": SESSION,
    LONG: SESSION,
    "(SELECT max(id) FROM range(3))": SUBQUERY,
    "id IN (SELECT id FROM range(3))": SUBQUERY,
    "EXISTS (SELECT 1)": SUBQUERY,
    "max(id)": MANY,
    "count(*)": MANY,
    "row_number() OVER (ORDER BY id)": MANY,
    "sum(id) OVER (PARTITION BY v)": MANY,
    "explode(a)": MANY,
    "window(at, '1 hour', '30 minutes')": MANY,
    "session_window(at, '1 hour')": MANY,
    "plus_one(3)": USERS,
    "at_once()": USERS,
    "id + `Plus_One`(3)": USERS,
    "session.plus_one(3)": USERS,
    "same(v)": USERS,
    "system . session . same(v)": USERS,
    "a_variable": "a variable of the session",
    "id > system.session.a_variable": "a variable of the session",
}

ACCEPTED = """\
id
s.p
`now()`
`now()` + 1
s.`now()`
`ti``ck`
current_user
user
version + 1
localtimestamp
current_user = 'root'
`version()` + 1
v = 'now()'
v = 'current_user()' AND user = "user()"
v IN ('rand()', 'it''s now()', 'a\\'b now() \\\\')
v = r'\\now()'
v = 'now'
v = 'today' OR v LIKE 'now%'
CASE v WHEN 'today' THEN 1 ELSE 2 END
struct(id AS `user()`, v AS `current_date()`)
struct(id AS `user()`)
struct(id AS `now()`)
struct(id AS `version()`, `now()` as /* the same */ `current_user`)
named_struct('now()', id)
v /* now() isn't it */
v -- now() isn't it
from_json(v, 'now INT, today DATE').now
from_json(v, 'now INT').now
unix_timestamp(at)
unix_timestamp(v)
unix_timestamp(v, 'yyyy')
to_unix_timestamp(at)
unix_micros(at)
to_timestamp(v)
to_timestamp(v, 'yyyy-MM-dd')
try_to_timestamp(v)
timestamp_micros(id)
timestamp_seconds(id)
date_trunc('MONTH', at)
trunc(d, 'year')
date(at)
d + INTERVAL 1 DAY
datediff(d, DATE'2024-01-01')
make_date(2024, 1, 1)
d > DATE'2024-01-01'
d > DATE'epoch'
at > TIMESTAMP'2024-01-01 00:00:00Z'
at > '2024-01-01'
at > cast('epoch' AS timestamp)
at > DATE'2024-01-01'
at > to_date('2024-01-01')
at > ntz
d = cast(concat('2024', '-01-01') AS date)
d = concat(v, 'today')
cast(v AS timestamp)
cast(1700000000 AS timestamp)
cast(concat(v, '#', ')') AS timestamp)
coalesce(at, NULL)
CASE v WHEN ')' THEN at WHEN '(' THEN NULL ELSE cast(v AS timestamp) END
to_timestamp('12:30', 'HH:mm')
from_json(v, 'a TIMESTAMP').a
nullif(d, DATE'2024-01-01')
d BETWEEN '2024-01-01' AND '2024-12-31'
add_months(d, 1)
date_format(at, 'yyyy-MM')
extract(YEAR FROM at)
year(d)
from_utc_timestamp(at, 'Europe/Paris')
convert_timezone('Europe/Paris', ntz)
convert_timezone('UTC', 'Europe/Paris', ntz)
hour(at)
from_json(v, 'a INT, b STRING').b
to_json(struct(id, v))
get_json_object(v, '$.a')
parse_json(v)
variant_get(j, '$.a', 'int')
schema_of_json('{"a": 1}')
split(v, ',')[0]
regexp_extract(v, '([0-9]+)', 1)
v RLIKE '^a.*'
v LIKE 'a%'
upper(trim(v))
substring(v FROM 2 FOR 3)
concat_ws('-', v, cast(id AS string))
lpad(cast(id AS string), 10, '0')
format_number(n, 2)
v COLLATE UNICODE
hash(id, v)
xxhash64(id, v)
md5(v)
sha2(v, 256)
crc32(b)
base64(b)
aes_encrypt(v, '0000111122223333', 'ECB')
aes_encrypt(v, '0000111122223333', 'GCM', 'DEFAULT', X'000000000000000000000000')
aes_decrypt(b, '0000111122223333')
try_cast(v AS INT)
cast(v AS DECIMAL(10, 2)) * n / 3
coalesce(id, 0)
nullif(id, 0)
nvl2(v, id, 1)
if(id > 1, 'a', 'b')
CASE WHEN id > 1 THEN 'x' END
id BETWEEN 1 AND 3
id IN (1, 2, 3)
NOT (id <=> 3) AND v IS NOT NULL
greatest(id, 1)
round(x, 2)
pow(x, 2)
-id % 3
id & 1
bit_count(id)
struct(id, v)
named_struct('a', id).a
array(id, 1)
map('a', id)['a']
transform(a, e -> e + 1)
filter(a, (e, i) -> e > i)
aggregate(a, 0, (acc, e) -> acc + e)
exists(a, e -> e > 1)
array_sort(a)
sort_array(a)
size(a)
element_at(m, 'a')
map_keys(m)
map_filter(m, (k, v) -> v > 1)
sequence(1, 3)
a[0]
typeof(v)
pi()
e()
NULL
TRUE
1
'text'
X'00'
INTERVAL '1' DAY
raise_error(v)
builtin.upper(v)
system.builtin.abs(id)
mask(v)
width_bucket(x, 0, 10, 5)
uuid IS NULL"""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with private_session(spark) as session:
        session.sql("CREATE TEMPORARY FUNCTION plus_one(n INT) RETURNS INT RETURN n + 1")
        session.sql("CREATE TEMPORARY FUNCTION at_once() RETURNS TIMESTAMP RETURN now()")
        session.udf.register("same", lambda value: value)
        session.sql("DECLARE VARIABLE a_variable INT DEFAULT 3")
        yield session


@pytest.fixture(scope="module")
def rows(session: SparkSession) -> DataFrame:
    return session.createDataFrame([], f"{COLUMNS}, uuid STRING")


def verdict(rows: DataFrame, text: str) -> str | None:
    """Return what is said of a projection that is refused."""
    try:
        states.projected(rows, None, [f"{text}\nAS x"], [])
    except InvalidExpression as error:
        return error.message
    return None


@pytest.mark.parametrize("every", slow_but([1, 3], 3))
def test_what_is_no_function_of_the_row_alone(rows: DataFrame, every: int) -> None:
    before = dict(rows.sparkSession.conf.getAll)
    said = {text: verdict(rows, text) for text in list(REFUSED)[::every]}
    wrong = {text: found for text, found in said.items() if found is None or REFUSED[text] not in found}
    assert wrong == type(wrong)()
    for text, found in said.items():
        assert found is not None
        assert found.startswith(f"select = {text + chr(10) + 'AS x'!r} depends on more than the row: ")
    assert dict(rows.sparkSession.conf.getAll) == before
    assert rows.sparkSession.sql("SHOW VIEWS").collect() == []


def test_a_setting_of_the_users_is_put_back(rows: DataFrame) -> None:
    conf, name = rows.sparkSession.conf, "spark.sql.debug.maxToStringFields"
    conf.set(name, "7")
    try:
        assert SESSION in (verdict(rows, LONG) or "")
        assert conf.get(name) == "7"
    finally:
        conf.unset(name)


@pytest.mark.slow
def test_what_is_a_function_of_the_row_alone(rows: DataFrame) -> None:
    refused = {text: found for text in ACCEPTED.splitlines() if (found := verdict(rows, text)) is not None}
    assert refused == {}


def test_all_that_spark_says_is_told(rows: DataFrame) -> None:
    """Its first line is empty, the next ones do not show the text."""
    with pytest.raises(InvalidExpression, match=r"\[PARSE_SYNTAX_ERROR\] .* == SQL == id = \)"):
        states.resolve(rows, "where", ["id =\n)"])


def test_a_file_that_a_row_stands_in(session: SparkSession, tmp_path: Path) -> None:
    session.range(3).write.parquet(str(tmp_path / "rows"))
    with pytest.raises(InvalidExpression, match="_metadata"):
        states.resolve(session.read.parquet(str(tmp_path / "rows")), "where", ["_metadata.file_size > 1"])


@pytest.mark.slow
def test_the_one_of_many_that_is_refused(rows: DataFrame) -> None:
    names = [f"id + {number} AS c{number}" for number in range(40)]
    with pytest.raises(InvalidExpression, match=re.escape("select = 'now() AS x' depends on more")) as raised:
        states.projected(rows, None, ["*", *names, "now() AS x"], [])
    assert "column of the source" in str(raised.value.remedy)
    assert len(states.projected(rows, None, ["id", "s.*", *names], []).columns) == 44


#: Classes of Spark's expressions that take their value from elsewhere, though they are deterministic.
ELSEWHERE = re.compile(r"^(Current|Now$|LocalTimestamp|SparkVersion|VariableReference|UserDefined|.*UDF)")


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


@pytest.mark.slow
def test_every_function_of_spark_against_its_classes(rows: DataFrame) -> None:
    """The other criterion: what Spark's own objects say of each node of the expression."""
    names = [row[0] for row in rows.sparkSession.sql("SHOW SYSTEM FUNCTIONS").collect()]
    wrong, agreed = [], {True: 0, False: 0}
    for name in names:
        for text in (f"`{name}`()", f"`{name}`(v)", f"`{name}`(a)"):
            try:
                with quietly():
                    plan: Any = rows.selectExpr(f"{text} AS x")
            except Exception:  # noqa: BLE001 - it takes other arguments
                continue
            analysed = plan._jdf.queryExecution().analyzed()
            nodes = list(_nodes(analysed.expressions().apply(0)))
            stays = (
                analysed.getClass().getSimpleName() == "Project"
                and analysed.child().children().isEmpty()
                and all(node.deterministic() for node in nodes)
                and not any(ELSEWHERE.match(node.getClass().getSimpleName()) for node in nodes)
            )
            agreed[stays] += 1
            if (verdict(rows, text) is None) != stays:
                wrong.append((text, stays))
    assert wrong == type(wrong)()
    assert agreed[True] > 100
    assert agreed[False] > 40


def test_a_read_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    """In a session of the user's own, which stays as it was."""
    path = tmp_path / "table"
    spark.sql(
        f"CREATE TABLE delta.`{path}` USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') "
        "AS SELECT 1 AS id, timestamp'2024-01-01' AS at"
    )
    wide = f"concat({', '.join('cast(id AS string)' for _ in range(30))})"
    before = dict(spark.conf.getAll)
    # Other tests leave views in this session.
    views = set(map(tuple, spark.sql("SHOW VIEWS").collect()))
    asked: dict[str, Any] = {"starting_version": 0, "keys": ["id"]}
    for more in (
        {"where": "uniform(1, 5) > 2"},
        {"where": f"{wide} = current_user()"},
        {"select": ["id", "now() AS n"]},
    ):
        with pytest.raises(InvalidExpression, match="depends on more than the row"):
            read_changes(spark, str(path), **asked, **more).collect()
    found = read_changes(spark, str(path), **asked, where=f"unix_timestamp(at) > 0 AND {wide} <> ''")
    assert found.count() == 1
    assert {**dict(spark.conf.getAll), **before} == dict(spark.conf.getAll)
    assert set(map(tuple, spark.sql("SHOW VIEWS").collect())) <= views


RECORDS = ['{"id": 1, "ts": 5, "op": "I"}']


@pytest.mark.parametrize(
    ("adapter", "options", "argument"),
    [
        ("plain", {"sequence_by": "uuid()"}, "sequence_by"),
        ("plain", {"sequence_by": ["ts", "spark_partition_id()"]}, "sequence_by"),
        ("plain", {"sequence_by": "ts", "source_timestamp": "current_timestamp()"}, "source_timestamp"),
        ("debezium", {"sequence_by": "unix_timestamp()"}, "sequence_by"),
    ],
)
def test_options_of_an_adapter(
    spark: SparkSession, tmp_path: Path, adapter: str, options: dict[str, Any], argument: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text("\n".join(RECORDS))
    decoding = Decoding(
        IngestOptions(keys=("id",), adapter=adapter, adapter_options=options),
        declared=T.StructType.fromDDL("id INT, ts BIGINT"),  # type: ignore[arg-type]
        known=None,
        log_sequence=None,
    )
    decoding.add_files(session_like(spark), [SourceFile(str(tmp_path / "in" / "1.json"), 1, 0)])
    with pytest.raises(InvalidExpression, match=f"{argument} = .* depends on more than the row"):
        decoding.rows()


@pytest.mark.slow
def test_an_ingest_that_is_refused_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    landing, log = tmp_path / "landing", tmp_path / "log"
    landing.mkdir()
    (landing / "1.json").write_text("\n".join(RECORDS))
    asked: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "adapter": "plain", "format": "json"}
    with pytest.raises(InvalidExpression, match=r"sequence_by = .* depends on more than the row"):
        ingest_changes(spark, str(landing), str(log), adapter_options={"sequence_by": "rand()"}, **asked)
    assert not log.exists()
    ingest_changes(spark, str(landing), str(log), adapter_options={"sequence_by": "ts"}, **asked)
    assert spark.read.format("delta").load(str(log)).count() == 1


@pytest.mark.parametrize("pattern", ["(?s).+", r"current\w+|now", "== Analyzed"])
def test_a_plan_whose_parts_a_platform_hides(session: SparkSession, rows: DataFrame, pattern: str) -> None:
    redaction = "spark.sql.redaction.string.regex"
    session.conf.set(redaction, pattern)
    try:
        assert verdict(rows, "upper(v)") is None
        problem = verdict(rows, "current_timestamp()")
        assert problem is not None
        assert "current_timestamp() depends on the current time" in problem
        assert session.conf.get(redaction) == pattern
    finally:
        session.conf.unset(redaction)
