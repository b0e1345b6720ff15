"""What all tests share: markers by folder, one Spark session, fresh table paths."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

    from tests.support.kafka_broker import Broker
    from tests.support.s3_gateway import Gateway

LAYERS = ("unit", "integration", "system")
_TESTS = Path(__file__).resolve().parent
#: The session that the tests of a process share, and the confs with which it started.
_SESSION: pytest.StashKey[SparkSession] = pytest.StashKey()
_CONFS: pytest.StashKey[dict[str, str]] = pytest.StashKey()
#: Beginnings of confs that Delta sets itself.
_OF_DELTA = ("spark.databricks.delta.lastCommitVersionInSession", "spark.sql.parquet.fieldId.")


#: Files with one of these in their path share what starts slowly: a Kafka broker, or an Airflow.
_SHARED = ("kafka", "tests/integration/airflow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give each test process whole files; those that share a broker or an Airflow go to one process."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return next((shared for shared in _SHARED if shared in file), file)

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect thousands of tests, which all stay, without looking for garbage: a quarter less time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its layer, which is its folder; tests outside of the layers are refused."""
    for item in items:
        layer = item.path.relative_to(_TESTS).parts[0]
        if layer not in LAYERS:
            raise pytest.UsageError(
                f"{item.nodeid} lies in none of the folders {', '.join(LAYERS)} of tests/"
            )
        item.add_marker(layer)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each random test drew, and the sum of its histories."""
    found = [
        dict(report.user_properties)
        for report in terminalreporter.stats.get("passed", ())
        if getattr(report, "when", "") == "call"
    ]
    drawn = [one for one in found if "drawn" in one]
    for one in drawn:
        terminalreporter.write_line(str(one["drawn"]))
    if drawn:
        terminalreporter.write_line(f"{sum(int(one['histories']) for one in drawn)} histories, 0 differ")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Start Spark, once per run, when the first test asks for it."""
    from delta_cdc.launch.session import get_session

    confs = {
        # Thousands of different tiny queries: compiling each one costs more than running it interpreted.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Room for what is soon garbage; and without Hadoop's native library each file costs processes (chmod,
        # readlink), which such a fork, of Linux alone, starts in half the time.
        "spark.driver.extraJavaOptions": "-Xms2g -Xmn1g"
        + (" -Djdk.lang.Process.launchMechanism=VFORK" if sys.platform == "linux" else ""),
        # Delta keeps a snapshot of every table it met for an hour, and Spark the plans of a thousand queries:
        # the whole run has to fit.
        "spark.driver.memory": "3g",
        "spark.sql.ui.retainedExecutions": "20",
    }
    session = get_session("tests", cores=2, quick_start=True, kafka=True, locations=["s3://lake"], **confs)
    request.session.stash[_SESSION] = session
    request.session.stash[_CONFS] = dict(session.conf.getAll)
    yield session
    del request.session.stash[_SESSION]
    session.stop()
    # Py4J logs the end of each connection, when the streams that tests logged to are closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture(scope="module", autouse=True)
def confs_stay(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse a module that changes the confs of the session that all tests of a process share.

    A test once set ``maxPartitionBytes`` to one byte there: later tests took up to twenty times as long.
    """
    yield
    session = request.session.stash.get(_SESSION, None)
    if session is not None:
        first = request.session.stash[_CONFS]
        changed = dict(session.conf.getAll).items() ^ first.items()
        names = {name for name, _ in changed if not name.startswith(_OF_DELTA)}
        # Restored, so that one module fails, and not all after it.
        for name in names:
            session.conf.unset(name) if name not in first else session.conf.set(name, first[name])
        assert not names, "use session_like(spark), or restore the conf"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a Kafka broker, once per run, when the first test asks for it; each test makes its own topics."""
    from delta_cdc.core.errors import EnvironmentNotReady
    from tests.support.kafka_broker import PASSWORD, USER, broker
    from tests.support.maven import locked

    try:
        locked("kafka-broker").jars()
    except EnvironmentNotReady as missing:
        if os.environ.get("CI"):
            raise
        # A skip alone is a letter in a long line; a warning is told in full at the end of the run.
        warnings.warn(f"NOT TESTED: Kafka: {missing}", stacklevel=1)
        pytest.skip(str(missing))
    with broker(tmp_path_factory.mktemp("kafka"), {USER: PASSWORD}) as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Start an S3-compatible server, once per run, when the first test asks for it."""
    from tests.support.s3_gateway import NoGatewayError, gateway

    with ExitStack() as stack:
        try:
            running = stack.enter_context(gateway(tmp_path_factory.mktemp("s3")))
        except NoGatewayError as missing:
            if os.environ.get("CI"):
                raise
            warnings.warn(f"NOT TESTED: S3: {missing}", stacklevel=1)
            pytest.skip(str(missing))
        yield running


@pytest.fixture
def tmp_table(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that gives the path of a table that does not exist yet."""
    return lambda name="table": str(tmp_path / name)
