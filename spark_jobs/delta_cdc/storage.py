"""One storage, two readers: what delta-rs and obstore call an option, Hadoop's file systems call otherwise.

Standard library only. Names of storage options are read without case, in every spelling that delta-rs knows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX = "spark.hadoop."
_S3A = f"{_PREFIX}fs.s3a."
_GS = f"{_PREFIX}fs.gs."
_ABFS = f"{_PREFIX}fs.azure."
_ABFS_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
_AUTHORITY = "https://login.microsoftonline.com"
#: For these, variables of the environment stand in.
_IN_ENVIRONMENT = (f"{_S3A}access.key", f"{_S3A}secret.key", f"{_S3A}session.token")
_PROVIDER = f"{_S3A}aws.credentials.provider"
_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
#: Who asks, where nobody says it: S3A's own list, and where the reader of logs looks besides.
_ANY_IDENTITY = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    _WEB_IDENTITY,
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
#: Confs for variables of executors, and of a driver on YARN.
_ENVIRONMENTS = ("spark.executorEnv", "spark.yarn.appMasterEnv")
_SECRET_PARTS = (
    ".access.key",
    ".secret.key",
    ".session.token",
    ".account.key.",
    ".client.secret.",
    ".fixed.token.",
    ".encryption.key.",
)

#: Spark's own pattern, and what it leaves readable in the UI and the event log: keys of Azure accounts, and
#: those that S3 encrypts with.
_REDACTION = "spark.redaction.regex"
_REDACTED = "(?i)secret|password|token|access[.]?key|account[.]key|encryption[.]key"

#: Options that have several names: the first one stands for all.
_NAMES = (
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "aws_token", "session_token", "token"),
    ("aws_region", "region"),
    ("aws_default_region", "default_region"),
    ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
    ("aws_skip_signature", "skip_signature"),
    ("aws_role_arn", "role_arn"),
    ("aws_web_identity_token_file", "web_identity_token_file"),
    ("aws_role_session_name", "role_session_name"),
    ("aws_server_side_encryption", "server_side_encryption"),
    ("aws_sse_kms_key_id", "sse_kms_key_id"),
    ("aws_sse_customer_key_base64", "sse_customer_key_base64"),
    ("aws_request_payer", "request_payer"),
    ("azure_storage_account_name", "account_name"),
    (
        "azure_storage_account_key",
        "azure_storage_access_key",
        "azure_storage_master_key",
        "account_key",
        "access_key",
        "master_key",
    ),
    ("azure_storage_sas_key", "azure_storage_sas_token", "sas_key", "sas_token"),
    ("azure_storage_client_id", "azure_client_id", "client_id"),
    ("azure_storage_client_secret", "azure_client_secret", "client_secret"),
    (
        "azure_storage_tenant_id",
        "azure_storage_authority_id",
        "azure_tenant_id",
        "azure_authority_id",
        "tenant_id",
        "authority_id",
    ),
    ("azure_federated_token_file", "federated_token_file"),
    ("azure_storage_authority_host", "azure_authority_host", "authority_host"),
    (
        "google_service_account",
        "google_service_account_path",
        "service_account",
        "service_account_path",
    ),
    ("google_service_account_key", "service_account_key"),
    ("google_application_credentials", "application_credentials"),
    ("google_skip_signature",),
    ("allow_http", "aws_allow_http", "azure_allow_http", "google_allow_http"),
)
_CANONICAL = {name: names[0] for names in _NAMES for name in names}

#: Scheme of Hadoop's file system for S3, and the schemes of the same store.
_HADOOP_S3 = "s3a"
_ALSO_S3 = ("s3", "s3n")
#: Of a store that is not Amazon's and whose region nobody names, the one that the reader of logs signs for.
_REGION = "us-east-1"
_UNKNOWN_TO_SPARK = (".account.key.", ".encryption.key.")
#: What S3 is asked to encrypt with: of obstore's words, those of S3A.
_ENCRYPTION = {
    "AES256": "SSE-S3",
    "aws:kms": "SSE-KMS",
    "aws:kms:dsse": "DSSE-KMS",
    "sse-c": "SSE-C",
}

#: How the names of a store's options begin, and the schemes of locations on it.
_KINDS = {
    "aws": (_HADOOP_S3, *_ALSO_S3),
    "azure": ("abfs", "abfss", "az", "adl", "azure"),
    "google": ("gs",),
}


@dataclass(frozen=True)
class SparkStorage:
    """What a Spark application has to be told to reach the storage that some options describe.

    :param confs: where the storage is and how it is spoken to
    :param credentials: confs that say who is asking, those that hold secrets among them
    :param environment: variables that a driver on this machine reads in the place of S3 credentials
    :param google_key: a Google service account's key (JSON); Hadoop takes it as a file only
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

        :param beside_environment: leave out those for which :attr:`environment` stands in
        """
        found = {
            name: value
            for name, value in self.credentials.items()
            if is_secret(name) and not (beside_environment and name in _IN_ENVIRONMENT)
        }
        if found and _REDACTION in self.credentials:
            # Also where the secrets are: spark-submit --verbose redacts each source of confs by itself.
            found[_REDACTION] = self.credentials[_REDACTION]
        return found


def is_secret(conf: str) -> bool:
    """Return whether the value of a conf made here must not be seen."""
    return any(part in f"{conf}." for part in _SECRET_PARTS)


def canonical_option(name: str) -> str:
    """Return the one name of a storage option; options are named without case, and many in several ways."""
    return _CANONICAL.get(name.lower(), name.lower())


def is_true(value: str | None) -> bool:
    """Return whether an option's value turns something on."""
    return (value or "").strip().lower() in ("true", "1", "yes", "on")


