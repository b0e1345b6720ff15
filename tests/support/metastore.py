"""A Hive metastore server, from the JARs that PySpark brings: a database of its own, and a free port."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta_cdc.launch.environment import java_binary, spark_home
from tests.support.connect_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Spark's own JARs hold Hive 2.3, which was made for Java 8.
_OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio")
_SECONDS = 120


@contextmanager
def metastore(folder: Path) -> Iterator[str]:
    """Run a metastore, and yield its address (``thrift://…``).

    :param folder: for its database, its log and the default location of schemas
    """
    port = free_port()
    options = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        # Asynchronous logging needs a JAR that Spark does not bring.
        "hive.async.log.enabled": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "derby.stream.error.file": str(folder / "derby.log"),
    }
    command = [
        str(java_binary()),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        *(f"-D{name}={value}" for name, value in options.items()),
        *("-cp", str(spark_home() / "jars" / "*")),
        *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
    ]
    log = folder / "metastore.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(server, port, log)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return once the port takes connections.

    :raises RuntimeError: the server ended, or took too long
    """
    until = time.monotonic() + _SECONDS
    while server.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"The metastore does not answer:\n{log.read_text()[-4000:]}")
