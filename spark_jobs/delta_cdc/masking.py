"""Which texts among the options of a store nobody may see: one list for Airflow's masker and for errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Options, as delta-rs spells them, whose values nobody may read. Paths and ids are no secrets.
_SECRET_OPTIONS = (
    "access_key",
    "secret",
    "token",
    "sas_key",
    "account_key",
    "master_key",
    "service_account_key",
    "customer_key",
    "encryption_key",
    "password",
)
_SHORTEST = 4
_NO_SECRETS = ("_file", "_path", "_uri", "_id")
#: An address with somebody's password; in that, characters that an address has a use for are encoded.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#:@]*:([^/?#@]+)@")


def secrets(options: Mapping[str, str] | None) -> list[str]:
    """Return every text that must not be seen: values of secret options, and the parts they are made of.

    Also passwords in addresses, such as a proxy's, whatever the option is called.
    """
    found: list[str] = []
    for name, value in (options or {}).items():
        found.extend(_of_address(str(value)))
        if _is_secret(name):
            found.append(str(value))
            found.extend(_inside(str(value)))
    return sorted({text for text in found if text}, key=len, reverse=True)


def redacted(text: str, options: Mapping[str, str] | None) -> str:
    """Return a text without the secrets of some options, but for the shortest, which stand in every word."""
    for secret in secrets(options):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "***")
    return text


def _is_secret(option: str) -> bool:
    name = option.lower()
    return any(part in name for part in _SECRET_OPTIONS) and not name.endswith(_NO_SECRETS)


def _inside(value: str) -> Iterable[str]:
    """Return what may be quoted on its own: a key file's private key, a token's signature."""
    if value.lstrip().startswith("{"):
        try:
            key = json.loads(value).get("private_key")
        except (ValueError, AttributeError):
            # Not JSON after all: the whole value is the secret.
            return ()
        return (key, json.dumps(key)[1:-1]) if isinstance(key, str) else ()
    _, mark, signature = value.partition("sig=")
    signature = signature.partition("&")[0]
    return (signature, unquote(signature)) if mark else ()


def _of_address(value: str) -> tuple[str, ...]:
    found = _ADDRESS.match(value)
    return (found[1], unquote(found[1])) if found else ()
