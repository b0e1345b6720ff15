"""Propose pipelines for the tables of a folder, of a schema, or for topics: what init and discover share."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from delta_cdc.cli.common import named, session
from delta_cdc.config.combine import is_template, same_place
from delta_cdc.config.proposals import Proposal, pipeline_name
from delta_cdc.config.sources import LOG
from delta_cdc.core.concurrency import AT_ONCE, gathered
from delta_cdc.core.erasure import SUFFIX as ERASED
from delta_cdc.core.errors import DeltaCdcError, EnvironmentNotReady, InvalidConfiguration
from delta_cdc.core.kafka_options import BOOTSTRAP
from delta_cdc.core.properties import APPEND_ONLY, CHANGE_LOG, feed_on, tracks_rows
from delta_cdc.core.quarantine import QUARANTINE
from delta_cdc.core.text_table import clipped, plural
from delta_cdc.core.topics import SCHEME, is_topics, parse
from delta_cdc.core.uris import canonical_uri, is_name
from delta_cdc.core.variables import expand, has_variable
from delta_cdc.delta_log.folders import DEPTH, find_tables
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.key_candidates import candidates, columns_of, orders, rounds
from delta_cdc.planning.plan import readable
from delta_cdc.planning.taken_files import INGESTED
from delta_cdc.planning.topic_samples import TopicReader, sampled_table
from delta_cdc.spark.catalog import location_of, tables_of
from delta_cdc.spark.uniqueness import key_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.key_candidates import Candidate

#: The largest table whose keys are counted, in bytes, if the caller names no other size.
MAX_BYTES = 4 * 1024**3
#: Files whose statistics are read to rule out columns with NULLs; of more files, only the count finds them.
_MOST_FILES = 1_000
#: A smaller total lets Spark start for small work.
_SMALL = 1024**3
#: With fewer rows, values may differ by chance.
_FEW_ROWS = 100
_NAME = "{name}"
#: Makes the address of brokers one of a topic.
_ANY_TOPIC = "x"
#: Tables that this package keeps beside others.
_SIDE_TABLES = (INGESTED, QUARANTINE, ERASED)
_WIDEST = 400


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where to look for tables, and where their targets are to lie.

    :param tables: folder, schema of a catalog, or ``kafka://<brokers>/<prefix of topics>``
    :param target: folder or schema of the targets, which may have variables of the environment; ``{name}``
        stands for the name of a table, which otherwise follows
    :param depth: levels of folders
    :param max_bytes: the keys of a larger table are not counted
    :param leave_out: patterns of names that are not proposed
    :param confs: of Spark, such as those of a catalog
    :param brokers: names of the brokers of the topics, besides those in ``tables`` and ``kafka_options``
    """

    tables: str
    target: str
    depth: int = DEPTH
    max_bytes: int = MAX_BYTES
    leave_out: tuple[str, ...] = ()
    storage_options: dict[str, str] | None = None
    kafka_options: dict[str, str] | None = None
    confs: Mapping[str, str] = field(default_factory=dict)
    brokers: frozenset[str] = frozenset()

    @property
    def all_brokers(self) -> frozenset[str]:
        """Return all names of the brokers of the topics."""
        return self.brokers | Brokers.of(self.tables, self.kafka_options).names

    @property
    def is_schema(self) -> bool:
        """Return whether the targets are names in a schema of a catalog, not locations.

        :raises InvalidConfiguration: the target has a variable that is not set here
        """
        return is_name(expand(self.target))

    def target_of(self, name: str) -> str:
        """Return the target of a table: a location, or a name that every catalog accepts."""
        if self.is_schema:
            # A slash would make a path of the name, and a dot another schema.
            name = re.sub(r"\W", "_", name, flags=re.ASCII)
        if _NAME in self.target:
            return self.target.replace(_NAME, name)
        return f"{self.target}.{name}" if self.is_schema else f"{self.target.rstrip('/')}/{name}"


