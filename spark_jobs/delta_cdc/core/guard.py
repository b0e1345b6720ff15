"""Limits that stop a run before it changes more of its target than its owner expects.

An empty or mistaken source is applied as faithfully as a right one. So a run compares what it would do with
these limits, and beyond one it commits nothing. A person who finds the change right approves exactly it.

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from delta_cdc.core import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: A whole number of rows, or a share of the target's rows as text, such as ``5 %``.
Limit = int | str

#: A full copy with fewer rows is not compared with the one after it.
_LEAST_ROWS = 1000

_SHARE = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*", re.ASCII)
_APPROVAL = re.compile(r"(\d{1,18})-[0-9a-f]{12}", re.ASCII)


def share(text: str) -> Decimal | None:
    """Return the share that a text such as ``5 %`` says, from 0 to 1; None if it says no share."""
    match = _SHARE.fullmatch(text)
    percent = Decimal(match[1]) if match is not None else Decimal(101)
    return percent / 100 if percent <= 100 else None


def most(limit: Limit, rows: int) -> int:
    """Return how many of ``rows`` a limit allows; a share is rounded down.

    :raises ValueError: the limit is a text that says no share
    """
    if isinstance(limit, int):
        return limit
    part = share(limit)
    if part is None:
        raise ValueError(limit)
    return int(part * rows)


def has_shrunk(rows: int, before: int) -> bool:
    """Return whether a full copy has at most half of the rows of the one before it, which was not small."""
    return before >= _LEAST_ROWS and 2 * rows <= before


@dataclass(frozen=True)
class Copy:
    """A full copy in a table of several.

    :param name: its value of the column that distinguishes the copies
    :param before: rows of the copy that is applied before it; None: they are not compared
    """

    name: str
    rows: int
    before: int | None = None

    @property
    def has_shrunk(self) -> bool:
        """Return whether the copy has far fewer rows than the one before."""
        return self.before is not None and has_shrunk(self.rows, self.before)


@dataclass(frozen=True)
class Effect:
    """What a step would do to the rows of its target; of a history, to the current rows.

    :param rows: rows before the step
    :param deleted: keys whose row ends, and that get no other one
    :param changed: keys of which any row is written, changed or deleted
    """

    rows: int
    deleted: int
    changed: int


@dataclass(frozen=True)
class Guard:
    """The limits of a run.

    :param max_deleted: most keys whose row may end; None: no limit
    :param max_changed: most keys that may change; None: no limit
    :param min_source_rows: least rows that a load or a reset writes, and a full copy has; None: no limit. It
        cannot be approved
    :param asks: the number of a seal whose step needs a person's approval, and why: a sentence without a
        subject; None: no step needs one
    :param approved: :func:`approval` of the step that a person approved; "": of none
    """

    max_deleted: Limit | None = None
    max_changed: Limit | None = None
    min_source_rows: int | None = None
    asks: tuple[int, str] | None = None
    approved: str = ""

    @property
    def limits_rows(self) -> bool:
        """Return whether the effect on the target's rows is limited."""
        return self.max_deleted is not None or self.max_changed is not None

    def reason_to_ask(self, seal_number: int) -> str | None:
        """Return why a step needs a person's approval, by the number of its seal; None if it needs none."""
        return self.asks[1] if self.asks is not None and self.asks[0] == seal_number else None

    def allows_any(self, changed: int) -> bool:
        """Return whether no step that changes up to ``changed`` keys exceeds a limit, whatever the rows."""
        limits = [limit for limit in (self.max_deleted, self.max_changed) if limit is not None]
        return changed == 0 or all(isinstance(limit, int) and changed <= limit for limit in limits)

    def exceeded(self, effect: Effect) -> Iterator[str]:
        """Yield a sentence for each limit that an effect exceeds."""
        for name, limit, count, verb in (
            ("max_deleted", self.max_deleted, effect.deleted, "delete or close"),
            ("max_changed", self.max_changed, effect.changed, "change"),
        ):
            # A share of no rows would stop the first rows of a table.
            protects = limit is not None and (effect.rows > 0 or isinstance(limit, int))
            if limit is not None and protects and count > most(limit, effect.rows):
                of_rows = f" ({100 * count / effect.rows:.1f} %)" if effect.rows else ""
                yield f"it would {verb} {count} of {effect.rows} rows{of_rows}, and {name} is {limit}"


def described(effect: Effect, *, replaces: bool) -> str:
    """Return a sentence without a full stop about an effect that exceeds no limit.

    :param replaces: the step writes all rows again, and only the keys were compared
    """
    if not replaces:
        return f"it would end {effect.deleted} and change {effect.changed} of {effect.rows} rows"
    return (
        f"it would write all rows again: of {effect.rows} keys, {effect.deleted} would go; "
        f"{effect.changed - effect.deleted} new keys would come; "
        "the values of the other keys were not compared"
    )


def nothing_written(earlier: Sequence[str]) -> str:
    """Return what a step that is stopped has written, as a sentence.

    :param earlier: the kinds of the steps that the run committed before it
    """
    if not earlier:
        return "Nothing was written."
    if set(earlier) == {"take_over"}:
        return "The take-over is committed; nothing else was written."
    return "The commits of the run before this one stay; nothing else was written."


def approval(ending_version: int, effect: Effect, **identity: object) -> str:
    """Return the text that approves exactly one step with one effect: ``<ending version>-<12 hex digits>``.

    :param ending_version: the last version of the source that the step covers
    :param identity: what the step is: pipeline, options, kind, versions, and the commits of source and target
        that it was planned on. So the text fits no other step, and no longer this one once any of these has
        changed
    """
    digest = hashlib.sha256(codec.dumps({**identity, "effect": effect}).encode()).hexdigest()
    return f"{ending_version}-{digest[:12]}"


def of_another_change(approved: str | None) -> str:
    """Return a sentence about an approval that does not fit, with a space before it; "" without approval."""
    if not approved:
        return ""
    return (
        f" approve is {approved}, which is for another change: source, target or options have changed since."
    )


def approved_version(text: str) -> int | None:
    """Return the version of the source up to which an approved step goes; None if it is no such text."""
    match = _APPROVAL.fullmatch(text)
    return int(match[1]) if match is not None else None
