"""Object-store credentials for reading logs: only the configured ones, never mixed with the environment's.

obstore fills in missing options from the environment, even parts of an identity: it would combine the
worker's token with the keys of a connection. This module passes keys in a way that skips the environment. If
obstore would prefer an identity of the environment to the configured one, this module raises an error that
names the variable.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.storage_options import canonical_option, is_true

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_S3_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_AZURE_KEYS = ("azure_storage_account_key", "azure_storage_sas_key")
_ANONYMOUS = "skip_signature"
#: Per cloud, the options that identify the caller.
_IDENTITIES = {
    "aws": (*_S3_KEYS, "aws_role_arn", "aws_web_identity_token_file"),
    "azure": (*_AZURE_KEYS, "azure_storage_client_id"),
    "google": ("google_service_account", "google_service_account_key", "google_application_credentials"),
}
#: Identity option that obstore resolves -> options that obstore would prefer if they were set.
_PREFERRED = {
    "aws_web_identity_token_file": ("aws_access_key_id", "aws_secret_access_key"),
    "azure_storage_client_secret": ("azure_storage_account_key", "azure_storage_token"),
    "azure_federated_token_file": (
        "azure_storage_account_key",
        "azure_storage_token",
        "azure_storage_client_secret",
    ),
}


def own_identity(
    uri: str, cloud: str, options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[dict[str, str], Callable[[], Any] | None]:
    """Separate the options of a store from its credentials.

    :param uri: for messages
    :param cloud: prefix of its option names: ``aws``, ``azure`` or ``google``
    :param options: by names in lower case
    :param environ: the environment; None is that of this process
    :return: options for obstore, and its credential provider; None if obstore finds the credentials itself
    :raises InvalidConfiguration: obstore would take another identity, from the environment
    """
    environ = os.environ if environ is None else environ
    named = {canonical_option(name): value for name, value in options.items() if value}
    is_anonymous = any(is_true(value) for name, value in options.items() if name.endswith(_ANONYMOUS))
    if is_anonymous or not named.keys() & set(_IDENTITIES[cloud]):
        return dict(options), None
    credentials = _credentials(named)
    if credentials is None:
        _refuse_preferred(uri, cloud, named, environ)
    separate = (*_S3_KEYS, *_AZURE_KEYS) if credentials else ()
    remaining = {
        name: value
        for name, value in options.items()
        if canonical_option(name) not in separate and not name.endswith(_ANONYMOUS)
    }
    return {**remaining, f"{cloud}_{_ANONYMOUS}": "false"}, (lambda: credentials) if credentials else None


def _credentials(named: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the credentials in obstore's form; None for an identity that this module does not handle."""
    if "aws_access_key_id" in named and "aws_secret_access_key" in named:
        key, secret, token = (named.get(name) for name in _S3_KEYS)
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    if "azure_storage_account_key" in named:
        return {"access_key": named["azure_storage_account_key"], "expires_at": None}
    if "azure_storage_sas_key" in named:
        return {"sas_token": named["azure_storage_sas_key"], "expires_at": None}
    return None


def _refuse_preferred(uri: str, cloud: str, named: Mapping[str, str], environ: Mapping[str, str]) -> None:
    preferred = {option for name in named for option in _PREFERRED.get(name, ()) if option not in named}
    # Also variables without a value: obstore uses an empty key.
    found = [
        name
        for name in sorted(environ)
        if name.startswith(f"{cloud.upper()}_") and canonical_option(name) in preferred
    ]
    if found:
        raise InvalidConfiguration(
            f"The storage options of {uri} name an identity, but {', '.join(found)} of the environment would "
            "be used instead when its log is read.",
            remedy="unset it for this process, or give keys in the connection (storage_options).",
        )
