"""Translate storage options from the names of delta-rs and obstore to those of Hadoop's file systems.

Standard library only. Names of options ignore case, and may have every spelling that delta-rs knows.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from delta_cdc.core.secrets import SECRET_NAMES, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX = "spark.hadoop."
_S3A = f"{_PREFIX}fs.s3a."
_GS = f"{_PREFIX}fs.gs."
_ABFS = f"{_PREFIX}fs.azure."
_ABFS_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
_AUTHORITY = "https://login.microsoftonline.com"
#: Environment variables can replace these confs.
_IN_ENVIRONMENT = (f"{_S3A}access.key", f"{_S3A}secret.key", f"{_S3A}session.token")
_PROVIDER = f"{_S3A}aws.credentials.provider"
_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
#: Credential providers if no identity is configured: S3A's own list, plus the log reader's other source.
_ANY_IDENTITY = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    _WEB_IDENTITY,
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
_WEB_IDENTITY_VARIABLES = {"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"}
#: Confs that set environment variables of executors, and of a driver on YARN.
_ENVIRONMENTS = ("spark.executorEnv", "spark.yarn.appMasterEnv")

_REDACTION = "spark.redaction.regex"
#: Spark's own pattern. In the UI and the event log it leaves some secrets readable, such as account keys.
_OF_SPARK = "(?i)secret|password|token|access[.]?key"

#: Each line has all names of an option; the first one is the canonical name.
_NAMES = """
aws_access_key_id access_key_id
aws_secret_access_key secret_access_key
aws_session_token aws_token session_token token
aws_region region
aws_default_region default_region
aws_endpoint_url aws_endpoint endpoint_url endpoint
aws_virtual_hosted_style_request virtual_hosted_style_request
aws_skip_signature skip_signature
aws_role_arn role_arn
aws_web_identity_token_file web_identity_token_file
aws_role_session_name role_session_name
aws_server_side_encryption server_side_encryption
aws_sse_kms_key_id sse_kms_key_id
aws_sse_customer_key_base64 sse_customer_key_base64
aws_request_payer request_payer
azure_storage_account_name account_name
azure_storage_account_key azure_storage_access_key azure_storage_master_key account_key access_key master_key
azure_storage_sas_key azure_storage_sas_token sas_key sas_token
azure_storage_client_id azure_client_id client_id
azure_storage_client_secret azure_client_secret client_secret
azure_storage_tenant_id azure_storage_authority_id azure_tenant_id azure_authority_id tenant_id authority_id
azure_federated_token_file federated_token_file
azure_storage_authority_host azure_authority_host authority_host
google_service_account google_service_account_path service_account service_account_path
google_service_account_key service_account_key
google_application_credentials application_credentials
google_skip_signature
allow_http aws_allow_http azure_allow_http google_allow_http
"""
_CANONICAL = {name: line.split()[0] for line in _NAMES.strip().splitlines() for name in line.split()}

#: Scheme of Hadoop's file system for S3, and the other schemes of that store.
_HADOOP_S3 = "s3a"
_ALSO_S3 = ("s3", "s3n")
S3_SCHEMES = (_HADOOP_S3, *_ALSO_S3)
#: The region that the log reader signs for, if a store other than Amazon's has no configured region.
_REGION = "us-east-1"
#: S3 encryption: obstore's values, and those of S3A.
_ENCRYPTION = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS", "sse-c": "SSE-C"}

#: Prefixes of a store's options, and the schemes of its locations.
_KINDS = {
    "aws": S3_SCHEMES,
    "azure": ("abfs", "abfss", "az", "adl", "azure"),
    "google": ("gs",),
}


@dataclass(frozen=True)
class SparkStorage:
    """The settings with which a Spark application reaches a storage.

    :param confs: the storage's address and protocol
    :param credentials: confs of the identity, including those that hold secrets
    :param environment: variables that a driver on this machine reads instead of S3 credentials in confs
    :param google_key: a Google service account's key (JSON); Hadoop accepts it only as a file
    """

    confs: dict[str, str] = field(default_factory=dict)
    credentials: dict[str, str] = field(default_factory=dict, repr=False)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    google_key: str | None = field(default=None, repr=False)

    @property
    def public_credentials(self) -> dict[str, str]:
        """Return the credentials' confs that hold no secret, such as the name of a provider class."""
        return {name: value for name, value in self.credentials.items() if not is_secret(name)}

    def secrets(self, *, beside_environment: bool = False) -> dict[str, str]:
        """Return the confs that hold secrets: never for a command line.

        :param beside_environment: omit those that :attr:`environment` replaces
        """
        secrets = {
            name: value
            for name, value in self.credentials.items()
            if is_secret(name) and not (beside_environment and name in _IN_ENVIRONMENT)
        }
        if secrets and _REDACTION in self.credentials:
            # The secrets need it too, because spark-submit --verbose redacts each source of confs separately.
            secrets[_REDACTION] = self.credentials[_REDACTION]
        return secrets


def canonical_option(name: str) -> str:
    """Return the canonical name of a storage option; names ignore case, and many options have several."""
    return _CANONICAL.get(name.lower(), name.lower())


