"""Refuse expressions of the user whose value depends on more than the row.

Different sessions and tasks evaluate an expression on states of rows at different times. If a row left a
filter because time passed, it would never be deleted; and a random sequence orders nothing. The checks use
Spark's plan of an expression, not its text:

- Spark's own check of determinism. Spark refuses an aggregate over non-deterministic input: random values,
  the file or the task that reads the row, Java methods.
- The analysed plan of that aggregate, over a relation with the same columns and no rows. The only input of
  the aggregate is this relation; a subquery, a window or a SQL function would add nodes. Spark treats the
  clock and the session as deterministic, but the plan contains the names of their functions.
- The optimised plan, without the rules that fold constants. In it, Spark has replaced each constant text that
  it reads as the clock (``'now'``, ``concat('to', 'day')``) by a date, which the analysed plan does not have.
  Any other constant that becomes a timestamp is still a cast. A text without a date would be a time of today.
- The text, for what the parser already evaluates (``DATE'today'``), and for user-defined functions.

Spark reads no word in a column as the clock. But a cast to TIMESTAMP adds the date of today to a time without
a date, and only the rows show whether a column has such texts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.errors import InvalidExpression, SparkRestricted
from delta_cdc.core.reasons import reason
from delta_cdc.core.sql_tokens import Token, bare, contents, names, tokens
from delta_cdc.spark.sessions import confs_for_a_moment, confs_of_whole_plans
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Names of the clock and the session in an analysed plan. ``name()#7`` is a column with that name.
#: The two-argument convert_timezone uses the session's zone, as each cast of a timestamp does.
_CLOCK = re.compile(
    r"(?<![\w.`])(now|localtimestamp|current_(?:date|time|timestamp)|current_batch_timestamp)\((?!\)#)",
    re.IGNORECASE,
)
_SESSION = re.compile(
    r"(?<![\w.`])(?<!convert_timezone\()"
    r"(current_\w+|user|session_user|version|is_member|is_account_group_member|variablereference)\((?!\)#)",
    re.IGNORECASE,
)
#: Spark treats this function as deterministic, but without ECB it uses a random initialisation vector by
#: default.
_SALTED = re.compile(
    r"\A(?>.*?(?<![\w.`])(aes_encrypt)\().*?(?<!ECB)(?<!ecb), \w++, cast\( as binary\), ",
    re.IGNORECASE | re.DOTALL,
)
_TYPES = {"date", "timestamp", "timestamp_ntz", "timestamp_ltz"}
#: Constants whose cast to a timestamp does not read the clock: those with a date, and all but texts.
_WITH_DATE = re.compile(
    r"\s*(?: [+-]?\d{4,}(?:-.*)? | epoch | [+-]?[\d.]+(?:E-?\d+)? | true | false | null "
    r"| cast\(.*[ ]as[ ](?!string|char|varchar)[^()]+\) )\s*",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
#: The functions that may make a timestamp from a text, as the end of their names.
_TO_TIMESTAMPS = ("cast", "from_json", "from_csv", "from_xml", "variant_get")
_TIMESTAMP = re.compile(r"\btimestamp\b")
_BRACKET = re.compile("[()#]")
_DATE = re.compile(r"(?<!\d)\d{4,}-\d\d-\d\d")
_EPOCH = "1970-01-01"

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."
#: Rules that evaluate constants, and so hide their casts.
_FOLDING = (
    *("ConstantFolding", "ConstantPropagation", "FoldablePropagation", "NullPropagation", "OptimizeIn"),
    *("BooleanSimplification", "SimplifyConditionals", "SimplifyBinaryComparison"),
    *("UnwrapCastInBinaryComparison", "LikeSimplification", "ReplaceNullWithFalseInPredicate"),
    *("SimplifyCasts", "SimplifyCaseConversionExpressions", "PushFoldableIntoBranches", "OptimizeJsonExprs"),
    *("OptimizeCsvExprs", "ConvertToLocalRelation"),
)
_UNFOLDED = {"spark.sql.optimizer.excludedRules": ",".join(f"{_OPTIMIZER}{rule}" for rule in _FOLDING)}
_WHOLE = {"spark.sql.debug.maxToStringFields": str(2**31 - 1)}

_NOT_DETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_MANY_ROWS = "it reads or returns several rows (an aggregate, window or generator function)"
_REASONS = {
    _NOT_DETERMINISTIC: "it is not deterministic for Spark: its value is random, or depends on the file "
    "or task that reads the row, or on Java code",
    "NESTED_AGGREGATE_FUNCTION": _MANY_ROWS,
    "_LEGACY_ERROR_TEMP_1031": _MANY_ROWS,
    "UNSUPPORTED_GENERATOR.NESTED_IN_EXPRESSIONS": _MANY_ROWS,
}


def refuse_moving(rows: DataFrame, argument: str, expressions: Sequence[str]) -> None:
    """Refuse expressions whose value depends on more than the row. No Spark job starts.

    :param rows: the rows over which the expressions resolve
    :param argument: the argument that contains the expressions
    :raises InvalidExpression: names the argument, the text, and the part that depends on more than the row
    """
    column_names = {name.lower() for name in rows.columns}
    texts = [text for text in expressions if not _is_column(text, column_names)]
    if not texts:
        return
    judge = _Judge(rows)
    if judge.finding(texts) is None:
        return
    for text in texts:
        problem = judge.finding([text])
        if problem is not None:
            raise InvalidExpression(
                f"{argument} = {text!r} depends on more than the row: {problem}.",
                remedy=f"use only columns of the row in {argument}. If it needs another value, store that "
                "value in a column of the source.",
            )


def _is_column(text: str, column_names: set[str]) -> bool:
    """Return whether a text is a column, a field of a column, or all fields of a column."""
    stripped = text.strip().removesuffix(".*")
    parts = names(stripped)
    return ".".join(parts) == stripped and bool(parts) and bare(parts[0]).lower() in column_names


class _Judge:
    """Check expressions with Spark, over an empty relation with the columns of some rows."""

    def __init__(self, rows: DataFrame) -> None:
        # All columns are nullable, because Spark drops parts of a plan that are needless for other columns.
        columns = [T.StructField(field.name, field.dataType) for field in rows.schema.fields]
        self._session: SparkSession = rows.sparkSession
        self._empty = self._session.createDataFrame([], T.StructType(columns))
        self._names = {name.lower() for name in rows.columns}
        self._user_functions: set[str] | None = None

    def finding(self, texts: Sequence[str]) -> str | None:
        """Return why expressions depend on more than the row; None if they do not."""
        split = [tokens(text) for text in texts]
        problem = next(filter(None, map(self._in_text, split)), None)
        if problem is not None:
            return problem
        masked = ["".join(self._masked(text_tokens)) for text_tokens in split]
        plans = None
        plan_error = "Spark cannot evaluate a constant in it"
        for candidates in [masked] if masked == list(texts) else [masked, list(texts)]:
            try:
                plans = plans or self._explained(candidates)
            except (AnalysisException, ParseException) as error:
                reason_text = _REASONS.get(error.getCondition() or "")
                if reason_text is not None:
                    return reason_text
                plan_error = reason(error)
        if plans is None:
            return f"Spark cannot plan it over the columns of the row ({plan_error})"
        return _in_plan(plans[0]) or _in_constants(*plans)

    # -- in the text ----------------------------------------------------------------------------
    def _in_text(self, text_tokens: Sequence[Token]) -> str | None:
        significant = [token for token in text_tokens if token.kind != "gap"]
        for token, following in zip(significant, [*significant[1:], Token("other", "", 0)], strict=True):
            if token.kind != "name":
                continue
            if (
                following.kind == "text"
                and token.text.lower() in _TYPES
                and not _WITH_DATE.fullmatch(contents(following.text))
            ):
                return f"{token.text}{following.text} depends on the current time"
            if following.text == "(" and self._is_users(token.text):
                return (
                    f"{token.text} is a user's function, so Spark does not know "
                    "whether its value depends only on the row"
                )
        return None

    def _is_users(self, function_name: str) -> bool:
        """Return whether a user defined the called function."""
        *path, name = [bare(part).lower() for part in names(function_name)]
        if path:
            return path[-1] != "builtin"
        if self._user_functions is None:
            self._user_functions = _user_functions(self._session)
        return name in self._user_functions

    def _masked(self, text_tokens: Sequence[Token]) -> Iterator[str]:
        """Yield the tokens; replace those that look like the clock or the session in a plan."""
        previous = ""
        for token in text_tokens:
            name = bare(token.text)
            # A plan shows a column with its id, but the alias of a struct's field without one.
            is_free = previous.lower() == "as" or name.lower() not in self._names
            if token.kind == "text" and (_is_telling(token.text) or _BRACKET.search(token.text)):
                yield "'text'"
            else:
                yield "`name`" if token.kind == "name" and _is_telling(name) and is_free else token.text
            if token.kind != "gap":
                previous = token.text

    # -- in the plan ----------------------------------------------------------------------------
    def _explained(self, texts: Sequence[str]) -> tuple[str, str] | None:
        """Return the analysed and the optimised plan; None if Spark cannot make one.

        :raises SparkRestricted: the session hides parts of plans, or shows only a part of a long one
        """
        readable = confs_of_whole_plans(self._session)
        try:
            with confs_for_a_moment(self._session, readable | _WHOLE | _UNFOLDED):
                return _parts(self._explain(texts))
        except SparkRestricted:
            with confs_for_a_moment(self._session, readable):
                plan = self._explain(texts)
        if " more fields" not in plan:
            return _parts(plan)
        with confs_for_a_moment(self._session, readable | _WHOLE):
            return _parts(self._explain(texts))

    def _explain(self, texts: Sequence[str]) -> str:
        with quietly():
            # This aggregate takes values of any type, and nullability does not change its plan.
            aggregates = [F.collect_list(F.expr(text)).alias(f"_{index}") for index, text in enumerate(texts)]
            relation = self._empty.agg(*aggregates)
            rows = self._session.sql("EXPLAIN EXTENDED SELECT * FROM {relation}", relation=relation).collect()
        return str(rows[0][0])


def _parts(plan: str) -> tuple[str, str] | None:
    """Return a plan's analysed part, from the aggregate on, and its optimised part."""
    _, _, rest = plan.partition("== Analyzed Logical Plan ==")
    analysed, _, rest = rest.rpartition("== Optimized Logical Plan ==")
    _, _, aggregate = analysed.partition("+- Aggregate [")
    return (aggregate, rest.partition("== Physical Plan ==")[0]) if aggregate else None


