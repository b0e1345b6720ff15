"""Erased keys: a table remembers them as keyed hashes, so that nothing brings their rows back.

Beside the table lies its *ledger* (:data:`SUFFIX`), with one hash per erased key. A hash is the HMAC-SHA-256
of the key's text (:func:`encoded`), with a random secret that only this ledger has. Without a secret, anyone
could find the key of a hash by hashing all keys that are possible.

Python computes the hash of a key to erase, and SQL the hashes of a table's rows; both must agree.

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.uris import spark_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Suffix of the name of a table's ledger.
SUFFIX = "__erased"
#: Column of the ledger with the hash.
HASH = "hash"
#: Key of the configuration in the seals of a table with a ledger. Its value is the marker, once there is one.
SEALED = "erased"
#: Bytes of a secret, and of a block of SHA-256.
_SECRET, _BLOCK = 32, 64


@dataclass(frozen=True)
class ErasedKeys:
    """Whose erased keys a job leaves out of the rows that it reads; "" in each field: no key was erased.

    :param source: location of the ledger of the source
    :param ledger: location of the ledger of the table that the job writes
    :param marker: that table's property :data:`~delta_cdc.core.properties.ERASED`, as planned
    :param is_new: the newest seal of that table is older than the marker. A run that the erasure overtook may
        have died after its commit, before it deleted the rows that it brought in
    """

    source: str = ""
    ledger: str = ""
    marker: str = ""
    is_new: bool = False

    @property
    def sealed(self) -> dict[str, object]:
        """Return what the seals of the table that the job writes say of erased keys."""
        return {SEALED: self.marker or True} if self.ledger else {}


def ledger_of(table: str) -> str:
    """Return the location of a table's ledger, in Spark's form.

    :param table: path or URI
    """
    return f"{spark_uri(table).rstrip('/')}{SUFFIX}"


def new_secret() -> str:
    """Return a random secret for a ledger, as hex."""
    return secrets.token_hex(_SECRET)


def encoded(parts: Sequence[str]) -> bytes:
    """Return the texts of a key's columns as bytes. Two keys never have the same bytes.

    Each text follows its length in bytes and a colon, so no separator inside a text can be mistaken.
    """
    return b"".join(b"%d:%s" % (len(text), text) for text in (part.encode() for part in parts))


def key_hash(secret: str, parts: Sequence[str]) -> str:
    """Return the hash of a key, as hex.

    :param secret: of :func:`new_secret`
    :param parts: the texts of the key's columns, in the ledger's order
    """
    return hmac.new(bytes.fromhex(secret), encoded(parts), hashlib.sha256).hexdigest()


def hash_sql(secret: str, parts: Sequence[str]) -> str:
    """Return the SQL of :func:`key_hash`; it is NULL if a part is NULL.

    HMAC is SHA-256 of the outer pad and SHA-256 of the inner pad and the message (RFC 2104).

    :param parts: SQL expressions of the texts of the key's columns
    """
    block = bytes.fromhex(secret).ljust(_BLOCK, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in block).hex() for pad in (0x36, 0x5C))
    texts = ", ".join(f"CAST(octet_length({part}) AS STRING), ':', {part}" for part in parts)
    message = f"CAST(concat({texts}) AS BINARY)"
    return f"sha2(concat(X'{outer}', unhex(sha2(concat(X'{inner}', {message}), 256))), 256)"
