"""Warns if a wheel lacks the JAR of the log stores, which Git ignores and ``make jar`` compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_JARS = "spark_jobs/delta_cdc/launch/delta-cdc-log-store-*.jar"


class LogStoreHook(BuildHookInterface[Any]):
    """Hatch's hook of a wheel: pyproject.toml names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Warn about a missing JAR.

        :param version: ``editable`` or ``standard``
        """
        if version == "standard" and not any(Path(self.root).glob(_JARS)):
            self.app.display_warning(
                "This wheel lacks the JAR of the log stores, so Spark uses Delta's own, which lose commits "
                "of two drivers on a disk and on S3. Run `make wheel` instead, or `make jar` (with a JDK)."
            )
