"""One storage told to two readers: what Spark gets of the options that the logs are read with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delta_cdc.core.storage_options import (
    SparkStorage,
    hadoop_uri,
    is_secret,
    properties_text,
    same_store,
    spark_storage,
)

S3A = "spark.hadoop.fs.s3a."
AROUND = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"),
    *("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
)
AZURE = "spark.hadoop.fs.azure."
HOST = "acc.dfs.core.windows.net"


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AROUND:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("uri", "hadoop"),
    [
        ("s3://b/t", "s3a://b/t"),
        ("S3N://b/t", "s3a://b/t"),
        ("s3a://b/t", "s3a://b/t"),
        ("gs://b/t", "gs://b/t"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("file:///lake/t", "file:///lake/t"),
        ("/lake/s3/t", "/lake/s3/t"),
    ],
)
def test_hadoop_calls_s3_otherwise(uri: str, hadoop: str) -> None:
    assert hadoop_uri(uri) == hadoop


@pytest.mark.parametrize("nothing", [None, {}, {"timeout": "10s", "max_retries": "3"}])
def test_without_options_spark_is_told_nothing(nothing: dict[str, str] | None) -> None:
    assert spark_storage(nothing, ["s3://b/t"]) == SparkStorage()


# -- S3 -------------------------------------------------------------------------------------------
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}


def test_keys_of_s3() -> None:
    storage = spark_storage(KEYS)
    provider = {f"{S3A}aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"}
    secrets = {f"{S3A}access.key": "id", f"{S3A}secret.key": "hidden"}
    assert storage.credentials == {**provider, **secrets}
    assert storage.public_credentials == provider
    assert storage.secrets() == secrets
    assert storage.secrets(beside_environment=True) == {}
    assert storage.environment == {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_SESSION_TOKEN": "",
    }
    assert storage.confs == {}
    # Temporary ones, in other spellings.
    storage = spark_storage({"access_key_id": "id", "Secret_Access_Key": "hidden", "aws_token": "tok"})
    assert storage.credentials[f"{S3A}aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")
    assert storage.secrets()[f"{S3A}session.token"] == "tok"
    assert storage.environment["AWS_SESSION_TOKEN"] == "tok"


@pytest.mark.parametrize(
    ("options", "confs"),
    [
        ({"AWS_REGION": "r"}, {"endpoint.region": "r"}),
        # Of a store that is not Amazon's the reader takes a region for granted, and S3A another one.
        (
            {"AWS_ENDPOINT_URL": "http://h:9000"},
            {"endpoint": "http://h:9000", "endpoint.region": "us-east-1", "path.style.access": "true"}
            | {"connection.ssl.enabled": "false"},
        ),
        (
            {"aws_endpoint": "https://h", "region": "r", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            {"endpoint": "https://h", "endpoint.region": "r", "path.style.access": "false"},
        ),
        ({"AWS_REQUEST_PAYER": "requester"}, {"requester.pays.enabled": "true"}),
        ({"AWS_REQUEST_PAYER": "true"}, {"requester.pays.enabled": "true"}),
        ({"AWS_REQUEST_PAYER": "false"}, {}),
    ],
)
def test_where_s3_is(options: dict[str, str], confs: dict[str, str]) -> None:
    assert spark_storage(options) == SparkStorage(
        confs={f"{S3A}{name}": value for name, value in confs.items()}
    )


E = {"AWS_ENDPOINT_URL": "https://e"}
#: Options, environment, whether the driver is elsewhere; endpoint, region, path style.
AROUND_S3: list[tuple[dict[str, str], dict[str, str], bool, tuple[str | None, ...]]] = [
    ({}, E, False, ("https://e", "us-east-1", "true")),
    ({}, {**E, "AWS_REGION": "r"}, False, ("https://e", "r", "true")),
    ({}, {**E, "AWS_DEFAULT_REGION": "d"}, False, ("https://e", "d", "true")),
    ({}, {**E, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}, False, ("https://e", "us-east-1", "false")),
    ({}, {**E, "AWS_ENDPOINT_URL_S3": "https://narrow"}, False, ("https://narrow", "us-east-1", "true")),
    # Of a driver elsewhere, this environment is not the one that counts.
    ({}, {**E, "AWS_REGION": "r"}, True, (None, None, None)),
    # What the reader signs with for the address that it is given.
    ({"endpoint": "https://o"}, {"AWS_REGION": "r"}, True, ("https://o", "r", "true")),
    ({"endpoint": "https://o", "region": "o"}, {**E, "AWS_REGION": "r"}, False, ("https://o", "o", "true")),
    # Where Amazon's own buckets are, S3A finds by itself.
    ({}, {"AWS_REGION": "r"}, False, (None, None, None)),
]


@pytest.mark.parametrize(("options", "around", "elsewhere", "told"), AROUND_S3)
def test_what_the_environment_says_of_s3_counts_for_both_readers(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    around: dict[str, str],
    elsewhere: bool,
    told: tuple[str | None, ...],
) -> None:
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    confs = spark_storage(options or None, ["s3://b/t"], elsewhere=elsewhere).confs
    names = ("endpoint", "endpoint.region", "path.style.access")
    assert tuple(confs.get(f"{S3A}{name}") for name in names) == told
    if not options:
        assert spark_storage(None, ["/lake/t"]) == SparkStorage()


@pytest.mark.parametrize(
    ("endpoint", "uris", "told"),
    [
        ("https://lake.store.example", ["s3://lake/t"], "https://store.example"),
        ("https://Lake.store.example:9000", ["/landing", "s3a://lake/t"], "https://store.example:9000"),
        ("lake.store.example", ["s3://lake/t"], "store.example"),
        ("https://store.example", ["s3://lake/t"], "https://store.example"),
        ("https://lakes.example", ["s3://lake/t"], "https://lakes.example"),
    ],
)
def test_an_address_that_holds_the_bucket_does_not_get_it_twice(
    endpoint: str, uris: list[str], told: str
) -> None:
    """By host, the reader asks at the address as it is, and S3A puts the bucket before it."""
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert spark_storage(options, uris).confs[f"{S3A}endpoint"] == told
    by_path = spark_storage({"AWS_ENDPOINT_URL": endpoint}, uris).confs
    assert by_path[f"{S3A}endpoint"] == endpoint


@pytest.mark.parametrize("more", [{}, {"AWS_ROLE_SESSION_NAME": "dag"}])
def test_a_web_identity_of_s3_is_no_secret(more: dict[str, str]) -> None:
    given = {"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token", **more}
    storage = spark_storage(given)
    assert storage.environment == given
    assert storage.secrets() == {}
    public = storage.public_credentials
    assert "WebIdentityToken" in public[f"{S3A}aws.credentials.provider"]
    # That class reads the environment, of executors and of a driver on YARN as well.
    for environment in ("spark.executorEnv", "spark.yarn.appMasterEnv"):
        assert {name: public[f"{environment}.{name}"] for name in given} == given


def test_a_public_bucket() -> None:
    """Whoever asks otherwise: to the reader of logs this wins over keys."""
    identity = {"role_arn": "arn", "web_identity_token_file": "/t"}
    for options in ({}, KEYS, identity):
        storage = spark_storage({"AWS_SKIP_SIGNATURE": "true", **options})
        (provider,) = storage.credentials.values()
        assert provider == "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
        assert storage.environment == {}


def test_a_web_identity_of_the_environment_counts_for_spark_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of logs takes it, S3A's own list does not name it; a driver elsewhere has its own."""
    monkeypatch.setenv("AWS_ROLE_ARN", "arn")
    assert spark_storage(None, ["s3://b/t"]) == SparkStorage()
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")
    (provider,) = spark_storage(None, ["/lake/u", "s3://b/t"]).credentials.values()
    environment, web_identity, instance = provider.split(",")[-3:]
    assert "EnvironmentVariable" in environment
    assert "WebIdentity" in web_identity
    assert "IAMInstance" in instance
    assert spark_storage(None, ["/lake/t"]) == SparkStorage()
    assert spark_storage(None, ["s3://b/t"], elsewhere=True) == SparkStorage()
    assert "Simple" in spark_storage(KEYS, ["s3://b/t"]).credentials[f"{S3A}aws.credentials.provider"]


