"""Give the records of Arrow batches one by one, each decoded, with its raw form and its place.

Spark brings the bytes: lines of text files, messages, whole files, or typed columns of Parquet. A source is
made once per task. It sees the batches of the task in order, so it can number rows and join lines.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]

from delta_cdc.core.adapters import BUNDLED
from delta_cdc.core.codec import MOST_BYTES
from delta_cdc.core.reader_options import is_true
from delta_cdc.ingest import formats
from delta_cdc.ingest.record import Invalid, Position, Record
from delta_cdc.ingest.records import csv
from delta_cdc.ingest.records.avro import (
    MOST_BLOCK_BYTES,
    Decoded,
    MessageDecoder,
    Schema,
    SchemaId,
    object_file,
    schema_id,
    snappy_size,
)
from delta_cdc.ingest.records.compression import BY_ENDING, COMPRESS_IT
from delta_cdc.ingest.records.json import SEVERAL, Decoder, of_file, without_prefix
from delta_cdc.ingest.types import STRING, VOID, Type
from delta_cdc.ingest.values import Encoding, json_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from delta_cdc.ingest.reading import Reading
    from delta_cdc.ingest.record import Adapter

#: Columns of the Arrow batches that Spark brings, besides the columns of Parquet files.
#: SIZE is the file's, in bytes, and START where the task's part of it begins.
VALUE, FILE, PUBLISHED, ROW, SIZE, START = "_value", "_file", "_published", "_row", "_size", "_start"
KEY, HEADERS, TOPIC, PARTITION, OFFSET = "_key", "_headers", "_topic", "_partition", "_offset"
#: Of these, those of rows of Parquet files.
PLACES = (FILE, PUBLISHED, SIZE, START, ROW)
#: The prefix of the raw text of bytes that are not UTF-8.
BASE64 = "base64:"


#: In the messages of :class:`FileGrew` and :class:`FileDamaged`.
GREW, DAMAGED = "grew while it was read", "is a damaged file"


class FileGrew(Exception):
    """A file is longer than planned: its last line may be incomplete, or another task has its first byte."""

    def __init__(self, file: str) -> None:
        super().__init__(f"{file} {GREW}")


class FileDamaged(Exception):
    """A file cannot be read to its end, so that none of its records may be taken."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file} {DAMAGED}: {reason}")


class Item(NamedTuple):
    """One record.

    :param record: the record, or why it is not valid
    :param raw: its raw form, for :meth:`Source.raw_text`
    """

    record: Record | Invalid
    raw: Any
    position: Position


class Source(Protocol):
    """Gives the records of the batches of one task."""

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        """Return the records that end in a batch."""

    def last(self) -> Iterator[Item]:
        """Return the records that end where the task ends."""

    def raw_text(self, raw: Any) -> str | None:
        """Return the text by which a record can be read again; None for a tombstone."""


def source_of(reading: Reading, adapter: Adapter | None) -> Source:
    """Return what gives the records of a reading.

    :param adapter: takes the records; None if they are only read
    """
    is_connect = adapter is not None and adapter.is_connect
    if reading.is_again:
        return _Again(reading, adapter)
    if reading.format == "parquet":
        return _Columns(frozenset() if adapter is None else adapter.reads)
    if reading.is_messages:
        return _AvroMessages(reading, is_connect) if reading.format == "avro" else _Messages()
    if reading.format == "avro":
        return _AvroFiles(is_connect)
    if reading.format == "csv":
        return _Csv(reading, adapter)
    return _Documents(reading) if is_true(reading.format_options, "multiLine") else _Lines(reading)


def planned_name(file_path: str) -> str:
    """Return a file's name as the planner has it: Spark escapes it, and adds a scheme to local files."""
    text = unquote(file_path) if "%" in file_path else file_path
    return "/" + text[5:].lstrip("/") if text.startswith("file:") else text


