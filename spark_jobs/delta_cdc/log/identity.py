"""Who asks a store, for the reader of logs: what its options say, and nothing of the environment's beside it.

obstore completes from the environment what options leave open, parts of an identity among them: a token of
the worker's would go with the keys of a connection. Keys are given to it so that it does not look there;
where it would prefer an identity of the environment's to the one of the options, that is refused by name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.storage import canonical_option, is_true

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_S3_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_AZURE_KEYS = ("azure_storage_account_key", "azure_storage_sas_key")
_ANONYMOUS = "skip_signature"
#: Of each cloud, the options that say who asks.
_IDENTITIES = {
    "aws": (*_S3_KEYS, "aws_role_arn", "aws_web_identity_token_file"),
    "azure": (*_AZURE_KEYS, "azure_storage_client_id"),
    "google": ("google_service_account", "google_service_account_key", "google_application_credentials"),
}
#: Of options that obstore makes an identity of by itself: what it would rather take, were it given.
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
    """Part the options of a store from who asks.

    :param uri: for messages
    :param cloud: how the names of its options begin: ``aws``, ``azure`` or ``google``
    :param options: by names in lower case
    :param environ: the environment; None is that of this process
    :return: options for obstore, and what gives it the credentials; None where it finds them by itself
    :raises InvalidConfiguration: it would take another identity, from the environment
    """
    environ = os.environ if environ is None else environ
    named = {canonical_option(name): value for name, value in options.items() if value}
    is_anonymous = any(is_true(value) for name, value in options.items() if name.endswith(_ANONYMOUS))
    if is_anonymous or not named.keys() & set(_IDENTITIES[cloud]):
        return dict(options), None
    credentials = _credentials(named)
    if credentials is None:
        _refuse_preferred(uri, cloud, named, environ)
    apart = (*_S3_KEYS, *_AZURE_KEYS) if credentials else ()
    rest = {
        name: value
        for name, value in options.items()
        if canonical_option(name) not in apart and not name.endswith(_ANONYMOUS)
    }
    return {**rest, f"{cloud}_{_ANONYMOUS}": "false"}, (lambda: credentials) if credentials else None


def _credentials(named: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what obstore takes as credentials, of the identities that are known here."""
    if "aws_access_key_id" in named and "aws_secret_access_key" in named:
        key, secret, token = (named.get(name) for name in _S3_KEYS)
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
    if "azure_storage_account_key" in named:
        return {"access_key": named["azure_storage_account_key"], "expires_at": None}
    if "azure_storage_sas_key" in named:
        return {"sas_token": named["azure_storage_sas_key"], "expires_at": None}
    return None


def _refuse_preferred(uri: str, cloud: str, named: Mapping[str, str], environ: Mapping[str, str]) -> None:
    preferred = {other for name in named for other in _PREFERRED.get(name, ()) if other not in named}
    # Also without a value: an empty key is one to obstore.
    found = [
        name
        for name in sorted(environ)
        if name.startswith(f"{cloud.upper()}_") and canonical_option(name) in preferred
    ]
    if found:
        raise InvalidConfiguration(
            f"The storage options of {uri} say who asks, and {', '.join(found)} of the environment would be "
            "taken instead when its log is read.",
            remedy="unset it for this process, or give keys in the connection (storage_options).",
        )
