"""Which names stand for secrets: of obstore, Hadoop's file systems, Spark, Kafka and the environment."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import obstore
import pytest

from delta_cdc.core.secrets import redacted, secrets
from delta_cdc.core.storage_options import spark_storage
from delta_cdc.doctor import Questions, hidden

VALUE = "nobody-may-see-this"
HOST = "acc.dfs.core.windows.net"

#: Of each kind of configuration of obstore: its file of types, how delta-rs begins the names, the secrets.
OF_OBSTORE = {
    "S3Config": ("_aws.pyi", "aws_", {"secret_access_key", "session_token", "sse_customer_key_base64"}),
    "AzureConfig": (
        "_azure.pyi",
        "azure_storage_",
        {"account_key", "client_secret", "sas_key", "token", "encryption_key", "fabric_session_token"},
    ),
    "GCSConfig": ("_gcs.pyi", "google_", {"service_account_key", "bearer_token"}),
    "ClientConfig": ("_client.pyi", "", {"default_headers"}),
}

SECRET = (
    # Of delta-rs, in other words.
    *("AWS_SECRET_ACCESS_KEY", "secret_access_key", "aws_token", "token", "AWS_SECRET_ACCESS_KEY_DYNAMODB"),
    *("aws_sse_customer_key_base64", "sse_customer_key_base64", "AWS_SSE_CUSTOMER_KEY_BASE64"),
    *("azure_storage_access_key", "azure_storage_master_key", "access_key", "master_key", "sas_token"),
    *("azure_storage_sas_token", "azure_client_secret", "AZURE_STORAGE_CONNECTION_STRING"),
    *("google_service_account_key", "unity_client_secret", "proxy_password"),
    # S3A, and those before it.
    *("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.encryption.key"),
    *("fs.s3a.server-side-encryption.key", "fs.s3a.proxy.password", "fs.s3a.bucket.mine.encryption.key"),
    *("fs.s3n.awsSecretAccessKey", "spark.hadoop.fs.s3a.encryption.key"),
    # ABFS and WASB. An account may be called as it likes.
    *(f"fs.azure.account.key.{HOST}", f"fs.azure.account.oauth2.client.secret.{HOST}"),
    *("fs.azure.account.key.service.dfs.core.windows.net", "fs.azure.account.key.file2.dfs.core.windows.net"),
    *(f"fs.azure.sas.fixed.token.{HOST}", f"fs.azure.sas.fixed.token.c.{HOST}"),
    *("fs.azure.account.oauth2.refresh.token", "fs.azure.account.oauth2.user.password"),
    *(f"fs.azure.encryption.encoded.client-provided-key.{HOST}", "fs.azure.account.key"),
    "fs.azure.sas.box.acc.blob.core.windows.net",
    # Google's connector.
    *("fs.gs.auth.service.account.private.key", "fs.gs.auth.client.secret", "fs.gs.auth.refresh.token"),
    *("fs.gs.encryption.key", "fs.gs.proxy.password"),
    # Spark.
    *("spark.authenticate.secret", "spark.ssl.keyPassword", "spark.ssl.ui.keyStorePassword"),
    *("spark.kubernetes.authenticate.driver.oauthToken", "spark.sql.catalog.lake.credential"),
    *("spark.hadoop.javax.jdo.option.ConnectionPassword", "spark.sql.catalog.unity.token"),
    # Kafka's clients.
    *("sasl.password", "sasl.jaas.config", "ssl.key.pem", "ssl.keystore.key", "ssl.key.password"),
    *("ssl.truststore.password", "sasl.oauthbearer.client.secret", "basic.auth.user.info"),
    *("sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.assertion.private.key.passphrase"),
    # The environment.
    *("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    *("IDENTITY_HEADER", "PGPASSWORD", "GITHUB_TOKEN", "SOME_API_KEY", "VAULT_SECRET_ID"),
)
PUBLIC = (
    *("aws_access_key_id", "AWS_ACCESS_KEY_ID_DYNAMODB", "aws_sse_kms_key_id", "aws_sse_bucket_key_enabled"),
    *("aws_web_identity_token_file", "aws_container_authorization_token_file", "aws_skip_signature"),
    *("azure_federated_token_file", "azure_storage_token_path", "azure_storage_fabric_token_service_url"),
    *("google_application_credentials", "google_service_account", "google_service_account_path"),
    *("proxy_url", "timeout", "aws_region", "azure_storage_client_id"),
    *("fs.s3a.aws.credentials.provider", "fs.s3a.encryption.algorithm", "fs.s3n.awsAccessKeyId"),
    *("fs.s3a.delegation.token.binding", "fs.s3a.delegation.tokens.enabled", "fs.s3a.proxy.username"),
    *("hadoop.security.credential.provider.path", "fs.s3a.security.credential.provider.path"),
    *(f"fs.azure.account.oauth2.token.file.{HOST}", f"fs.azure.account.auth.type.{HOST}"),
    *(f"fs.azure.account.keyprovider.{HOST}", f"fs.azure.sas.token.provider.type.{HOST}"),
    *(f"fs.azure.account.oauth2.client.id.{HOST}", f"fs.azure.account.oauth2.client.endpoint.{HOST}"),
    *(
        "fs.azure.encryption.encoded.client-provided-key-sha",
        "fs.azure.account.oauth2.refresh.token.endpoint",
    ),
    *("fs.gs.auth.service.account.json.keyfile", "fs.gs.auth.service.account.private.key.id"),
    *("fs.gs.auth.access.token.provider", "fs.gs.encryption.key.hash", "fs.gs.token.server.url"),
    *("spark.io.encryption.keySizeBits", "spark.io.encryption.keygen.algorithm", "spark.ssl.keyStore"),
    *("spark.kubernetes.authenticate.oauthTokenFile", "spark.redaction.regex"),
    *("sasl.username", "sasl.mechanism", "ssl.key.location", "ssl.keystore.location"),
    *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.assertion.private.key.file"),
    *("TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "AWS_WEB_IDENTITY_TOKEN_FILE", "KEY", "MONKEY"),
)


@pytest.mark.parametrize(("name", "secret"), [*((n, True) for n in SECRET), *((n, False) for n in PUBLIC)])
def test_which_names_are_secret(name: str, secret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The masker of Airflow, errors of a store and the doctor ask the same list."""
    assert (secrets({name: VALUE}) == [VALUE]) is secret
    assert (VALUE not in redacted(f"refused {VALUE}", {name: VALUE})) is secret
    for asked in (Questions(storage_options={name: VALUE}), Questions(confs={name: VALUE})):
        assert (VALUE not in hidden(f"refused {VALUE}", asked.secrets)) is secret
    monkeypatch.setenv(name, VALUE)
    assert (VALUE not in hidden(f"refused {VALUE}", Questions().secrets)) is secret
    monkeypatch.delenv(name)
    assert (VALUE not in hidden(f"{name}={VALUE}", Questions().secrets)) is secret