def _in_plan(analysed: str) -> str | None:
    """Return the part of an analysed plan that shows that an expression depends on more than the row."""
    indents = re.findall(r"^([ :]*)\+- ", analysed, re.MULTILINE)
    if any(":" in indent for indent in indents):
        return "it has a subquery, and reads other rows"
    if len(indents) != 1:
        return f"{_MANY_ROWS}, or calls a user's function"
    for pattern, cause in (
        (_CLOCK, "depends on the current time"),
        (_SESSION, "depends on the session"),
        (_SALTED, "without an initialisation vector uses a random one"),
    ):
        match = pattern.search(analysed)
        if match:
            return f"{_called(match[1])} {cause}"
    return None


def _in_constants(analysed: str, optimised: str) -> str | None:
    """Return the constant by which an expression reads the clock; None without one."""
    dates = set(_DATE.findall(optimised)) - set(_DATE.findall(analysed)) - {_EPOCH}
    if dates:
        return f"it has a text that stands for {min(dates)} today, and so for the current time"
    undated = _undated(optimised)
    if undated is not None:
        return f"{undated} depends on the current time, if its text has a time and no date"
    return None


def _undated(plan: str) -> str | None:
    """Return the first constant in a plan that becomes a timestamp, and may be a text without a date."""
    opened, column = [], -1
    for mark in _BRACKET.finditer(plan):
        if mark[0] == "#":
            column = mark.start()
        elif mark[0] == "(":
            opened.append(mark.start())
        elif opened:
            start = opened.pop()
            # Spark shows a column with a mark and its id.
            if column < start and plan.endswith(_TO_TIMESTAMPS, 0, start):
                call = plan[start : mark.end()]
                value, _, type_name = call[1:-1].rpartition(" as ")
                is_cast = _TIMESTAMP.search(type_name) is not None
                if "TimestampType" in call or (is_cast and not _WITH_DATE.fullmatch(value)):
                    return call
    return None


def _called(name: str) -> str:
    return "a variable of the session" if name == "variablereference" else f"{name}()"


# -- text ---------------------------------------------------------------------------------------
def _is_telling(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_CLOCK, _SESSION))


def _user_functions(session: SparkSession) -> set[str]:
    """Return the names of user-defined functions: of the session, or in its current schema."""
    try:
        with quietly():
            rows = session.sql("SHOW USER FUNCTIONS").collect()
    except AnalysisException:
        # The current catalog cannot list functions.
        return set()
    return {row[0].rpartition(".")[2].lower() for row in rows}
