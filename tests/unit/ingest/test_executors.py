"""Python on the executors gets the package where it is missing, also on a server of Spark Connect."""

from __future__ import annotations

import zipfile
from types import SimpleNamespace
from typing import Any

import pytest

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.spark.ingest.executors import require_python


class Executors:
    """A session whose Python lacks the package until it is sent.

    :param master: the master of the driver
    :param cures: whether Python finds the package once it is sent
    """

    def __init__(self, master: str, *, cures: bool = True) -> None:
        self.conf = SimpleNamespace(get=lambda *_: master)
        self.cures, self.probes = cures, 0
        self.sent: list[str] = []

    def range(self, *_: int) -> Any:
        return self

    def mapInArrow(self, *_: Any) -> Any:  # noqa: N802 - PySpark's name
        return self

    def collect(self) -> None:
        self.probes += 1
        if not self.sent or not self.cures:
            raise RuntimeError("ModuleNotFoundError: No module named 'delta_cdc'")

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802 - PySpark's name
        assert pyfile
        with zipfile.ZipFile(path) as archive:
            self.sent += archive.namelist()


class Server(Executors):
    """Over Spark Connect, the master is the server's."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("session", [Executors("spark://master:7077"), Server("local[*]")])
def test_the_package_is_sent_where_it_is_missing(session: Any) -> None:
    require_python(session)
    assert "delta_cdc/ingest/batch.py" in session.sent
    assert session.probes == 2


def test_a_driver_that_is_its_own_cluster_is_not_probed() -> None:
    session: Any = Executors("local[*]")
    require_python(session)
    assert session.probes == 0


def test_executors_that_cannot_load_the_package() -> None:
    session: Any = Server("local[*]", cures=False)
    with pytest.raises(EnvironmentNotReady, match=r"cannot decode records: .*No module named 'delta_cdc'"):
        require_python(session)