def text_of(raw: bytes | None) -> str | None:
    """Return bytes as text; base64 if they are not UTF-8."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return BASE64 + base64.b64encode(raw).decode()


def bytes_of(text: str) -> bytes:
    """Return what :func:`text_of` made a text of."""
    if not text.startswith(BASE64):
        return text.encode()
    try:
        return base64.b64decode(text[len(BASE64) :], validate=True)
    except ValueError:
        return text.encode()


class _Files:
    """What sources of files share: the names, and the rows so far."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        """Begin at no file.

        :param sizes: the planned sizes of files; a file of another size raises :class:`FileGrew`
        """
        self._names: dict[str, str] = {}
        self._sizes = sizes or {}
        self._file = ""
        self._row = -1

    def _named(self, path: str) -> str:
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = planned_name(path)
        return name

    def _begin(self, path: str, size: int, start: int) -> str:
        """Return the name of a file of which each task must see all that was planned."""
        name = self._named(path)
        if start or self._sizes.get(name, size) != size:
            raise FileGrew(name)
        return name

    def last(self) -> Iterator[Item]:
        """Return nothing: a line ends where it ends."""
        return iter(())

    def raw_text(self, raw: Any) -> str | None:
        """Return the text of a line."""
        return text_of(raw)


class _Lines(_Files):
    """JSON, one object per line."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self._numbered = reading.numbered
        self._decoder = Decoder()
        self._dialect = reading.dialect

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        decode, numbered = self._decoder, self._numbered
        path, position = None, Position()
        for raw, file, published, size, start in _lines(batch, self._dialect):
            if file != path:
                path, name = file, self._begin(file, size, start) if numbered else self._named(file)
                position = Position(name)
                if name != self._file:
                    self._file, self._row = name, -1
            if numbered:
                self._row += 1
                position = Position(self._file, self._row)
            if not raw.strip(b" "):
                continue
            # A topic that was dumped to a file has the text null for a tombstone.
            found = None if raw == b"null" else decode(raw)
            if type(found) is Invalid:
                yield Item(_hinted(found, raw), raw, position)
            else:
                yield Item(Record(found, position, published=published), raw, position)


def _hinted(found: Invalid, raw: bytes) -> Invalid:
    """Return the reason, with a way out if the file seems to have no line for each object."""
    text = raw.strip()
    if text[:1] == b"[" or text == b"{" or found.reason == SEVERAL or len(raw) > MOST_BYTES:
        return Invalid(
            f"{found.reason} (for a file that is one array, or whose objects do not have a line each: "
            'format_options {"multiLine": "true"})'
        )
    return found


class _Documents(_Files):
    """JSON, one array of objects per file, or objects one after the other."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self._dialect = reading.dialect

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        for packed, file, published in _columns(batch, VALUE, FILE, PUBLISHED):
            name = self._named(file)
            raw = _in_utf8(_unpacked(packed, name), self._dialect.codec, self._dialect.encoding)
            for row, (part, found) in enumerate(of_file(raw)):
                position = Position(name, row)
                if isinstance(found, Invalid):
                    yield Item(found, part, position)
                elif isinstance(found, dict):
                    yield Item(Record(found, position, published=published), part, position)
                else:
                    yield Item(Invalid("not JSON: not exactly one whole object"), part, position)


class _Csv(_Files):
    """CSV; a file is never split, so that its header and its quotes are known."""

    def __init__(self, reading: Reading, adapter: Adapter | None) -> None:
        super().__init__(reading.sizes)
        self._dialect = dialect = reading.dialect
        converters = csv.converters(dialect, reading.types)
        names = None if dialect.header else reading.names
        self._reader = csv.Reader(dialect, names, converters, _known(reading, adapter))
        self._published: int | None = None

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        path = None
        for line, file, published, size, start in _lines(batch, self._dialect, decodes=False):
            if file != path:
                path, name = file, self._begin(file, size, start)
                if name != self._file:
                    yield from self.last()
                    self._file, self._row, self._published = name, -1, published
            self._row += 1
            for row in self._reader.feed(line, self._row):
                yield self._item(row)

    def last(self) -> Iterator[Item]:
        for row in self._reader.end():
            yield self._item(row)

    def raw_text(self, raw: Any) -> str | None:
        return str(raw)

    def _item(self, row: csv.Row) -> Item:
        position = Position(self._file, row.row)
        if isinstance(row.values, Invalid):
            return Item(row.values, row.raw, position)
        return Item(Record(row.values, position, published=self._published), row.raw, position)


def _known(reading: Reading, adapter: Adapter | None) -> Callable[[str], bool] | None:
    """Return whether the header of a CSV file may have a name; None if it may have any name.

    Before the first batch, no column is known. The function of a user may give other names to the columns.
    """
    if adapter is None or not reading.columns or reading.adapter not in BUNDLED:
        return None
    names = frozenset(name.lower() for name in (*reading.types, *adapter.reads))
    return lambda name: name.lower() in names or adapter.describes(name)


class _Messages:
    """JSON messages of a topic, with or without the prefix of a schema registry."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        decode = self._decoder
        names = (VALUE, KEY, TOPIC, PARTITION, OFFSET, PUBLISHED, HEADERS)
        for raw, key, topic, partition, offset, published, headers in _columns(batch, *names):
            position = Position(None, None, topic, partition, offset)
            # An empty value is no tombstone, but a damaged message.
            found = None if raw is None or raw == b"null" else decode(without_prefix(raw))
            if type(found) is Invalid:
                yield Item(found, raw, position)
                continue
            by_name = {header["key"]: header["value"] for header in headers} if headers else {}
            yield Item(Record(found, position, key, by_name, published), raw, position)

    def last(self) -> Iterator[Item]:
        return iter(())

    def raw_text(self, raw: Any) -> str | None:
        return text_of(raw)


