"""Shadows: a second target of a source, with other keys, columns, type or layout, to replace the first.

The pure part: which rows a sample has, what a comparison found, when a shadow may be promoted, and how two
catalog names are exchanged. Standard library only: it travels to the Spark driver.

The result of a comparison is a commit of the shadow's target without rows. Its ``userMetadata`` is a
maintenance tag (:mod:`delta_cdc.core.maintenance_tags`), and its ``txn`` proves that the tag is of this
commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from delta_cdc.core import codec, maintenance_tags
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import PromotionRefused
from delta_cdc.core.watermark import TableVersion  # noqa: TC001 - the codec reads hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: A sample has about this many rows.
SAMPLE_ROWS = 10_000
#: Beyond this size of both tables together, a run takes no sample, because it would have to read all keys.
MOST_BYTES = 16 << 30
#: The most samples of differences.
MOST_SAMPLES = 5
#: The most columns that a sample shows.
MOST_COLUMNS = 10
_LONGEST_VALUE = 120
#: The most bytes of a tag. Readers of a history load it for every version.
_MOST_BYTES_OF_TAG = 32 * 1024
#: The most names of columns in a tag that would be too long.
_MOST_NAMES = 20
_KIND = "shadow"
#: Comparisons that have to agree before a promotion.
RUNS = 3

Status = Literal["agreed", "differing", "not_compared"]
#: Of a key, or of a row without a key: both targets have it, with other values; only one of them has it.
Difference = Literal["changed", "missing", "extra"]


def app_id(shadow: str) -> str:
    """Return the ``txn.appId`` of the comparisons of a shadow; no pipeline has it."""
    return f"delta-cdc-shadow/{shadow}"


# -- what is compared -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Pair:
    """A pipeline and its shadow.

    :param original: name of the pipeline whose target is to be replaced
    :param original_target: path, URI or catalog name
    :param shadow: name of the other pipeline
    :param shadow_target: path, URI or catalog name
    """

    original: str
    original_target: str
    shadow: str
    shadow_target: str


def pairs(
    pipeline: str, target: str, shadow_of: Mapping[str, str], shadowed_by: Mapping[str, str]
) -> tuple[Pair, ...]:
    """Return the pairs of a pipeline.

    :param shadow_of: name and target of the pipeline that it shadows
    :param shadowed_by: names and targets of its own shadows
    """
    return (
        *(Pair(name, its_target, pipeline, target) for name, its_target in shadow_of.items()),
        *(Pair(pipeline, target, name, its_target) for name, its_target in shadowed_by.items()),
    )


def shares(rows: int | None) -> int:
    """Return N: a sample has one of N rows, chosen by the hash of their keys.

    :param rows: rows of the original; None if the log does not have their number
    """
    return 1 if rows is None else max(1, rows // SAMPLE_ROWS)


def share_of(version: int, number: int) -> int:
    """Return which of N shares to compare at a version of the source: each version compares another one."""
    return max(version, 0) % number


# -- what was found -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sample:
    """A difference.

    :param key: the original's key columns, as texts; empty if rows have no key
    :param original: the columns that differ, in the original; all columns if only it has the row
    :param shadow: the same in the shadow
    """

    difference: Difference
    key: dict[str, str | None] = field(default_factory=dict)
    original: dict[str, str | None] = field(default_factory=dict)
    shadow: dict[str, str | None] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the difference, for people."""
        key = _columns(self.key)
        if self.difference == "changed":
            values = ", ".join(
                f"{name}: {_shown(value)} in the original, {_shown(self.shadow.get(name))} in the shadow"
                for name, value in self.original.items()
            )
            return f"{key}: {values}"
        where = "original" if self.difference == "missing" else "shadow"
        return f"{key or _columns(self.original or self.shadow)}: only in the {where}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of one comparison of two targets.

    :param original: name of the pipeline
    :param shadow: name of its shadow
    :param why: why nothing was compared, else ""
    :param original_uri: location of the original's target
    :param original_table: the version of it that was read
    :param shadow_table: the version of the shadow's target that was read
    :param source: the version of the source that both targets contain
    :param share: one of so many rows was compared; 1 is all rows
    :param rows: current rows of the original that were compared
    :param by_key: rows were matched by the original's keys, which the shadow has too; otherwise, equal rows
        were counted
    :param counts: keys (without keys: rows) that differ, by the kind of difference
    :param only_original: columns that only the original has; they were not compared
    :param only_shadow: columns that only the shadow has
    :param incomparable: columns whose two types have no values in common without rounding
    :param at: when, ISO 8601 in UTC
    :param run_id: the run that compared
    """

    status: Status
    original: str
    shadow: str
    why: str = ""
    original_uri: str = ""
    original_table: TableVersion | None = None
    shadow_table: TableVersion | None = None
    source: TableVersion | None = None
    share: int = 1
    rows: int = 0
    by_key: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    only_original: tuple[str, ...] = ()
    only_shadow: tuple[str, ...] = ()
    incomparable: tuple[str, ...] = ()
    at: str = ""
    run_id: str = ""

    def tag(self) -> str:
        """Return the maintenance tag that records the comparison; a long one has no samples and few names."""
        short = replace(self, samples=self.samples[:MOST_SAMPLES])
        without = replace(short, samples=())
        shortest = replace(
            without,
            only_original=_few(self.only_original),
            only_shadow=_few(self.only_shadow),
            incomparable=_few(self.incomparable),
        )
        texts = (
            maintenance_tags.written(_KIND, comparison=codec.encoded(one))
            for one in (short, without, shortest)
        )
        text = ""
        for text in texts:
            if len(text) <= _MOST_BYTES_OF_TAG:
                break
        return text

    @classmethod
    def from_tag(cls, text: str | None) -> Comparison | None:
        """Read the tag; None for any other text."""
        data = maintenance_tags.read(text, _KIND)
        try:
            return None if data is None else codec.decoded(cls, data.get("comparison"))
        except UnreadableJson:
            # Fields of another release.
            return None

    def __str__(self) -> str:
        """Return the result, for people."""
        if self.status == "not_compared":
            return f"not compared: {self.why.removesuffix('.')}"
        share = "all current rows" if self.share == 1 else f"1 of {self.share} current rows"
        text = f"{self.status} at version {self.source} of the source ({share}: {self.rows}"
        if self.counts:
            unit = "keys" if self.by_key else "rows"
            text += f"; {', '.join(f'{count} {unit} {name}' for name, count in self.counts.items())}"
        return f"{text})"

    def details(self) -> list[str]:
        """Return what the result does not say: differences, and columns that were not compared."""
        lines = [str(sample) for sample in self.samples]
        for names, text in (
            (self.only_original, "only in the original"),
            (self.only_shadow, "only in the shadow"),
            (self.incomparable, "not compared, because their types have no common type without rounding"),
        ):
            if names:
                lines.append(f"columns {text}: {', '.join(names)}")
        return lines


def not_compared(pair: Pair, why: str) -> Comparison:
    """Return the result of a comparison that was not possible."""
    return Comparison(status="not_compared", original=pair.original, shadow=pair.shadow, why=why)


def status_of(counts: Mapping[str, int]) -> Status:
    """Return whether the targets agree, by the differences that were counted."""
    return "differing" if any(counts.values()) else "agreed"


def shortened(value: str | None) -> str | None:
    """Return the text of a value as a sample has it."""
    too_long = value is not None and len(value) > _LONGEST_VALUE
    return f"{value[: _LONGEST_VALUE - 1]}…" if too_long and value is not None else value


def _few(names: tuple[str, ...]) -> tuple[str, ...]:
    more = len(names) - _MOST_NAMES
    return names if more <= 0 else (*names[:_MOST_NAMES], f"{more} more")


def _columns(values: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} = {_shown(value)}" for name, value in values.items())


def _shown(value: str | None) -> str:
    return "NULL" if value is None else value


# -- when a shadow may be promoted ------------------------------------------------------------------
@dataclass(frozen=True)
class Standing:
    """What the logs say of two targets.

    :param original_table: the newest version of the original's target
    :param shadow_table: the same of the shadow's target
    :param original_at: the watermark of the original
    :param shadow_at: the watermark of the shadow
    :param comparisons: those of this pair that are in effect, newest first
    :param changed_since: whether rows of one of the targets may have changed after the newest comparison
    :param lacks_erasures: keys were erased from the original's target, and not from the shadow's
    """

    original_table: TableVersion
    shadow_table: TableVersion
    original_at: TableVersion
    shadow_at: TableVersion
    comparisons: tuple[Comparison, ...] = ()
    changed_since: bool = False
    lacks_erasures: bool = False


def refusals(pair: Pair, standing: Standing, runs: int = RUNS) -> list[str]:
    """Return why a shadow must not be promoted now, a sentence each; empty if it may be.

    :param runs: number of newest comparisons that must agree
    """
    found: list[str] = []
    if standing.lacks_erasures:
        found.append(
            f"Keys were erased from the target of {pair.original}, and not from that of {pair.shadow}: erase "
            "them there, too (delta-cdc erase)."
        )
    ours, theirs = standing.original_at, standing.shadow_at
    if ours.table_id != theirs.table_id:
        found.append(f"{pair.original} and {pair.shadow} have different sources.")
    elif ours.version != theirs.version:
        found.append(
            f"{pair.original} stands at version {ours} of the source, and {pair.shadow} at version {theirs}."
        )
    newest = standing.comparisons[:runs]
    agreed = agreed_of(newest)
    if agreed < runs:
        text = f"Of the {runs} newest comparisons that are needed, {agreed} agreed in a row"
        if agreed < len(newest):
            other = newest[agreed]
            differences = "; ".join(other.details()[:MOST_SAMPLES])
            text += f". The one of {other.at} is {other}{f': {differences}' if differences else ''}"
        elif len(standing.comparisons) < runs:
            text += f", and there are {len(standing.comparisons)}"
        found.append(f"{text}.")
    elif newest and _is_older(newest[0], standing):
        found.append(
            f"The newest comparison is of version {newest[0].source} of the source, version "
            f"{newest[0].original_table} of the target of {pair.original} and version "
            f"{newest[0].shadow_table} of that of {pair.shadow}; one of them changed since."
        )
    return found


def _is_older(newest: Comparison, standing: Standing) -> bool:
    return newest.source != standing.shadow_at or standing.changed_since


# -- exchanging two names -----------------------------------------------------------------------------
class Move(NamedTuple):
    """One statement of an exchange.

    :param kind: ``repoint``: ``name`` gets the location of the table ``to``; ``rename``: to the name ``to``
    """

    kind: Literal["repoint", "rename"]
    name: str
    to: str


@dataclass(frozen=True)
class Names:
    """The names of an exchange.

    :param original: the name that readers use; it is to name the shadow's table
    :param shadow: the name of the shadow's table; it is to name the original's
    """

    original: str
    shadow: str

    @property
    def parked(self) -> str:
        """Return the name that the original's table has while the names are exchanged by renames."""
        return f"{self.original}__before_promote"

    @property
    def all(self) -> tuple[str, str, str]:
        """Return the names, in the order of a state."""
        return self.original, self.shadow, self.parked


