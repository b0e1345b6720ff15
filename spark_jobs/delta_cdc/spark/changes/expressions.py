"""Refuse expressions of the user whose value depends on more than the row.

Different sessions and tasks evaluate an expression on states of rows at different times. If a row left a
filter because time passed, it would never be deleted; and a random sequence orders nothing. The checks use
Spark's plan of an expression, not its text:

- Spark's own check of determinism. Spark refuses an aggregate over non-deterministic input: random values,
  the file or the task that reads the row, Java methods.
- The analysed plan of that aggregate, over a relation with the same columns and no rows. The only input of
  the aggregate is this relation; a subquery, a window or a SQL function would add nodes. Spark treats the
  clock and the session as deterministic, but the plan contains the names of their functions.
- The optimised plan, for texts that a cast reads as the clock (``'now'``). The parser already evaluates typed
  literals of such texts (``DATE'today'``), so these and user-defined functions are searched for in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.errors import InvalidExpression
from delta_cdc.core.reasons import reason
from delta_cdc.spark.sessions import confs_for_a_moment
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = r"(?: \s+ | --[^\n]* | /\*.*?\*/ )"
_STRING = r"""(?: [rR]? (?: '((?:[^'\\]|\\.|'')*)' | "((?:[^"\\]|\\.|"")*)" ) )"""
_NAME = r"(?: `(?:[^`]|``)*` | \w+ )"
#: Tokens of SQL, as far as needed here. Adjacent texts form one token, and so does a qualified name.
_TOKEN = re.compile(
    rf"""(?P<gap> {_GAP} )
    | (?P<text> {_STRING} (?: {_GAP}* {_STRING} )* )
    | (?P<name> (?!\d){_NAME} (?: {_GAP}* \. {_GAP}* {_NAME} )* )
    | (?P<other> \d\w* | . )""",
    re.VERBOSE | re.DOTALL,
)
_STRINGS = re.compile(f"{_STRING} | {_GAP}", re.VERBOSE | re.DOTALL)
_NAMES = re.compile(_NAME, re.VERBOSE)

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
    r"(?<![\w.`])(aes_encrypt)\(.*?(?<!ECB)(?<!ecb), \w+, cast\( as binary\), ", re.IGNORECASE | re.DOTALL
)
#: Texts that a cast to a date or timestamp reads as the clock; a time zone may follow.
_WORD = re.compile(r"\s*(?:now|today|tomorrow|yesterday)(?:\s+\S+)?\s*", re.IGNORECASE)
_TYPES = {"date", "timestamp", "timestamp_ntz", "timestamp_ltz"}

#: A date that replaces such a text. A cast reformats it, so the plan then no longer contains this text.
_MARK = "1601-2-3"

_NOT_DETERMINISTIC = "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION"
_MANY_ROWS = "it reads or returns several rows (an aggregate, window or generator function)"
_REASONS = {
    _NOT_DETERMINISTIC: "it is not deterministic for Spark: its value is random, or depends on the file "
    "or task that reads the row, or on Java code",
    "NESTED_AGGREGATE_FUNCTION": _MANY_ROWS,
    "_LEGACY_ERROR_TEMP_1031": _MANY_ROWS,
    "UNSUPPORTED_GENERATOR.NESTED_IN_EXPRESSIONS": _MANY_ROWS,
}
_TOSTRING_FIELDS = "spark.sql.debug.maxToStringFields"


class _Token(NamedTuple):
    kind: str
    text: str


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
    parts = _NAMES.findall(stripped)
    return ".".join(parts) == stripped and bool(parts) and _bare(parts[0]).lower() in column_names


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


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
        tokens = [_tokens(text) for text in texts]
        problem = next(filter(None, map(self._in_text, tokens)), None)
        if problem is not None:
            return problem
        masked = ["".join(self._masked(text_tokens)) for text_tokens in tokens]
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
        return _in_plan(plans[0]) or next(filter(None, map(self._in_words, tokens)), None)

    # -- in the text ----------------------------------------------------------------------------
    def _in_text(self, tokens: Sequence[_Token]) -> str | None:
        significant = [token for token in tokens if token.kind != "gap"]
        for token, following in zip(significant, [*significant[1:], _Token("other", "")], strict=True):
            if token.kind != "name":
                continue
            if following.kind == "text" and token.text.lower() in _TYPES and _is_word(following):
                return f"{token.text}{following.text} depends on the current time"
            if following.text == "(" and self._is_users(token.text):
                return (
                    f"{token.text} is a user's function, so Spark does not know "
                    "whether its value depends only on the row"
                )
        return None

    def _is_users(self, function_name: str) -> bool:
        """Return whether a user defined the called function."""
        *path, name = [_bare(part).lower() for part in _NAMES.findall(function_name)]
        if path:
            return path[-1] != "builtin"
        if self._user_functions is None:
            self._user_functions = _user_functions(self._session)
        return name in self._user_functions

    def _masked(self, tokens: Sequence[_Token]) -> Iterator[str]:
        """Yield the tokens; replace those that look like the clock or the session in a plan."""
        previous = ""
        for token in tokens:
            name = _bare(token.text)
            # A plan shows a column with its id, but the alias of a struct's field without one.
            is_free = previous.lower() == "as" or name.lower() not in self._names
            if token.kind == "text" and _is_telling(token.text):
                yield "'text'"
            else:
                yield "`name`" if token.kind == "name" and _is_telling(name) and is_free else token.text
            if token.kind != "gap":
                previous = token.text

    def _in_words(self, tokens: Sequence[_Token]) -> str | None:
        """Return the finding if Spark evaluates a text as the clock during planning; else None."""
        for position, token in enumerate(tokens):
            if token.kind != "text" or not _is_word(token):
                continue
            parts = [f"'{_MARK}'" if index == position else other.text for index, other in enumerate(tokens)]
            try:
                plans = self._explained(["".join(parts)])
            except (AnalysisException, ParseException):
                # The text is a name or a schema, which no cast reads.
                continue
            if plans is None or _MARK not in plans[1]:
                return f"{token.text} in it is read as the current time"
        return None

    # -- in the plan ----------------------------------------------------------------------------
    def _explained(self, texts: Sequence[str]) -> tuple[str, str] | None:
        """Return the analysed and the optimised plan; None if Spark cannot make one."""
        plan = self._explain(texts)
        if " more fields" not in plan:
            return _parts(plan)
        with confs_for_a_moment(self._session, {_TOSTRING_FIELDS: str(2**31 - 1)}):
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


def _called(name: str) -> str:
    return "a variable of the session" if name == "variablereference" else f"{name}()"


# -- text ---------------------------------------------------------------------------------------
def _tokens(text: str) -> list[_Token]:
    return [_Token(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(text)]


def _is_word(token: _Token) -> bool:
    value = "".join((match[1] or "") + (match[2] or "") for match in _STRINGS.finditer(token.text))
    return _WORD.fullmatch(value) is not None


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
