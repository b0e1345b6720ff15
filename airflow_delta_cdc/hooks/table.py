"""Storage options of Delta tables from an Airflow connection."""

from __future__ import annotations

import asyncio
import difflib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.log import mask_secret

from airflow_delta_cdc import engine
from airflow_delta_cdc.compat import amask_secret
from delta_cdc.core import arguments, codec
from delta_cdc.core.errors import DeltaCdcError, DeltaConnectionNotFound, InvalidConfiguration
from delta_cdc.core.reasons import reason
from delta_cdc.core.secrets import redacted, secrets
from delta_cdc.core.storage_options import canonical_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

#: Seconds that the connection form's test button waits for a table.
TEST_TIMEOUT = 20.0

_STORAGES = {"s3": "Amazon S3", "azure": "Azure Storage", "gcs": "Google Cloud Storage"}


class _Field(NamedTuple):
    """One field of the connection: its option, the storage it implies, whether it is secret or a switch."""

    option: str
    storage: str | None = None
    secret: bool = False
    flag: bool = False


#: Fields of the connection's extra, by name.
_FIELDS = {
    "region": _Field("AWS_REGION", "s3"),
    "endpoint_url": _Field("AWS_ENDPOINT_URL", "s3"),
    "session_token": _Field("AWS_SESSION_TOKEN", "s3", secret=True),
    "virtual_hosted_style": _Field("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "s3", flag=True),
    "role_arn": _Field("AWS_ROLE_ARN", "s3"),
    "web_identity_token_file": _Field("AWS_WEB_IDENTITY_TOKEN_FILE", "s3"),
    "tenant_id": _Field("AZURE_STORAGE_TENANT_ID", "azure"),
    "client_id": _Field("AZURE_STORAGE_CLIENT_ID", "azure"),
    "client_secret": _Field("AZURE_STORAGE_CLIENT_SECRET", "azure", secret=True),
    "sas_token": _Field("AZURE_STORAGE_SAS_KEY", "azure", secret=True),
    "federated_token_file": _Field("AZURE_FEDERATED_TOKEN_FILE", "azure"),
    "service_account_path": _Field("GOOGLE_SERVICE_ACCOUNT", "gcs"),
    "service_account_key": _Field("GOOGLE_SERVICE_ACCOUNT_KEY", "gcs", secret=True),
    "allow_http": _Field("allow_http", flag=True),
}
_OTHER_FIELDS = ("storage", "storage_options", "test_table")


class DeltaTableHook(BaseHook):
    """Storage options, by the names of delta-rs and obstore, from a connection of type ``delta``.

    One connection describes one object store: S3 (or a compatible store), Azure Storage or Google Cloud
    Storage. The extra field ``storage`` names it (``s3``, ``azure``, ``gcs``); without this field, the other
    filled-in fields imply it. An empty connection means the identity of the machine.

    Only log readers and Spark get the secrets, and Spark gets them outside its command line. Airflow's logs
    mask them from the start.

    :param delta_conn_id: id of the connection
    """

    conn_name_attr = "delta_conn_id"
    default_conn_name = "delta_default"
    conn_type = "delta"
    hook_name = "Delta tables"

    def __init__(self, delta_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.delta_conn_id = delta_conn_id

    def storage_options(self) -> dict[str, str] | None:
        """Return the options; None if the connection has none.

        :raises DeltaConnectionNotFound: the connection does not exist
        :raises InvalidConfiguration: its fields are unknown, or contradict each other
        """
        options = self._options(self._connection())
        for secret in secrets(options):
            mask_secret(secret)
        return options

    async def aget_storage_options(self) -> dict[str, str] | None:
        """Return the same as :meth:`storage_options`, from within an event loop, without blocking it."""
        try:
            connection = await self.aget_connection(self.delta_conn_id)
        except AirflowNotFoundException as error:
            raise self._missing() from error
        options = self._options(connection)
        for secret in secrets(options):
            await amask_secret(secret)
        return options

    def newest_version(self, table: str) -> int:
        """Return the newest version of a table, read from its log.

        :param table: path or URI
        :raises TableNotFound: the location has no table
        """

        return engine.run_sync(engine.DeltaLog(table, self.storage_options()).newest_version())

    def test_connection(self) -> tuple[bool, str]:
        """Read the connection and, if its extra names a ``test_table``, the log of that table.

        :return: whether the test succeeded, and a message without secrets
        """
        options: dict[str, str] | None = None
        try:
            options = self.storage_options()
            table = extra_of(self._connection()).get("test_table")
            if not table:
                return True, _summary(options)
            log = engine.DeltaLog(str(table), options)
            version = engine.run_sync(asyncio.wait_for(log.newest_version(), TEST_TIMEOUT))
        except TimeoutError:
            return False, f"The storage did not answer within {TEST_TIMEOUT:g} s."
        except DeltaCdcError as error:
            return False, redacted(str(error), options)
        except Exception as error:  # noqa: BLE001 - the form shows a message for any error of a store
            return False, redacted(reason(error), options)
        return True, f"{table} is a Delta table, and its newest version is {version}."

    # -- connection -----------------------------------------------------------------------------
    def _connection(self) -> Connection:
        try:
            return self.get_connection(self.delta_conn_id)
        except AirflowNotFoundException as error:
            raise self._missing() from error

    def _missing(self) -> DeltaConnectionNotFound:
        return DeltaConnectionNotFound(
            f"The Delta connection {self.delta_conn_id!r} does not exist.",
            remedy="create it (connection type delta), or leave delta_conn_id out to use the identity of "
            "the machine.",
        )

    def _options(self, connection: Connection) -> dict[str, str] | None:
        if (connection.conn_type or self.conn_type).lower() != self.conn_type:
            raise InvalidConfiguration(
                f"The connection {self.delta_conn_id!r} is of type {connection.conn_type}.",
                remedy="name a connection of type delta.",
            )
        extra = extra_of(connection)
        self._refuse_unknown(extra)
        free_form = self._free_form(extra)
        storage = self._storage(connection, extra)
        field_options = {
            _FIELDS[name].option: "true"
            if _FIELDS[name].flag
            else arguments.property_text(extra[name]).strip()
            for name in _filled_in(extra)
        }
        options = {**field_options, **self._standard_fields(connection, storage, extra)}
        self._refuse_half(options)
        return merged(options, free_form) or None

    def _refuse_unknown(self, extra: Mapping[str, Any]) -> None:
        known = [*_FIELDS, *_OTHER_FIELDS]
        for name in extra:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}? Other options" if near else "options without a field"
                raise InvalidConfiguration(
                    f"The connection {self.delta_conn_id!r} has the unknown extra field {name!r}.",
                    remedy=f"{hint} belong into storage_options, by the names of delta-rs.",
                )

    def _free_form(self, extra: Mapping[str, Any]) -> dict[str, str]:
        options = extra.get("storage_options") or {}
        if isinstance(options, str):
            try:
                options = codec.parsed(options)
            except ValueError:
                options = None
        if not isinstance(options, dict):
            raise InvalidConfiguration(
                f"storage_options of the connection {self.delta_conn_id!r} is no JSON object.",
                remedy='write it as {"NAME": "value"}.',
            )
        return arguments.properties("storage_options", options)

    def _storage(self, connection: Connection, extra: Mapping[str, Any]) -> str | None:
        """Return the storage of the connection; None if no field depends on it."""
        storage_field = str(extra.get("storage") or "").strip().lower()
        if storage_field and storage_field not in _STORAGES:
            raise InvalidConfiguration(
                f"storage of the connection {self.delta_conn_id!r} is {storage_field!r}.",
                remedy=f"choose one of {', '.join(_STORAGES)}.",
            )
        fields = {_FIELDS[name].storage: name for name in _filled_in(extra) if _FIELDS[name].storage}
        foreign_fields = [
            name for storage, name in fields.items() if storage_field and storage != storage_field
        ]
        if len(fields) > 1 or foreign_fields:
            raise InvalidConfiguration(
                f"The connection {self.delta_conn_id!r} mixes fields of several storages "
                f"({', '.join(sorted(foreign_fields or fields.values()))}).",
                remedy="make one connection per storage, and empty the fields of the others.",
            )
        storage = storage_field or next(iter(fields), None)
        if storage is None and (connection.login or connection.password or connection.host):
            raise InvalidConfiguration(
                f"The connection {self.delta_conn_id!r} does not say which storage it is for.",
                remedy=f"set the extra field storage to one of {', '.join(_STORAGES)}.",
            )
        return storage

    def _standard_fields(
        self, connection: Connection, storage: str | None, extra: Mapping[str, Any]
    ) -> dict[str, str]:
        if storage == "s3":
            options = {
                "AWS_ACCESS_KEY_ID": connection.login,
                "AWS_SECRET_ACCESS_KEY": connection.password,
                "AWS_ENDPOINT_URL": extra.get("endpoint_url") or _endpoint(connection, extra),
            }
        elif storage == "azure":
            is_client = bool(extra.get("client_id"))
            options = {
                "AZURE_STORAGE_ACCOUNT_NAME": connection.login,
                "AZURE_STORAGE_CLIENT_SECRET" if is_client else "AZURE_STORAGE_ACCOUNT_KEY": (
                    extra.get("client_secret") or connection.password if is_client else connection.password
                ),
            }
        else:
            options = {"GOOGLE_SERVICE_ACCOUNT_KEY": extra.get("service_account_key") or connection.password}
        return {name: arguments.property_text(value) for name, value in options.items() if value}

    def _refuse_half(self, options: Mapping[str, str]) -> None:
        for first, second, names in (
            (
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "an access key id and its secret (login, password)",
            ),
            ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "role_arn and web_identity_token_file"),
        ):
            if (first in options) != (second in options):
                raise InvalidConfiguration(
                    f"The connection {self.delta_conn_id!r} holds only one of {names}.",
                    remedy="give both, or none of them.",
                )