def next_move(
    names: Names, at: Mapping[str, str | None], old: str, new: str, *, repoints: bool
) -> Move | None:
    """Return the next statement of an exchange; None if it is complete. A crash may leave any state.

    ======== ====== ======== ==================================================
    original shadow parked   next
    ======== ====== ======== ==================================================
    old      new             repoint the original's name; or park the old table
    new      new             repoint the shadow's name
             new    old      rename the new table to the original's name
    new             old      rename the old table to the shadow's name
    new      old             complete
    ======== ====== ======== ==================================================

    :param at: the id of the table of each name; None: no table has it
    :param old: id of the original's table
    :param new: id of the shadow's table
    :param repoints: the catalog gives a name another location in one statement, so readers always find it
    :raises PromotionRefused: another table has one of the names
    """
    state = tuple(at.get(name) for name in names.all)
    first = Move("repoint", names.original, new) if repoints else Move("rename", names.original, names.parked)
    moves: dict[tuple[str | None, ...], Move | None] = {
        (old, new, None): first,
        (new, new, None): Move("repoint", names.shadow, old),
        (None, new, old): Move("rename", names.shadow, names.original),
        (new, None, old): Move("rename", names.parked, names.shadow),
        (new, old, None): None,
    }
    if state not in moves:
        raise PromotionRefused(
            f"The names cannot be exchanged: {_state(names, at, old, new)}.",
            remedy=f"find out which table got a name of {names.original}, {names.shadow} or {names.parked}, "
            "give it another one, and run promote again.",
        )
    return moves[state]


