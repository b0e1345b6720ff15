"""Storage and Kafka of an application: pass confs, and credentials outside its command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from delta_cdc.core.storage_options import canonical_option, google_key_confs, properties_text, spark_storage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow.sdk.types import Logger

    from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
    from delta_cdc.core.spec import Spec
    from delta_cdc.core.storage_options import SparkStorage

_PROPERTIES = "storage.properties"
_GOOGLE_KEY = "google-key.json"
_PLANNER = "storage-options.json"
_KAFKA = "kafka-options.json"

#: Environment variables of a driver: the paths of the files with the storage options for its planning, and
#: with the options of Kafka's client. The conf holds the latter for a driver on a cluster; Spark redacts
#: confs with such a name.
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
    """Give an application access to its storage, and to Kafka.

    No credential is on the command line. A driver on this machine gets S3's credentials by its environment;
    all others are in a properties file that only this user can read. A driver in a pod gets no credentials:
    it has its own identity.

    :param hook: receives the settings; its own confs win
    :param options: storage options by delta-rs's names
    :param directory: the run's private directory
    :param kafka: options of Kafka's client; used only if the job reads topics
    """
    storage = spark_storage(options, spec.locations, elsewhere=hook.is_cluster)
    hook.confs = {**storage.confs, **hook.confs}
    secrets = _kafka(hook, kafka if kafka and spec.reads_topics else None, directory)
    if hook.is_cluster and hook.is_kubernetes:
        # Only for spark-submit itself, which reads this worker's files in the shared folder.
        hook.add_private_environment(storage.environment)
        if storage.credentials or storage.google_key:
            log.info(
                "The task does not pass storage credentials to pods. The driver uses the identity of its "
                "service account."
            )
        if secrets:
            log.info(
                "The task does not pass the options of Kafka's client to pods. Mount them there as a file, "
                "and name the file in the environment variable %s.",
                KAFKA_OPTIONS_FILE,
            )
        return
    hook.confs = {**storage.public_credentials, **_google(hook, storage, directory, log), **hook.confs}
    if not hook.is_cluster:
        hook.add_private_environment(storage.environment)
    secrets = {**storage.secrets(beside_environment=not hook.is_cluster), **secrets}
    if secrets:
        # If a name occurs twice in the file, the last line counts: the user's.
        hook.use_private_properties(
            lambda user_text: engine.write_private(
                directory / _PROPERTIES, f"{properties_text(secrets)}{user_text}"
            )
        )


def _kafka(hook: DeltaCdcSubmitHook, options: Mapping[str, str] | None, directory: Path) -> dict[str, str]:
    """Pass the options to a driver on this machine; for one on a cluster, return them as a secret conf."""
    if options is None:
        return {}
    text = json.dumps(dict(options))
    if hook.is_cluster:
        return {KAFKA_OPTIONS_CONF: text}
    path = hook.add_private_file(engine.write_private(directory / _KAFKA, text))
    hook.add_private_environment({KAFKA_OPTIONS_FILE: str(path)})
    return {}


def _google(hook: DeltaCdcSubmitHook, storage: SparkStorage, directory: Path, log: Logger) -> dict[str, str]:
    if storage.google_key is None:
        return {}
    if hook.master.startswith("local"):
        return google_key_confs(str(engine.write_private(directory / _GOOGLE_KEY, storage.google_key)))
    log.info(
        "The task does not pass the key of the Google service account to Spark on %s, which uses its own "
        "identity. If every node has a key file, name it in service_account_path.",
        hook.master,
    )
    return {}


def add_planner_options(
    hook: DeltaCdcSubmitHook, options: Mapping[str, str] | None, *, spec: Spec, directory: Path
) -> None:
    """Pass the storage options to a driver on this machine that plans an apply after its ingest.

    They are in a file that only this user can read, and the driver's environment names the file. A driver on
    a cluster plans with its own identity, or leaves the apply to the worker.

    :param directory: the run's private directory
    """
    plans = any(part.after for part in spec.each)
    if not options or not plans or hook.is_cluster:
        return
    path = hook.add_private_file(engine.write_private(directory / _PLANNER, json.dumps(dict(options))))
    hook.add_private_environment({STORAGE_OPTIONS_FILE: str(path)})


def places_of(spec: Spec, options: Mapping[str, str] | None) -> list[str]:
    """Return the locations that a driver has to reach: those of the job, and the store of the options.

    The store is included because a job may contain only the catalog names of its tables.
    """
    named = [canonical_option(name) for name in options or {}]
    return [
        *spec.locations,
        *(["s3://"] if any(name.startswith("aws_") for name in named) else []),
    ]