@dataclass(frozen=True)
class Brokers:
    """The brokers of topics, as far as a configuration gives them.

    :param names: each as ``host:port``; or one name that is equal wherever it has the same meaning
    :param are_given: whether they are ``host:port``, so that no other name means the same brokers
    """

    names: frozenset[str]
    are_given: bool

    @classmethod
    def of(
        cls, address: str, kafka_options: Mapping[str, str] | None, kafka_conn_id: str | None = None
    ) -> Brokers:
        """Return the brokers of an address of topics or of their prefix.

        :param kafka_options: name them where the address does not
        :param kafka_conn_id: names them where neither does
        """
        try:
            host = urlsplit(address).netloc
        except ValueError:
            # No address (a bracket is missing): equal to the same text only, as below.
            return cls(frozenset({address}), False)
        given = host or str((kafka_options or {}).get(BOOTSTRAP, "")).replace(" ", "")
        if not given:
            return cls(frozenset({f"kafka_conn_id {kafka_conn_id}" if kafka_conn_id else ""}), False)
        try:
            servers = parse(f"{SCHEME}://{given}/{_ANY_TOPIC}").servers
        except InvalidConfiguration:
            # What it means is for its pipeline to find out: here, only the same text is equal.
            return cls(frozenset({given}), False)
        are_given = not (has_variable(given) or is_template(given))
        return cls(frozenset(servers.lower().split(",")), are_given)


@dataclass(frozen=True)
class Known:
    """What a configuration has already.

    :param places: locations of sources, logs and targets, as :func:`same_place` returns them
    :param topics: names of topics, each with a name of one of its brokers
    :param pipelines: names of pipelines
    """

    places: frozenset[str] = frozenset()
    topics: frozenset[tuple[str, str]] = frozenset()
    pipelines: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Listed:
    """A table of the search: its name, what the configuration gets as ``source``, and its location."""

    name: str
    source: str
    location: str