def is_true(value: str | None) -> bool:
    """Return whether an option's value turns something on."""
    return (value or "").strip().lower() in ("true", "1", "yes", "on")


def hadoop_uri(uri: str) -> str:
    """Return a URI in the form of Hadoop's file systems: ``s3://`` becomes ``s3a://``, others stay."""
    scheme, separator, rest = uri.partition("://")
    return f"{_HADOOP_S3}://{rest}" if separator and scheme.lower() in _ALSO_S3 else uri


def is_s3(uri: str) -> bool:
    """Return whether a location is on S3 or an S3-compatible store."""
    return uri.partition(":")[0].lower() in S3_SCHEMES


def is_local(uri: str) -> bool:
    """Return whether an absolute location is on a local or network disk."""
    return uri.startswith("/") or uri.lower().startswith("file:")


def same_store(uri: str, storage_options: Mapping[str, str]) -> bool:
    """Return whether some options are for the kind of store that holds a location."""
    kinds = {canonical_option(name).partition("_")[0] for name in storage_options} & set(_KINDS)
    return any(uri.partition(":")[0].lower() in _KINDS[kind] for kind in kinds)


def spark_storage(
    storage_options: Mapping[str, str] | None, uris: Iterable[str] = (), *, elsewhere: bool = False
) -> SparkStorage:
    """Translate storage options into Spark's settings.

    If the options name no S3 endpoint or no identity, this takes them from the environment
    (``AWS_ENDPOINT_URL`` and related variables, a web identity): the log reader does the same, but Spark
    reads only some of these variables.

    :param storage_options: options as delta-rs and obstore name them
    :param uris: the tables' locations; Azure's confs contain the name of the account's host
    :param elsewhere: the driver is on another machine, with its own environment
    """
    uris = list(uris)
    options = _canonical(storage_options or {})
    identity, environment = _s3_identity(options)
    if not identity and not elsewhere and any(map(is_s3, uris)) and _set_here() >= _WEB_IDENTITY_VARIABLES:
        # Kubernetes gives a pod its identity by these variables.
        identity = {_PROVIDER: ",".join(_ANY_IDENTITY)}
    credentials = {
        **identity,
        **_s3_encryption_key(options),
        **_azure_credentials(options, uris),
        **_gs_credentials(options),
    }
    if any(is_secret(name) and not re.search(_OF_SPARK, name) for name in credentials):
        credentials[_REDACTION] = f"{_OF_SPARK}|{SECRET_NAMES}"
    return SparkStorage(
        confs=_s3_confs(options, uris, elsewhere=elsewhere),
        credentials=credentials,
        environment=environment,
        google_key=options.get("google_service_account_key"),
    )


def google_key_confs(path: str) -> dict[str, str]:
    """Return the confs that name a Google service account's key file; it must exist on every node."""
    return {
        f"{_GS}auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        f"{_GS}auth.service.account.json.keyfile": path,
    }


def properties_text(confs: Mapping[str, str]) -> str:
    """Return confs as the text of a Java properties file."""
    return "".join(f"{_escaped(name, key=True)}={_escaped(value)}\n" for name, value in confs.items())


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have a value, by their canonical names."""
    return {canonical_option(name): str(value) for name, value in options.items() if value}


def _set_here() -> set[str]:
    return {name for name, value in os.environ.items() if value}


# -- S3 -------------------------------------------------------------------------------------------
def _s3_confs(options: Mapping[str, str], uris: list[str], *, elsewhere: bool) -> dict[str, str]:
    around = _canonical({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
    endpoint = options.get("aws_endpoint_url")
    if endpoint is None and not elsewhere and any(map(is_s3, uris)):
        # The log reader prefers the variable for S3 alone, which has no option.
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or around.get("aws_endpoint_url")
    # S3A finds Amazon's own endpoint and region; for another store, pass the log reader's defaults.
    both = {**around, **options} if endpoint else options
    region = both.get("aws_region") or both.get("aws_default_region") or (_REGION if endpoint else None)
    confs = {}
    if endpoint:
        # By default, delta-rs uses path-style requests, S3A virtual-hosted ones.
        virtual = is_true(both.get("aws_virtual_hosted_style_request"))
        confs[f"{_S3A}endpoint"] = _without_bucket(endpoint, uris) if virtual else endpoint
        confs[f"{_S3A}path.style.access"] = "false" if virtual else "true"
        if endpoint.lower().startswith("http://"):
            confs[f"{_S3A}connection.ssl.enabled"] = "false"
    if region:
        confs[f"{_S3A}endpoint.region"] = region
    payer = options.get("aws_request_payer")
    if payer == "requester" or is_true(payer):
        confs[f"{_S3A}requester.pays.enabled"] = "true"
    algorithm = _ENCRYPTION.get(options.get("aws_server_side_encryption") or "")
    if algorithm:
        confs[f"{_S3A}encryption.algorithm"] = algorithm
    return confs


def _without_bucket(endpoint: str, uris: list[str]) -> str:
    """Return the address to which S3A adds the bucket; the log reader's virtual-hosted one already has it."""
    scheme, separator, host = endpoint.rpartition("://")
    for bucket in {urlsplit(uri).netloc for uri in uris if is_s3(uri)}:
        if host.lower().startswith(f"{bucket.lower()}."):
            return f"{scheme}{separator}{host[len(bucket) + 1 :]}"
    return endpoint


