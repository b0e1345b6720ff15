"""Our log store for S3: find its JAR, and return the confs with which Delta uses it.

``make jar`` compiles it from ``java/``; the wheel contains it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.commit_safety import CONDITIONAL_STORE, CONF_OF_ALL, SCHEME_CONFS
from delta_cdc.core.storage_options import is_s3
from delta_cdc.launch.spark_defaults import spark_default

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER = Path(__file__).resolve().parent
PREFIX = "delta-cdc-log-store-"


def log_store_jar() -> Path | None:
    """Return the JAR; None if this installation was made without a Java compiler."""
    return next(iter(sorted(FOLDER.glob(f"{PREFIX}*.jar"))), None)


def log_store_confs(
    locations: Iterable[str], confs: Mapping[str, Any], properties_file: str | None = None
) -> dict[str, str]:
    """Return the confs for a driver that gets our JARs; empty if the user chose a log store.

    :param locations: URIs and paths that the driver reads or writes
    :param confs: the user's confs
    :param properties_file: the file of confs that the user names; None is ``spark-defaults.conf``
    """
    if not any(map(is_s3, locations)) or log_store_jar() is None:
        return {}
    if any(spark_default(conf, confs, properties_file) for conf in (*SCHEME_CONFS, CONF_OF_ALL)):
        # Delta refuses a conf of one scheme beside the conf of all.
        return {}
    return dict.fromkeys(SCHEME_CONFS, CONDITIONAL_STORE)