def hadoop_uri(uri: str) -> str:
    """Return a URI as Hadoop's file systems name it: ``s3://`` is ``s3a://`` there. Others stay."""
    scheme, separator, rest = uri.partition("://")
    return f"{_HADOOP_S3}://{rest}" if separator and scheme.lower() in _ALSO_S3 else uri


def is_s3(uri: str) -> bool:
    """Return whether a location is on S3, or what speaks its language."""
    return uri.partition(":")[0].lower() in (_HADOOP_S3, *_ALSO_S3)


def same_store(uri: str, storage_options: Mapping[str, str]) -> bool:
    """Return whether some options are for the kind of store that a location is on."""
    kinds = {canonical_option(name).partition("_")[0] for name in storage_options} & set(_KINDS)
    return any(uri.partition(":")[0].lower() in _KINDS[kind] for kind in kinds)


def spark_storage(
    storage_options: Mapping[str, str] | None, uris: Iterable[str] = (), *, elsewhere: bool = False
) -> SparkStorage:
    """Translate storage options into what Spark needs.

    Where they don't say where S3 is, or who asks, the environment does (``AWS_ENDPOINT_URL`` and what belongs
    to it, a web identity): the reader of logs takes all of it from there, and Spark by itself only a part.

    :param storage_options: options as delta-rs and obstore name them
    :param uris: the tables' locations; Azure's confs carry the name of the account's host
    :param elsewhere: the driver is on another machine, in an environment of its own
    """
    uris = list(uris)
    options = _Options(storage_options or {})
    google = options.get("google_service_account_key")
    credentials = {
        **(_s3_credentials(options) or _s3_credentials_around(uris, elsewhere=elsewhere)),
        **_s3_encryption_key(options),
        **_azure_credentials(options, uris),
        **_gs_credentials(options),
    }
    if any(part in f"{name}." for name in credentials for part in _UNKNOWN_TO_SPARK):
        credentials[_REDACTION] = _REDACTED
    return SparkStorage(
        confs=_s3_confs(options, uris, elsewhere=elsewhere),
        credentials=credentials,
        environment=_s3_environment(options),
        google_key=google,
    )


def google_key_confs(path: str) -> dict[str, str]:
    """Return the confs that name a Google service account's key file; it must be there on every node."""
    return {
        f"{_GS}auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        f"{_GS}auth.service.account.json.keyfile": path,
    }


def properties_text(confs: Mapping[str, str]) -> str:
    """Return confs as the text of a Java properties file."""
    return "".join(f"{_escaped(name, key=True)}={_escaped(value)}\n" for name, value in confs.items())


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {canonical_option(name): str(value) for name, value in options.items()}

    def get(self, name: str) -> str | None:
        return self._options.get(name) or None

    def over(self, others: _Options) -> _Options:
        return _Options({**others._options, **self._options})

    def flag(self, name: str) -> bool:
        return is_true(self.get(name))