class _AvroMessages:
    """Messages of a topic in Avro, each with the id of its schema in a registry."""

    def __init__(self, reading: Reading, is_connect: bool) -> None:
        self._value = MessageDecoder(reading.schemas, is_connect=is_connect)
        self._key = MessageDecoder(reading.schemas, is_connect=is_connect, part="key")
        self._records = _AvroRecords(is_connect)

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        names = (VALUE, KEY, TOPIC, PARTITION, OFFSET, PUBLISHED, HEADERS)
        for raw, key, topic, partition, offset, published, headers in _columns(batch, *names):
            position = Position(None, None, topic, partition, offset)
            by_name = {header["key"]: header["value"] for header in headers} if headers else {}
            if key is not None:
                # A key of another format stays as its bytes.
                found_key = self._key(key, by_name)
                key = key if isinstance(found_key, Invalid) else self._records.key(found_key)
            if raw is None:
                yield Item(Record(None, position, key, by_name, published), raw, position)
                continue
            found = self._value(raw, by_name)
            if isinstance(found, Invalid):
                yield Item(found, (raw, by_name), position)
                continue
            record = self._records.record(found.value, found.schema, position)
            record.key, record.headers, record.published = key, by_name, published
            yield Item(record, (raw, by_name), position)

    def last(self) -> Iterator[Item]:
        return iter(())

    def raw_text(self, raw: Any) -> str | None:
        return None if raw is None else BASE64 + base64.b64encode(_with_id(*raw)).decode()


class _AvroFiles(_Files):
    """Object container files of Avro. A damaged one raises, so that none of its records is taken."""

    def __init__(self, is_connect: bool) -> None:
        super().__init__()
        self._is_connect = is_connect
        self._records = _AvroRecords(is_connect)

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        for packed, file, published in _columns(batch, VALUE, FILE, PUBLISHED):
            name = self._named(file)
            content = _unpacked(packed, name)
            if not content:
                continue
            found = object_file(content, is_connect=self._is_connect, codecs=_BLOCKS)
            if isinstance(found, Invalid):
                raise FileDamaged(name, found.reason)
            for row, (value, block, start) in enumerate(found.placed()):
                if isinstance(value, Invalid):
                    raise FileDamaged(name, value.reason)
                position = Position(name, row)
                record = self._records.record(value, found.schema, position)
                record.published = published
                yield Item(record, (found.schema, block, start), position)

    def raw_text(self, raw: Any) -> str | None:
        """Return a record as JSON; for an adapter that takes Connect's, with its schema."""
        schema, block, start = raw
        value = schema.first(block, start)
        return json_text({"schema": schema.connect, "payload": value} if self._is_connect else value)