def _s3_encryption_key(options: Mapping[str, str]) -> dict[str, str]:
    """Return the S3 encryption key: S3A has one conf for key ids, which are public, and for keys."""
    key = options.get("aws_sse_customer_key_base64") or options.get("aws_sse_kms_key_id")
    is_encrypted = options.get("aws_server_side_encryption") in _ENCRYPTION
    return {f"{_S3A}encryption.key": key} if key and is_encrypted else {}


def _s3_identity(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the confs of the identity, and the variables that a driver on this machine reads instead."""
    key, secret = options.get("aws_access_key_id"), options.get("aws_secret_access_key")
    role, file = options.get("aws_role_arn"), options.get("aws_web_identity_token_file")
    if is_true(options.get("aws_skip_signature")):
        return {_PROVIDER: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, {}
    if key and secret:
        token = options.get("aws_session_token")
        confs = {
            # Name the provider, so that another identity in the cluster's defaults does not win.
            _PROVIDER: f"org.apache.hadoop.fs.s3a.{'Temporary' if token else 'Simple'}AWSCredentialsProvider",
            f"{_S3A}access.key": key,
            f"{_S3A}secret.key": secret,
            **({f"{_S3A}session.token": token} if token else {}),
        }
        # Without a session token, clear one that the worker inherited: it does not belong to these keys.
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        return confs, dict(zip(names, (key, secret, token or ""), strict=True))
    if role and file:
        variables = {"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": file}
        if name := options.get("aws_role_session_name"):
            variables["AWS_ROLE_SESSION_NAME"] = name
        # The provider reads the environment on every node; these values are public.
        confs = {f"{prefix}.{name}": value for prefix in _ENVIRONMENTS for name, value in variables.items()}
        return {_PROVIDER: _WEB_IDENTITY, **confs}, variables
    return {}, {}


# -- Azure ----------------------------------------------------------------------------------------
def _azure_credentials(options: Mapping[str, str], uris: Iterable[str]) -> dict[str, str]:
    account = options.get("azure_storage_account_name")
    hosts = {f"{account}.dfs.core.windows.net"} if account else set()
    for parts in map(urlsplit, uris):
        if parts.scheme.lower() in ("abfs", "abfss") and "@" in parts.netloc:
            hosts.add(parts.netloc.rpartition("@")[2])
    return {
        f"{_ABFS}{name}.{host}": value
        for host in sorted(hosts)
        for name, value in _azure_identity(options).items()
    }


def _azure_identity(options: Mapping[str, str]) -> dict[str, str]:
    """Return ABFS's confs of an identity, without the account's host at the end of their names."""
    if key := options.get("azure_storage_account_key"):
        return {"account.auth.type": "SharedKey", "account.key": key}
    if sas := options.get("azure_storage_sas_key"):
        return {"account.auth.type": "SAS", "sas.fixed.token": sas.removeprefix("?")}
    client = options.get("azure_storage_client_id")
    tenant = options.get("azure_storage_tenant_id")
    secret = options.get("azure_storage_client_secret")
    file = options.get("azure_federated_token_file")
    authority = options.get("azure_storage_authority_host", _AUTHORITY).rstrip("/")
    # A client id alone selects one of the machine's identities; an incomplete identity is unusable.
    if not client or ((secret or file) and not tenant):
        return {}
    confs = {"account.auth.type": "OAuth", "account.oauth2.client.id": client}
    if tenant and secret:
        return {
            **confs,
            "account.oauth.provider.type": f"{_ABFS_OAUTH}ClientCredsTokenProvider",
            "account.oauth2.client.secret": secret,
            "account.oauth2.client.endpoint": f"{authority}/{tenant}/oauth2/token",
        }
    if tenant:
        confs["account.oauth2.msi.tenant"] = tenant
    if not file:
        return {**confs, "account.oauth.provider.type": f"{_ABFS_OAUTH}MsiTokenProvider"}
    return {
        **confs,
        "account.oauth.provider.type": f"{_ABFS_OAUTH}WorkloadIdentityTokenProvider",
        "account.oauth2.msi.authority": f"{authority}/",
        "account.oauth2.token.file": file,
    }


# -- Google ---------------------------------------------------------------------------------------
def _gs_credentials(options: Mapping[str, str]) -> dict[str, str]:
    path = options.get("google_service_account") or options.get("google_application_credentials")
    if path:
        return google_key_confs(path)
    is_anonymous = is_true(options.get("google_skip_signature"))
    return {f"{_GS}auth.type": "UNAUTHENTICATED"} if is_anonymous else {}


def _escaped(text: str, *, key: bool = False) -> str:
    table = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        table |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    escaped = "".join(table.get(mark, mark) for mark in text)
    # A properties file skips leading blanks.
    return f"\\{escaped}" if escaped.startswith(" ") and not key else escaped
