"""What Airflow's provider manager is told about this package."""

from __future__ import annotations

from typing import Any

from airflow_delta_cdc import __version__

_INTEGRATION = "Delta CDC"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-delta-cdc",
        "name": _INTEGRATION,
        "description": "Moves changes from Delta table to Delta table exactly once.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_delta_cdc.operators.apply",
                    "airflow_delta_cdc.operators.enable",
                    "airflow_delta_cdc.operators.read",
                ],
            }
        ],
        "sensors": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_delta_cdc.sensors.version"]}
        ],
        "triggers": [
            {"integration-name": _INTEGRATION, "python-modules": ["airflow_delta_cdc.triggers.version"]}
        ],
        "hooks": [{"integration-name": _INTEGRATION, "python-modules": ["airflow_delta_cdc.hooks.submit"]}],
        "config": {
            "delta_cdc": {
                "description": "Settings of the Delta CDC provider.",
                "options": {
                    "delta_jars": {
                        "description": "``auto``: the provider hands Delta's JARs to Spark. ``provided``: "
                        "the cluster has them already; nothing is uploaded.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "provided",
                        "default": "auto",
                    },
                    "results_uri": {
                        "description": "Folder of an object store through which an application in deploy "
                        "mode cluster gets its spec and leaves its result. Needed for that mode only.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "s3://lake/airflow/delta-cdc",
                        "default": None,
                    },
                    "poll_interval": {
                        "description": "Seconds between two looks of ``DeltaVersionSensor`` at a table, "
                        "where the sensor doesn't say otherwise.",
                        "version_added": __version__,
                        "type": "float",
                        "example": "15",
                        "default": "30",
                    },
                },
            }
        },
    }
