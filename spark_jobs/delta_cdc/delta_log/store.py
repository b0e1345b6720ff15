"""Open the object store of a table's location."""

from __future__ import annotations

import atexit
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit
from weakref import WeakValueDictionary

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.reasons import reason
from delta_cdc.core.storage_options import canonical_option, is_s3, is_true
from delta_cdc.core.uris import local_path
from delta_cdc.delta_log.credentials import own_identity
from delta_cdc.delta_log.exits import wait_for_threads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ObjectStore

# delta-rs needs these for its own commits and requests; obstore rejects unknown keys.
_DELTA_RS_ONLY = re.compile(
    r"^(aws_s3_locking_provider|aws_s3_allow_unsafe_rename|delta_dynamo_.*|aws_endpoint_url_dynamodb"
    r"|aws_force_credential_load|aws_ec2_metadata_disabled|aws_s3_get_internal_server_error_retries"
    r"|aws_(s3|sts)_pool_idle_timeout_seconds|object_store_concurrency_limit)$",
    re.IGNORECASE,
)
_DURATION = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
#: Six tries within about six seconds survive a short outage, and report a long one soon.
_MAX_RETRIES = "6"
_RETRY_TIMEOUT = "30s"
#: Options of the HTTP client. As options of the store, in any spelling, they would make obstore panic.
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
#: obstore prefers this variable to every option, and has no option for it.
_NARROW_ENDPOINT = "AWS_ENDPOINT_URL_S3"
_VIRTUAL = "aws_virtual_hosted_style_request"
_CLOUD = re.compile(r"^(aws|azure|google)_")
#: An address that obstore can use: at others it panics, and it prints a password in one.
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?(/[^\s?#]*)?",
    re.ASCII | re.IGNORECASE,
)
_LAST_PORT = 65535
#: The name of an account, and the domains of those that obstore knows, the one of most accounts first.
_ACCOUNT = "azure_storage_account_name"
_AZURE_DOMAINS = (
    "dfs.core.windows.net",
    "blob.core.windows.net",
    "dfs.fabric.microsoft.com",
    "blob.fabric.microsoft.com",
)

atexit.register(wait_for_threads)


def open_store(uri: str, storage_options: dict[str, str] | None = None) -> ObjectStore | None:
    """Return the store rooted at a canonical URI; None for a local directory that does not exist.

    :param storage_options: as delta-rs names them; ``max_retries`` (default 6) and ``retry_timeout`` (such as
        ``30s``, the default) limit the retries when a store does not answer
    :raises InvalidConfiguration: the store does not know an option, or does not accept its value
    """
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError
    from obstore.store import LocalStore, from_url

    path = local_path(uri)
    if path is not None:
        return LocalStore(path) if Path(path).is_dir() else None
    lowered = {k.lower(): v for k, v in (storage_options or {}).items() if not _DELTA_RS_ONLY.match(k)}
    client = {_client_name(k): _client_value(v) for k, v in lowered.items() if _client_name(k) in _CLIENT}
    options = {k: str(v) for k, v in lowered.items() if _client_name(k) not in _CLIENT}
    if client:
        # If client options are given, obstore ignores those of the environment.
        client = {**_client_of_environment(uri), **client}
    retries = {
        "max_retries": _whole_number("max_retries", options.pop("max_retries", _MAX_RETRIES)),
        "retry_timeout": _duration("retry_timeout", options.pop("retry_timeout", _RETRY_TIMEOUT)),
    }
    place = uri
    if is_s3(uri):
        client = _with_http(uri, options, client)
        options = _with_endpoint_bucket(uri, options)
    elif _cloud(uri) == "azure":
        place, options = _with_host(uri, options)
    options, credentials = own_identity(uri, _cloud(uri), options)
    try:
        return from_url(
            quoted(place),
            config=cast("Any", options or None),
            client_options=cast("Any", client or None),
            retry_config=cast("Any", retries),
            credential_provider=cast("Any", credentials),
        )
    except UnknownConfigurationKeyError as error:
        raise InvalidConfiguration(
            f"An option of the storage of {uri} is not known: {reason(error)}",
            remedy="name the options as obstore does, for instance aws_region; or leave it out.",
        ) from None
    except (BaseError, ValueError) as error:
        raise InvalidConfiguration(
            f"The storage of {uri} cannot be opened with its options: {reason(error)}",
            remedy="correct them in the connection or in storage_options.",
        ) from None


def open_bucket(uri: str, storage_options: dict[str, str] | None = None) -> tuple[ObjectStore, str]:
    """Return the store of a whole bucket (or container), and the prefix of the table in that bucket.

    While a store is in use, all tables with the same options share it: a separate client for each table
    costs another connection, and some ten milliseconds at the start, in which nothing else runs.

    :raises InvalidConfiguration: the store does not know an option
    """
    scheme, rest = uri.split("://", 1)
    name, _, prefix = rest.partition("/")
    key = (os.getpid(), f"{scheme}://{name}", frozenset((storage_options or {}).items()))
    store = _STORES.get(key)
    if store is None:
        store = open_store(key[1], storage_options)
        assert store is not None
        _STORES[key] = store
    return store, prefix


_STORES: WeakValueDictionary[tuple[int, str, frozenset[tuple[str, str]]], ObjectStore] = WeakValueDictionary()


def quoted(uri: str) -> str:
    """Return an object store's URI with its path percent-encoded, as URL parsers expect it."""
    scheme, rest = uri.split("://", 1)
    bucket, slash, path = rest.partition("/")
    return f"{scheme}://{bucket}{slash}{quote(path)}"


def _client_name(option: str) -> str:
    return _CLOUD.sub("", option)


def _client_value(value: str) -> str | bool:
    return value.lower() == "true" if value.lower() in ("true", "false") else value


def _variables() -> dict[str, str]:
    """Return the options of S3 that the environment sets."""
    return {canonical_option(name): value for name, value in os.environ.items() if name.startswith("AWS_")}


def _with_http(uri: str, options: Mapping[str, str], client: dict[str, str | bool]) -> dict[str, str | bool]:
    """Return the options of the HTTP client for the address of an S3-compatible store.

    Whoever writes ``http://`` wants no TLS: for Spark's file system this is enough, too.

    :raises InvalidConfiguration: the address cannot be one, or ``allow_http`` is off
    """
    given_options = {canonical_option(name): value for name, value in options.items()}
    address = os.environ.get(_NARROW_ENDPOINT, given_options.get(_ENDPOINT, _variables().get(_ENDPOINT)))
    if address is None:
        return client
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"] or 0) > _LAST_PORT:
        shown = re.sub(r"^([a-z]+://)?.*@", r"\1***@", address, flags=re.IGNORECASE | re.DOTALL)
        raise InvalidConfiguration(
            f"The address of the storage of {uri} is {shown!r}, which is no URL of a store.",
            remedy="write it as https://host:port or http://host:port, without user, password or spaces, in "
            "the connection, in storage_options or in AWS_ENDPOINT_URL.",
        )
    if match["scheme"].lower() != "http":
        return client
    allowed = (client or _client_of_environment(uri)).get("allow_http")
    if allowed is None:
        return {**(client or _client_of_environment(uri)), "allow_http": True}
    if not is_true(str(allowed)):
        raise InvalidConfiguration(
            f"The address of the storage of {uri} is {address}, without TLS, and allow_http is {allowed}.",
            remedy="leave allow_http out, or use an address with https.",
        )
    return client


def _with_host(uri: str, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return a location on Azure, and its options, with which obstore reaches the host that the URI names.

    obstore prefers the account of the options to that of the URI, and knows only the hosts of two clouds.
    Spark reads the table at the host of the URI.
    """
    scheme, rest = uri.split("://", 1)
    netloc, slash, path = rest.partition("/")
    container, at, host = netloc.rpartition("@")
    if not at:
        return uri, options
    others = {name: value for name, value in options.items() if canonical_option(name) != _ACCOUNT}
    account, _, domain = host.lower().partition(".")
    if domain in _AZURE_DOMAINS:
        return uri, others
    place = f"{scheme}://{container}@{account}.{_AZURE_DOMAINS[0]}{slash}{path}"
    if not any(_client_name(name) == "endpoint" for name in others):
        others["azure_endpoint"] = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    return place, others


def _with_endpoint_bucket(uri: str, options: dict[str, str]) -> dict[str, str]:
    """Return the options, with the bucket in the S3 endpoint if virtual hosting needs it.

    obstore uses the endpoint unchanged.

    :raises InvalidConfiguration: obstore would use another endpoint, from the environment
    """
    variables = _variables()
    given_options = {canonical_option(name): value for name, value in options.items()}
    endpoint = given_options.get(_ENDPOINT)
    other = os.environ.get(_NARROW_ENDPOINT)
    if endpoint and other and other != endpoint:
        raise InvalidConfiguration(
            f"The storage options of {uri} name the address {endpoint}, and {_NARROW_ENDPOINT} of the "
            "environment would be used instead when its log is read.",
            remedy=f"unset {_NARROW_ENDPOINT} for this process, or leave the address out of the connection.",
        )
    endpoint = endpoint or variables.get(_ENDPOINT)
    if other or not endpoint or not is_true({**variables, **given_options}.get(_VIRTUAL)):
        return options
    remaining = {name: value for name, value in options.items() if canonical_option(name) != _ENDPOINT}
    return {**remaining, _ENDPOINT: _with_bucket(endpoint, urlsplit(uri).netloc)}


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    # An IP address, or an endpoint with a path, has no bucket in its host name.
    is_host = re.search(r"[A-Za-z]", parts.netloc) and not parts.path.strip("/")
    if not is_host or parts.netloc.lower().startswith(f"{bucket.lower()}."):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}", path="").geturl()


def _cloud(uri: str) -> str:
    """Return the prefix of a store's option names."""
    return {"s3": "aws", "gs": "google"}.get(uri.partition(":")[0], "azure")


def _client_of_environment(uri: str) -> dict[str, str | bool]:
    """Return the options of the HTTP client that the environment sets for a store."""
    cloud = f"{_cloud(uri)}_"
    variables = {name.lower(): value for name, value in os.environ.items()}
    return {
        name.removeprefix(cloud): _client_value(value)
        for name, value in variables.items()
        if name.startswith(cloud) and name.removeprefix(cloud) in _CLIENT
    }


def _whole_number(name: str, value: str) -> int:
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
