"""Start a driver inside the worker, without a cluster: with confs for the job's size, and with an archive."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.hooks.submit import CRASHES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
    from airflow_delta_cdc.runtime.task import SparkTask
    from delta_cdc.core.spec import Spec
    from delta_cdc.launch.class_data_archive import ClassDataArchive


class EmbeddedStart:
    """The confs of one embedded driver, and the class-data archive that it uses.

    :param operator: provides confs and JARs
    :param spec: the driver's work
    :param places: the locations that it reads and writes
    :param kafka: whether it reads topics
    :param storage_options: options of the tables' store
    """

    def __init__(
        self,
        operator: SparkTask,
        spec: Spec,
        *,
        places: Sequence[str] = (),
        kafka: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._operator = operator
        self._spec = spec
        self._places = places
        self._kafka = kafka
        self._storage_options = storage_options
        self._archive: ClassDataArchive | None = None

    def configure(self, hook: DeltaCdcSubmitHook, directory: Path) -> None:
        """Give the confs to the hook, whose own confs win.

        :param directory: the run's own folder
        """

        operator, theirs, file = self._operator, hook.confs, hook.properties_file
        # The user's own JARs come by jars or packages, not by the class path that the archive belongs to.
        ours = not (operator.jars or operator.packages)
        more_jars = (operator.driver_class_path, engine.spark_default(engine.CLASS_PATH, theirs, file))
        size = engine.job_size(self._spec, self._storage_options)
        confs: dict[str, Any] = engine.embedded_confs(
            quick_start=size <= engine.SMALL,
            kafka=self._kafka,
            locations=self._places,
            jars=ours,
            more_jars=os.pathsep.join(filter(None, more_jars)),
            java_options=engine.spark_default(engine.JAVA_OPTIONS, theirs, file),
            default_java_options=engine.spark_default(engine.DEFAULT_JAVA_OPTIONS, theirs, file),
        )
        if size <= engine.TINY:
            confs |= engine.INTERPRETED
        class_path = confs.pop(engine.CLASS_PATH)
        # Without executors, a class path is enough; --jars would copy the files. The option replaces the
        # user's conf of the same meaning, so class_path includes the value of that conf.
        hook.driver_class_path = class_path or None
        if ours:
            self._archive = engine.ClassDataArchive(class_path)
        # The hook sets the master. The warehouse is in the run's own folder, and is deleted with it.
        del confs["spark.master"]
        confs["spark.sql.warehouse.dir"] = str(directory / "warehouse")
        if ours:
            confs |= engine.log_store_confs(theirs, file)
        of_both = {**engine.extensions(theirs, file), engine.JAVA_OPTIONS: confs[engine.JAVA_OPTIONS]}
        hook.confs = {**confs, **theirs, **of_both}

    def note_crash(self, hook: DeltaCdcSubmitHook) -> None:
        """Delete the archive if the JVM crashed, so that the next one starts without it."""
        if hook.exit_code not in CRASHES or self._archive is None:
            return
        if self._archive.status().state == "ready":
            self._operator.log.warning(
                "The JVM crashed. Its class-data archive %s is deleted; `delta-cdc archive` makes another.",
                self._archive.path,
            )
            self._archive.forget()
