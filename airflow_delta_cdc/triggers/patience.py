"""What a trigger does before a look: wait, longer after failures, and say so once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from delta_cdc.core.errors import CorruptLog, DeltaCdcError, LogGap, VersionsExpired

if TYPE_CHECKING:
    import logging

    from airflow.sdk.types import Logger

#: Longest pause after failed looks, in seconds; a longer poll interval stays as it is.
LONGEST_BACKOFF = 300.0
#: Pauses differ by so much of their length, so that many triggers that started together spread out.
JITTER = 0.1

_DAMAGE = (CorruptLog, LogGap, VersionsExpired)


class Patience:
    """Pauses between looks at one table, and what the log says about looks that fail.

    A failure is logged when looks begin to fail, when they fail for another reason, and when they are fine
    again; not every time.

    :param table: the table, for the log
    :param interval: seconds between two looks while all is well
    :param log: where to say it
    """

    def __init__(self, table: str, interval: float, log: logging.Logger | Logger) -> None:
        self._table = table
        self._interval = interval
        self._log = log
        self._known_error = ""
        self._started = False
        #: How many looks in a row have failed.
        self.failures = 0

    def fine(self) -> None:
        """Note a look that was answered."""
        if self.failures:
            self._log.info("Looking at %s works again, after %s failed looks.", self._table, self.failures)
        self.failures, self._known_error = 0, ""

    def failed(self, error: Exception) -> None:
        """Note a look that failed; the pauses grow."""
        self.failures += 1
        if not self._is_known(error):
            self._known_error = type(error).__name__
            self._log.warning("Cannot look at %s, and will go on trying: %s", self._table, message_of(error))

    def ends_with(self, error: Exception) -> bool:
        """Tell whether waiting can't repair what is wrong.

        A damaged log has to be found twice: it is what a table looks like while it is being deleted.
        """
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
    """Return an error in one line, a named one without its remedy."""
    return error.message if isinstance(error, DeltaCdcError) else f"{type(error).__name__}: {error}"


def is_final(error: Exception) -> bool:
    """Tell whether waiting can't repair what is wrong."""
    return isinstance(error, DeltaCdcError) and not error.retryable
