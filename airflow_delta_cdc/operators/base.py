"""What all operators that start a Spark application share."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.providers.common.compat.sdk import conf

from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration, JobFailed
from delta_cdc.spec import (
    ApplySpec,
    BundleSpec,
    IngestSpec,
    JobResult,
    ReadSpec,
    fingerprint,
    sha256,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context
    from pydantic import JsonValue

    from delta_cdc.spec import Spec, Step

#: The file given to ``spark-submit``. Not the package's ``__main__.py``: given as application, that would
#: make its own folder ``sys.path[0]``.
JOB_FILE = "delta_cdc_job.py"
_JOB = "import sys\n\nfrom delta_cdc.__main__ import main\n\nsys.exit(main())\n"

#: Which spec the stored application id belongs to.
FINGERPRINT_KEY = "spark_job_fingerprint"

#: Of an application.
DEFAULT_NAME = "delta-cdc"

_SECTION = "delta_cdc"
_LOCAL = "local"
_CLASS_PATH = "spark.driver.extraClassPath"
_UTC = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True)
class Exchange:
    """Where one application finds its files, as ``spark-submit`` and as the driver know them.

    :param application: the application file
    :param engine: the engine's zip, for ``--py-files``
    :param spec: the spec as the driver opens it
    :param result: where the worker finds the result: a file of its own in client mode, else the URI of a
        folder that the driver's Spark writes
    :param files: what ``--files`` has to bring to the driver, or None
    """

    application: str
    engine: str
    spec: str
    result: str
    files: str | None = None


class DeltaCdcOperator(SparkSubmitOperator):
    """Base of the operators that run the engine in one Spark application.

    The worker waits while the application runs, so none of these operators is deferrable: in client mode
    the driver is a child of this very task. ``DeltaVersionSensor`` is what defers.

    Everything :class:`SparkSubmitOperator` takes works here as well, but for ``application``,
    ``application_args``, ``java_class`` and ``conn_id``, which this class provides.

    :param spark_conn_id: Spark connection; None runs Spark inside the worker, with master ``local[*]``.
        A connection that doesn't exist is an error. (templated)
    :param delta_conn_id: connection of type ``delta``: what logs are read with, and what Spark is given for
        the same storage, its credentials never in confs or on the command line. None is the identity of the
        machine. (templated)
    :param deploy_mode: ``client`` or ``cluster``; None takes the connection's. (templated)
    :param jars: JARs for Spark, Delta's (and Kafka's) among them; None hands over the provider's own.
        (templated)
    :param packages: Maven coordinates, Delta's among them, in the place of the provider's JARs. (templated)
    :param conf: Spark confs, winning over those the provider sets. (templated)
    :param durable: find an application of a cluster again after the worker died. Turned off, and said so,
        where the connection doesn't allow tracking.
    :raises SparkConnectionNotFound: the named connection doesn't exist
    :raises DeltaConnectionNotFound: the same for ``delta_conn_id``
    :raises DeployModeUnsupported: the connection cannot run a Python application this way
    :raises JobFailed: the application died without saying why
    """

    template_fields: Sequence[str] = (
        "spark_conn_id",
        "delta_conn_id",
        "deploy_mode",
        *(f for f in SparkSubmitOperator.template_fields if f not in ("application", "application_args")),
    )

    #: Options of the object store that win over those of the connection; set by subclasses.
    storage_options: Mapping[str, str] | None = None

    def __init__(
        self,
        *,
        spark_conn_id: str | None = None,
        delta_conn_id: str | None = None,
        deploy_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        ours = {"application", "application_args", "java_class", "conn_id"} & set(kwargs)
        if ours:
            raise InvalidConfiguration(
                f"{type(self).__name__} was given {', '.join(sorted(ours))}, which it sets itself.",
                remedy="name the connection with spark_conn_id, and leave the others out.",
            )
        kwargs.setdefault("name", DEFAULT_NAME)
        super().__init__(conn_id="", deploy_mode=None, **kwargs)
        self.spark_conn_id = spark_conn_id
        self.delta_conn_id = delta_conn_id
        self.deploy_mode = deploy_mode
        self._killed = False
        self._exchange: Exchange | None = None
        self._run_directory: Path | None = None
        self._keep_log = False

    def execute(self, context: Context) -> Any:
        """Do the operator's work; each subclass says what it returns."""
        raise NotImplementedError

    def options_of_storage(self) -> dict[str, str] | None:
        """Return the storage options: those of the connection, and explicit ones, which win.

        :raises DeltaConnectionNotFound: the named connection doesn't exist
        """
        from airflow_delta_cdc.hooks.table import storage_options

        return storage_options(self.delta_conn_id, self.storage_options)

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client, for operators that read topics."""
        return None

    def connected(self) -> dict[str, Any]:
        """Return what requests hold of the task's connections."""
        return {"scratch": self.has_scratch(), "storage_options": self.options_of_storage()}

    # -- one application ------------------------------------------------------------------------
    def run_job(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec in one Spark application and return what it said about itself.

        A result with status ``failed`` is returned, not raised: the commit may be there all the same, and
        the target's log decides.

        :raises JobFailed: the application ended without a result
        """
        from airflow_delta_cdc.operators.storage import reads_kafka, tell_planner, tell_storage

        with self._private_directory() as directory:
            self._run_directory = directory
            hook = self._hook = self._get_hook()
            with self.slices_for(spec, hook.master, directory) as ready:
                text = to_json(ready)
                self._exchange = self._prepare(hook, directory, spec_text=text)
                self._fill_in(hook, self._exchange, sha256(text), kafka=reads_kafka(spec))
                options = self.options_of_storage()
                tell_storage(
                    hook,
                    options,
                    spec=ready,
                    directory=directory,
                    log=self.log,
                    kafka=self.options_of_kafka(),
                )
                tell_planner(hook, options, spec=ready, directory=directory)
                hook._conf = self._with_lineage(hook._conf, context)
                self._start(context, hook, sha256(text))
                result = self._read_result(hook)
            self._keep_log = _is_unnamed_failure(result)
            if self._keep_log:
                self.log.error("The whole log of Spark is in %s", _spark_log(directory))
            return result

    def has_scratch(self) -> bool:
        """Return whether there is a folder that this worker can write and its Spark can read.

        Asked before it is known whether there is anything to do: what is wrong with a connection is said when
        an application is to start.
        """
        if not self.spark_conn_id or _results_uri():
            return True
        try:
            master = self._get_hook().master
        except DeltaCdcError:
            return False
        return master.startswith(_LOCAL)

    @contextlib.contextmanager
    def slices_for(self, spec: Spec, master: str, directory: Path) -> Iterator[Spec]:
        """Give the spec as :meth:`with_slices` does, and delete slices on a store once the job has ended."""
        try:
            yield self.with_slices(spec, master, directory)
        finally:
            if not master.startswith(_LOCAL) and _results_uri():
                self._forget_slices(spec)

    def _forget_slices(self, spec: Spec) -> None:
        if not any(step.segments for step in _readable(spec)):
            return
        from delta_cdc.log.slices import forget

        # All that lies there is slices.
        root = _shared_slices(spec, _results_uri()).removesuffix("/slices")
        try:
            forget(root, self.options_of_storage())
        except Exception as error:  # noqa: BLE001 - what the job did stands, whatever is left lying about
            self.log.warning("The lists of files in %s could not be deleted: %s", root, error)

    def with_slices(self, spec: Spec, master: str, directory: Path) -> Spec:
        """Write the small logs through which Spark reads files, where a spec reads a table by its files.

        :param master: of the Spark that will read them
        :param directory: the run's private directory, which goes away with all that is in it
        :raises InvalidConfiguration: files can only be read this way, the cluster cannot see this machine,
            and nothing else is configured
        """
        from delta_cdc.log.slices import prepared

        if not isinstance(spec, ApplySpec | ReadSpec | BundleSpec):
            return spec
        root, options = self._slices_root(spec, master, directory), self.options_of_storage()
        if isinstance(spec, BundleSpec):
            parts = (
                # A slice is named by its versions, and two parts may read the same ones of two tables.
                prepared(part, root and f"{root}/{number}", options) if isinstance(part, ApplySpec) else part
                for number, part in enumerate(spec.parts)
            )
            return replace(spec, parts=tuple(parts))
        if isinstance(spec, ReadSpec):
            return prepared(spec, root, options)
        return prepared(spec, root, options)

    def _slices_root(self, spec: Spec, master: str, directory: Path) -> str:
        if master.startswith(_LOCAL):
            return str(directory / "slices")
        segments = [segment for step in _readable(spec) for segment in step.segments]
        needed = [segment for segment in segments if segment.needs_slice]
        if not needed and not (segments and _results_uri()):
            return ""
        reason = f"The changes are read on {master}, by a list of their files"
        if needed:
            reason = f"The changes are read by {needed[0].capture} on {master}, by a list of their files"
        return _shared_slices(spec, _needed_results_uri(reason))

    def _start(self, context: Context, hook: DeltaCdcSubmitHook, fingerprint: str) -> None:
        if self._killed:
            raise JobFailed(
                "The task was killed before its Spark application started.",
                remedy="clear the task to run it again.",
            )
        self.log.info("Starting Spark on %s", hook.master)
        if self._is_durable(hook):
            self._forget_other_job(context, fingerprint)
            self.execute_resumable(context)
            return
        self._drop_older_result(hook.is_cluster)
        try:
            self._submit(hook)
        except JobFailed:
            # The engine ends with an error code when it reports a named error: that is what to show.
            if not self._has_result(hook):
                raise

    def _drop_older_result(self, is_cluster: bool) -> None:
        # An earlier attempt at the same spec wrote to the same place. A file of the worker's own cannot be
        # older: its directory is made for this run.
        if is_cluster and self._exchange is not None:
            _delete_folder(self._exchange.result)

    def _is_durable(self, hook: DeltaCdcSubmitHook) -> bool:
        if not hook.is_cluster:
            return False
        if self.durable and not hook.is_tracked:
            self.log.warning(
                "The connection %r has no tracking of applications, so a retry submits again instead of "
                "finding the running one (that is safe: only one of two can commit).",
                self.spark_conn_id,
            )
        return bool(self.durable and hook.is_tracked)

    def _submit(self, hook: DeltaCdcSubmitHook) -> None:
        assert self._exchange is not None
        hook.submit(self._exchange.application)

    # -- the base class's reconnect, told which job it may reconnect to --------------------------
    def submit_job(self, context: Context) -> str | None:
        """Submit a new application; an older result of the same spec is removed first."""
        assert self._exchange is not None
        self._drop_older_result(is_cluster=True)
        self.application = self._exchange.application
        return super().submit_job(context)

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of the stored application; one that can't be found or reached counts as gone."""
        try:
            return super().get_job_status(external_id, context)
        except Exception as error:  # noqa: BLE001 - whatever the cluster answers, the txn makes it safe
            self.log.warning(
                "The Spark application %s cannot be found (%s); submitting again.", external_id, error
            )
            return "NOT_FOUND"

    def _forget_other_job(self, context: Context, fingerprint: str) -> None:
        """Drop a stored application id that belongs to another spec."""
        store = context["task_state_store"]
        if store.get(FINGERPRINT_KEY) != fingerprint:
            self.forget_job(context)
            store.set(FINGERPRINT_KEY, fingerprint)

    def forget_job(self, context: Context) -> None:
        """Drop what is stored about a running application: its outcome is known, or nobody can know it."""
        store = context.get("task_state_store")
        if store is None:
            return
        for key in (self.external_id_key, self._K8S_DRIVER_STATUS_KEY, FINGERPRINT_KEY):
            if store.get(key) is not None:
                store.delete(key)

    # -- files ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _private_directory(self) -> Iterator[Path]:
        """A directory only this user can read; afterwards gone, but for Spark's log of a failed run."""
        directory = Path(tempfile.mkdtemp(prefix="delta-cdc-"))
        # Only the way through run_job to its end says that the log is not needed.
        self._keep_log = True
        try:
            yield directory
        finally:
            self._run_directory = None
            _clean(directory, keep=_spark_log(directory) if self._keep_log else None)

    def _prepare(self, hook: DeltaCdcSubmitHook, directory: Path, *, spec_text: str) -> Exchange:
        from airflow_delta_cdc.operators.storage import write_private
        from delta_cdc.session import engine_zip
        from delta_cdc.storage import hadoop_uri

        engine = engine_zip()
        application = write_private(directory / JOB_FILE, _JOB)
        spec = write_private(directory / f"spec-{sha256(spec_text)[:16]}.json", spec_text)
        if not hook.is_cluster:
            return Exchange(str(application), str(engine), str(spec), str(directory / "result.json"))
        reason = f"The connection {self.spark_conn_id!r} runs applications in deploy mode cluster"
        folder = f"{_needed_results_uri(reason)}/{sha256(spec_text)}"
        result = f"{folder}/result"
        if not hook.is_kubernetes:
            return Exchange(str(application), str(engine), spec.name, result, files=str(spec))
        for path in (engine, application, spec):
            _put_object(f"{folder}/{path.name}", path.read_bytes())
        remote = hadoop_uri(folder)
        return Exchange(
            f"{remote}/{application.name}",
            f"{remote}/{engine.name}",
            spec.name,
            result,
            files=f"{remote}/{spec.name}",
        )

    def _has_result(self, hook: DeltaCdcSubmitHook) -> bool:
        assert self._exchange is not None
        return _read_text(self._exchange.result, is_local=not hook.is_cluster) is not None

    def _read_result(self, hook: DeltaCdcSubmitHook) -> JobResult:
        assert self._exchange is not None
        text = _read_text(self._exchange.result, is_local=not hook.is_cluster)
        if text is None:
            raise JobFailed(
                f"The Spark application on {hook.master} ended without leaving a result at "
                f"{self._exchange.result}.",
                remedy="see the application's own log; a retry is safe, whatever it had written.",
            )
        return JobResult.from_json(text)

    # -- hook -----------------------------------------------------------------------------------
    def _get_hook(self) -> DeltaCdcSubmitHook:
        """Build the hook; the files of the run are filled in once it is known where the driver will be."""
        return DeltaCdcSubmitHook(
            conn_id=self.spark_conn_id or None,
            log_file=_spark_log(self._run_directory) if self._run_directory else None,
            conf=dict(self.conf or {}),
            files=self.files,
            py_files=self.py_files,
            archives=self._archives,
            driver_class_path=self.driver_class_path,
            jars=self.jars,
            packages=self.packages,
            exclude_packages=self.exclude_packages,
            repositories=self._repositories,
            total_executor_cores=self._total_executor_cores,
            executor_cores=self._executor_cores,
            executor_memory=self._executor_memory,
            driver_memory=self._driver_memory,
            keytab=self.keytab,
            principal=self.principal,
            proxy_user=self.proxy_user,
            name=self.name,
            num_executors=self._num_executors,
            status_poll_interval=self._status_poll_interval,
            env_vars=self.env_vars,
            verbose=self._verbose,
            spark_binary=self._spark_binary,
            properties_file=self.properties_file,
            yarn_queue=self._yarn_queue,
            deploy_mode=self.deploy_mode or None,
            use_krb5ccache=self._use_krb5ccache,
            post_submit_commands=self.post_submit_commands,
            track_driver_via_k8s_api=self._track_driver_via_k8s_api,
            yarn_track_via_rm_api=self._yarn_track_via_rm_api,
            yarn_rm_auth=self._yarn_rm_auth,
        )

    def _fill_in(
        self, hook: DeltaCdcSubmitHook, exchange: Exchange, spec_sha256: str, *, kafka: bool = False
    ) -> None:
        """Tell the hook the engine, the JARs and confs, and the arguments of this run.

        :param kafka: the job reads topics
        """
        from delta_cdc.session import delta_confs, embedded_confs
        from delta_cdc.storage import hadoop_uri

        embedded = not self.spark_conn_id
        confs = self._embedded_confs(embedded_confs(kafka=kafka)) if embedded else {**delta_confs(), **_UTC}
        class_path = confs.pop(_CLASS_PATH, None)
        hook._conf = {**confs, **hook._conf}
        hook._py_files = ",".join(filter(None, (exchange.engine, self.py_files)))
        hook._files = ",".join(filter(None, (exchange.files, self.files))) or None
        hook._application_args = [
            "--spec",
            exchange.spec,
            "--sha256",
            spec_sha256,
            "--result",
            hadoop_uri(exchange.result),
        ]
        if self.jars or self.packages:
            return
        if embedded:
            # The driver is all there is: no copies, as --jars would make. As an option, because one that
            # the user gives would otherwise hide the conf of the same meaning.
            hook._driver_class_path = os.pathsep.join(filter(None, (class_path, self.driver_class_path)))
        elif self._hands_over_jars():
            from delta_cdc.jars import delta_jars, kafka_jars

            hook._jars = ",".join(map(str, (*delta_jars(), *(kafka_jars() if kafka else ()))))

    def _embedded_confs(self, confs: dict[str, str]) -> dict[str, str]:
        # The hook names the master, and a warehouse in the run's own folder goes away with it.
        confs = {name: value for name, value in confs.items() if name != "spark.master"}
        if self._run_directory is not None:
            confs["spark.sql.warehouse.dir"] = str(self._run_directory / "warehouse")
        return confs

    def _with_lineage(self, confs: dict[str, Any], context: Context) -> dict[str, Any]:
        """Add OpenLineage's confs where Airflow's configuration asks for them, as the base class does."""
        if self._openlineage_inject_parent_job_info:
            confs = inject_parent_job_information_into_spark_properties(confs, context)
        if self._openlineage_inject_transport_info:
            confs = inject_transport_information_into_spark_properties(confs, context)
        return confs

    @staticmethod
    def _hands_over_jars() -> bool:
        choice = (conf.get(_SECTION, "delta_jars", fallback="auto") or "auto").strip().lower()
        if choice not in ("auto", "provided"):
            raise InvalidConfiguration(
                f"[{_SECTION}] delta_jars is {choice!r}.", remedy="set it to 'auto' or 'provided'."
            )
        return choice == "auto"

    def on_kill(self) -> None:
        """Stop the running application. With nothing started there is nothing to stop, nor to look up."""
        self._killed = True
        if self._hook is not None:
            self._hook.on_kill()


def _results_uri() -> str:
    """Return the configured folder; empty where none is."""
    return (conf.get(_SECTION, "results_uri", fallback="") or "").strip().rstrip("/")


def _needed_results_uri(reason: str) -> str:
    uri = _results_uri()
    if not uri:
        raise InvalidConfiguration(
            f"{reason}, and there is no place that both the worker and the cluster reach.",
            remedy=f"set [{_SECTION}] results_uri to a folder of an object store that the worker and "
            "the driver can both reach.",
        )
    return uri


def _readable(spec: Spec) -> list[Step]:
    """Return the steps whose changes may be read through slices.

    Not those of an apply that follows an ingest: what it reads is not there yet, so its driver writes them.
    """
    parts = spec.parts if isinstance(spec, BundleSpec) else (spec,)
    return [step for part in parts if isinstance(part, ApplySpec | ReadSpec) for step in part.steps]


def _shared_slices(spec: Spec, results_uri: str) -> str:
    from delta_cdc.storage import hadoop_uri

    # Named after the work, not the attempt.
    parts = spec.parts if isinstance(spec, BundleSpec) else (spec,)
    names = [fingerprint(part) for part in parts if isinstance(part, ApplySpec | IngestSpec | ReadSpec)]
    name = sha256("".join(names)) if isinstance(spec, BundleSpec) else names[0]
    return hadoop_uri(f"{results_uri}/{name}/slices")


def raise_if_failed(result: JobResult) -> None:
    """Raise the named error that a job reported."""
    if result.status != "failed":
        return
    if result.error is None:
        raise JobFailed(
            f"The Spark application failed: {result.message or 'no reason given'}.",
            remedy="see the task's log; a retry is safe.",
        )
    raise DeltaCdcError.from_dict(result.error)


def _is_unnamed_failure(result: JobResult) -> bool:
    inner = (*result.parts, *((result.then,) if result.then is not None else ()))
    unnamed = (result.error or {}).get("class") in (None, JobFailed.__name__)
    return (result.status == "failed" and unnamed) or any(_is_unnamed_failure(part) for part in inner)


def _clean(directory: Path, *, keep: Path | None) -> None:
    for child in directory.iterdir():
        if child == keep and child.stat().st_size:
            continue
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()


def _spark_log(directory: Path) -> Path:
    return directory / "spark.log"


def _read_text(uri: str, *, is_local: bool) -> str | None:
    if is_local:
        path = Path(uri)
        return path.read_text(encoding="utf-8") if path.exists() else None
    import obstore

    store = _open_existing(uri)
    if store is None:
        return None
    found = obstore.list_with_delimiter(store)["objects"]
    # What Spark's writers leave: part files; beside them a marker and checksums.
    parts = sorted(item["path"] for item in found if item["path"].rpartition("/")[2].startswith("part-"))
    text = "".join(bytes(obstore.get(store, part).bytes()).decode() for part in parts)
    return text.strip() or None


def _put_object(uri: str, data: bytes) -> None:
    import obstore

    store, name = _open_folder(uri)
    obstore.put(store, name, data)


def _delete_folder(uri: str) -> None:
    import obstore

    store = _open_existing(uri)
    if store is None:
        return
    paths = [item["path"] for batch in obstore.list(store) for item in batch]
    if paths:
        obstore.delete(store, paths)


def _open_existing(folder: str) -> Any:
    """Return the store rooted at a folder; None for a folder of a file system that is not there."""
    from obstore.store import from_url

    # Not made here: the driver may be another user, who then could not write into it.
    if folder.startswith("file:") and not Path(url2pathname(urlsplit(folder).path)).is_dir():
        return None
    return from_url(folder)


def _open_folder(uri: str) -> tuple[Any, str]:
    from obstore.store import from_url

    folder, _, name = uri.rpartition("/")
    if folder.startswith("file:"):
        # A file system shared by workers and cluster: unlike in an object store, folders have to be made.
        return from_url(folder, mkdir=True), name
    return from_url(folder), name
