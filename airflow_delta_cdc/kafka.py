"""Options of Kafka's client, from an Airflow connection of type ``kafka``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.log import mask_secret

from airflow_delta_cdc.hooks.table import extra_of
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration, KafkaConnectionNotFound
from delta_cdc.core.secrets import secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The suffix of callbacks, which a connection may have for other operators, and which text cannot express.
_CALLBACKS = "_cb"


def kafka_options(kafka_conn_id: str | None, options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the configuration of a connection together with explicit options, which win.

    The function also masks their secrets in Airflow's logs.

    :param kafka_conn_id: connection of type ``kafka``; not given for no connection
    :param options: explicit options, by the same names, or their JSON text; not given for none
    :return: None if there are no options
    :raises KafkaConnectionNotFound: the named connection does not exist
    :raises InvalidConfiguration: it is of another type, or its extra is no JSON object
    """
    conn_id = arguments.text("kafka_conn_id", kafka_conn_id)
    connection_options = _connection_options(conn_id) if conn_id is not None else {}
    explicit_options = arguments.settings("kafka_options", options)
    merged = {**arguments.properties("extra", connection_options), **explicit_options}
    for secret in secrets(merged):
        mask_secret(secret)
    return merged or None


def _connection_options(conn_id: str) -> dict[str, Any]:
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise KafkaConnectionNotFound(
            f"The Kafka connection {conn_id!r} does not exist.",
            remedy="create it (connection type kafka), or leave kafka_conn_id out and name the brokers in "
            "the source.",
        ) from error
    if (connection.conn_type or "kafka").lower() != "kafka":
        raise InvalidConfiguration(
            f"The connection {conn_id!r} is of type {connection.conn_type}.",
            remedy="name a connection of type kafka.",
        )
    extra = extra_of(connection)
    return {
        name: value for name, value in extra.items() if not name.endswith(_CALLBACKS) and value is not None
    }