def _state(names: Names, at: Mapping[str, str | None], old: str, new: str) -> str:
    roles = {old: "the table of the original", new: "the table of the shadow", None: "no table"}
    return ", ".join(f"{name} is {roles.get(at.get(name), 'another table')}" for name in names.all)


def lines(
    original: Mapping[str, object], shadow: Mapping[str, object], kept: Iterable[str] = ()
) -> dict[str, object]:
    """Return the arguments of the original that a promotion changes, with their new values; None removes one.

    :param original: the arguments of the original in a configuration
    :param shadow: those of the shadow
    :param kept: names of arguments that the original keeps, such as those of its ingest
    """
    left = ("pipeline", "shadow_of", "shadowed_by", *kept)
    names: Iterable[str] = dict.fromkeys([*original, *shadow])
    return {
        name: shadow.get(name)
        for name in names
        if name not in left and original.get(name) != shadow.get(name)
    }


@dataclass(frozen=True)
class Agreement:
    """What the newest comparisons of a shadow found.

    :param agreed: so many of the newest ones agreed, one after the other
    """

    newest: Comparison
    agreed: int

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Agreement:
        """Return the agreement of comparisons, newest first; at least one."""
        return cls(comparisons[0], agreed_of(comparisons))

    def __str__(self) -> str:
        """Return what was found, for people."""
        one = self.newest
        return f"of {one.original}: {one}, {one.at}; {self.agreed} agreed in a row"


def agreed_of(comparisons: Sequence[Comparison]) -> int:
    """Return how many comparisons agreed before the first one that did not; newest first."""
    return next((n for n, one in enumerate(comparisons) if one.status != "agreed"), len(comparisons))
