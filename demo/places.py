"""Where the demo keeps its things: one folder, ignored by git, that may be deleted at any time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Places:
    """The folders of one demo.

    :param root: the folder that holds all of them
    """

    root: Path

    @property
    def raw(self) -> Path:
        """Return where the generator's Parquet files are."""
        return self.root / "tpch"

    @property
    def tables(self) -> Path:
        """Return where the Delta tables are."""
        return self.root / "tables"

    @property
    def airflow_home(self) -> Path:
        """Return Airflow's home."""
        return self.root / "airflow"

    @property
    def spark_conf(self) -> Path:
        """Return the folder of ``spark-defaults.conf``."""
        return self.root / "spark-conf"

    @property
    def spark_events(self) -> Path:
        """Return where every Spark application that an operator starts leaves its event log."""
        return self.root / "spark-events"

    @property
    def exports(self) -> Path:
        """Return where the snapshots to be checked are written."""
        return self.root / "exports"

    @property
    def log(self) -> Path:
        """Return the file that takes all that isn't shown."""
        return self.root / "demo.log"

    def table(self, name: str) -> Path:
        """Return the folder of one Delta table."""
        return self.tables / name
