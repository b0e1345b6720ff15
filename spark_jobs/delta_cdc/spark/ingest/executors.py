"""See that Python on the executors can run the function that makes events, before anything is written."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.errors import EnvironmentNotReady
from delta_cdc.core.reasons import reason
from delta_cdc.ingest import batch
from delta_cdc.spark.sessions import is_connect, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE = Path(__file__).resolve().parents[2]
#: What the function needs of the package.
_FOLDERS = ("core", "ingest")
_REMEDY = (
    "give the executors the Python and the pyarrow of the driver (spark.pyspark.python, or an archive with a "
    "virtual environment): see docs/explanation/ingest.md."
)


def require_python(session: SparkSession) -> None:
    """Run the smallest function on an executor, and send the package where it is missing.

    A driver that is its own cluster needs no look: its executors are itself. Over Spark Connect, that driver
    is the server, which may lack the package.

    :raises EnvironmentNotReady: the executors have no pyarrow, another Python, or cannot load the package
    """
    master = value_of(session, "spark.master")
    if master is not None and master.startswith("local") and not is_connect(session):
        return
    error = _failure(session)
    if error is not None and f"No module named '{batch.__name__.partition('.')[0]}" in str(error):
        with tempfile.TemporaryDirectory(prefix="delta-cdc-") as folder:
            archive = Path(folder, "delta_cdc_ingest.zip")
            _write_archive(archive)
            session.addArtifacts(str(archive), pyfile=True)
        error = _failure(session)
    if error is not None:
        raise EnvironmentNotReady(
            f"Python on the executors cannot decode records: {reason(error)}", remedy=_REMEDY
        ) from error


def _failure(session: SparkSession) -> Exception | None:
    """Return what the probe raised; None if it ran."""
    try:
        session.range(0, 1, 1, 1).mapInArrow(batch.probed, "version string").collect()
    except Exception as error:  # noqa: BLE001 - whatever stops the probe would stop the ingest
        return error
    return None


def _write_archive(path: Path) -> None:
    """Write a zip of the modules that executors need."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(_PACKAGE.rglob("*.py")):
            name = file.relative_to(_PACKAGE)
            if len(name.parts) == 1 or name.parts[0] in _FOLDERS:
                archive.write(file, f"{_PACKAGE.name}/{name.as_posix()}")
