"""Where a table lies: one place that turns what users write into a URI and a store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit
from weakref import WeakValueDictionary

from delta_cdc.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.log.identity import own_identity
from delta_cdc.storage import canonical_option, hadoop_uri, is_s3, is_true

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):")
_NAME = re.compile(r"^[^/\\\s]+(\.[^/\\\s]+){0,2}\Z")
#: Different spellings of one storage; the first is the one that identifies a table.
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_KNOWN = ("s3", "gs", "az", "adl", "azure", "abfss", "file")
#: Every scheme that can be read here, in all spellings.
KNOWN_SCHEMES = frozenset({*_KNOWN, *_SAME})
# delta-rs needs these for its own commits; obstore refuses keys it does not know.
_DELTA_RS_ONLY = re.compile(
    r"^(aws_s3_locking_provider|aws_s3_allow_unsafe_rename|delta_dynamo_.*)$",
    re.IGNORECASE,
)
_DURATION = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
#: Six tries within some six seconds: a short outage is bridged, a long one is told soon.
_MAX_RETRIES = "6"
_RETRY_TIMEOUT = "30s"
#: Options of the HTTP client. As options of the store, in whatever spelling, they would make obstore panic.
_CLIENT = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_ENDPOINT = "aws_endpoint_url"
#: obstore prefers it to every option, and it cannot be given as one.
_NARROW_ENDPOINT = "AWS_ENDPOINT_URL_S3"
_VIRTUAL = "aws_virtual_hosted_style_request"
_CLOUD = re.compile(r"^(aws|azure|google)_")


def canonical_uri(table: str) -> str:
    """Return the one spelling of a table's location: an absolute path, or a URI without a trailing slash.

    ``s3a://`` becomes ``s3://``, ``file:`` URIs become plain paths. Characters stay as they are: Spark
    takes a location literally and does not decode ``%20``.

    :raises TableNameUnresolved: for a catalog name such as ``main.sales.orders``
    :raises InvalidConfiguration: for an empty location or a scheme that cannot be read without Spark
    """
    text = str(table).strip()
    match = _SCHEME.match(text)
    if match is None:
        return _local(text)
    scheme = match.group(1).lower()
    scheme = _SAME.get(scheme, scheme)
    if scheme not in _KNOWN:
        raise InvalidConfiguration(
            f"The location {text} has the scheme {scheme}:, which cannot be read without Spark.",
            remedy=f"use a path, or a URI of one of {', '.join(_KNOWN)}.",
        )
    rest = text[match.end() :]
    if scheme == "file":
        return _local("/" + rest.lstrip("/"))
    return f"{scheme}://{rest.lstrip('/').rstrip('/')}"


def spark_uri(table: str) -> str:
    """Return the location as Spark's file systems name it: ``s3://`` is ``s3a://`` there."""
    return hadoop_uri(canonical_uri(table))


def local_path(uri: str) -> str | None:
    """Return the path of a table on the local file system; None for an object store."""
    return None if "://" in uri else uri


def open_store(uri: str, storage_options: dict[str, str] | None = None) -> ObjectStore | None:
    """Return the store rooted at a canonical URI; None for a local directory that does not exist.

    :param storage_options: as delta-rs names them; ``max_retries`` (default 6) and ``retry_timeout`` (such as
        ``30s``, the default) bound how long a store that does not answer is asked again
    :raises InvalidConfiguration: for an option that the store does not know, or a value that it cannot take
    """
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import LocalStore, from_url

    path = local_path(uri)
    if path is not None:
        return LocalStore(path) if Path(path).is_dir() else None
    given = {k.lower(): v for k, v in (storage_options or {}).items() if not _DELTA_RS_ONLY.match(k)}
    client = {_client_name(k): _client_value(v) for k, v in given.items() if _client_name(k) in _CLIENT}
    options = {k: str(v) for k, v in given.items() if _client_name(k) not in _CLIENT}
    if client:
        # With client options given, obstore forgets those of the environment.
        client = {**_client_of_environment(uri), **client}
    retries = {
        "max_retries": _whole("max_retries", options.pop("max_retries", _MAX_RETRIES)),
        "retry_timeout": _duration("retry_timeout", options.pop("retry_timeout", _RETRY_TIMEOUT)),
    }
    if is_s3(uri):
        options = _addressed(uri, options)
    options, credentials = own_identity(uri, _cloud(uri), options)
    try:
        return from_url(
            quoted(uri),
            config=cast("Any", options or None),
            client_options=cast("Any", client or None),
            retry_config=cast("Any", retries),
            credential_provider=cast("Any", credentials),
        )
    except UnknownConfigurationKeyError as error:
        raise InvalidConfiguration(
            f"An option of the storage of {uri} is not known: {str(error).splitlines()[0]}",
            remedy="name the options as delta-rs does, for instance aws_region.",
        ) from None
    except BaseError as error:
        raise InvalidConfiguration(
            f"The storage of {uri} cannot be opened with its options: {str(error).splitlines()[0]}",
            remedy="correct them in the connection or in storage_options.",
        ) from None


