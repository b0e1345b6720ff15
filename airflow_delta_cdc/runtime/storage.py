"""Storage and Kafka of an application: confs, and credentials off its command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from delta_cdc.core.locations import locations_of, reads_kafka
from delta_cdc.core.spec import BatchSpec, IngestSpec
from delta_cdc.core.storage_options import canonical_option, google_key_confs, properties_text, spark_storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow.sdk.types import Logger

    from airflow_delta_cdc.runtime.submit_hook import DeltaCdcSubmitHook
    from delta_cdc.core.spec import Spec
    from delta_cdc.core.storage_options import SparkStorage

_PROPERTIES = "storage.properties"
_GOOGLE_KEY = "google-key.json"
_PLANNER = "storage-options.json"
_KAFKA = "kafka-options.json"

#: Environment variables of a driver: the files with the storage options that it plans with, and with the
#: options of Kafka's client; and the conf that holds the latter for a driver elsewhere, hidden by its name.
STORAGE_OPTIONS_FILE = "DELTA_CDC_STORAGE_OPTIONS"
KAFKA_OPTIONS_FILE = "DELTA_CDC_KAFKA_OPTIONS"
KAFKA_OPTIONS_CONF = "spark.delta_cdc.kafka.secretOptions"


def add_storage(
    hook: DeltaCdcSubmitHook,
    options: Mapping[str, str] | None,
    *,
    spec: Spec,
    directory: Path,
    log: Logger,
    kafka: Mapping[str, str] | None = None,
) -> None:
    """Give an application the storage that some options describe, and Kafka's brokers.

    No credential is on the command line: S3's go by the environment to a driver on this machine, all others
    by a properties file that only this user can read. A driver in a pod gets none: it has an identity of
    its own.

    :param hook: filled in; its own confs win
    :param options: storage options as delta-rs names them
    :param directory: the run's private directory
    :param kafka: options of Kafka's client; used only where topics are read
    """
    storage = spark_storage(options, locations_of(spec), elsewhere=hook.is_cluster)
    hook.confs = {**storage.confs, **hook.confs}
    secrets = _kafka(hook, kafka if kafka and reads_kafka(spec) else None, directory)
    if hook.is_cluster and hook.is_kubernetes:
        # For spark-submit alone, which looks at what this worker has put into the shared folder.
        hook.add_private_environment(storage.environment)
        if storage.credentials or storage.google_key:
            log.info(
                "Credentials of the storage are not handed to pods: the driver uses the identity of its "
                "service account."
            )
        if secrets:
            log.info(
                "The options of Kafka's client are not handed to pods: mount them there, and name their file "
                "in the environment variable %s.",
                KAFKA_OPTIONS_FILE,
            )
        return
    hook.confs = {**storage.public_credentials, **_google(hook, storage, directory, log), **hook.confs}
    if not hook.is_cluster:
        hook.add_private_environment(storage.environment)
    secrets = {**storage.secrets(beside_environment=not hook.is_cluster), **secrets}
    if secrets:
        # Of two lines with one name the last one counts, and that is the user's.
        hook.use_private_properties(
            lambda own: engine.write_private(directory / _PROPERTIES, f"{properties_text(secrets)}{own}")
        )


def _kafka(hook: DeltaCdcSubmitHook, options: Mapping[str, str] | None, directory: Path) -> dict[str, str]:
    """Hand the options to a driver on this machine; return those for another one, as a secret conf."""
    if options is None:
        return {}
    text = json.dumps(dict(options))
    if hook.is_cluster:
        return {KAFKA_OPTIONS_CONF: text}
    hook.add_private_environment({KAFKA_OPTIONS_FILE: str(engine.write_private(directory / _KAFKA, text))})
    return {}


def _google(hook: DeltaCdcSubmitHook, storage: SparkStorage, directory: Path, log: Logger) -> dict[str, str]:
    if storage.google_key is None:
        return {}
    if hook.master.startswith("local"):
        return google_key_confs(str(engine.write_private(directory / _GOOGLE_KEY, storage.google_key)))
    log.info(
        "The Google service account's key is known to this worker alone: Spark on %s uses an identity of its "
        "own. (A key file that is on every node is named by service_account_path.)",
        hook.master,
    )
    return {}


def add_planner_options(
    hook: DeltaCdcSubmitHook, options: Mapping[str, str] | None, *, spec: Spec, directory: Path
) -> None:
    """Hand the storage options to a driver on this machine that plans for itself: an apply after an ingest.

    By a file that only this user can read, named in the driver's environment. A driver elsewhere plans with
    an identity of its own, or leaves the apply to the worker.

    :param directory: the run's private directory
    """
    parts = spec.parts if isinstance(spec, BatchSpec) else (spec,)
    plans = any(isinstance(part, IngestSpec) and part.after is not None for part in parts)
    if not options or not plans or hook.is_cluster:
        return
    path = engine.write_private(directory / _PLANNER, json.dumps(dict(options)))
    hook.add_private_environment({STORAGE_OPTIONS_FILE: str(path)})


def places_of(spec: Spec, options: Mapping[str, str] | None) -> list[str]:
    """Return what a driver has to reach: the locations of a job, and the store that some options are for.

    The latter because a job may know its tables by the catalog's names only.
    """
    named = [canonical_option(name) for name in options or {}]
    return [*locations_of(spec), *(["s3://"] if any(name.startswith("aws_") for name in named) else [])]
