"""What an ingest is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc import checks
from delta_cdc.errors import InvalidConfiguration
from delta_cdc.ingest.lines import check_format_options
from delta_cdc.ingest.listing import check_glob, read_source
from delta_cdc.ingest.taken import INGESTED, QUARANTINE, beside
from delta_cdc.ingest.topics import is_topics, parse
from delta_cdc.log.store import canonical_uri, spark_uri
from delta_cdc.plan.request import epoch_ms, refuse_same
from delta_cdc.properties import feed_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.spec import IngestOptions

    Rules = Iterator[tuple[bool, str, str]]

_SIZES = ("max_files", "max_bytes", "max_offsets")
_FILES_ONLY = ("max_files", "max_bytes", "glob")


@dataclass(frozen=True, kw_only=True)
class IngestRequest:
    """What one ingest is asked to do.

    :param source: path, URI or pattern of files (:mod:`delta_cdc.ingest.listing`), or
        ``kafka://<servers>/<topics>``
    :param log: location of the change log
    :param starting_timestamp: files last modified before it, and records written to a partition before it
        that is read for the first time, are left out; ISO 8601 with offset
    :param max_files: at most so many files; the oldest first
    :param max_bytes: at most so many bytes of files, but at least one file
    :param max_offsets: at most so many records of all partitions together
    :param glob: pattern over the files' own names
    :param lexical_order: names only grow: what is not greater than the last one taken is not looked at
    :param replay: the records in quarantine again, instead of new ones
    :param on_expired: records that a topic dropped before they were ingested: ``fail`` or ``continue``
    :param single_driver: the user vouches that only one Spark driver at a time writes; needed on S3 without
        a log store for several writers
    :param storage_options: options of the object store, as delta-rs names them
    :param kafka_options: options of the Kafka client
    """

    pipeline: str
    source: str
    log: str
    options: IngestOptions
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    max_offsets: int | None = None
    glob: str | None = None
    lexical_order: bool = False
    replay: bool = False
    on_expired: str = "fail"
    single_driver: bool = False
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    kafka_options: dict[str, str] | None = field(default=None, repr=False)

    @property
    def is_kafka(self) -> bool:
        """Return whether the source is a topic."""
        return is_topics(self.source.strip())

    @property
    def source_uri(self) -> str:
        """Return the source as Spark names it."""
        return self.source.strip() if self.is_kafka else spark_uri(self.source)

    @property
    def starting_ms(self) -> int | None:
        """Return ``starting_timestamp`` in epoch milliseconds."""
        given = self.starting_timestamp
        return None if given is None else epoch_ms("starting_timestamp", given)

    def check(self) -> None:
        """Refuse what cannot be meant.

        :raises InvalidConfiguration: names the arguments
        """
        self.checked()

    def checked(self) -> IngestOptions:
        """Return the options with those of the adapter as it understands them.

        An adapter of one's own is asked by the job, because this machine need not have it.

        :raises InvalidConfiguration: names the arguments
        """
        checks.check_pipeline(self.pipeline)
        _ = self.starting_ms
        for name in _SIZES:
            size = getattr(self, name)
            if size is not None and size < 1:
                raise InvalidConfiguration(
                    f"{name} is {size}.", remedy="give a number >= 1, or leave it out."
                )
        for refused, what, remedy in (*_sources(self), *_options(self.options)):
            if refused:
                raise checks.invalid(what, remedy)
        if self.is_kafka:
            parse(self.source_uri)
        else:
            check_glob(self.glob)
            self._refuse_overlap()
        check_format_options(self.options.format, self.options.format_options)
        return replace(self.options, adapter_options=_adapted(self.options))

    def _refuse_overlap(self) -> None:
        """The log's own files must not be what is ingested."""
        log = canonical_uri(self.log)
        sides = {suffix: beside(self.log, suffix) for suffix in (INGESTED, QUARANTINE)}
        refuse_same(source=self.source, log=self.log, ingested=sides[INGESTED], quarantine=sides[QUARANTINE])
        source = read_source(self.source)
        tables = [log, *map(canonical_uri, sides.values())]
        within = [_below(f"{table}/part-0.parquet", source.root) for table in tables]
        around = [table for table in tables if _below(f"{source.root}/", table) is not None]
        if around or any(below is not None and source.meant(below) for below in within):
            raise checks.invalid(
                f"the source {self.source} and the change log {self.log} lie in each other",
                "give the log a folder of its own, outside of what is ingested.",
            )


def _below(uri: str, root: str) -> str | None:
    """Return a location relative to a folder; None where it does not lie in it."""
    home = f"{root.rstrip('/')}/"
    return uri[len(home) :] if uri.startswith(home) else None


def _sources(r: IngestRequest) -> Rules:
    """Yield what a source does not go with: whether it is so, what is said, and the remedy."""
    kafka = r.is_kafka
    kind = "a topic" if kafka else "files"
    yield (
        (r.options.source_kind == "kafka") != kafka,
        f"the source {r.source} is {kind}, and source_kind is {r.options.source_kind!r}",
        "leave source_kind to the source.",
    )
    names = _FILES_ONLY if kafka else ("max_offsets",)
    given = [name for name in names if getattr(r, name) is not None]
    given += ["lexical_order"] if kafka and r.lexical_order else []
    given += ["kafka_options"] if not kafka and r.kafka_options else []
    yield (
        bool(given),
        f"{', '.join(given)} and a source of {kind} are given",
        "max_offsets and kafka_options are for a topic; max_files, max_bytes, glob, lexical_order for files.",
    )
    yield (
        r.on_expired not in ("fail", "continue"),
        f"on_expired is {r.on_expired!r}",
        "use 'fail' or 'continue'.",
    )
    bounds = [name for name in (*_SIZES, "starting_timestamp") if getattr(r, name) is not None]
    yield (
        r.replay and bool(bounds),
        f"replay and {', '.join(bounds)} are given",
        "leave them out: all that is in quarantine is tried again.",
    )


def _options(o: IngestOptions) -> Rules:
    """Yield what options do not go with, likewise."""
    yield (
        o.insert_only and bool(o.keys),
        "insert_only and keys are given",
        "leave keys out: every record is a row of its own; or drop insert_only.",
    )
    yield (
        not o.insert_only and not o.keys,
        "keys are missing",
        "name the columns that identify a row; or set insert_only where every record is a new row.",
    )
    repeated = [key for key in o.keys if [other.lower() for other in o.keys].count(key.lower()) > 1]
    yield bool(repeated), f"keys name {', '.join(repeated[:1])} twice", "name each column once."
    yield (
        o.source_kind == "kafka" and o.format != "json",
        f"the format of a topic is {o.format!r}",
        "use 'json'; other encodings are read by an adapter of your own.",
    )
    yield (
        feed_on(o.log_properties),
        "log_properties turn the change data feed of the log on",
        "leave it out: a log is append-only, and read as it is.",
    )


def _adapted(options: IngestOptions) -> dict[str, Any]:
    from delta_cdc.ingest import adapters

    if "." in options.adapter or ":" in options.adapter:
        return options.adapter_options

    checked = adapters.named(options.adapter).check(
        options.adapter_options,
        keys=options.keys,
        format=options.format,
        insert_only=options.insert_only,
    )
    return dict(checked)
