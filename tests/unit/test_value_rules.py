"""Rules as people write them, as a seal records them, and in counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delta_cdc.core.codec import dumps, loads
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import filled
from delta_cdc.core.options import APPLY, ApplyOptions
from delta_cdc.core.validation import described, drifts, options_of
from delta_cdc.core.value_rules import ValueRule, broken_in, value_rules
from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion

RULE = ValueRule("amount >= 0", "quarantine")
OPTIONS = ApplyOptions(keys=("id",), rules={"positive": RULE, "known": ValueRule("customer IS NOT NULL")})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, {}),
        ("", {}),
        ({"positive": "amount >= 0"}, {"positive": ValueRule("amount >= 0", "fail")}),
        ({"positive": {"check": "amount >= 0"}}, {"positive": ValueRule("amount >= 0", "fail")}),
        ({"positive": {"check": "amount >= 0", "on_break": "quarantine"}}, {"positive": RULE}),
        ('{"positive": {"check": "amount >= 0", "on_break": "quarantine"}}', {"positive": RULE}),
    ],
)
def test_what_people_write(given: Any, read: dict[str, ValueRule]) -> None:
    assert value_rules("rules", given) == read
    assert filled(ApplyOptions, APPLY, {"keys": "id", "rules": given}).rules == read


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("amount >= 0", "rules is no mapping"),
        ({"positive": ""}, "give its check"),
        ({"positive": {"on_break": "flag"}}, "give its check"),
        ({"positive": None}, "give its check"),
        ({"positive": True}, "rules positive check is True"),
        ({"positive": {"check": "a", "when": "b"}}, "the keys check and on_break"),
        ({"positive": {"check": "a", "on_break": "ignore"}}, "use one of fail, quarantine, flag"),
        ({"is positive": "a"}, "name a rule with up to 63"),
        ({"1st": "a"}, "name a rule with up to 63"),
        ({"": "a"}, "name a rule with up to 63"),
        ({"x" * 64: "a"}, "name a rule with up to 63"),
    ],
)
def test_what_is_no_rule(given: Any, problem: str) -> None:
    with pytest.raises(InvalidConfiguration, match=problem) as raised:
        value_rules("rules", given)
    assert raised.value.argument == "rules"


def test_only_a_rule_that_sets_aside_needs_a_quarantine() -> None:
    assert OPTIONS.sets_rows_aside
    assert OPTIONS.quarantines
    others = replace(OPTIONS, rules={"a": ValueRule("a > 0"), "b": ValueRule("b > 0", "flag")})
    assert not others.sets_rows_aside
    assert not others.quarantines


def test_a_spec_and_a_seal_keep_them() -> None:
    assert loads(ApplyOptions, dumps(OPTIONS)) == OPTIONS
    seal = _seal(described(OPTIONS))
    assert options_of(seal).rules == OPTIONS.rules
    # The rules of the rows that come are not those that the target was built with.
    assert drifts(seal, replace(OPTIONS, rules={}), "/target") == {}
    # A seal of an older release has no rules.
    assert options_of(_seal({"keys": ["id"]})).rules == {}


def _seal(configuration: dict[str, Any]) -> Seal:
    state = PipelineState(TableVersion("t", 1), 0, configuration=configuration)
    return Seal("p", 1, "/source", state, SealStep("load", 1, 1, "", ""))


def test_broken_rules_in_counts() -> None:
    counts = {"inserted": 4, "rule:positive": 3, "quarantined": 3, "rule:known": 1}
    assert dict(broken_in(counts)) == {"positive": 3, "known": 1}
