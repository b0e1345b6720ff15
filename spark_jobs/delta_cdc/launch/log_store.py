"""Our log stores for S3 and for disks: find their JAR, and return the confs with which Delta uses them.

``make jar`` compiles it from ``java/``; the wheel contains it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.commit_safety import CONF_OF_ALL, OUR_STORES
from delta_cdc.launch.spark_defaults import spark_default

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).resolve().parent
PREFIX = "delta-cdc-log-store-"


def log_store_jar() -> Path | None:
    """Return the JAR; None if this installation was made without a Java compiler."""
    return next(iter(sorted(FOLDER.glob(f"{PREFIX}*.jar"))), None)


def log_store_confs(confs: Mapping[str, Any], properties_file: str | None = None) -> dict[str, str]:
    """Return the confs for a driver that gets our JARs, without the log stores that the user chose.

    :param confs: the user's confs
    :param properties_file: the file of confs that the user names; None is ``spark-defaults.conf``
    """

    def is_set(conf: str) -> bool:
        return bool(spark_default(conf, confs, properties_file))

    # Delta refuses a conf of one scheme beside the conf of all.
    if log_store_jar() is None or is_set(CONF_OF_ALL):
        return {}
    chosen = (group for group in OUR_STORES if not any(map(is_set, group)))
    return {conf: store for group in chosen for conf, store in group.items()}
