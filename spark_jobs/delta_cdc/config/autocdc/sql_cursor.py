"""A position in a SQL statement, and what can stand there: words, names, lists, texts, expressions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.config.findings import Place, shown
from delta_cdc.config.tree import Refused
from delta_cdc.core.sql_tokens import Token, bare, contents, names, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Words after which an expression goes on; and words that go on with a complete one.
_OPERATORS = frozenset(
    (
        *("AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "IS", "ESCAPE", "DIV"),
        *("WHEN", "THEN", "ELSE", "DISTINCT", "FROM", "COLLATE", "OVER", "CASE", "INTERVAL"),
    )
)
_GO_ON = (_OPERATORS - {"CASE", "INTERVAL"}) | {"END"}
_OPENING, _CLOSING = "([{", ")]}"
_VARIABLE = re.compile(r"\$\{")


class Script:
    """A text with statements.

    :param text: the text
    :param name: its name in messages
    :raises Refused: a quote or a comment is not closed
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self._lines = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self._tokens = tokens(text)
        for token in self._tokens:
            if token.kind == "gap" and token.text.startswith("/*") and not _is_closed(token.text):
                raise Refused(self.place(token.start), "The comment is not closed.", "close it with */.")
            if token.kind == "other" and token.text[0] in "'\"`":
                raise Refused(
                    self.place(token.start),
                    f"The quote {token.text[0]} is not closed.",
                    "close it, or write it twice.",
                )

    def place(self, start: int) -> Place:
        """Return the place of a character by its number."""
        low, high = 0, len(self._lines)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._lines[middle] <= start else (low, middle)
        return Place(self.name, low + 1, start - self._lines[low] + 1)

    def statements(self) -> list[Cursor]:
        """Return the statements, each at its beginning; empty ones are left out."""
        found: list[Cursor] = []
        current: list[Token] = []
        for token in [*self._tokens, Token("other", ";", len(self.text))]:
            if token.kind == "other" and token.text == ";":
                if current:
                    found.append(Cursor(self, current, token.start))
                current = []
            elif token.kind != "gap":
                current.append(token)
        return found