class Proposing:
    """Looks for tables, and proposes a pipeline for each new one. Spark starts at its first use.

    :ivar proposals: the results
    :ivar remarks: a line for each table, folder or topic without a proposal
    """

    def __init__(self, search: Search, known: Known) -> None:
        self._search, self._known = search, known
        self._names = set(known.pipelines)
        #: What has each target: a pipeline of the configuration, or a table of this search.
        self._targets: dict[str, str] = {}
        self._open = ExitStack()
        self._spark: SparkSession | None = None
        self.proposals: list[Proposal] = []
        self.remarks: list[str] = []

    def run(self) -> Proposing:
        """Look, and propose.

        :raises InvalidConfiguration: the place cannot be searched, or the target cannot be used
        :raises EnvironmentNotReady: Spark cannot start
        :raises DeltaCdcError: the place itself cannot be read
        """
        for name in ("tables", "target"):
            place = getattr(self._search, name)
            if is_template(place):
                raise InvalidConfiguration(
                    f"The {name} {place} has a template, and only a run fills it.",
                    remedy="write it with ${VARIABLE}, or literally.",
                )
        known = dict.fromkeys(self._known.places, "a pipeline of the configuration")
        self._targets = {self._compared(place): owner for place, owner in known.items()}
        with self._open:
            if is_topics(self._search.tables):
                self._propose_topics()
            else:
                self._propose_tables()
        return self

    def _remark(self, where: str, text: str) -> None:
        self.remarks.append(clipped(f"{where}: {' '.join(text.split())}", _WIDEST))

    def _failed(self, where: str, error: DeltaCdcError) -> None:
        self._remark(where, f"{type(error).__name__}: {error.message}")

    # -- Delta tables -----------------------------------------------------------------------------
    def _propose_tables(self) -> None:
        names, wanted = self._listed()
        looks = run_sync(gathered([self._looked(one) for one in wanted], limit=AT_ONCE))
        found: list[tuple[_Listed, DeltaLog, TableState]] = []
        for one, look in zip(wanted, looks, strict=True):
            if isinstance(look, DeltaCdcError):
                self._failed(one.source, look)
            else:
                found.append((one, *look))
        total = sum(state.num_bytes for _, _, state in found if state.num_bytes <= self._search.max_bytes)
        for one, log, state in found:
            others = [name for name in names if name != one.name]
            try:
                if problem := self._problem(one.source, one.name):
                    self._remark(one.source, problem)
                else:
                    self._take(one.source, self._proposal(one, log, state, others, is_small=total < _SMALL))
            except EnvironmentNotReady:
                # Spark cannot start: no other table could be counted, either.
                raise
            except DeltaCdcError as error:
                self._failed(one.source, error)

    def _listed(self) -> tuple[list[str], list[_Listed]]:
        """Return the names of all tables, and the tables that are wanted."""
        place, options = self._search.tables, self._search.storage_options
        if not is_name(place):
            result = run_sync(find_tables(place, options, self._search.depth))
            for location, text in result.remarks:
                self._remark(location, text)
            listed = [_Listed(name, uri, uri) for name, uri in result.tables]
            return [one.name for one in listed], [
                one for one in listed if self._is_wanted(one.name) and self._is_new(one.location)
            ]
        listed = []
        with named(place):
            spark = self._session([], is_small=False)
            names = tables_of(spark, place)
        # A catalog may ignore the case.
        known = {one.lower() for one in self._known.places}
        for name in names:
            full = f"{place}.{name}"
            # Spark asks the catalog and the store for each location, so names that are known need none.
            if not self._is_wanted(name) or full.lower() in known:
                continue
            try:
                with named(full):
                    location = canonical_uri(location_of(spark, full))
            except DeltaCdcError as error:
                self._failed(full, error)
                continue
            if self._is_new(location):
                listed.append(_Listed(name, full, location))
        return names, listed

    def _is_wanted(self, name: str) -> bool:
        """Return whether a table may get a pipeline, by its name: it is not one that pipelines write."""
        return not name.endswith(_SIDE_TABLES) and not self._is_left_out(name)

    def _is_new(self, place: str) -> bool:
        """Return whether no pipeline reads or writes a place."""
        return same_place(place) not in self._known.places

    def _is_left_out(self, name: str) -> bool:
        """Return whether a pattern matches a name, or its last part."""
        texts = (name, name.rpartition("/")[2])
        return any(fnmatchcase(text, pattern) for text in texts for pattern in self._search.leave_out)

    async def _looked(self, one: _Listed) -> tuple[DeltaLog, TableState] | DeltaCdcError:
        log = DeltaLog(one.location, self._search.storage_options)
        try:
            state = await log.snapshot()
            # Reads the list of files, which may be damaged, too.
            await asyncio.to_thread(lambda: state.num_bytes)
            return log, state
        except DeltaCdcError as error:
            return error

    def _session(self, locations: Iterable[str], *, is_small: bool) -> SparkSession:
        if self._spark is None:
            targets = [] if self._search.is_schema else [expand(self._search.target)]
            self._spark = self._open.enter_context(
                session(
                    "delta-cdc init",
                    locations=[*locations, *targets],
                    storage_options=self._search.storage_options,
                    quick_start=is_small,
                    **self._search.confs,
                )
            )
        return self._spark

    def _proposal(
        self, one: _Listed, log: DeltaLog, state: TableState, others: Sequence[str], *, is_small: bool
    ) -> Proposal:
        key, evidence = self._key(one, log, state, others, is_small=is_small)
        values: dict[str, Any] = {"source": one.source, "target": self._search.target_of(one.name)}
        comments: dict[str, Sequence[str]] = {"source": [_method(state)]}
        is_append_only = state.configuration.get(APPEND_ONLY, "").lower() == "true"
        is_log = state.configuration.get(CHANGE_LOG, "").lower() == "true"
        if key is not None:
            values["keys"] = list(key.columns)
            comments["keys"] = evidence
        elif is_append_only and not is_log:
            values["insert_only"] = True
            text = f"{APPEND_ONLY} is true: rows are only added, and need no keys"
            comments["insert_only"] = [f"{text} ({evidence[0]})."]
        if "insert_only" not in values:
            values["stored_as_scd_type"] = 1
            comments["stored_as_scd_type"] = ["1: the current rows. 2: the history of each row."]
        if state.partition_columns:
            values["layout"] = {"partition_by": list(state.partition_columns)}
            comments["layout"] = _partitions(state.partition_columns, key)
        if "keys" in values or "insert_only" in values:
            return Proposal(self._name(one.name), values, comments)
        comments[""] = _as_events(state)
        return Proposal(self._name(one.name), values, comments, missing=evidence[0])

    def _key(
        self, one: _Listed, log: DeltaLog, state: TableState, others: Sequence[str], *, is_small: bool
    ) -> tuple[Candidate | None, list[str]]:
        """Return the best key that a count over all rows proves, and the evidence; or None, and why not."""
        if state.configuration.get(CHANGE_LOG, "").lower() == "true":
            return None, ["its rows are events, and a key has several: no count can prove it"]
        if state.is_empty:
            return None, ["the table has no rows, so that no key can be proven"]
        columns = columns_of(state.schema_string)
        found = candidates(one.name, columns, state.partition_columns, others)
        if not found:
            return None, ["no column has the name of a key"]
        if state.num_bytes > self._search.max_bytes:
            size, most = readable(state.num_bytes), readable(self._search.max_bytes)
            problem = f"{found[0]} is not counted: the table has {size}, and --max-bytes is {most}"
            return None, [problem]
        with_nulls: frozenset[str] = frozenset()
        if state.num_files <= _MOST_FILES:
            with_nulls = run_sync(log.columns_with_nulls(state.version))
        nullable = {column.name for column in columns if column.file_name in with_nulls}
        refused: list[str] = []
        for some in rounds(found):
            wanted = [one for one in some if not nullable & set(one.columns)]
            refused += [f"{one} has NULLs" for one in some if one not in wanted]
            if not wanted:
                continue
            spark = self._session([state.uri], is_small=is_small)
            with named(f"{state.uri}, version {state.version}"):
                counts = key_counts(spark, state.uri, state.version, [one.columns for one in wanted])
            for candidate, count in zip(wanted, counts, strict=True):
                if count.is_key:
                    return candidate, _proof(candidate, count.rows, state.version, refused)
                problem = (
                    f"NULL in {plural(count.nulls, 'row')}"
                    if count.nulls
                    else f"{count.rows} rows, {count.distinct} values"
                )
                refused.append(f"{candidate} is no key ({problem})")
        return None, [f"no candidate is unique without NULL: {_some(refused)}"]

    def _name(self, name: str) -> str:
        found = pipeline_name(name, self._names)
        self._names.add(found)
        return found

    def _problem(self, source: str, name: str) -> str:
        """Return why a table can have no pipeline, by its name; "" if it can.

        The prefix of the target is the user's, and may have variables.
        """
        if any("$" in text or is_template(text) for text in (source, name)):
            return "its name has a $ or a template, which a configuration would replace"
        target = self._search.target_of(name)
        other = self._targets.get(self._compared(target))
        return f"its target {target} would be that of {other}" if other else ""

    def _compared(self, target: str) -> str:
        """Return a text that is equal for all spellings of a target. A catalog may ignore the case."""
        place = same_place(target)
        return place.lower() if self._search.is_schema else place

    def _take(self, where: str, proposal: Proposal) -> None:
        """Keep a proposal that a configuration accepts; of another one, a remark."""
        if problem := proposal.problem():
            self._remark(where, problem)
        else:
            self._targets[self._compared(proposal.values["target"])] = where
            self.proposals.append(proposal)

    # -- topics -----------------------------------------------------------------------------------
    def _propose_topics(self) -> None:
        if self._search.is_schema:
            raise InvalidConfiguration(
                f"The target {self._search.target} is a name, and the change logs beside the targets need "
                "locations.",
                remedy="name a folder for the targets of topics.",
            )
        reader = TopicReader(self._search.tables, self._search.kafka_options)
        try:
            for topic in reader.topics():
                name = topic.removeprefix(reader.prefix).lstrip(".") or topic
                is_known = any((topic, one) in self._known.topics for one in self._search.all_brokers)
                if is_known or self._is_left_out(name):
                    continue
                where = f"topic {topic}"
                if problem := self._problem(reader.source(topic), name):
                    self._remark(where, problem)
                    continue
                try:
                    table = sampled_table(reader.sample(topic), self._search.kafka_options)
                except DeltaCdcError as error:
                    self._failed(where, error)
                    continue
                if isinstance(table, str):
                    self._remark(where, table)
                    continue
                target = self._search.target_of(name)
                values: dict[str, Any] = {
                    "source": reader.source(topic),
                    "log": f"{target}{LOG}",
                    "target": target,
                    "adapter": "debezium",
                    **({"format": table.format} if table.format != "json" else {}),
                    "keys": list(table.keys),
                    "stored_as_scd_type": 1,
                }
                comments = {
                    "adapter": table.evidence,
                    "keys": table.key_evidence,
                    "stored_as_scd_type": ["1: the current rows. 2: the history of each row."],
                }
                self._take(where, Proposal(self._name(name), values, comments))
        finally:
            reader.close()