def storage_options(
    delta_conn_id: str | None, storage_options: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return the options of a connection together with explicit ones, which win.

    :param delta_conn_id: connection of type ``delta``; not given for no connection
    :param storage_options: explicit options, or their JSON text; not given for none
    :return: None if there are no options
    :raises DeltaConnectionNotFound: the named connection does not exist
    :raises InvalidConfiguration: the connection cannot be read, or an argument is invalid
    """
    conn_id = arguments.text("delta_conn_id", delta_conn_id)
    connection_options = DeltaTableHook(conn_id).storage_options() if conn_id is not None else None
    return merged(connection_options, arguments.settings("storage_options", storage_options)) or None


async def astorage_options(
    delta_conn_id: str | None, storage_options: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Return the same as :func:`storage_options`, from within an event loop, without blocking it."""
    conn_id = arguments.text("delta_conn_id", delta_conn_id)
    connection_options = await DeltaTableHook(conn_id).aget_storage_options() if conn_id is not None else None
    return merged(connection_options, arguments.settings("storage_options", storage_options)) or None


def merged(options: Mapping[str, str] | None, winning: Mapping[str, str] | None) -> dict[str, str]:
    """Return both sets of options; those of the second win, in any spelling of their names."""
    winning_names = {canonical_option(name) for name in winning or {}}
    others = {
        name: value for name, value in (options or {}).items() if canonical_option(name) not in winning_names
    }
    return {**others, **(winning or {})}


def extra_of(connection: Connection) -> dict[str, Any]:
    """Return the extra of a connection, without empty fields.

    :raises InvalidConfiguration: the extra is no JSON object
    """
    if not connection.extra:
        return {}
    try:
        extra = codec.parsed(connection.extra)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise InvalidConfiguration(
            f"The extra of the connection {connection.conn_id!r} is no JSON object.",
            remedy="correct it; the form's fields write it by themselves.",
        )
    return {name: value for name, value in extra.items() if value is not None}


def _filled_in(extra: Mapping[str, Any]) -> list[str]:
    """Return the filled-in fields. The form may also store the others: empty, or as switches that are off."""
    empty = (None, "", False)
    return [
        name
        for name, field in _FIELDS.items()
        if extra.get(name) not in empty and not (field.flag and not is_true(extra[name]))
    ]


def is_true(value: Any) -> bool:
    """Return whether a switch in an extra is on."""
    return str(value).strip().lower() in ("true", "1", "yes", "on")


def _endpoint(connection: Connection, extra: Mapping[str, Any]) -> str | None:
    host = (connection.host or "").rstrip("/")
    if not host:
        return None
    if "://" not in host:
        host = f"{'http' if is_true(extra.get('allow_http')) else 'https'}://{host}"
    has_port = re.search(r":\d+\Z", host) is not None
    return host if has_port or not connection.port else f"{host}:{connection.port}"


def _summary(options: Mapping[str, str] | None) -> str:
    if not options:
        return "The connection is empty: the machine's own identity is used. No test_table is named."
    names = ", ".join(sorted(options))
    return f"The connection gives the options {names}. Name a test_table in its extra to have one read."