@pytest.mark.parametrize(
    ("algorithm", "told", "more"),
    [
        ("AES256", "SSE-S3", {}),
        ("aws:kms", "SSE-KMS", {"AWS_SSE_KMS_KEY_ID": "arn:key"}),
        ("aws:kms:dsse", "DSSE-KMS", {"sse_kms_key_id": "k"}),
        ("sse-c", "SSE-C", {"sse_customer_key_base64": "hid"}),
        # A key alone asks for nothing.
        (None, None, {"sse_kms_key_id": "k"}),
    ],
)
def test_what_s3_encrypts_with(algorithm: str | None, told: str | None, more: dict[str, str]) -> None:
    given = {} if algorithm is None else {"aws_server_side_encryption": algorithm}
    storage = spark_storage({**KEYS, **given, **more})
    found = {**storage.confs, **storage.secrets(beside_environment=True)}
    pattern = found.pop("spark.redaction.regex", None)
    wanted = {}
    if told is not None:
        wanted = {
            f"{S3A}encryption.algorithm": told,
            **{f"{S3A}encryption.key": key for key in more.values()},
        }
    assert found == wanted
    assert f"{S3A}encryption.key" not in {**storage.confs, **storage.public_credentials}
    assert (f"{S3A}encryption.key" in wanted) == bool(pattern and re.search(pattern, f"{S3A}encryption.key"))


