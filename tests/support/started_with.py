"""Confs of a running Spark, as if it had been started with them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


@contextmanager
def started_with(spark: SparkSession, name: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that sets a conf; restore its value afterwards."""
    conf: Any = spark.sparkContext._jsc.sc().conf()
    properties: Any = spark.sparkContext._jvm.java.lang.System
    before = properties.getProperty(name)

    def tell(value: str) -> None:
        conf.set(name, value)
        properties.setProperty(name, value)

    try:
        yield tell
    finally:
        if before is None:
            conf.remove(name)
            properties.clearProperty(name)
        else:
            tell(before)
