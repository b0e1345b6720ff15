"""How a driver is started that is all the Spark there is: by the size of its job, and from an archive."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from delta_cdc.core.spec import ApplySpec, BatchSpec, IngestSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from airflow_delta_cdc.runtime.submit_hook import DeltaCdcSubmitHook
    from airflow_delta_cdc.runtime.task import SparkTask
    from delta_cdc.core.spec import Spec
    from delta_cdc.launch.class_data_archive import ClassDataArchive, Training

#: How a process ends whose JVM was killed by what it did itself, as a parent and as a shell see it.
_CRASHES = (-6, -7, -11, 134, 135, 139)


class EmbeddedStart:
    """The confs of one embedded driver, and the class-data archive that it uses or makes.

    :param operator: whose confs and JARs count
    :param spec: what the driver is to do
    :param places: what it reads and writes
    :param kafka: it reads topics
    :param storage_options: those of the tables' store
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
        """Give the hook the confs; its own win.

        :param directory: the run's own folder
        """

        operator, theirs, file = self._operator, hook.confs, hook.properties_file
        # JARs of their own come as jars or packages do, and not by the class path that an archive is for.
        ours = not (operator.jars or operator.packages)
        more_jars = (operator.driver_class_path, engine.spark_default(engine.CLASS_PATH, theirs, file))
        confs: dict[str, Any] = engine.embedded_confs(
            quick_start=engine.is_small(self._spec, self._storage_options),
            kafka=self._kafka,
            locations=self._places,
            jars=ours,
            more_jars=os.pathsep.join(filter(None, more_jars)),
            java_options=engine.spark_default(engine.JAVA_OPTIONS, theirs, file),
            default_java_options=engine.spark_default(engine.DEFAULT_JAVA_OPTIONS, theirs, file),
        )
        class_path = confs.pop(engine.CLASS_PATH)
        # The driver is all there is: no copies, as --jars would make. As an option, which hides the conf of
        # the same meaning: what that says is in here.
        hook.driver_class_path = class_path or None
        if ours:
            self._archive = engine.ClassDataArchive(class_path)
        # The hook names the master, and a warehouse in the run's own folder goes away with it.
        del confs["spark.master"]
        confs["spark.sql.warehouse.dir"] = str(directory / "warehouse")
        hook.confs = {**confs, **theirs, engine.JAVA_OPTIONS: confs[engine.JAVA_OPTIONS]}

    @contextlib.contextmanager
    def training(self, hook: DeltaCdcSubmitHook) -> Iterator[Training | None]:
        """Let this driver make a missing archive, if its job is one that most others are like.

        Of those with Kafka's connector on their class path, most ingest; of the others, most apply.

        :param hook: gets the options of the JVM
        :return: see :meth:`delta_cdc.launch.class_data_archive.ClassDataArchive.training`
        """
        if self._archive is None or not (self._kafka or _applies(self._spec)):
            yield None
            return

        with self._archive.training() as training:
            if training is not None:
                self._operator.log.info(
                    "Spark writes its class-data archive at the end of this run (some seconds, once); later "
                    "ones start from it."
                )
                hook.confs[engine.JAVA_OPTIONS] = f"{hook.confs[engine.JAVA_OPTIONS]} {training.java_options}"
            yield training

    def note_crash(self, hook: DeltaCdcSubmitHook) -> None:
        """Forget the archive where the JVM crashed: the next one starts without."""
        if hook.exit_code not in _CRASHES or self._archive is None:
            return
        if self._archive.status().state == "ready":
            self._operator.log.warning(
                "The JVM crashed. Its class-data archive %s is deleted; a later run makes another.",
                self._archive.path,
            )
            self._archive.forget()


def _applies(spec: Spec) -> bool:
    if isinstance(spec, BatchSpec):
        return any(_applies(part) for part in spec.parts)
    if isinstance(spec, IngestSpec):
        return spec.after is not None
    return isinstance(spec, ApplySpec) and not spec.dry_run