@pytest.mark.parametrize(
    ("uri", "options", "same"),
    [
        ("s3://b/t", {"AWS_REGION": "r"}, True),
        ("s3a://b/t", {"access_key_id": "k", "timeout": "1s"}, True),
        ("s3://b/t", {"account_name": "a"}, False),
        ("s3://b/t", {"timeout": "1s"}, False),
        ("abfss://c@a.dfs.core.windows.net/t", {"account_name": "a"}, True),
        ("gs://b/t", {"service_account": "/key"}, True),
        ("gs://b/t", {"AWS_REGION": "r"}, False),
        ("file:///t", {"AWS_REGION": "r"}, False),
        ("/t", {"AWS_REGION": "r"}, False),
    ],
)
def test_options_are_for_one_kind_of_store(uri: str, options: dict[str, str], same: bool) -> None:
    assert same_store(uri, options) == same


# -- Azure ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "uris"),
    [
        ({"AZURE_STORAGE_ACCOUNT_NAME": "acc"}, []),
        ({}, [f"abfss://c@{HOST}/t", f"abfss://other@{HOST}/u", "/lake/t"]),
        ({"account_name": "acc"}, [f"abfss://c@{HOST}/t"]),
    ],
)
def test_key_of_an_azure_account(options: dict[str, str], uris: list[str]) -> None:
    storage = spark_storage({**options, "azure_storage_account_key": "hidden"}, uris)
    secret = {f"{AZURE}account.key.{HOST}": "hidden"}
    assert storage.public_credentials[f"{AZURE}account.auth.type.{HOST}"] == "SharedKey"
    assert storage.environment == {}
    # Spark's own pattern does not know these keys.
    pattern = storage.public_credentials["spark.redaction.regex"]
    assert re.search(pattern, next(iter(secret)))
    assert not re.search("(?i)secret|password|token|access[.]?key", next(iter(secret)))
    assert storage.secrets() == {**secret, "spark.redaction.regex": pattern}
    assert storage.secrets(beside_environment=True) == storage.secrets()


