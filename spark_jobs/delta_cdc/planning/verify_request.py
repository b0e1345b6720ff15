"""What a verification is asked to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from delta_cdc.core import validation as configuration
from delta_cdc.core.checks import CHECKS
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import ApplyOptions


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """One target.

    :param target: path or URI
    :param source: path or URI of its source; None takes the one that the seal names
    :param options: what the pipeline is configured with now; None where only the seal says it
    :param takes_drift: other options than those of the seal hold from the next run on (``on_drift``)
    :param on_conflict: what the seal does not tell of a change log's options; with ``options`` theirs counts
    :param current: path or URI of the target of type 1 that holds the same keys' current rows
    :param current_pipeline: the pipeline that fills it; None takes the only one that its log names
    :param wanted: the checks that are made
    :param storage_options: options of the object store, as delta-rs names them
    """

    pipeline: str
    target: str
    source: str | None = None
    options: ApplyOptions | None = None
    takes_drift: bool = False
    on_conflict: str | tuple[str, ...] = "fail"
    current: str | None = None
    current_pipeline: str | None = None
    wanted: tuple[str, ...] = CHECKS
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the argument
        """
        configuration.check_pipeline(self.pipeline)
        check_names(self.wanted)


def check_names(wanted: Sequence[str]) -> None:
    """Refuse checks that there are not.

    :raises InvalidConfiguration: names the nearest one
    """
    for name in wanted:
        if name not in CHECKS:
            nearest = get_close_matches(name, CHECKS, n=1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise InvalidConfiguration(
                f"There is no check {name!r}.", remedy=f"use some of {', '.join(CHECKS)}{hint}."
            )
    if not wanted:
        raise InvalidConfiguration("checks is empty.", remedy="name at least one, or leave it out for all.")
