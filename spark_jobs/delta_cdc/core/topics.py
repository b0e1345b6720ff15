"""Parse the addresses of Kafka topics as sources."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from delta_cdc.core.errors import (
    InvalidConfiguration,
)
from delta_cdc.core.kafka_options import BOOTSTRAP

if TYPE_CHECKING:
    from collections.abc import Mapping


SCHEME = "kafka"
DEFAULT_PORT = 9092
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FORM = "write it as kafka://<host>:<port>,<host>:<port>/<topic>,<topic>."


@dataclass(frozen=True)
class Topics:
    """A parsed source.

    :param servers: ``host:port,host:port``; "" if the options name them
    """

    servers: str
    names: tuple[str, ...]


def is_topics(source: str) -> bool:
    """Return whether a source names topics, not files."""
    return source.lower().startswith(f"{SCHEME}://")


def parse(source: str) -> Topics:
    """Parse a source.

    :param source: ``kafka://host:port,host:port/topic,topic``; port 9092 is optional, and so are all
        brokers (``kafka:///topic``)
    :raises InvalidConfiguration: for any other form
    """
    try:
        parts = urlsplit(source)
    except ValueError as error:
        raise InvalidConfiguration(f"The source {source!r} is no address: {error}.", remedy=_FORM) from None
    names = tuple(parts.path.removeprefix("/").split(","))
    invalid_names = [name for name in names if not _NAME.fullmatch(name) or name in (".", "..")]
    if not is_topics(source) or parts.query or parts.fragment or invalid_names:
        detail = f": {invalid_names[0]!r} is no name of a topic" if invalid_names and invalid_names[0] else ""
        raise InvalidConfiguration(f"The source {source!r} names no topics{detail}.", remedy=_FORM)
    if len(set(names)) != len(names):
        raise InvalidConfiguration(
            f"The source {source!r} names a topic twice.", remedy="name each topic once."
        )
    servers = [_server(server, source) for server in parts.netloc.split(",")] if parts.netloc else []
    return Topics(",".join(servers), names)


def _server(text: str, source: str) -> str:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@\[\]/]+)(?::(\d{1,5}))?", text)
    if match is None:
        raise InvalidConfiguration(f"The source {source!r} has the broker {text!r}.", remedy=_FORM)
    return f"{match[1]}:{match[2] or DEFAULT_PORT}"


def servers_of(source: str, kafka_options: Mapping[str, str] | None) -> str:
    """Return the brokers of a source: its own, else those of the options.

    :raises InvalidConfiguration: neither names a broker
    """
    servers = parse(source).servers or (kafka_options or {}).get(BOOTSTRAP, "").replace(" ", "")
    if not servers:
        raise InvalidConfiguration(
            f"The source {source!r} names no brokers, and kafka_options has no {BOOTSTRAP}.", remedy=_FORM
        )
    return servers