CLIENT = {"account_name": "acc", "client_id": "c"}
#: Options of Azure | the secrets | what is public, in part.
OF_AZURE: list[tuple[dict[str, str], dict[str, str], dict[str, str]]] = [
    (
        {**CLIENT, "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "hidden"},
        {"account.oauth2.client.secret": "hidden"},
        {
            "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            "account.oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
            "account.oauth2.client.id": "c",
        },
    ),
    (
        {**CLIENT, "tenant_id": "t", "authority_host": "https://login.x.cn/", "client_secret": "hidden"},
        {"account.oauth2.client.secret": "hidden"},
        {"account.oauth2.client.endpoint": "https://login.x.cn/t/oauth2/token"},
    ),
    (
        {
            **CLIENT,
            "tenant_id": "t",
            "authority_host": "https://login.x.cn/",
            "federated_token_file": "/token",
        },
        {},
        {"account.oauth2.token.file": "/token", "account.oauth2.msi.authority": "https://login.x.cn/"},
    ),
    (
        CLIENT,
        {},
        {
            "account.auth.type": "OAuth",
            "account.oauth2.client.id": "c",
            "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
        },
    ),
    (
        {"AZURE_STORAGE_ACCOUNT_NAME": "acc", "AZURE_STORAGE_SAS_KEY": "?sv=1&sig=x"},
        {"sas.fixed.token": "sv=1&sig=x"},
        {"account.auth.type": "SAS"},
    ),
    # A client without its tenant is none.
    ({**CLIENT, "client_secret": "hidden"}, {}, {}),
    ({**CLIENT, "federated_token_file": "/t"}, {}, {}),
]


@pytest.mark.parametrize(("options", "secrets", "public"), OF_AZURE)
def test_identities_of_azure(
    options: dict[str, str], secrets: dict[str, str], public: dict[str, str]
) -> None:
    storage = spark_storage(options)
    assert storage.secrets() == {f"{AZURE}{name}.{HOST}": value for name, value in secrets.items()}
    told = {f"{AZURE}{name}.{HOST}": value for name, value in public.items()}
    assert storage.public_credentials.items() >= told.items()
    assert bool(storage.credentials) == bool(public)


# -- Google ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "credentials", "key"),
    [
        (
            {"GOOGLE_SERVICE_ACCOUNT": "/key.json"},
            {"type": "SERVICE_ACCOUNT_JSON_KEYFILE", "service.account.json.keyfile": "/key.json"},
            None,
        ),
        # The text of a key is no conf.
        ({"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "hidden"}'}, {}, '{"private_key": "hidden"}'),
        ({"google_skip_signature": "true"}, {"type": "UNAUTHENTICATED"}, None),
    ],
)
def test_identities_of_google(options: dict[str, str], credentials: dict[str, str], key: str | None) -> None:
    storage = spark_storage(options)
    assert storage.credentials == {f"spark.hadoop.fs.gs.auth.{n}": value for n, value in credentials.items()}
    assert (storage.secrets(), storage.google_key) == ({}, key)


# -- secrets --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "conf",
    [
        *(f"{S3A}{name}" for name in ("access.key", "secret.key", "session.token")),
        *(
            f"{AZURE}{name}.{HOST}"
            for name in ("account.key", "account.oauth2.client.secret", "sas.fixed.token")
        ),
        # An account may be called by a word that is public at the end of other names.
        *(
            f"{AZURE}account.key.{account}.{domain}"
            for account in ("file", "hash", "id", "provider")
            for domain in ("dfs.core.windows.net", "z12.dfs.storage.azure.net", "dfs.fabric.microsoft.com")
        ),
    ],
)
def test_which_confs_are_secret(conf: str) -> None:
    assert is_secret(conf)
    storage = spark_storage({**KEYS, "GOOGLE_SERVICE_ACCOUNT_KEY": "hidden", "account_key": "hidden"})
    assert "hidden" not in repr(storage)
    for public in (
        f"{AZURE}account.oauth2.token.file.{HOST}",
        f"{AZURE}account.keyprovider.{HOST}",
        f"{AZURE}sas.token.provider.type.{HOST}",
        f"{S3A}endpoint",
        f"{S3A}aws.credentials.provider",
    ):
        assert not is_secret(public)


def _load(text: str) -> dict[str, str]:
    """Read a properties file as Java does, as far as we write it."""
    found = {}
    for line in text.splitlines():
        parts = re.split(r"(?<!\\)=", line, maxsplit=1)
        name, value = (re.sub(r"\\(.)", _unescaped, part.lstrip()) for part in parts)
        found[name] = value
    return found


def _unescaped(found: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(found.group(1), found.group(1))


@pytest.mark.parametrize("value", ["a/b+c=", "a\\b", " leading", "line\nbreak\ttab", "x:y#z!", "a=b=c", "ü"])
def test_values_survive_a_properties_file(value: str) -> None:
    confs: dict[str, Any] = {"spark.a": value, "spark.b c": "1", "spark.d:e=f": "2"}
    assert _load(properties_text(confs)) == confs
