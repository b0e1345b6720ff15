"""Pass the tables' storage options to a Spark that starts in this process, without exposing secrets.

PySpark passes its whole configuration to the JVM on the command line. So this module passes secrets through
the environment while Spark starts, or through a file that only this user can read. Standard library only.
"""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta_cdc.core.storage_options import google_key_confs, properties_text
from delta_cdc.launch.environment import variables
from delta_cdc.launch.spark_defaults import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from delta_cdc.core.storage_options import SparkStorage

_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES_FILE = "--properties-file"


@contextmanager
def storage_confs(storage: SparkStorage, folder: Path, *, is_local: bool = True) -> Iterator[dict[str, str]]:
    """Yield the confs for a Spark that starts within the block, and set its environment for a storage.

    The end of the block restores this process's environment, because the reader of logs takes missing options
    from the environment.

    :param folder: a private folder, which must exist as long as Spark runs
    :param is_local: all of Spark is on this machine; if not, a Google key, which is a file, is not passed
    :raises InvalidConfiguration: ``PYSPARK_SUBMIT_ARGS`` names a properties file that cannot be read
    """
    confs = {**storage.confs, **storage.public_credentials}
    if storage.google_key is not None and is_local:
        confs |= google_key_confs(str(write_private(folder / "google-key.json", storage.google_key)))
    environment = dict(storage.environment)
    secrets = storage.secrets(beside_environment=True)
    properties = folder / "storage.properties"
    if secrets:
        environment[_SUBMIT_ARGUMENTS] = _write_properties(secrets, properties)
    try:
        with variables(environment):
            yield confs
    finally:
        # Spark read it at its start. If this process is killed later, the secrets are gone.
        properties.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> Path:
    """Write a new file that only this user can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _write_properties(confs: Mapping[str, str], path: Path) -> str:
    """Write confs to a file, and return the arguments for PySpark that name it.

    Spark reads only one file. So our file ends with the content of the user's file, which overrides ours. If
    the user names no file, Spark also loads its defaults.
    """
    theirs = None
    kept = []
    arguments = iter(shlex.split(os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")))
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if option != _PROPERTIES_FILE:
            kept.append(argument)
        else:
            theirs = value if equals else next(arguments, None)
    write_private(path, f"{properties_text(confs)}{text_of(theirs) if theirs else ''}")
    added = [_PROPERTIES_FILE, str(path), *([] if theirs else ["--load-spark-defaults"])]
    return shlex.join([*added, *kept])