@pytest.mark.parametrize("kind", OF_OBSTORE)
def test_every_option_of_obstore_is_judged(kind: str) -> None:
    file, prefix, known = OF_OBSTORE[kind]
    types = ast.parse((Path(obstore.__file__).parent / "_store" / file).read_text(encoding="utf-8"))
    (config,) = (node for node in types.body if isinstance(node, ast.ClassDef) and node.name == kind)
    names = {line.target.id for line in config.body if isinstance(line, ast.AnnAssign)}  # type: ignore[union-attr]
    assert len(names) > 5
    for begin in {prefix, ""}:
        for spelled in (str.lower, str.upper):
            found = {name for name in names if secrets({spelled(begin + name): VALUE})}
            assert found == known


@pytest.mark.parametrize("name", [f"spark.hadoop.{name}" for name in SECRET if name.startswith("fs.")])
def test_spark_hides_the_same_in_its_pages(name: str) -> None:
    options = {"azure_storage_account_name": "acc", "azure_storage_account_key": "hidden"}
    pattern = spark_storage(options).public_credentials["spark.redaction.regex"]
    assert re.search(pattern, name)


def test_what_is_inside_of_a_secret_is_one() -> None:
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hid\\"den";'
    )
    assert 'hid\\"den' in secrets({"sasl.jaas.config": login})
    text = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=aGlkZGVu==;EndpointSuffix=core"
    assert "aGlkZGVu==" in secrets({"AZURE_STORAGE_CONNECTION_STRING": text})


def test_short_secrets_do_not_tear_words_apart() -> None:
    asked = Questions(storage_options={"token": "a", "account_key": ""})
    for to_hide in (asked.secrets, asked.secrets | set(secrets({"token": "t"}))):
        assert hidden("a table", to_hide) == "a table"
