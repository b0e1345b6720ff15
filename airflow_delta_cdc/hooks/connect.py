"""The hook for a Spark Connect server: open own sessions on it, or raise a named error."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.log import mask_secret

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.table import extra_of
from delta_cdc.core.errors import (
    DeltaCdcError,
    EnvironmentNotReady,
    InvalidConfiguration,
    SparkServerUnreachable,
    VersionsUnsupported,
)
from delta_cdc.core.reasons import reason
from delta_cdc.core.secrets import redacted
from delta_cdc.core.spark_versions import pair_of_a_server, release

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

#: Seconds of retries before a request to a server without an answer fails. A restarted server has lost our
#: sessions, so retries help only against a broken network.
PATIENCE = 30.0

#: Milliseconds without an answer after which the client pings a server, and the time for the answer. Servers
#: drop clients that ping more often than every five minutes.
KEEPALIVE, KEEPALIVE_ANSWER = 330_000, 20_000

#: The default port of a connection.
DEFAULT_PORT = 15002

_log = logging.getLogger(__name__)

_MODE = "SPARK_CONNECT_MODE_ENABLED"
_EXTENSIONS, _DELTA = "spark.sql.extensions", "DeltaSparkSessionExtension"
_CATALOG, _DELTA_CATALOG = "spark.sql.catalog.spark_catalog", "DeltaCatalog"


def is_connect(conn_id: str | None) -> bool:
    """Return whether a connection names a Spark Connect server; False if it doesn't exist."""
    if not conn_id:
        return False
    try:
        return bool(BaseHook.get_connection(conn_id).conn_type == SparkConnectHook.conn_type)
    except AirflowNotFoundException:
        # The submit hook raises the named error.
        return False


