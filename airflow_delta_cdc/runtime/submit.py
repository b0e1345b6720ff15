"""Run a spec as an application of ``spark-submit``: in the worker, or in deploy mode client or cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.providers.common.compat.sdk import conf

from airflow_delta_cdc import engine
from airflow_delta_cdc.compat import HAS_STATE_STORES
from airflow_delta_cdc.hooks.submit import SUBMIT_ARGUMENTS, UTC, DeltaCdcSubmitHook
from airflow_delta_cdc.runtime.embedded import EmbeddedStart
from airflow_delta_cdc.runtime.exchange import (
    SECTION,
    Exchange,
    delete_folder,
    needed_results_uri,
    put_file_once,
    put_object,
    read_text,
)
from airflow_delta_cdc.runtime.manifests import manifests_for
from airflow_delta_cdc.runtime.storage import add_planner_options, add_storage, places_of
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import InvalidConfiguration, JobFailed, JobRefused
from delta_cdc.core.storage_options import hadoop_uri, is_s3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_delta_cdc.runtime.task import SparkTask
    from delta_cdc.core.spec import JobResult, Spec
    from delta_cdc.launch.run_folder import RunFolder

#: The application file of ``spark-submit``. The package's ``__main__.py`` cannot serve: as application, it
#: would make its own folder ``sys.path[0]``.
JOB_FILE = "delta_cdc_job.py"
_JOB = "import sys\n\nfrom delta_cdc.__main__ import main\n\nsys.exit(main())\n"

_CLASS_PATH = "SPARK_DIST_CLASSPATH"

#: The key of the hash of the spec that the stored application id belongs to.
FINGERPRINT_KEY = "spark_job_fingerprint"

#: The key that records the success of the driver's pod. A deleted pod has no phase any more.
SUCCEEDED_KEY = "k8s_driver_status"

#: The consequence if a retry cannot find the application of an earlier try.
_ONE_COMMITS = (
    "Only one of the two can commit, except to tables on S3 without a log store for several drivers "
    "(single_driver)."
)

#: The exit codes of an application that came to its own end, with or without an error.
_ENDED_BY_ITSELF = (0, 1)

#: The statuses, in capitals, that YARN and Kubernetes report for an application that has ended. ``NotFound``:
#: Kubernetes answered, and the driver's pod is gone.
_ENDED = frozenset({"SUCCEEDED", "FAILED", "NOTFOUND"})
#: The status if the cluster gave no answer, so that the application may still run. Airflow's
#: :class:`ResumableJobMixin` submits again, as after a failure: it takes the status for neither active nor
#: succeeded.
UNREACHABLE = "UNREACHABLE"


class SubmitRuntime:
    """Run specs by ``spark-submit``, and return the driver's result.

    :param operator: provides the connection, arguments, JARs and confs, and finds the running application of
        an earlier try (``durable``)
    """

    def __init__(self, operator: SparkTask) -> None:
        self._operator = operator
        self._hook: DeltaCdcSubmitHook | None = None
        self._exchange: Exchange | None = None
        self._embedded: EmbeddedStart | None = None
        #: Storage options of the tables.
        self._options: dict[str, str] | None = None
        #: The worker lost track of the application, which may still run.
        self.may_still_run = False
        self._killed = False
        #: How the driver ended without a whole result.
        self._died: JobFailed | None = None

    @property
    def master(self) -> str:
        """Return the master URL."""
        return (self._hook or submit_hook(self._operator)).master

    def run(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec in one application; see :class:`~airflow_delta_cdc.runtime.SparkRuntime`."""
        operator = self._operator
        with engine.run_folder() as directory:
            hook = self._hook = submit_hook(operator, directory.log)
            hook.hold(directory)
            options = self._options = operator.options_of_storage()
            durable = self._is_durable(hook)
            with manifests_for(
                spec, hook.master, directory.path, options=options, log=operator.log, lasting=durable
            ) as ready:
                self._fill(hook, context, ready, directory, options)
                self._start(context, hook, engine.sha256(engine.to_json(ready)), durable=durable)
                result = self._read_result(hook)
                if self._died is not None:
                    result = _until_death(result, self._died, hook.exit_code)
            directory.keep_log = _is_unnamed_failure(result)
            if directory.keep_log:
                operator.log.error("The complete log of Spark is in %s", directory.log)
            return result

    def kill(self) -> None:
        """Stop the application, if one was started."""
        self._killed = True
        if self._hook is not None:
            self._hook.on_kill()

    # -- an application of a cluster, which the next try finds again --------------------------------
    def submit_job(self) -> str:
        """Delete an older result of the same spec, submit a new application, and return its id."""
        return self.tracked.submit_tracked(self._drop_older_result().application)

    @property
    def tracked(self) -> DeltaCdcSubmitHook:
        """Return the hook of the run, which queries the cluster."""
        assert self._hook is not None
        return self._hook

    def _drop_older_result(self) -> Exchange:
        """Delete the result of an earlier attempt at the same spec: the driver will write to its path."""
        assert self._exchange is not None
        delete_folder(self._exchange.result, self._options)
        return self._exchange

    def clean_up(self) -> None:
        """Delete the files of the last application from the shared folder."""
        folder = self._exchange.folder if self._exchange is not None else None
        if folder is None:
            return
        try:
            delete_folder(folder, self._options)
        except Exception as error:  # noqa: BLE001 - leftover files do not change the outcome of the job
            self._operator.log.warning("The files of the run in %s could not be deleted: %s", folder, error)

    # -- starting -------------------------------------------------------------------------------
    def _fill(
        self,
        hook: DeltaCdcSubmitHook,
        context: Context,
        spec: Spec,
        directory: RunFolder,
        options: Mapping[str, str] | None,
    ) -> None:
        """Give the hook the files, confs, storage, Kafka options and lineage of a run."""

        operator, text = self._operator, engine.to_json(spec)
        owner = operator.task_key(context)
        self._exchange = self._prepare(hook, directory.path, spec_text=text, owner=owner)
        places = [*places_of(spec, options), self._exchange.result]
        kafka = spec.reads_topics
        self._embedded = None
        if not operator.spark_conn_id:
            self._embedded = EmbeddedStart(
                operator, spec, places=places, kafka=kafka, storage_options=options
            )
        self._add_engine(
            hook, self._exchange, engine.sha256(text), directory.path, kafka=kafka, places=places
        )
        add_storage(
            hook,
            options,
            spec=spec,
            directory=directory.path,
            log=operator.log,
            kafka=operator.options_of_kafka(),
        )
        add_planner_options(hook, options, spec=spec, directory=directory.path)
        hook.confs = self._add_lineage(hook.confs, context)

    def _start(self, context: Context, hook: DeltaCdcSubmitHook, fingerprint: str, *, durable: bool) -> None:
        operator = self._operator
        assert self._exchange is not None
        if self._killed:
            raise JobFailed(
                "The task was killed before its Spark application started.",
                remedy="clear the task to run it again.",
            )
        operator.log.info("Starting Spark on %s", hook.master)
        if durable:
            self._start_or_find(context, hook, fingerprint)
            return
        if hook.is_cluster:
            # A local result cannot be older: its directory was made for this run.
            self._drop_older_result()
        try:
            hook.submit(self._exchange.application)
        except JobFailed as error:
            if self._embedded is not None:
                self._embedded.note_crash(hook)
            # After a named error, the engine ends with an error code; its result holds the error to show.
            if hook.was_killed or self._result_text(hook) is None:
                raise
            self._died = error

    def _start_or_find(self, context: Context, hook: DeltaCdcSubmitHook, fingerprint: str) -> None:
        operator = self._operator
        self._forget_other_job(context, fingerprint)
        try:
            operator.execute_resumable(context)
        except JobFailed:
            raise
        except Exception as error:
            job_id = context["task_state_store"].get(operator.external_id_key)
            if job_id is None:
                raise
            # As above, a named error ends the application with an error code. While a group's driver runs,
            # its files are not yet a result.
            status = operator.get_job_status(job_id, context)
            self.may_still_run = status.upper() not in _ENDED
            if not self.may_still_run and self._result_text(hook) is not None:
                return
            raise JobFailed(
                f"The Spark application {job_id} on {hook.master} is {status}, without a result: {error}",
                remedy="see the application's own log; a retry is safe, and finds it again if it still runs.",
            ) from error

    def _is_durable(self, hook: DeltaCdcSubmitHook) -> bool:
        if not hook.is_cluster:
            return False
        if not HAS_STATE_STORES:
            self._operator.log.warning(
                "Airflow before 3.3 does not store the application of a task, so a retry submits a new "
                "application, even if the earlier one still runs. %s",
                _ONE_COMMITS,
            )
            return False
        if self._operator.durable and not hook.is_tracked:
            self._operator.log.warning(
                "The connection %r does not track applications, so a retry submits a new application, even "
                "if the earlier one still runs. %s",
                self._operator.spark_conn_id,
                _ONE_COMMITS,
            )
        return bool(self._operator.durable and hook.is_tracked)

    def _forget_other_job(self, context: Context, fingerprint: str) -> None:
        """Drop a stored application id that belongs to another spec."""
        store = context["task_state_store"]
        if store.get(FINGERPRINT_KEY) != fingerprint:
            drop_stored_job(context, self._operator.external_id_key)
            store.set(FINGERPRINT_KEY, fingerprint)

    # -- files ----------------------------------------------------------------------------------
    def _prepare(self, hook: DeltaCdcSubmitHook, directory: Path, *, spec_text: str, owner: str) -> Exchange:
        """Return the locations of the files, which are written.

        :param owner: names of the task. Two tasks may have equal specs, and each deletes its own files
        """
        package = engine.engine_zip()
        application = engine.write_private(directory / JOB_FILE, _JOB)
        spec = engine.write_private(directory / f"spec-{engine.sha256(spec_text)[:16]}.json", spec_text)
        if not hook.is_cluster:
            return Exchange(str(application), str(package), str(spec), str(directory / "result.json"))
        reason = f"The connection {self._operator.spark_conn_id!r} runs applications in deploy mode cluster"
        root = needed_results_uri(reason)
        folder = f"{root}/{engine.sha256(f'{owner} {spec_text}')}"
        result = f"{folder}/result"
        if not hook.is_kubernetes:
            return Exchange(str(application), str(package), spec.name, result, files=str(spec), folder=folder)
        # All runs of a release share this file: its name contains its hash.
        shared = f"{root}/engine/{package.name}"
        put_file_once(shared, package, self._options)
        for path in (application, spec):
            put_object(f"{folder}/{path.name}", path.read_bytes(), self._options)
        remote = hadoop_uri(folder)
        if is_s3(remote):
            # spark-submit reads the objects, so its class path needs the file system. Spark's scripts append
            # this environment variable to their own class path.
            class_path, s3 = os.environ.get(_CLASS_PATH), map(str, engine.s3_jars().jars())
            hook.add_private_environment({_CLASS_PATH: os.pathsep.join(filter(None, (class_path, *s3)))})
        return Exchange(
            f"{remote}/{application.name}",
            hadoop_uri(shared),
            spec.name,
            result,
            files=f"{remote}/{spec.name}",
            folder=folder,
        )

    def _result_text(self, hook: DeltaCdcSubmitHook) -> str | None:
        assert self._exchange is not None
        return read_text(self._exchange.result, is_local=not hook.is_cluster, options=self._options)

    def _read_result(self, hook: DeltaCdcSubmitHook) -> JobResult:
        assert self._exchange is not None
        text = self._result_text(hook)
        if text is None:
            raise JobFailed(
                f"The Spark application on {hook.master} ended without leaving a result at "
                f"{self._exchange.result}.",
                remedy="see the application's own log; a retry is safe, whatever it had written.",
            )
        try:
            return engine.JobResult.from_json(text)
        except UnreadableJson as error:
            raise JobFailed(
                f"The Spark application on {hook.master} left a result at {self._exchange.result} that "
                f"cannot be read: {error}.",
                remedy="check that workers and Spark have the same version of this package. A retry is safe, "
                "whatever the application had written.",
            ) from error

    # -- confs ----------------------------------------------------------------------------------
    def _add_engine(
        self,
        hook: DeltaCdcSubmitHook,
        exchange: Exchange,
        spec_sha256: str,
        directory: Path,
        *,
        kafka: bool = False,
        places: Sequence[str] = (),
    ) -> None:
        """Give the hook the engine, the JARs and confs, and the arguments of this run.

        :param kafka: whether the job reads topics
        :param places: the locations that the driver reads and writes
        """

        operator = self._operator
        if self._embedded is not None:
            self._embedded.configure(hook, directory)
        else:
            extensions = engine.extensions(hook.confs, hook.properties_file)
            hook.confs = {**engine.delta_confs(), **UTC, **hook.confs, **extensions}
        user_jars, jars = operator.jars or operator.packages, None
        if self._embedded is None and not user_jars and hands_over_jars():
            of_log_store = engine.log_store_confs(hook.confs, hook.properties_file)
            hook.confs = {**of_log_store, **hook.confs}
            needed = engine.needed_jars(places, kafka=kafka)
            in_pods = hook.is_cluster and hook.is_kubernetes
            own_jars = self._shared_jars(needed) if in_pods else [str(jar) for jar in needed]
            jars = _listed(hook, "spark.jars", *own_jars)
        files = exchange.files and _listed(hook, "spark.files", exchange.files, operator.files)
        result = hadoop_uri(exchange.result)
        hook.use_files(
            application_args=["--spec", exchange.spec, "--sha256", spec_sha256, "--result", result],
            py_files=_listed(hook, "spark.submit.pyFiles", exchange.engine, operator.py_files),
            files=files,
            jars=jars,
        )

    def _shared_jars(self, jars: Sequence[Path]) -> list[str]:
        """Copy JARs, once, to a folder that pods can read, and return their URIs.

        :raises InvalidConfiguration: no such folder is configured
        """
        uris = [f"{needed_results_uri('Pods get their JARs from a folder')}/jars/{jar.name}" for jar in jars]
        for uri, jar in zip(uris, jars, strict=True):
            put_file_once(uri, jar, self._options)
        return [hadoop_uri(uri) for uri in uris]

    def _add_lineage(self, confs: dict[str, Any], context: Context) -> dict[str, Any]:
        """Add OpenLineage's confs if the operator enables them, as Airflow's Spark operator does."""
        if self._operator.openlineage_inject_parent_job_info:
            confs = inject_parent_job_information_into_spark_properties(confs, context)
        if self._operator.openlineage_inject_transport_info:
            confs = inject_transport_information_into_spark_properties(confs, context)
        return confs


