"""The pauses of a trigger between looks: longer after failures, which the log reports once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from delta_cdc.core.errors import CorruptLog, DeltaCdcError, LogGap, StoreRefused, VersionsExpired

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

#: Longest pause after failed looks, in seconds; a longer poll interval stays as it is.
LONGEST_BACKOFF = 300.0
#: The random part of a pause, so that the looks of triggers that started together spread out.
JITTER = 0.1

#: So often in a row, storage may refuse access to the table that a sensor waits for.
MOST_REFUSALS = 6

_DAMAGE = (CorruptLog, LogGap, VersionsExpired)


class Patience:
    """The pauses between looks at one table, and the log messages about failed looks.

    The log has one message when looks begin to fail, when they fail for another reason, and when they work
    again; not one per failure.

    :param table: the table, for the log
    :param interval: seconds between two looks without failures
    :param log: receives the messages
    """

    def __init__(self, table: str, interval: float, log: logging.Logger | Logger) -> None:
        self._table = table
        self._interval = interval
        self._log = log
        self._known_error = ""
        self._started = False
        #: The number of failed looks in a row.
        self.failures = 0

    def fine(self) -> None:
        """Record a successful look."""
        if self.failures:
            self._log.info(
                "The check of %s succeeds again, after %s failed checks.", self._table, self.failures
            )
        self.failures, self._known_error = 0, ""

    def failed(self, error: Exception) -> None:
        """Record a failed look; the pauses grow."""
        self.failures += 1
        if not self._is_known(error):
            self._known_error = type(error).__name__
            self._log.warning("Cannot check %s. The trigger tries again: %s", self._table, message_of(error))

    def ends_with(self, error: Exception) -> bool:
        """Return whether an error is final, so that the trigger ends.

        A damaged log is final only the second time: a table also looks damaged while it is being deleted. A
        refused access is final after some times: credentials that have expired may be renewed meanwhile.
        """
        if isinstance(error, StoreRefused):
            return self._is_known(error) and self.failures + 1 >= MOST_REFUSALS
        return is_final(error) and (self._is_known(error) or not isinstance(error, _DAMAGE))

    def pause(self) -> float:
        """Return the seconds to wait until the next look; before the first one, some part of the interval.

        A triggerer starts all its triggers at once: this spreads their looks from the beginning.
        """
        shortest = 1 - JITTER if self._started else 0.0
        self._started = True
        return self.length() * random.uniform(shortest, 1 + JITTER)

    def length(self) -> float:
        """Return the pause without its jitter."""
        longest = max(self._interval, LONGEST_BACKOFF)
        return float(min(self._interval * 2 ** min(self.failures, 16), longest))

    def _is_known(self, error: Exception) -> bool:
        return type(error).__name__ == self._known_error


def message_of(error: Exception) -> str:
    """Return an error as one line; a named error without its remedy."""
    return error.message if isinstance(error, DeltaCdcError) else f"{type(error).__name__}: {error}"


def is_final(error: Exception) -> bool:
    """Return whether an error cannot pass with time."""
    return isinstance(error, DeltaCdcError) and not error.retryable