class DeltaCdcConnectHook(SparkConnectHook):
    """Open sessions on the Spark Connect server of a connection.

    Only the client gets the token: no URL, conf or message contains it.

    :param conn_id: connection of type ``spark_connect``
    """

    @cached_property
    def server(self) -> str:
        """The server's address, ``sc://host:port``.

        :raises InvalidConfiguration: the connection names no server
        """
        return f"sc://{self._address()}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request, which a proxy before a managed server asks for.

        :raises InvalidConfiguration: the connection's extra ``headers`` holds something else
        """
        headers = extra_of(self.get_connection(self._conn_id)).get("headers") or {}
        reserved = (self.PARAM_TOKEN, self.PARAM_USE_SSL, self.PARAM_USER_ID, "user_agent", "session_id")
        if not isinstance(headers, dict) or not all(
            name not in reserved and re.fullmatch("[a-z0-9_.-]+", name) and isinstance(value, str)
            for name, value in headers.items()
        ):
            raise InvalidConfiguration(
                f"The extra headers of the connection {self._conn_id!r} are not valid gRPC headers.",
                remedy='set a JSON object of texts, with names in lower case, such as {"x-name": "value"}. '
                f"Do not set {', '.join(reserved)}: they are fields of the connection, or reserved.",
            )
        for value in headers.values():
            mask_secret(value)
        return dict(headers)

    @property
    def url(self) -> str:
        """The URL of the server with all parameters, some of which are secrets.

        Airflow's own URL ends a token at some characters.
        """
        parameters = (f"{name}={quote(value, safe='')}" for name, value in self._parameters().items())
        return f"{self.server}/;{';'.join(parameters)}"

    @contextmanager
    def session(self, confs: Mapping[str, Any]) -> Iterator[SparkSession]:
        """Open a session, check Spark's version and Delta, and close the session afterwards.

        :param confs: confs to set on the session
        :raises SparkServerUnreachable: the server does not answer
        :raises EnvironmentNotReady: the server has another release of Spark, or no Delta
        :raises VersionsUnsupported: its Spark and Delta are no pair that works, or pyspark is damaged
        :raises InvalidConfiguration: the connection or a conf cannot be used
        """
        with connect_mode():
            spark = self._connected()
            try:
                self._check(spark)
                self._set(spark, confs)
                yield spark
            finally:
                engine.close_session(spark)

    # -- the connection -------------------------------------------------------------------------
    def _address(self) -> str:
        try:
            # Airflow's provider defines how host and port are written; the rest of its URL has the token.
            address = urlsplit(self.get_connection_url()).netloc
            has_port = urlsplit(f"//{address}").port is not None
        except (AttributeError, ValueError):
            address, has_port = "", False
        if not address or "@" in address:
            raise InvalidConfiguration(
                f"The connection {self._conn_id!r} names no server of Spark Connect.",
                remedy="give it a host, with or without sc://, and a port.",
            ) from None
        return address if has_port else f"{address}:{DEFAULT_PORT}"

    def _parameters(self) -> dict[str, str]:
        connection = self.get_connection(self._conn_id)
        parameters = {
            **self.headers,
            self.PARAM_USER_ID: connection.login,
            self.PARAM_TOKEN: connection.password,
            self.PARAM_USE_SSL: extra_of(connection).get(self.PARAM_USE_SSL),
        }
        return {name: str(value) for name, value in parameters.items() if value not in (None, "")}

    def _connected(self) -> SparkSession:
        engine.require_one_pyspark()
        try:
            from pyspark.sql.connect.client.core import DefaultChannelBuilder
            from pyspark.sql.connect.session import SparkSession
        except ImportError as error:
            raise EnvironmentNotReady(
                f"The client of Spark Connect cannot be imported: {error}.",
                remedy="install pyspark-client, with pandas, pyarrow and grpcio, on the worker.",
            ) from error
        if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
            # The client is silent by default, but with Airflow's logging it would log every error twice.
            logging.getLogger("pyspark.sql.connect.logging").disabled = True
        builder = DefaultChannelBuilder(self.server)
        # If the server's machine vanishes, gRPC would wait forever without pings.
        builder.setChannelOption("grpc.keepalive_time_ms", KEEPALIVE)
        # It depends on the release of gRPC which of the two options counts.
        for name in ("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"):
            builder.setChannelOption(name, KEEPALIVE_ANSWER)
        builder.setChannelOption("grpc.http2.max_pings_without_data", 0)
        for name, value in self._parameters().items():
            builder.set(name, value)
        spark = SparkSession.builder.channelBuilder(builder).create()
        spark.client.set_retry_policies([_patience(PATIENCE)])
        return spark  # type: ignore[return-value]  # the Connect class has the same methods

    # -- checks ---------------------------------------------------------------------------------
    def _check(self, spark: SparkSession) -> None:
        from pyspark import __version__ as ours

        engine.require_clones(spark)
        try:
            theirs = spark.version
            extensions, catalog = spark.conf.get(_EXTENSIONS, ""), spark.conf.get(_CATALOG, "")
        except Exception as error:  # noqa: BLE001 - the client's own text may hold the token
            raise self._named(error) from None
        if release(theirs) != release(ours):
            raise EnvironmentNotReady(
                f"The Spark Connect server {self.server} runs Spark {theirs}, and this worker has pyspark "
                f"{ours}.",
                remedy="install the same release (major and minor version) on both.",
            )
        if _DELTA not in (extensions or "") or _DELTA_CATALOG not in (catalog or ""):
            raise EnvironmentNotReady(
                f"The Spark Connect server {self.server} was started without Delta.",
                remedy="start it with Delta's JARs on its driver's class path (delta-cdc jars lists them), "
                f"and with {_EXTENSIONS} and {_CATALOG} as docs/howto/spark-connect.md shows.",
            )
        self._check_delta(spark, theirs)

    def _check_delta(self, spark: SparkSession, spark_version: str) -> None:
        try:
            theirs = engine.delta_version(spark)
        except Exception as error:  # noqa: BLE001 - see above
            if engine.is_session_lost(error):
                raise self._named(error) from None
            if engine.refuses_java(spark):
                _log.warning(
                    "The server %s does not let a query call Java, so the task cannot check that its Delta "
                    "fits its Spark.",
                    self.server,
                )
                return
            # The confs may name missing classes: Spark only warns about those of extensions.
            raise EnvironmentNotReady(
                f"Cannot read the version of Delta from the Spark Connect server {self.server}: "
                f"{self._reason(error)}",
                remedy="start it with Delta's JARs on its driver's class path: delta-cdc jars lists them.",
            ) from None
        try:
            _, untested = pair_of_a_server(spark_version, theirs)
        except VersionsUnsupported as error:
            raise VersionsUnsupported(
                f"The Spark Connect server {self.server}: {error.message}", remedy=error.remedy
            ) from None
        if untested:
            _log.warning("The server %s: %s.", self.server, untested)

    def _set(self, spark: SparkSession, confs: Mapping[str, Any]) -> None:
        for name, value in confs.items():
            try:
                spark.conf.set(name, str(value))
            except Exception as error:  # noqa: BLE001 - see above
                if engine.is_session_lost(error):
                    raise self._named(error) from None
                raise InvalidConfiguration(
                    f"The conf {name} cannot be set in a session on {self.server}: {self._reason(error)}",
                    remedy="leave it out of conf, and give it to the server when that is started.",
                ) from None

    def _named(self, error: Exception) -> DeltaCdcError:
        name = getattr(getattr(error, "getGrpcStatusCode", lambda: None)(), "name", "")
        text = self._reason(error)
        if name not in text:
            text = f"{name}: {text}"
        if name in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            return InvalidConfiguration(
                f"The Spark Connect server {self.server} refuses the connection {self._conn_id!r}: {text}",
                remedy="give the connection the server's token as its password.",
            )
        if not name and not engine.is_session_lost(error):
            return EnvironmentNotReady(
                f"The client of Spark Connect fails: {text}",
                remedy="install compatible versions of pyspark, pandas, pyarrow and grpcio on the worker.",
            )
        return SparkServerUnreachable(
            f"The Spark Connect server {self.server} does not answer: {text}",
            remedy="check that it runs, that this worker can reach it, and that the connection sets use_ssl "
            "if the server uses TLS. The job did not start, so a retry is safe.",
        )

    def _reason(self, error: Exception) -> str:
        """Return the reason without token and headers, which the client's own text may contain."""
        token = self.get_connection(self._conn_id).password
        hidden = {f"{name}_token": value for name, value in self.headers.items()}
        return redacted(reason(error), hidden | ({"token": token} if token else {}))


