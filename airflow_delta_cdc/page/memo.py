"""Results that are found again as long as what they depend on is the same."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_T = TypeVar("_T")


class Memo:
    """The last result of pure functions for each of some things, such as a run or a pipeline.

    A result counts only while the function's arguments are equal to those it was made from. So whatever
    changes in the database is in the next answer, whichever process gives it.

    :param most: the number of results that are kept; those that no call needed for the longest time go first
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, tuple[tuple[Any, ...], Any]] = OrderedDict()
        self._lock = Lock()

    def of(self, key: Hashable, made: Callable[..., _T], *given: Any) -> _T:
        """Return the result of a function for some arguments; no caller may change either.

        :param key: the function, and the thing that the arguments describe
        """
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        # Equal parts are mostly the same objects, which takes no look into them.
        if known is not None and known[0] == given:
            found: _T = known[1]
            return found
        result = made(*given)
        with self._lock:
            self._known[key] = given, result
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return result