@dataclass(frozen=True, eq=False)
class Bucket:
    """The store that holds a table, and others."""

    store: ObjectStore


def open_bucket(uri: str, storage_options: dict[str, str] | None = None) -> tuple[Bucket, str]:
    """Return the store of a whole bucket (or container), and the prefix of an object store's table in it.

    As long as one is in use it serves every table with the same options: a client of its own for each of
    many tables costs as many connections, and some ten milliseconds at the start, in which nothing else runs.

    :raises InvalidConfiguration: for an option that the store does not know
    """
    scheme, rest = uri.split("://", 1)
    name, _, prefix = rest.partition("/")
    key = (os.getpid(), f"{scheme}://{name}", frozenset((storage_options or {}).items()))
    bucket = _BUCKETS.get(key)
    if bucket is None:
        store = open_store(key[1], storage_options)
        assert store is not None
        bucket = _BUCKETS[key] = Bucket(store)
    return bucket, prefix


_BUCKETS: WeakValueDictionary[tuple[int, str, frozenset[tuple[str, str]]], Bucket] = WeakValueDictionary()


def quoted(uri: str) -> str:
    """Return an object store's URI with its path percent-encoded, as URL parsers expect it."""
    scheme, rest = uri.split("://", 1)
    bucket, slash, path = rest.partition("/")
    return f"{scheme}://{bucket}{slash}{quote(path)}"


def _client_name(option: str) -> str:
    return _CLOUD.sub("", option)


def _client_value(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value


def _addressed(uri: str, options: dict[str, str]) -> dict[str, str]:
    """Make an address on S3 the one that is asked: obstore takes it as it is, with the bucket or without it.

    :raises InvalidConfiguration: obstore would ask another one, of the environment
    """
    around = {canonical_option(name): value for name, value in os.environ.items() if name.startswith("AWS_")}
    told = {canonical_option(name): value for name, value in options.items()}
    endpoint = told.get(_ENDPOINT)
    other = os.environ.get(_NARROW_ENDPOINT)
    if endpoint and other and other != endpoint:
        raise InvalidConfiguration(
            f"The storage options of {uri} name the address {endpoint}, and {_NARROW_ENDPOINT} of the "
            "environment would be asked instead when its log is read.",
            remedy=f"unset {_NARROW_ENDPOINT} for this process, or leave the address out of the connection.",
        )
    endpoint = endpoint or around.get(_ENDPOINT)
    if other or not endpoint or not is_true({**around, **told}.get(_VIRTUAL)):
        return options
    others = {name: value for name, value in options.items() if canonical_option(name) != _ENDPOINT}
    return {**others, _ENDPOINT: _with_bucket(endpoint, urlsplit(uri).netloc)}


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    # An address by numbers, or with a path, holds no bucket in its host.
    is_host = re.search(r"[A-Za-z]", parts.netloc) and not parts.path.strip("/")
    if not is_host or parts.netloc.lower().startswith(f"{bucket.lower()}."):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}", path="").geturl()


def _cloud(uri: str) -> str:
    """Return how the names of a store's options begin."""
    return {"s3": "aws", "gs": "google"}.get(uri.partition(":")[0], "azure")


def _client_of_environment(uri: str) -> dict[str, str | bool]:
    """Return the options of the HTTP client that the machine's environment names for a store."""
    cloud = f"{_cloud(uri)}_"
    named = {name.lower(): value for name, value in os.environ.items()}
    return {
        name.removeprefix(cloud): _client_value(value)
        for name, value in named.items()
        if name.startswith(cloud) and name.removeprefix(cloud) in _CLIENT
    }


def _whole(name: str, value: str) -> int:
    if not str(value).isdecimal():
        raise InvalidConfiguration(
            f"The option {name} is {value!r}, not a whole number.", remedy="correct it."
        )
    return int(value)


def _duration(name: str, value: str) -> timedelta:
    match = _DURATION.match(str(value))
    if match is None:
        raise InvalidConfiguration(
            f"The option {name} is {value!r}, not a time.", remedy="write it like 500ms, 30s or 2m."
        )
    return timedelta(seconds=float(match.group(1)) * _SECONDS[match.group(2)])


def _local(text: str) -> str:
    if not text:
        raise InvalidConfiguration("A table's location is empty.", remedy="give a path or a URI.")
    if "/" not in text and _NAME.match(text) and not Path(text).exists():
        raise TableNameUnresolved(
            f"{text} is a catalog name, and only a path or URI can be read without Spark.",
            remedy="give the table's location (DESCRIBE DETAIL shows it).",
        )
    # Not resolve(): a table reached through a link keeps the name it was given.
    return os.path.abspath(text)  # noqa: PTH100
