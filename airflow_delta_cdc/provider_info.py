"""The package's metadata for Airflow's provider manager."""

from __future__ import annotations

from typing import Any

from airflow_delta_cdc import __version__

_INTEGRATION = "Delta CDC"
_DOCUMENTATION = (
    "https://github.com/airflow-provider-delta-cdc/airflow-provider-delta-cdc/blob/main/docs/index.md"
)


def _field(label: str, description: str, *, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


#: The form of a connection of type ``delta``: the fields of its extra that ``DeltaTableHook`` reads.
_DELTA_FIELDS = {
    "storage": _field(
        "Storage",
        "Type of the object store. You may leave this empty if another field implies the type.",
        enum=["s3", "azure", "gcs", None],
    ),
    "region": _field("S3: region", "Region of the buckets."),
    "endpoint_url": _field(
        "S3: endpoint URL", "Address of a store that is not Amazon's. You can use the field Host instead."
    ),
    "allow_http": _field("Allow HTTP", "A host without a scheme has no TLS.", kind="boolean"),
    "virtual_hosted_style": _field(
        "S3: virtual hosted style", "Whether the bucket is in the host's name.", kind="boolean"
    ),
    "session_token": _field("S3: session token", "Token of temporary keys.", format="password"),
    "role_arn": _field("S3: role ARN", "Role to assume with the web identity token file."),
    "web_identity_token_file": _field("S3: web identity token file", "Path on every worker and node."),
    "tenant_id": _field("Azure: tenant id", "Tenant of the client."),
    "client_id": _field("Azure: client id", "Application (service principal) that reads and writes."),
    "client_secret": _field(
        "Azure: client secret", "You can use the field Password instead.", format="password"
    ),
    "sas_token": _field("Azure: SAS token", "Shared access signature.", format="password"),
    "federated_token_file": _field("Azure: federated token file", "Path on every worker."),
    "service_account_path": _field("GCS: service account file", "Path of the key file on every worker."),
    "service_account_key": _field("GCS: service account key", "Text of the key file.", format="password"),
    "storage_options": _field(
        "More storage options",
        "JSON object with delta-rs's names. These options override the other fields.",
        kind="object",
    ),
    "test_table": _field("Table to test with", "Path or URI of a table that the test button reads."),
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-delta-cdc",
        "name": _INTEGRATION,
        "description": "Moves changes from Delta tables, files and Kafka into Delta tables exactly once.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": _DOCUMENTATION,
                # Paths in the project's repository, as Apache's own providers have them.
                "how-to-guide": ["/docs/howto/index.md"],
                # A path of Airflow's API server.
                "logo": "/delta-cdc/logo.svg",
                "tags": ["software"],
            }
        ],
        # The handler has to be named for the rest of an entry to count. None: the URIs stay as they are.
        "asset-uris": [
            {"schemes": ["x-delta"], "handler": None, "factory": "airflow_delta_cdc.assets.asset_of"},
            {
                "schemes": ["x-delta-partitions", "x-delta-watch"],
                "handler": None,
                "to_openlineage_converter": "airflow_delta_cdc.lineage.dataset_of",
            },
            {"schemes": ["x-delta-cdc-group"], "handler": None},
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta_cdc.operators.apply",
                    "airflow_delta_cdc.operators.commit",
                    "airflow_delta_cdc.operators.enable",
                    "airflow_delta_cdc.operators.erase",
                    "airflow_delta_cdc.operators.expire",
                    "airflow_delta_cdc.operators.ingest",
                    "airflow_delta_cdc.operators.optimize",
                    "airflow_delta_cdc.operators.read",
                    "airflow_delta_cdc.operators.vacuum",
                    "airflow_delta_cdc.operators.verify",
                    "airflow_delta_cdc.operators.why",
                ],
            }
        ],
        "cli": ["airflow_delta_cdc.commands.get_cli_commands"],
        "task-decorators": [
            {
                "name": "delta_changes",
                "class-name": "airflow_delta_cdc.decorators.changes.delta_changes_task",
            }
        ],
        "sensors": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_delta_cdc.sensors.version"]}
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta_cdc.triggers.sensor",
                    "airflow_delta_cdc.triggers.version",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta_cdc.hooks.connect",
                    "airflow_delta_cdc.hooks.submit",
                    "airflow_delta_cdc.hooks.table",
                ],
            }
        ],
        "extra-links": [
            "airflow_delta_cdc.links.PipelineLink",
            "airflow_delta_cdc.links.SparkLink",
            "airflow_delta_cdc.links.TargetLink",
        ],
        "connection-types": [
            {
                "connection-type": "delta",
                "hook-class-name": "airflow_delta_cdc.hooks.table.DeltaTableHook",
                "hook-name": "Delta tables",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "extra"],
                    "relabeling": {
                        "host": "S3: endpoint",
                        "port": "S3: port of the endpoint",
                        "login": "S3: access key id, Azure: account name",
                        "password": "S3: secret access key, Azure: account key or client secret",
                    },
                    "placeholders": {"host": "https://s3.example.com"},
                },
                "conn-fields": _DELTA_FIELDS,
            }
        ],
        "config": {
            "delta_cdc": {
                "description": "Settings of the Delta CDC provider.",
                "options": {
                    "delta_jars": {
                        "description": "``auto``: the provider passes Delta's JARs to Spark. ``provided``: "
                        "the cluster has these JARs, so the provider passes none.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "provided",
                        "default": "auto",
                    },
                    "results_uri": {
                        "description": "A folder on an object store that the worker and Spark (a cluster or "
                        "a Spark Connect server) can both reach. Deploy mode cluster always needs it. A "
                        "cluster in client mode and a Spark Connect server need it if a run reads changes by "
                        "row_tracking, added_files or snapshot_diff: for example from a change log, from "
                        "full copies, or from a table whose change data feed is off.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "s3://lake/airflow/delta-cdc",
                        "default": None,
                    },
                    "spark_ui": {
                        "description": "URL of Spark's UI or history server, for the link of tasks. A task "
                        "replaces ``{application}`` by the id of its application. The extra of a Spark "
                        "connection may override this option.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "http://history:18080/history/{application}/jobs/",
                        "default": None,
                    },
                    "poll_interval": {
                        "description": "Seconds between two checks of a table by ``DeltaVersionSensor`` or "
                        "``DeltaVersionTrigger``, unless you set their ``poll_interval``.",
                        "version_added": __version__,
                        "type": "float",
                        "example": "15",
                        "default": "30",
                    },
                },
            }
        },
    }
