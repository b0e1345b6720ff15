"""Rules for the values of a pipeline's rows, and what a run does with a row that breaks one.

A row keeps a rule only if its check is true: a check that gives NULL is broken, because the value that it
tests is not known to be right. Databricks' expectations work the same way; a CHECK constraint of Delta does,
too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from delta_cdc.core.arguments import mapping, one_of, refused, spelled, text

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a run does with a row that breaks a rule: fail; set it aside in the quarantine; or apply and count it.
OnBreak = Literal["fail", "quarantine", "flag"]
ON_BREAK: tuple[OnBreak, ...] = get_args(OnBreak)
#: Prefix of the name of a count: the rows that broke the rule whose name follows.
COUNT = "rule:"
#: The name is part of a count, of a label of a metric, and of a reason in the quarantine.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


@dataclass(frozen=True)
class ValueRule:
    """A rule.

    :param check: Spark SQL predicate over the columns of a row of the target
    :param on_break: what a run does with a row for which the check is not true
    """

    check: str
    on_break: OnBreak = "fail"


def value_rules(name: str, value: Any) -> dict[str, ValueRule]:
    """Read rules: a mapping from their names to a check, or to ``{check: …, on_break: …}``.

    :raises InvalidConfiguration: for anything else; names the rule
    """
    return {rule: _rule(name, rule, item) for rule, item in mapping(name, value).items()}


def _rule(argument: str, name: str, value: Any) -> ValueRule:
    place = f"{argument} {name}"
    if _NAME.fullmatch(name) is None:
        raise refused(
            argument, name, "name a rule with up to 63 letters, digits and '_', not starting with a digit."
        )
    given = spelled(value)
    parts = given if isinstance(given, Mapping) else {"check": given}
    if not set(parts) <= {"check", "on_break"}:
        raise refused(place, value, "give a check, or a mapping with the keys check and on_break.")
    check = text(f"{place} check", parts.get("check"))
    if check is None:
        raise refused(place, value, "give its check: a Spark SQL predicate, such as 'amount >= 0'.")
    on_break: OnBreak | None = one_of(ON_BREAK, f"{place} on_break", parts.get("on_break"))
    return ValueRule(check, on_break or "fail")


def recorded_rules(recorded: Any) -> dict[str, ValueRule]:
    """Return the rules that a seal records; none of a seal of an older release."""
    return {name: ValueRule(**entry) for name, entry in (recorded or {}).items()}


def those_that(rules: Mapping[str, ValueRule], *on_break: OnBreak) -> dict[str, ValueRule]:
    """Return the rules with one of these reactions."""
    return {name: rule for name, rule in rules.items() if rule.on_break in on_break}


def broken_in(counts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of broken rules, with the number of rows, from the counts of a commit or a run."""
    for name, number in counts.items():
        if name.startswith(COUNT):
            yield name.removeprefix(COUNT), number
