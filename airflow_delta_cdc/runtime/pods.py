"""A driver in a pod: it sees no file of this machine, and ``spark-submit`` looks at objects for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from airflow_delta_cdc.runtime.exchange import needed_results_uri, put_file_once
from delta_cdc.core.storage_options import hadoop_uri, is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow_delta_cdc.runtime.submit_hook import DeltaCdcSubmitHook

#: Of the environment: what Spark's scripts put behind their own class path.
_CLASS_PATH = "SPARK_DIST_CLASSPATH"


def visible(jars: Sequence[Path], options: Mapping[str, str] | None = None) -> list[str]:
    """Put JARs where a pod can read them, once, and return their URIs.

    :param options: of the tables' storage
    :raises InvalidConfiguration: there is no such place
    """

    uris = [f"{needed_results_uri('Pods get their JARs from a folder')}/jars/{jar.name}" for jar in jars]
    for uri, jar in zip(uris, jars, strict=True):
        put_file_once(uri, jar, options)
    return [hadoop_uri(uri) for uri in uris]


def let_submit_see(hook: DeltaCdcSubmitHook, uri: str) -> None:
    """Give ``spark-submit`` the file system of what it is told, because it looks whether that is there.

    :param uri: where they lie
    :raises EnvironmentNotReady: the JARs for S3 cannot be resolved
    """
    if is_s3(uri):
        own = os.environ.get(_CLASS_PATH)
        jars = os.pathsep.join(filter(None, (own, *map(str, engine.s3_jars().jars()))))
        hook.add_private_environment({_CLASS_PATH: jars})