class Cursor:
    """A position in a statement.

    :param script: the text that contains it
    :param statement: its tokens, without gaps
    :param end: number of characters before its end
    """

    def __init__(self, script: Script, statement: list[Token], end: int) -> None:
        self._script = script
        self._tokens = statement
        self._end = end
        self._at = 0

    # -- position ---------------------------------------------------------------------------------
    @property
    def is_done(self) -> bool:
        """Return whether nothing follows."""
        return self._at >= len(self._tokens)

    def place(self) -> Place:
        """Return the place of the next token, or of the end."""
        return self._script.place(self._end if self.is_done else self._tokens[self._at].start)

    def shown(self) -> str:
        """Return the next token for a message."""
        return "the end of the statement" if self.is_done else shown(self._tokens[self._at].text)

    def refused(self, message: str, remedy: str) -> Refused:
        """Return an error at this position."""
        return Refused(self.place(), message, remedy)

    def expected(self, what: str) -> Refused:
        """Return the error for something else than expected at this position."""
        text = self.shown()
        return self.refused(f"{text[0].upper()}{text[1:]} is where {what} is expected.", f"write {what}.")

    # -- words ------------------------------------------------------------------------------------
    def at(self, words: str, ahead: int = 0) -> bool:
        """Return whether some words, or signs, are next.

        :param words: in upper case, with blanks between them
        :param ahead: number of tokens to skip
        """
        wanted = words.split()
        found = self._tokens[self._at + ahead : self._at + ahead + len(wanted)]
        return len(found) == len(wanted) and all(
            token.kind in ("name", "other", "number") and token.text.upper() == word
            for token, word in zip(found, wanted, strict=True)
        )

    def take(self, *choices: str) -> str:
        """Step over the first of some phrases that is next, and return it; "" if there is no such phrase."""
        for words in choices:
            if self.at(words):
                self._at += len(words.split())
                return words
        return ""

    def need(self, words: str) -> None:
        """Step over words.

        :raises Refused: something else is next
        """
        if not self.take(words):
            raise self.expected(words)

    # -- parts ------------------------------------------------------------------------------------
    def name(self, what: str, *, qualified: bool = True) -> str:
        """Step over a name, and return it as written.

        :param what: what it names, for a message
        :param qualified: whether it may have several parts
        :raises Refused: something else is next
        """
        if self.is_done or self._tokens[self._at].kind != "name":
            raise self.expected(what)
        text = self._tokens[self._at].text
        if not qualified and len(names(text)) > 1:
            raise self.refused(f"{text} is a qualified name.", "write the name of the column alone.")
        self._at += 1
        return ".".join(names(text))

    def columns(self, *, qualified: bool = False) -> list[str]:
        """Step over a list of columns, in brackets or not, and return their names without back-ticks."""
        has_brackets = bool(self.take("("))
        found = [self._column(qualified)]
        while self.take(","):
            found.append(self._column(qualified))
        if has_brackets:
            self.need(")")
        return found

    def _column(self, qualified: bool) -> str:
        return ".".join(bare(part) for part in names(self.name("the name of a column", qualified=qualified)))

    def column(self) -> str:
        """Step over the name of one column, and return it without back-ticks."""
        return self._column(qualified=False)

    def string(self, what: str) -> str:
        """Step over a string literal, and return its content."""
        if self.is_done or self._tokens[self._at].kind != "text":
            raise self.expected(what)
        text = self._tokens[self._at].text
        content = contents(text)
        if "\\" in content:
            raise self.refused("A back-slash is in a text.", "write the text without escapes.")
        self._at += 1
        return content.replace(text[-1] * 2, text[-1])

    def word(self, what: str) -> str:
        """Step over one token that is a name, a number or a text, and return its content."""
        if not self.is_done and self._tokens[self._at].kind == "text":
            return self.string(what)
        if self.is_done or self._tokens[self._at].kind not in ("name", "number"):
            raise self.expected(what)
        self._at += 1
        return self._tokens[self._at - 1].text

    # -- expressions ------------------------------------------------------------------------------
    def expression(self, what: str) -> str:
        """Step over an expression, and return its text without comments.

        It ends where a word follows a complete expression, such as the first word of a clause.

        :param what: what it is, for a message
        :raises Refused: it is empty, a bracket is not closed, or it contains a variable of the pipeline
        """
        place, first = self.place(), self._at
        open_at: list[Place] = []
        while not self.is_done:
            text = self._tokens[self._at].text
            if self._at > first and self.take("AT TIME ZONE"):
                continue
            if not open_at and self._at > first and self._ends_before():
                break
            if text in _CLOSING:
                if not open_at:
                    break
                open_at.pop()
            elif text in _OPENING:
                open_at.append(self.place())
            self._at += 1
        if open_at:
            raise Refused(open_at[-1], "The bracket is not closed.", "close it.")
        if self._at == first:
            raise self.expected(what)
        sql = self._text(self._tokens[first : self._at])
        if _VARIABLE.search(sql):
            raise Refused(place, "Here is a variable of the pipeline, ${…}.", "write its value.")
        return sql

    def _ends_before(self) -> bool:
        """Return whether an expression ends before the position."""
        before, here = self._tokens[self._at - 1], self._tokens[self._at]
        if here.kind != "name" or here.text.upper() in _GO_ON:
            return False
        if before.kind == "other":
            return before.text in _CLOSING
        # The unit of INTERVAL 1 DAY.
        is_unit = self._at > 1 and self._tokens[self._at - 2].text.upper() == "INTERVAL"
        return not is_unit and not (before.kind == "name" and before.text.upper() in _OPERATORS)

    def _text(self, some: Iterable[Token]) -> str:
        """Return tokens as text; what was between them becomes a blank."""
        parts: list[str] = []
        end = None
        for token in some:
            if end is not None and token.start > end:
                parts.append(" ")
            parts.append(token.text)
            end = token.start + len(token.text)
        return "".join(parts)

    def contains(self, words: str) -> bool:
        """Return whether words are anywhere in the statement."""
        return any(self.at(words, at - self._at) for at in range(len(self._tokens)))

    def skip(self) -> None:
        """Step to the end of the statement."""
        self._at = len(self._tokens)

    def skip_to(self, words: str) -> bool:
        """Step to words outside of brackets, or to the end; return whether they are there."""
        depth = 0
        while not self.is_done:
            text = self._tokens[self._at].text
            if depth <= 0 and self.at(words):
                return True
            depth += (text in _OPENING) - (text in _CLOSING)
            self._at += 1
        return False


def _is_closed(comment: str) -> bool:
    return len(comment) >= len("/**/") and comment.endswith("*/")