class _AvroRecords:
    """Makes records of the values of Avro."""

    def __init__(self, is_connect: bool) -> None:
        self._is_connect = is_connect
        #: Schemas by identity, each kept so that its identity stays its own.
        self._encodings: dict[int, tuple[Schema, dict[str, Encoding]]] = {}

    def record(self, value: Any, schema: Schema, position: Position) -> Record:
        """Return a record."""
        if self._is_connect:
            return Record(value, position, schema=schema.connect)
        known = self._encodings.get(id(schema))
        if known is None:
            # A field that is always null has no type yet.
            members = {name: plain(_written(kind)) for name, kind in schema.type.fields if kind != VOID}
            known = self._encodings[id(schema)] = schema, members
        return Record(value, position, encodings=known[1])

    def key(self, found: Decoded) -> Any:
        """Return the key of a message."""
        return {"schema": found.schema.connect, "payload": found.value} if self._is_connect else found.value


def _written(kind: Type) -> Type:
    """Return the type of a column for values that may have a part which is always null."""
    if kind == VOID:
        return STRING
    return replace(
        kind,
        element=None if kind.element is None else _written(kind.element),
        fields=tuple((name, _written(part)) for name, part in kind.fields),
    )


def _with_id(raw: bytes, headers: Mapping[str, bytes]) -> bytes:
    """Return a message that has the id of its schema in itself, because a replay has no headers.

    Without headers, Apicurio's serializers write it in the same way.
    """
    found = schema_id(raw, headers)
    if isinstance(found, Invalid) or found.is_content is None or found.number >= 2**32:
        return raw
    return b"\0" + found.number.to_bytes(8, "big") + raw


def _unsnapped(data: bytes) -> bytes:
    return _decompressed(lambda: pa.decompress(data, snappy_size(data), "snappy", asbytes=True))


def _unzstd(data: bytes) -> bytes:
    def read() -> bytes:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read(MOST_BLOCK_BYTES))

    return _decompressed(read)