# -- S3 -------------------------------------------------------------------------------------------
def _s3_confs(options: _Options, uris: list[str], *, elsewhere: bool) -> dict[str, str]:
    around = _Options({name: value for name, value in os.environ.items() if name.startswith("AWS_")})
    endpoint = options.get("aws_endpoint_url")
    if endpoint is None and not elsewhere and any(map(is_s3, uris)):
        # The reader prefers the narrower name, which is no option.
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or around.get("aws_endpoint_url")
    # Amazon's own S3A finds, wherever it is; of another store it has to be told what the reader assumes.
    known = options.over(around) if endpoint else options
    region = known.get("aws_region") or known.get("aws_default_region") or (_REGION if endpoint else None)
    confs = {}
    if endpoint:
        # delta-rs asks by path unless told otherwise, S3A by host.
        virtual = known.flag("aws_virtual_hosted_style_request")
        confs[f"{_S3A}endpoint"] = _without_bucket(endpoint, uris) if virtual else endpoint
        confs[f"{_S3A}path.style.access"] = "false" if virtual else "true"
        if endpoint.lower().startswith("http://"):
            confs[f"{_S3A}connection.ssl.enabled"] = "false"
    if region:
        confs[f"{_S3A}endpoint.region"] = region
    if options.get("aws_request_payer") == "requester" or options.flag("aws_request_payer"):
        confs[f"{_S3A}requester.pays.enabled"] = "true"
    algorithm = _ENCRYPTION.get(options.get("aws_server_side_encryption") or "")
    if algorithm:
        confs[f"{_S3A}encryption.algorithm"] = algorithm
    return confs


def _without_bucket(endpoint: str, uris: list[str]) -> str:
    """Return the address to which S3A adds the bucket; the reader's, by host, already holds it."""
    scheme, separator, host = endpoint.rpartition("://")
    for bucket in {urlsplit(uri).netloc for uri in uris if is_s3(uri)}:
        if host.lower().startswith(f"{bucket.lower()}."):
            return f"{scheme}{separator}{host[len(bucket) + 1 :]}"
    return endpoint


def _s3_encryption_key(options: _Options) -> dict[str, str]:
    """Return what S3 encrypts with: S3A has one conf for ids of keys, which are public, and for keys."""
    key = options.get("aws_sse_customer_key_base64") or options.get("aws_sse_kms_key_id")
    asked = options.get("aws_server_side_encryption") in _ENCRYPTION
    return {f"{_S3A}encryption.key": key} if key and asked else {}


def _s3_keys(options: _Options) -> tuple[str, str, str | None] | None:
    key = options.get("aws_access_key_id")
    secret = options.get("aws_secret_access_key")
    if key is None or secret is None:
        return None
    return key, secret, options.get("aws_session_token")


def _s3_identity(options: _Options) -> tuple[str, str] | None:
    role = options.get("aws_role_arn")
    file = options.get("aws_web_identity_token_file")
    return (role, file) if role and file else None