def submit_hook(task: SparkTask, log_file: Path | None = None) -> DeltaCdcSubmitHook:
    """Return the hook of a task, without the files of a run: these depend on where the driver runs.

    :param log_file: see :class:`DeltaCdcSubmitHook`
    """
    arguments = {name: getattr(task, name) for name in SUBMIT_ARGUMENTS}
    return DeltaCdcSubmitHook(
        conn_id=task.spark_conn_id or None,
        log_file=log_file,
        **{**arguments, "conf": dict(task.conf or {}), "deploy_mode": arguments["deploy_mode"] or None},
    )


def drop_stored_job(context: Context, external_id_key: str) -> None:
    """Delete the entries about an application that the tries of a task have stored."""
    store = context.get("task_state_store")
    if store is None:
        return
    for key in (external_id_key, SUCCEEDED_KEY, FINGERPRINT_KEY):
        if store.get(key) is not None:
            store.delete(key)


def _listed(hook: DeltaCdcSubmitHook, conf: str, *given: str | None) -> str:
    """Return a list argument of ``spark-submit``, with the items of the user's conf of the same meaning.

    Spark ignores the conf if the argument is given.
    """

    return ",".join(filter(None, (*given, engine.spark_default(conf, hook.confs, hook.properties_file))))


def hands_over_jars() -> bool:
    """Return whether the provider passes Delta's JARs to a cluster, by Airflow's configuration.

    :raises InvalidConfiguration: the setting has an unknown value
    """
    choice = (conf.get(SECTION, "delta_jars", fallback="auto") or "auto").strip().lower()
    if choice not in ("auto", "provided"):
        raise InvalidConfiguration(
            f"[{SECTION}] delta_jars is {choice!r}.", remedy="set it to 'auto' or 'provided'."
        )
    return choice == "auto"


def _until_death(result: JobResult, died: JobFailed, exit_code: int | None) -> JobResult:
    """Return the result of a batch whose application ended with an error code.

    :param died: the error of the parts that have no outcome. A driver whose JVM dies may report errors that
        only say so: these are no outcomes
    """
    lost_jvm = exit_code not in _ENDED_BY_ITSELF
    parts = tuple(
        replace(part, status="unreached", error=None) if lost_jvm and _is_unnamed(part) else part
        for part in result.parts
    )
    if all(part.status != "unreached" for part in parts):
        return result
    return replace(result, status="failed", parts=parts, error=died.to_dict(), message=str(died))


def _is_unnamed(result: JobResult) -> bool:
    unnamed = (result.error or {}).get("class") in (None, JobFailed.__name__, JobRefused.__name__)
    return result.status == "failed" and unnamed


def _is_unnamed_failure(result: JobResult) -> bool:
    inner = (*result.parts, *result.then)
    return _is_unnamed(result) or any(_is_unnamed_failure(part) for part in inner)