def _decompressed(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(str(error)) from error


#: What decompresses the blocks of Avro that the standard library cannot.
_BLOCKS = {"snappy": _unsnapped, "zstandard": _unzstd}


def schema_ids(batch: pa.RecordBatch) -> set[SchemaId]:
    """Return the ids of the schemas that messages of Avro name for their values and keys."""
    found = set()
    for raw, key, headers in _columns(batch, VALUE, KEY, HEADERS):
        by_name = {header["key"]: header["value"] for header in headers} if headers else {}
        for part, data in (("value", raw), ("key", key)):
            id_ = None if data is None else schema_id(data, by_name, part)
            if isinstance(id_, SchemaId):
                found.add(id_)
    return found


class _Again:
    """Raw texts of the quarantine."""

    def __init__(self, reading: Reading, adapter: Adapter | None) -> None:
        is_connect = adapter is not None and adapter.is_connect
        self._decoded = _text_decoder(reading, adapter, is_connect)
        self._records = _AvroRecords(is_connect)

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        names = (VALUE, FILE, ROW, TOPIC, PARTITION, OFFSET, PUBLISHED)
        for text, file, row, topic, partition, offset, published in _columns(batch, *names):
            position = Position(file, row, topic, partition, offset)
            found = None if text is None else self._decoded(text)
            if isinstance(found, Invalid):
                yield Item(found, text, position)
                continue
            if isinstance(found, Decoded):
                record = self._records.record(found.value, found.schema, position)
                record.published = published
            else:
                record = Record(found, position, published=published)
            yield Item(record, text, position)

    def last(self) -> Iterator[Item]:
        return iter(())

    def raw_text(self, raw: Any) -> str | None:
        return None if raw is None else str(raw)


def _text_decoder(reading: Reading, adapter: Adapter | None, is_connect: bool) -> Callable[[str], Any]:
    if reading.format != "csv":
        decode = Decoder()
        if reading.format != "avro":
            return lambda text: decode(without_prefix(bytes_of(text)))
        of_message = MessageDecoder(reading.schemas, is_connect=is_connect)
        # A message is in base64, and a record of a file is JSON.
        return lambda text: of_message(bytes_of(text)) if text.startswith(BASE64) else decode(text.encode())
    dialect = reading.dialect
    names = None if dialect.header else reading.names
    converters, known = csv.converters(dialect, reading.types), _known(reading, adapter)
    return lambda text: csv.again(text, dialect, names, converters, known).values


class _Columns(_Files):
    """Rows of Parquet files: only the columns that the adapter reads become values of Python."""

    def __init__(self, reads: frozenset[str]) -> None:
        super().__init__()
        self._reads = reads
        self._batch: pa.RecordBatch | None = None

    def items(self, batch: pa.RecordBatch) -> Iterator[Item]:
        self._batch = batch
        own = PLACES
        names = [name for name in batch.schema.names if name not in own and name.lower() in self._reads]
        files, published, rows = (batch.column(name).to_pylist() for name in (FILE, PUBLISHED, ROW))
        columns = [batch.column(name).to_pylist() for name in names]
        for at, file in enumerate(files):
            position = Position(self._named(file), rows[at])
            values = {name: column[at] for name, column in zip(names, columns, strict=True)}
            yield Item(Record(values, position, published=published[at]), at, position)

    def raw_text(self, raw: Any) -> str | None:
        """Return a row as JSON."""
        assert self._batch is not None
        row = self._batch.take(pa.array([raw])).to_pylist()[0]
        return json_text({name: part for name, part in row.items() if name not in PLACES})


def _lines(
    batch: pa.RecordBatch, dialect: csv.Dialect, *, decodes: bool = True
) -> Iterator[tuple[bytes, str, int, int, int]]:
    """Return lines with their file, its time and size, and where the task's part of it begins.

    :param decodes: return UTF-8; bytes that are not in the encoding stay as they are
    """
    rows = _columns(batch, VALUE, FILE, PUBLISHED, SIZE, START)
    if dialect.is_whole:
        rows = (
            (line, *place)
            for data, *place in rows
            for line in csv.lines_of(_unpacked(data, place[0]), dialect.encoding, dialect.line_sep)
        )
    if not decodes or dialect.codec == "utf-8":
        return rows
    return ((_in_utf8(line, dialect.codec), *place) for line, *place in rows)


def _in_utf8(data: bytes, codec: str, encoding: str = "utf-8") -> bytes:
    """Return bytes as UTF-8; those that are not in the encoding stay as they are.

    :param encoding: of a file as a whole, where lines have another codec
    """
    name = codec if codec != "utf-8" else encoding
    if name.lower() in ("utf-8", "utf8"):
        return data
    try:
        return data.decode(name).encode()
    except UnicodeDecodeError:
        return data


#: Bytes that are decompressed at once.
_PART = 1 << 20
#: The codecs in Arrow, by the ending.
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def _unpacked(data: bytes, name: str) -> bytes:
    """Return the content of a file that is read as a whole.

    :param name: its name, whose ending tells the container
    :raises FileDamaged: the content is damaged, or too large
    """
    ending = "." + name.rpartition(".")[2]
    if ending not in BY_ENDING:
        return data
    most = formats.MOST_BYTES_OF_A_FILE + 1
    try:
        if ending == ".deflate":
            found = _inflated(data, name, most)
        elif ending in CODECS:
            with pa.CompressedInputStream(pa.BufferReader(data), CODECS[ending]) as stream:
                found = _up_to(most, stream)
        else:
            raise FileDamaged(name, f"a file that is read as a whole cannot be {ending}; {COMPRESS_IT}")
    except (OSError, zlib.error) as error:
        raise FileDamaged(name, f"its content cannot be decompressed as {ending} ({error})") from error
    if len(found) > formats.MOST_BYTES_OF_A_FILE:
        raise FileDamaged(name, f"its content has {formats.TOO_LARGE}")
    return found


def _inflated(data: bytes, name: str, most: int) -> bytes:
    """Return up to ``most`` bytes of zlib's streams, one after the other, as of files that were joined."""
    parts = []
    while True:
        reader = zlib.decompressobj()
        parts.append(reader.decompress(data, most))
        most -= len(parts[-1])
        if not reader.eof and most > 0:
            raise FileDamaged(name, "its content ends before its end mark")
        data = reader.unused_data
        if not data or most <= 0:
            return b"".join(parts)


def _up_to(most: int, stream: pa.NativeFile) -> bytes:
    """Return up to ``most`` bytes of a stream. One read of Arrow would first reserve them all."""
    parts = []
    while most > 0 and (part := stream.read(min(most, _PART))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _columns(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return rows of some columns of a batch."""
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)
