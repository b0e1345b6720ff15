"""Who asks a store is said in one place: the environment adds nothing to what the options say."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import obstore
import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.delta_log.store import open_store
from tests.support.empty_store import EmptyStore

S3 = "s3://b/t"
AZURE = "abfss://c@a.dfs.core.windows.net/t"
KEY, OTHER_KEY = "c2VjcmV0", "b3RoZXI="
KEYS = {"aws_access_key_id": "ours", "aws_secret_access_key": "s"}
WEB = {"aws_role_arn": "arn:aws:iam::1:role/r", "aws_web_identity_token_file": "/token"}
CLIENT = {"azure_client_id": "c", "azure_tenant_id": "t"}


def who(uri: str, options: dict[str, str]) -> str:
    """Return as whom an object is asked for: key id, token and signature, as far as there are any."""
    cloud = "aws" if uri.startswith("s3") else "azure"
    with EmptyStore() as store:
        where = {f"{cloud}_endpoint": store.url, "allow_http": "true", "max_retries": "0"}
        with pytest.raises(FileNotFoundError):
            obstore.get(open_store(uri, {**where, **options}), "x")  # type: ignore[arg-type]
    ((path, headers),) = store.requests
    signed = headers.get("authorization", "").replace("AWS4-HMAC-SHA256 Credential=", "")
    # Of S3 the key's id; of Azure's keys there is only what they make.
    found = signed.partition("/")[0] if cloud == "aws" else signed.partition(" ")[0]
    signature = parse_qs(urlsplit(path).query).get("sig", [""])[0]
    return " ".join(filter(None, (found, headers.get("x-amz-security-token"), signature)))


@pytest.mark.parametrize(
    ("uri", "options", "environment", "expected"),
    [
        (S3, KEYS, {"AWS_SESSION_TOKEN": "theirs"}, "ours"),
        (S3, KEYS, {"AWS_SESSION_TOKEN": ""}, "ours"),
        (S3, KEYS, {"AWS_SKIP_SIGNATURE": "true"}, "ours"),
        (S3, KEYS, {"AWS_ROLE_ARN": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": "/gone"}, "ours"),
        (S3, {**KEYS, "session_token": "mine"}, {"AWS_SESSION_TOKEN": "theirs"}, "ours mine"),
        (S3, {**KEYS, "skip_signature": "false"}, {"AWS_SKIP_SIGNATURE": "true"}, "ours"),
        # Nothing in the options is about who asks: that is the machine.
        (S3, {"aws_region": "r"}, {"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "s"}, "theirs"),
        (S3, {"skip_signature": "true"}, {"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "s"}, ""),
        (AZURE, {"sas_token": "?sv=1&sig=a%2Bb%3D"}, {"AZURE_STORAGE_ACCOUNT_KEY": OTHER_KEY}, "a+b="),
        (AZURE, {"sas_token": "sv=1&sig=ab"}, {"AZURE_STORAGE_TOKEN": "theirs"}, "ab"),
        (AZURE, {"account_key": KEY}, {"AZURE_STORAGE_TOKEN": "theirs"}, "SharedKey"),
        (AZURE, {"account_key": KEY}, {"AZURE_SKIP_SIGNATURE": "true"}, "SharedKey"),
    ],
)
def test_who_asks(
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    options: dict[str, str],
    environment: dict[str, str],
    expected: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert who(uri, options) == expected


@pytest.mark.parametrize(
    ("uri", "options", "preferred"),
    [
        (S3, WEB, "AWS_ACCESS_KEY_ID"),
        (AZURE, {**CLIENT, "azure_client_secret": "s"}, "AZURE_STORAGE_ACCOUNT_KEY"),
        (AZURE, {**CLIENT, "azure_federated_token_file": "/token"}, "AZURE_CLIENT_SECRET"),
    ],
)
def test_an_identity_that_would_not_be_the_one_asked_for(
    monkeypatch: pytest.MonkeyPatch, uri: str, options: dict[str, str], preferred: str
) -> None:
    """Of these only obstore can make credentials; it would take what the environment holds instead."""
    assert open_store(uri, options) is not None
    monkeypatch.setenv(preferred, KEY)
    with pytest.raises(InvalidConfiguration, match=f"{preferred} of the environment"):
        open_store(uri, options)
