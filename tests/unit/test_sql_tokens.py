"""SQL that is split into tokens, without Spark."""

from __future__ import annotations

import pytest

from delta_cdc.core.sql_tokens import tokens


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.b (1)", ["a.b", " ", "(", "1", ")"]),
        ("'it''s' x", ["'it''s'", " ", "x"]),
        (r"'a\'b' x", [r"'a\'b'", " ", "x"]),
        ("r'no' /*'*/ \"a'b\" c", ["r'no' /*'*/ \"a'b\"", " ", "c"]),
        ("`a``b` . c", ["`a``b` . c"]),
        ("a--b'\nc", ["a", "--b'", "\n", "c"]),
        ("a/*'*/b", ["a", "/*'*/", "b"]),
        ("'open x", ["'open x"]),
        ("a /* open x", ["a", " ", "/* open x"]),
        (r"r'no\' x", [r"r'no\'", " ", "x"]),
        ("a--b\\\nc\rd", ["a", "--b\\\nc", "\r", "d"]),
    ],
)
def test_sql_that_is_taken_apart(text: str, parts: list[str]) -> None:
    assert [token.text for token in tokens(text)] == parts