def _patience(seconds: float) -> Any:
    """Return a retry policy that stops after some seconds; PySpark's own stops after ten minutes.

    The time counts for each request from its first failure. Once the policy has stopped for one request, all
    others of the session fail at once: only the cleanup is left.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

    class Patience(DefaultPolicy):
        """The policy of a session and its clones."""

        gave_up = False

        def __init__(self) -> None:
            super().__init__(max_retries=None, max_backoff=2000, max_server_retry_delay=2000)

        def to_state(self) -> RetryPolicyState:
            return Request(self)

    class Request(RetryPolicyState):
        """The state of one request."""

        def __init__(self, policy: Patience) -> None:
            super().__init__(policy)
            self._patience = policy
            self._since: float | None = None

        def can_retry(self, exception: BaseException) -> bool:
            if not self._patience.can_retry(exception):
                return False
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            if now - self._since >= seconds:
                self._patience.gave_up = True
            return not self._patience.gave_up

    return Patience()


_inside = 0
_given: str | None = None
_counting = threading.Lock()


@contextmanager
def connect_mode() -> Iterator[None]:
    """Make PySpark's functions build expressions for Spark Connect; several threads may use it at once.

    PySpark decides by an environment variable. The last thread restores its old value, because a local Spark
    in the same process needs expressions of the other kind.
    """
    global _inside, _given
    with _counting:
        if not _inside:
            _given = os.environ.get(_MODE)
            os.environ[_MODE] = "1"
        _inside += 1
    try:
        yield
    finally:
        with _counting:
            _inside -= 1
            if not _inside and _given is None:
                os.environ.pop(_MODE, None)
            elif not _inside and _given is not None:
                os.environ[_MODE] = _given
