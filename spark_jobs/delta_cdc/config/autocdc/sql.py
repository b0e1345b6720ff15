"""Read the AUTO CDC flows of a SQL file, with an own small grammar. The file is never run.

A statement that defines another dataset, or sets a conf, is left out with a notice. Any other statement is an
error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.config.autocdc import clauses
from delta_cdc.config.autocdc.program import GIVE_THE_TABLE, Flow, Program, Read, Value
from delta_cdc.config.autocdc.sql_cursor import Cursor, Script
from delta_cdc.config.tree import Refused
from delta_cdc.core.sql_tokens import bare

if TYPE_CHECKING:
    from delta_cdc.config.autocdc.clauses import Clause
    from delta_cdc.config.autocdc.program import Dataset

#: Clauses by their words, the longest first, so that COLUMNS * EXCEPT is not read as COLUMNS.
_CLAUSES = sorted(
    (one for one in clauses.EVENTS if one.words and one.words != "ONCE"),
    key=lambda one: -len(one.words.split()),
)
_TABLE = sorted(
    (one for one in clauses.TABLE if one.words and one.words[0] != "("),
    key=lambda one: -len(one.words.split()),
)
_ALL = ", ".join(one.words for one in clauses.EVENTS if one.words and one.words != "ONCE")
#: Words of a flow, and the statements that may have them.
_OF_A_FLOW = ("AUTO CDC", "APPLY CHANGES")
_FORMS = "CREATE FLOW … AS AUTO CDC INTO, CREATE STREAMING TABLE … FLOW AUTO CDC, APPLY CHANGES INTO"
#: Statements that are left out.
_LEFT_OUT = ("SET", "CREATE", "COMMENT ON")
_INTO = ("AUTO CDC ONCE INTO", "AUTO CDC INTO", "APPLY CHANGES INTO")


def read(text: str, name: str) -> tuple[Program, list[Refused]]:
    """Return what a SQL file defines, and the errors of statements that cannot be read.

    :param text: the content of the file
    :param name: its name in messages
    :raises Refused: a quote or a comment is not closed
    """
    reader = _Reader()
    for cursor in Script(text, name).statements():
        place, count = cursor.place(), len(reader.program.flows)
        try:
            reader.statement(cursor)
            if not cursor.is_done:
                raise cursor.expected("a semicolon")
            if len(reader.program.flows) == count and any(map(cursor.contains, _OF_A_FLOW)):
                raise Refused(
                    place, "The statement has AUTO CDC in an unknown form.", f"use one of {_FORMS}."
                )
        except Refused as refused:
            reader.errors.append(refused)
    return reader.program, reader.errors


class _Reader:
    def __init__(self) -> None:
        self.program = Program()
        self.errors: list[Refused] = []

    def statement(self, cursor: Cursor) -> None:
        """Read one statement."""
        place = cursor.place()
        if any(cursor.at(words) for words in _INTO):
            self._flow_into(cursor, None)
        elif cursor.take("CREATE FLOW"):
            self._flow(cursor)
        elif self._is_streaming_table(cursor):
            self._table(cursor)
        elif self._is_view(cursor):
            self._view(cursor)
        elif any(cursor.at(words) for words in _LEFT_OUT):
            self.program.notices.append(f"{place}: {cursor.shown()} … is left out: it defines no flow.")
            cursor.skip()
        else:
            raise cursor.refused(
                f"{cursor.shown()} begins no statement of a pipeline.",
                "remove it; names of tables need their catalog and schema, so USE is not needed.",
            )

    # -- datasets ---------------------------------------------------------------------------------
    def _is_streaming_table(self, cursor: Cursor) -> bool:
        return bool(
            cursor.take(
                *(
                    f"CREATE {refresh}{access}STREAMING {live}TABLE"
                    for refresh in ("OR REFRESH ", "OR REPLACE ", "")
                    for access in ("PRIVATE ", "TEMPORARY ", "")
                    for live in ("LIVE ", "")
                )
            )
        )

    def _is_view(self, cursor: Cursor) -> bool:
        return bool(
            cursor.take(
                *(
                    f"CREATE {refresh}{access}{kind}"
                    for refresh in ("OR REFRESH ", "OR REPLACE ", "")
                    for access in ("PRIVATE ", "TEMPORARY ", "TEMP ", "")
                    for kind in (
                        *("MATERIALIZED VIEW", "STREAMING LIVE VIEW", "LIVE VIEW", "LIVE TABLE", "VIEW"),
                    )
                )
            )
        )

    def _view(self, cursor: Cursor) -> None:
        """Read the definition of a view; flows may read it if it is a plain read."""
        place = cursor.place()
        cursor.take("IF NOT EXISTS")
        dataset = self.program.dataset(cursor.name("the name of the view"), "view", place)
        if not cursor.skip_to("AS"):
            raise cursor.expected("AS and a query")
        cursor.take("AS")
        self._fill(dataset, cursor)

    def _table(self, cursor: Cursor) -> None:
        cursor.take("IF NOT EXISTS")
        place = cursor.place()
        name = cursor.name("the name of the table")
        dataset = self.program.dataset(name, "streaming table", place)
        while not cursor.is_done:
            if cursor.take("AS"):
                self._fill(dataset, cursor)
                return
            if cursor.at("FLOW"):
                cursor.take("FLOW")
                once = self._once(cursor, "AUTO CDC ONCE", "AUTO CDC")
                self.program.flows.append(self._rest(cursor, Value(name, place), once))
                return
            self._table_clause(dataset, cursor)

    def _table_clause(self, dataset: Dataset, cursor: Cursor) -> None:
        if cursor.at("("):
            self._columns(dataset, cursor)
            return
        place = cursor.place()
        clause = next((one for one in _TABLE if cursor.take(one.words)), None)
        if clause is None:
            known = ", ".join(one.words for one in clauses.TABLE if one.words)
            raise cursor.refused(
                f"{cursor.shown()} begins no clause of a streaming table here.", f"use some of {known}."
            )
        if clause.instead and clause.argument != "format":
            raise Refused(place, f"{clause.words} has no equivalent here.", clause.instead)
        self._put(dataset.clauses, clause, Value(self._table_value(clause, cursor), place))

    def _table_value(self, clause: Clause, cursor: Cursor) -> Any:
        if clause.kind == clauses.FLAG:
            return True
        if clause.kind == clauses.NAMES:
            return cursor.columns()
        if clause.kind == clauses.TEXTS:
            return self._properties(cursor)
        return cursor.word(clauses.TEXT) if clause.argument == "format" else cursor.string(clauses.TEXT)

    def _properties(self, cursor: Cursor) -> dict[str, str]:
        found: dict[str, str] = {}
        cursor.need("(")
        while True:
            name = cursor.word("the name of a property")
            cursor.take("=")
            found[name] = cursor.word("the value of a property")
            if not cursor.take(","):
                break
        cursor.need(")")
        return found

    def _columns(self, dataset: Dataset, cursor: Cursor) -> None:
        """Read the brackets after a table's name: expectations; columns are refused."""
        cursor.need("(")
        while True:
            place = cursor.place()
            if not cursor.take("CONSTRAINT"):
                (schema,) = (one for one in clauses.TABLE if one.argument == "schema")
                raise Refused(place, "The table has a list of columns.", schema.instead)
            name = bare(cursor.name("the name of the expectation", qualified=False))
            cursor.need("EXPECT")
            cursor.need("(")
            check = cursor.expression(clauses.PREDICATE)
            cursor.need(")")
            violation = cursor.take("ON VIOLATION")
            reaction = cursor.take("DROP ROW", "FAIL UPDATE") if violation else ""
            if violation and not reaction:
                raise cursor.expected("DROP ROW or FAIL UPDATE")
            argument = clauses.ON_VIOLATION[reaction]
            checks = dataset.clauses.setdefault(argument, Value({}, place)).value
            checks[name] = check
            if not cursor.take(","):
                break
        cursor.need(")")

    # -- queries ----------------------------------------------------------------------------------
    def _fill(self, dataset: Dataset, cursor: Cursor) -> None:
        """Store the query that fills a dataset; one that is no plain read counts only if a flow reads it."""
        found: Read | Refused
        try:
            found = self._query(cursor)
            if not cursor.is_done:
                raise self._no_read(cursor)
        except Refused as refused:
            found = refused
            cursor.skip()
        dataset.reads.append(found)

    def _query(self, cursor: Cursor) -> Read:
        place = cursor.place()
        if not cursor.take("SELECT * FROM"):
            raise self._no_read(cursor)
        read = self._relation(cursor)
        if not cursor.take("WHERE"):
            return read
        condition = cursor.expression(clauses.PREDICATE)
        return Read(read.table, place, read.is_stream, (condition,))

    def _relation(self, cursor: Cursor) -> Read:
        """Read a table, as a stream or not."""
        place = cursor.place()
        is_stream = bool(cursor.take("STREAM"))
        has_brackets = is_stream and bool(cursor.take("("))
        table = cursor.name("the name of a table")
        if cursor.at("("):
            raise Refused(place, f"{table}(…) is no plain read of a Delta table.", GIVE_THE_TABLE)
        if has_brackets:
            cursor.need(")")
        return Read(table, place, is_stream)

    def _no_read(self, cursor: Cursor) -> Refused:
        remedy = f"write SELECT * FROM STREAM(name) with or without WHERE; or {GIVE_THE_TABLE}"
        return cursor.refused("The query is no plain read of a Delta table.", remedy)

    # -- flows ------------------------------------------------------------------------------------
    def _flow(self, cursor: Cursor) -> None:
        place = cursor.place()
        name = Value(cursor.name("the name of the flow"), place)
        if cursor.take("COMMENT"):
            cursor.string(clauses.TEXT)
        cursor.need("AS")
        if any(cursor.at(words) for words in (*_INTO, "AUTO CDC FROM SNAPSHOT")):
            self._flow_into(cursor, name)
        elif cursor.take("INSERT INTO ONCE", "INSERT INTO"):
            place = cursor.place()
            dataset = self.program.dataset(cursor.name("the name of a table"), "streaming table", place)
            cursor.take("BY NAME")
            self._fill(dataset, cursor)
        else:
            raise cursor.expected(f"{_INTO[1]} or INSERT INTO")

    def _flow_into(self, cursor: Cursor, name: Value | None) -> None:
        once = self._once(cursor, *_INTO)
        place = cursor.place()
        flow = self._rest(cursor, Value(cursor.name("the name of a table"), place), once)
        if name is not None:
            flow.clauses["name"] = Value(name.value.replace("`", ""), name.place)
        self.program.flows.append(flow)

    def _once(self, cursor: Cursor, *phrases: str) -> dict[str, Value]:
        """Step over the words that begin a flow, and return the clause ONCE if it is there."""
        place = cursor.place()
        if cursor.at("AUTO CDC FROM SNAPSHOT"):
            raise cursor.refused(
                "AUTO CDC FROM SNAPSHOT has no form in SQL here.",
                "write create_auto_cdc_from_snapshot_flow in Python, or source_kind: snapshot in YAML.",
            )
        found = cursor.take(*phrases)
        if not found:
            raise cursor.expected(phrases[-1])
        return {"once": Value(True, place)} if "ONCE" in found else {}

    def _rest(self, cursor: Cursor, target: Value, given: dict[str, Value]) -> Flow:
        """Read a flow after its target."""
        place = cursor.place()
        cursor.need("FROM")
        read = self._source(cursor)
        source = Value(read, read.place)
        while not cursor.is_done:
            self._clause(given, cursor)
        return Flow(place, is_snapshot=False, target=target, source=source, clauses=given)

    def _source(self, cursor: Cursor) -> Read:
        if cursor.take("("):
            read = self._query(cursor)
            if not cursor.take(")"):
                raise self._no_read(cursor)
        else:
            read = self._relation(cursor)
        if not read.is_stream:
            raise Refused(
                read.place,
                f"The source {read.table} is not read as a stream.",
                f"write STREAM({read.table}): its rows are events, and each is applied once.",
            )
        return read

    def _clause(self, given: dict[str, Value], cursor: Cursor) -> None:
        place = cursor.place()
        clause = next((one for one in _CLAUSES if cursor.take(one.words)), None)
        if clause is None:
            raise cursor.refused(f"{cursor.shown()} begins no clause of AUTO CDC.", f"use some of {_ALL}.")
        self._put(given, clause, Value(self._clause_value(clause, cursor), place))

    def _clause_value(self, clause: Clause, cursor: Cursor) -> Any:
        if clause.kind == clauses.FLAG:
            return True
        if clause.kind == clauses.NAMES:
            return cursor.columns(qualified=clause.argument.startswith("ignore_null"))
        if clause.kind == clauses.NAME:
            return cursor.column()
        if clause.kind == clauses.SCD_TYPE:
            return self._scd_type(cursor)
        return cursor.expression(clause.kind)

    def _scd_type(self, cursor: Cursor) -> str:
        if cursor.take("BITEMPORAL"):
            return "bitemporal"
        cursor.need("SCD TYPE")
        return cursor.word(clauses.SCD_TYPE)

    def _put(self, given: dict[str, Value], clause: Clause, value: Value) -> None:
        if clause.argument in given:
            raise Refused(value.place, f"{clause.words} is given twice.", "keep one of them.")
        given[clause.argument] = value
