"""The predicate of a repair: what it may contain, without Spark."""

from __future__ import annotations

import random

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.key_predicates import DEEPEST, LONGEST, MOST, check_key_predicate
from delta_cdc.core.options import APPLY
from tests.support.drawn_predicates import KEYS, drawn, mutated

ACCEPTED = """\
true
NOT FALSE
id = 1
1 <= ID
`id` IN (7, -8, +.5, 1.5e3)
`a.b` = 'it''s' AND `we``ird` IS NOT NULL
`a.b` LIKE 'a%_' OR "x" <> `a.b`
`a.b` = r'\\d' AND `a.b` != "a\\"b"
id <=> NULL
NOT (NOT id == 1 OR (id BETWEEN 1 AND 2 AND NOT id NOT IN (3)))
id > DATE'2024-02-29'
id = timestamp '2024-01-01T10:00:00.5+05:30'
id = TIMESTAMP_NTZ"2024-01-01 10:00"
id = X'00fF'"""

#: Predicate -> the place that the error names, and its cause.
REFUSED = {
    "": "the end cannot stand at character 1 ",
    "  ": "the end cannot stand at character 3 ",
    "id": "the end cannot stand at character 3 ",
    "id IN (SELECT id FROM delta.`/lake/other`)": "'SELECT' cannot stand at character 8 ",
    "EXISTS (SELECT 1)": "'EXISTS' cannot stand at character 1 ",
    "repeat('x', 300000000) = `a.b`": "'repeat' cannot stand at character 1 ",
    "id = abs(1)": "'abs' cannot stand at character 6 ",
    "id = cast('1' AS INT)": "'cast'",
    "id + 1 = 2": "'+' cannot stand at character 4 ",
    "other = 1": "'other'",
    "t.id = 1": "'t.id'",
    "a.b = 1": "'a.b'",
    "`other` = 1": "'`other`'",
    "id = 1; DROP TABLE t": "';'",
    "id = 1 -- all": "'-- all'",
    "id = 1 /* all */": "'/* all */'",
    "id = 'open": '"\'open"',
    "id = 1 OR": "the end",
    "(id = 1": "the end",
    "id = 1)": "')'",
    "id IN ()": "')'",
    "id IS 1": "'1'",
    "id LIKE `a.b`": "'`a.b`' cannot stand at",
    "id LIKE 'a\\\\_'": "without backslashes",
    "id LIKE '%a%a%a%a%a%'": "at most 5 '%'",
    "id = 1L": "'1L'",
    "id = 1e999": "'1e999'",
    f"id = {'9' * 39}": "cannot stand",
    "id = DATE'today'": "this typed literal cannot be read",
    "id = DATE'2024-02-30'": "this typed literal cannot be read",
    "id = TIMESTAMP'12:30'": "this typed literal cannot be read",
    "id = INTERVAL'1' DAY": "this typed literal cannot be read",
    "id = X'0'": "this typed literal cannot be read",
    "id = current_date": "'current_date'",
    "id = ${env:HOME}": "'$'",
    "id = :name": "':'",
    "id = 1 = 1": "'='",
    "(id, id) = (1, 2)": "','",
    "\x00": "cannot stand",
    "(" * (DEEPEST + 2) + "true" + ")" * (DEEPEST + 2): "inside each other",
    "NOT " * (DEEPEST + 2) + "true": "inside each other",
    "id = 1" + " OR id = 1" * MOST: f"more than {MOST} conditions",
    f"id = '{'x' * LONGEST}'": f"more than {LONGEST}",
    "(" * 40_000: "inside each other",
}


@pytest.mark.parametrize("text", ACCEPTED.splitlines())
def test_comparisons_of_keys_with_literals(text: str) -> None:
    check_key_predicate(text, KEYS)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_anything_else_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        check_key_predicate(text, KEYS)
    assert REFUSED[text] in refused.value.message
    assert "compare the key columns (id, we`ird, a.b) with numbers" in refused.value.remedy
    assert refused.value.argument == "repair_keys"
    assert len(refused.value.message) < 600


def test_a_form_that_does_not_know_the_keys() -> None:
    assert APPLY["repair_keys"].read("whatever IN (1)") == "whatever IN (1)"
    assert APPLY["repair_keys"].read(None) is None
    with pytest.raises(InvalidConfiguration, match="'1' cannot stand at character 15"):
        APPLY["repair_keys"].read("id IN (SELECT 1)")
    with pytest.raises(InvalidConfiguration, match="'``'"):
        APPLY["repair_keys"].read("`` = 1")


def test_no_text_raises_another_error() -> None:
    draw = random.Random(8)
    accepted = 0
    for _ in range(3_000):
        tokens, _ = drawn(draw)
        check_key_predicate(" ".join(tokens), KEYS)
        try:
            check_key_predicate(mutated(draw, tokens), KEYS)
        except InvalidConfiguration:
            continue
        accepted += 1
    assert 100 < accepted < 2_900


def test_fields_of_a_key_are_compared_too() -> None:
    for text in ("k.i = 0 AND K.`j k`.l IS NULL", "k.i IN (1, 2)"):
        check_key_predicate(text, ("k",))
    for text in ("v.i = 0", "k.i() = 0", "k.in = 0"):
        with pytest.raises(InvalidConfiguration, match="cannot stand at"):
            check_key_predicate(text, ("k",))