def report(proposing: Proposing) -> None:
    """Write what was found to standard error: a line for each thing without a whole proposal."""
    for remark in proposing.remarks:
        sys.stderr.write(f"left out: {remark}\n")
    for one in proposing.proposals:
        if not one.is_whole:
            sys.stderr.write(f"no key:   {one.values['source']}: {one.missing}\n")


# -- texts --------------------------------------------------------------------------------------
def _proof(candidate: Candidate, rows: int, version: int, refused: Sequence[str]) -> list[str]:
    text = (
        f"{candidate}: {candidate.reason}. A count proves it: unique, and never NULL, in "
        f"{plural(rows, 'row')} of version {version}."
    )
    few = [f"{plural(rows, 'row')} are few: look whether it identifies a row."] if rows < _FEW_ROWS else []
    return [text, *few, *([f"Not a key: {_some(refused)}."] if refused else [])]


def _some(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - 3} more" if len(texts) > 3 else ""
    return "; ".join(texts[:3]) + more


def _method(state: TableState) -> str:
    if feed_on(state.configuration):
        return "Its change feed is on: a run reads it. The commits order the changes, without sequence_by."
    if state.configuration.get(APPEND_ONLY, "").lower() == "true":
        return f"{APPEND_ONLY} is true: a run reads the added files."
    if tracks_rows(state.configuration):
        return "No change feed, but row tracking: a run compares two versions, by row id."
    return (
        "No change feed: a run reads added files, or compares two versions by key; type 2 needs the feed if "
        "rows change (docs: Should I turn the change feed on?)."
    )


def _partitions(columns: Sequence[str], key: Candidate | None) -> list[str]:
    missing = [name for name in columns if key is None or name not in key.columns]
    text = "The source's partitions."
    if missing:
        text += (
            f" If a row never moves to another partition, add {', '.join(missing)} to keys: the MERGE then "
            "opens only the partitions of the changes."
        )
    return [text]


def _as_events(state: TableState) -> list[str]:
    """Return what to write if the rows of a table without a key are events."""
    found = orders(columns_of(state.schema_string))
    if not found or state.configuration.get(CHANGE_LOG, "").lower() == "true":
        return []
    best = found[0]
    text = f"If its rows are events, write source_kind: change_log, and sequence_by: {best.column}"
    return [f"{text} ({best.reason})."]