def _s3_credentials(options: _Options) -> dict[str, str]:
    keys = _s3_keys(options)
    if options.flag("aws_skip_signature"):
        return {_PROVIDER: "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}
    if keys is None:
        if not _s3_identity(options):
            return {}
        # It looks into the environment, on every node; what is told there is public.
        told = {
            f"{environment}.{name}": value
            for environment in _ENVIRONMENTS
            for name, value in _s3_environment(options).items()
        }
        return {_PROVIDER: _WEB_IDENTITY, **told}
    key, secret, token = keys
    kind = "Temporary" if token else "Simple"
    confs = {
        # Named, so that another identity in the cluster's defaults does not win.
        _PROVIDER: f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider",
        f"{_S3A}access.key": key,
        f"{_S3A}secret.key": secret,
    }
    return {**confs, f"{_S3A}session.token": token} if token else confs


def _s3_credentials_around(uris: list[str], *, elsewhere: bool) -> dict[str, str]:
    """Return who asks in an environment with a web identity, as Kubernetes gives one to a pod."""
    named = all(os.environ.get(name) for name in ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"))
    if elsewhere or not named or not any(map(is_s3, uris)):
        return {}
    return {_PROVIDER: ",".join(_ANY_IDENTITY)}


def _s3_environment(options: _Options) -> dict[str, str]:
    keys = _s3_keys(options)
    if options.flag("aws_skip_signature"):
        return {}
    if keys is not None:
        key, secret, token = keys
        # Without a token of these keys, one that the worker inherited must not be taken for theirs.
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": token or "",
        }
    identity = _s3_identity(options)
    if identity is None:
        return {}
    name = options.get("aws_role_session_name")
    return {
        "AWS_ROLE_ARN": identity[0],
        "AWS_WEB_IDENTITY_TOKEN_FILE": identity[1],
        **({"AWS_ROLE_SESSION_NAME": name} if name else {}),
    }


# -- Azure ----------------------------------------------------------------------------------------
def _azure_credentials(options: _Options, uris: Iterable[str]) -> dict[str, str]:
    account = options.get("azure_storage_account_name")
    hosts = {f"{account}.dfs.core.windows.net"} if account else set()
    hosts |= {host for host in map(_azure_host, uris) if host}
    confs: dict[str, str] = {}
    for host in sorted(hosts):
        confs.update(_azure_account(options, host))
    return confs


def _azure_host(uri: str) -> str | None:
    parts = urlsplit(uri)
    if parts.scheme.lower() not in ("abfs", "abfss") or "@" not in parts.netloc:
        return None
    return parts.netloc.rpartition("@")[2]


def _azure_account(options: _Options, host: str) -> dict[str, str]:
    key = options.get("azure_storage_account_key")
    sas = options.get("azure_storage_sas_key")
    if key:
        return {
            f"{_ABFS}account.auth.type.{host}": "SharedKey",
            f"{_ABFS}account.key.{host}": key,
        }
    if sas:
        return {
            f"{_ABFS}account.auth.type.{host}": "SAS",
            f"{_ABFS}sas.fixed.token.{host}": sas.removeprefix("?"),
        }
    return _azure_oauth(options, host)


def _azure_oauth(options: _Options, host: str) -> dict[str, str]:
    client = options.get("azure_storage_client_id")
    tenant = options.get("azure_storage_tenant_id")
    secret = options.get("azure_storage_client_secret")
    file = options.get("azure_federated_token_file")
    authority = (options.get("azure_storage_authority_host") or _AUTHORITY).rstrip("/")
    if not client:
        return {}
    confs = {
        f"{_ABFS}account.auth.type.{host}": "OAuth",
        f"{_ABFS}account.oauth2.client.id.{host}": client,
    }
    provider = f"{_ABFS}account.oauth.provider.type.{host}"
    if tenant and secret:
        return {
            **confs,
            provider: f"{_ABFS_OAUTH}ClientCredsTokenProvider",
            f"{_ABFS}account.oauth2.client.secret.{host}": secret,
            f"{_ABFS}account.oauth2.client.endpoint.{host}": f"{authority}/{tenant}/oauth2/token",
        }
    if tenant and file:
        return {
            **confs,
            provider: f"{_ABFS_OAUTH}WorkloadIdentityTokenProvider",
            f"{_ABFS}account.oauth2.msi.authority.{host}": f"{authority}/",
            f"{_ABFS}account.oauth2.msi.tenant.{host}": tenant,
            f"{_ABFS}account.oauth2.token.file.{host}": file,
        }
    if secret or file:
        # Half of an identity is none.
        return {}
    # Alone, it names one of the identities that the machine has.
    tenants = {f"{_ABFS}account.oauth2.msi.tenant.{host}": tenant} if tenant else {}
    return {**confs, provider: f"{_ABFS_OAUTH}MsiTokenProvider", **tenants}


# -- Google ---------------------------------------------------------------------------------------
def _gs_credentials(options: _Options) -> dict[str, str]:
    path = options.get("google_service_account") or options.get("google_application_credentials")
    if path:
        return google_key_confs(path)
    return {f"{_GS}auth.type": "UNAUTHENTICATED"} if options.flag("google_skip_signature") else {}


def _escaped(text: str, *, key: bool = False) -> str:
    table = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        table |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    escaped = "".join(table.get(mark, mark) for mark in text)
    # Leading blanks would be skipped.
    return f"\\{escaped}" if escaped.startswith(" ") and not key else escaped
