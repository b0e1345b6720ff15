"""Names of secrets, and texts to redact: one list for all output and logs.

It covers names of object-store options, confs of Hadoop and Spark, options of Kafka clients, environment
variables and parameters of URLs.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from delta_cdc.core import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Keys that are secrets. Other keys are ids, such as the id of a KMS key.
_KEYS = "access|account|api|customer|encryption|fernet|keystore|master|private|provided|sas|shared|signing"
_WORDS = f"secret|passw|passphrase|token(?!iz)|jaas|connection[._-]*string|(?:{_KEYS})[._-]*key(?![a-z])"
#: Words for the location of a secret, its identity, or its creation.
_ABOUT = (
    "algorithm|binding|class|enabled|endpoint|file|hash|id|location|path|provider|server|service|sha|sha256|"
    "size|type|ur[il]"
)
_PLACES = "file|location|path|ur[il]"
#: The names, ignoring case, as an expression that Python and Java read alike. ABFS appends an account's host
#: to the name of a conf, and the account's name may be one of the words above.
SECRET_NAMES = (
    rf"^(?!.*[._-](?:{_PLACES})$)"
    rf".*(?:{_WORDS})(?!s?[._-]*(?:{_ABOUT})(?![a-z0-9])(?![.](?:blob|dfs)[.]))"
    r"|(?:^|[._-])(?:authorization|credential|default[._-]headers|identity[._-]header|key[._-]pem)$"
    r"|secret[._-]*id$|auth[._-]user[._-]info$|^(?:x-(?:amz|goog)-)?sig(?:nature)?$"
    # WASB has the container in the name of the conf.
    r"|[.]azure[.]sas[.][^.]+[.][^.]+[.]blob[.]"
    r"|[.]azure[.](?:account[.]key|account[.]oauth2[.]client[.]secret|sas[.]fixed[.]token)[.]"
)
#: Shorter texts occur in many other words.
SHORTEST = 4
#: In a Kafka login, and in an Azure connection string.
_PART = re.compile(r'(?:password|AccountKey)\s*=\s*"?((?:[^\s";\\]|\\.)+)', re.IGNORECASE)
#: An address with a password; reserved characters in the password are percent-encoded.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#:@]*:([^/?#@]+)@")


def secrets(options: Mapping[str, str] | None) -> list[str]:
    """Return every text to redact: values of secret options, and their parts.

    These include passwords in addresses, such as a proxy's, in options of any name.
    """
    texts: set[str] = set()
    for name, value in (options or {}).items():
        texts.update(_address_secrets(str(value)))
        if is_secret(name):
            texts.update((str(value), *_inside(str(value))))
    return sorted(texts - {""}, key=len, reverse=True)


def redacted(text: str, options: Mapping[str, str] | None) -> str:
    """Return a text without the secrets of some options, except very short ones."""
    for secret in secrets(options):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, "***")
    return text


def is_secret(name: str) -> bool:
    """Return whether the value of an option, conf, variable or parameter with this name is secret."""
    # Compiled at first use, because that takes as long as the import of several modules.
    return re.search(SECRET_NAMES, name, re.IGNORECASE) is not None


def _inside(value: str) -> Iterable[str]:
    """Return parts that may appear alone: a key file's private key, a login's password, a signature."""
    if value.lstrip().startswith("{"):
        try:
            key = codec.parsed(value).get("private_key")
        except (ValueError, AttributeError):
            # Not JSON: the whole value is the secret.
            return ()
        return (key, json.dumps(key)[1:-1]) if isinstance(key, str) else ()
    _, mark, signature = value.partition("sig=")
    signature = signature.partition("&")[0]
    return (*_PART.findall(value), *((signature, unquote(signature)) if mark else ()))


def _address_secrets(value: str) -> tuple[str, ...]:
    address = _ADDRESS.match(value)
    return (address[1], unquote(address[1])) if address else ()
