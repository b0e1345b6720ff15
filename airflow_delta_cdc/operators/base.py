"""The base of all operators that start a Spark application."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.providers.common.compat.sdk import BaseOperator, ResumableJobMixin
from airflow.providers.common.compat.sdk import conf as configuration

from airflow_delta_cdc.arguments import RenderedArguments, attributes
from airflow_delta_cdc.assets import pipeline_alias
from airflow_delta_cdc.compat import known_arguments
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.links import APPLICATION, SparkLink, configured_spark_ui
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, JobFailed
from delta_cdc.core.option import LISTED, NAMES, SETTINGS, TEXT, choice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, BaseOperatorLink, Context
    from pydantic import JsonValue
    from requests.auth import AuthBase

    from airflow_delta_cdc import approval, failures, kafka, lineage, names, runtime
    from airflow_delta_cdc.hooks import table
    from airflow_delta_cdc.runtime import SparkRuntime, exchange, manifests, submit
    from delta_cdc.core.option import Kind
    from delta_cdc.core.spec import JobResult, Spec
else:
    approval, failures = Lazy("airflow_delta_cdc.approval"), Lazy("airflow_delta_cdc.failures")
    kafka, table = Lazy("airflow_delta_cdc.kafka"), Lazy("airflow_delta_cdc.hooks.table")
    lineage, names = Lazy("airflow_delta_cdc.lineage"), Lazy("airflow_delta_cdc.names")
    runtime, exchange = Lazy("airflow_delta_cdc.runtime"), Lazy("airflow_delta_cdc.runtime.exchange")
    manifests, submit = Lazy("airflow_delta_cdc.runtime.manifests"), Lazy("airflow_delta_cdc.runtime.submit")

#: The default name of an application.
DEFAULT_NAME = "delta-cdc"
#: The most bytes of an XCom with a report for people.
MOST_BYTES_OF_REPORT = 48 * 1024


class DeltaCdcOperator(RenderedArguments, ResumableJobMixin, BaseOperator):
    """Base of the operators that run the engine in one Spark application.

    These operators are not deferrable, because in client mode the driver is a child process of the task: the
    worker waits until the application ends. ``DeltaVersionSensor`` is deferrable.

    All arguments of Airflow's :class:`SparkSubmitOperator` work, except ``application``,
    ``application_args``, ``java_class`` and ``conn_id``, which this class sets itself.

    :param spark_conn_id: connection of type ``spark`` (the task submits an application) or ``spark_connect``
        (the task uses a running server); None runs Spark inside the worker, with master ``local[*]``
        (templated)
    :param delta_conn_id: connection of type ``delta``, with which the task reads logs, and Spark accesses the
        same storage. None uses the identity of the machine (templated)
    :param storage_options: options of the object store, which override those of ``delta_conn_id``. The DAG
        shows them, so they must not contain secrets (templated)
    :param deploy_mode: ``client`` or ``cluster``; None uses the connection's deploy mode (templated)
    :param jars: JARs instead of the provider's; they must include Delta's and, for topics, Kafka's
        (templated)
    :param packages: Maven coordinates instead of the provider's JARs; they must include Delta's and, for
        topics, Kafka's (templated)
    :param conf: Spark confs, which override the provider's. Class paths, options for the driver's JVM, and
        lists of JARs and files are added to the provider's (templated)
    :param files: files for the executors' working folders, in addition to the provider's own (templated)
    :param py_files: Python files for the job, in addition to the provider's own (templated)
    :param archives: archives that are unpacked in the executors' working folders
    :param driver_class_path: entries to append to the driver's class path (templated)
    :param exclude_packages: Maven coordinates to exclude from the dependencies of ``packages`` (templated)
    :param repositories: more repositories for ``packages``
    :param total_executor_cores: cores of all executors together; only for a standalone master
    :param executor_cores: cores of an executor
    :param executor_memory: memory of an executor, such as ``2g``
    :param driver_memory: memory of the driver, such as ``2g``
    :param keytab: path of a Kerberos keytab; it overrides the connection's (templated)
    :param principal: Kerberos principal; it overrides the connection's (templated)
    :param proxy_user: user in whose name the application runs (templated)
    :param name: name of the application (templated)
    :param num_executors: number of executors
    :param status_poll_interval: seconds between two status queries for an application of a cluster
    :param env_vars: environment variables of the driver (templated)
    :param verbose: let ``spark-submit`` log more
    :param spark_binary: command of ``spark-submit``; it overrides the connection's
    :param properties_file: file with properties, instead of ``spark-defaults.conf`` (templated)
    :param yarn_queue: queue of YARN; it overrides the connection's
    :param use_krb5ccache: use the ticket cache for Kerberos, not a keytab
    :param post_submit_commands: shell commands that run after the application has ended (templated)
    :param track_driver_via_k8s_api: Kubernetes, deploy mode cluster: track the driver's pod with the API, and
        end ``spark-submit`` as soon as the pod exists. The connection's extra can also set this
    :param yarn_track_via_rm_api: YARN, deploy mode cluster: track the application with the ResourceManager's
        API
    :param yarn_rm_auth: authentication for the ResourceManager's API
    :param openlineage_inject_parent_job_info: pass the task as parent job to Spark's OpenLineage; None takes
        ``[openlineage] spark_inject_parent_job_info``
    :param openlineage_inject_transport_info: pass the transport to Spark's OpenLineage; None takes
        ``[openlineage] spark_inject_transport_info``
    :param durable: True: if the worker dies, the retry continues with the application that runs on the
        cluster. If the connection doesn't allow tracking, the task logs a warning, and a retry submits a new
        application
    :raises SparkConnectionNotFound: the connection ``spark_conn_id`` doesn't exist
    :raises DeltaConnectionNotFound: the connection ``delta_conn_id`` doesn't exist
    :raises DeployModeUnsupported: the connection cannot run a Python application in this deploy mode
    :raises SparkServerUnreachable: the Spark Connect server does not answer
    :raises SparkServerLost: the Spark Connect server stopped answering while the job ran
    :raises JobFailed: the application died without a result
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "spark_conn_id": TEXT,
        "delta_conn_id": TEXT,
        "storage_options": SETTINGS,
        "deploy_mode": choice("client", "cluster"),
        "conf": SETTINGS,
        "files": LISTED,
        "py_files": LISTED,
        "jars": LISTED,
        "driver_class_path": TEXT,
        "packages": LISTED,
        "exclude_packages": LISTED,
        "keytab": TEXT,
        "principal": TEXT,
        "proxy_user": TEXT,
        "name": TEXT,
        "env_vars": SETTINGS,
        "post_submit_commands": NAMES,
        "properties_file": TEXT,
    }
    template_fields: Sequence[str] = attributes(kinds)
    #: The key under which the tries of a task store the id of an application of a cluster.
    external_id_key = "spark_job_id"

    operator_extra_links: Collection[BaseOperatorLink] = (SparkLink(),)
    #: For the link: see :class:`airflow_delta_cdc.links.LinkedTask`.
    spark_ui = application_id = ""

    #: The text of the change that a person has approved; None: the task has not waited.
    approval: str | None = None
    #: What the task published about its table; None before.
    published: dict[str, Any] | None = None

    #: Set by the subclasses that read topics.
    kafka_options: Mapping[str, str] | None = None
    kafka_conn_id: str | None = None

    #: The outlets that :meth:`pre_execute` drops.
    producing: Sequence[Asset] = ()

    def __init__(
        self,
        *,
        spark_conn_id: str | None = None,
        delta_conn_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        deploy_mode: str | None = None,
        conf: dict[str, Any] | None = None,
        files: str | None = None,
        py_files: str | None = None,
        archives: str | None = None,
        driver_class_path: str | None = None,
        jars: str | None = None,
        packages: str | None = None,
        exclude_packages: str | None = None,
        repositories: str | None = None,
        total_executor_cores: int | None = None,
        executor_cores: int | None = None,
        executor_memory: str | None = None,
        driver_memory: str | None = None,
        keytab: str | None = None,
        principal: str | None = None,
        proxy_user: str | None = None,
        name: str = DEFAULT_NAME,
        num_executors: int | None = None,
        status_poll_interval: int = 1,
        env_vars: dict[str, Any] | None = None,
        verbose: bool = False,
        spark_binary: str | None = None,
        properties_file: str | None = None,
        yarn_queue: str | None = None,
        use_krb5ccache: bool = False,
        post_submit_commands: list[str] | None = None,
        track_driver_via_k8s_api: bool = False,
        yarn_track_via_rm_api: bool = False,
        yarn_rm_auth: AuthBase | None = None,
        openlineage_inject_parent_job_info: bool | None = None,
        openlineage_inject_transport_info: bool | None = None,
        durable: bool = True,
        **kwargs: Any,
    ) -> None:
        reserved = {"application", "application_args", "java_class", "conn_id"} & set(kwargs)
        if reserved:
            raise InvalidConfiguration(
                f"{type(self).__name__} does not accept {', '.join(sorted(reserved))}: it sets them itself.",
                remedy="set the connection with spark_conn_id, and remove the other arguments.",
            )
        super().__init__(**known_arguments({"durable": durable, **kwargs}))
        self.spark_conn_id = spark_conn_id
        self.delta_conn_id = delta_conn_id
        self.storage_options = storage_options
        self.archives = archives
        self.conf = conf
        self.deploy_mode = deploy_mode
        self.driver_class_path = driver_class_path
        self.driver_memory = driver_memory
        self.env_vars = env_vars
        self.exclude_packages = exclude_packages
        self.executor_cores = executor_cores
        self.executor_memory = executor_memory
        self.files = files
        self.jars = jars
        self.keytab = keytab
        self.name = name
        self.num_executors = num_executors
        self.packages = packages
        self.post_submit_commands = post_submit_commands
        self.principal = principal
        self.properties_file = properties_file
        self.proxy_user = proxy_user
        self.py_files = py_files
        self.repositories = repositories
        self.spark_binary = spark_binary
        self.status_poll_interval = status_poll_interval
        self.total_executor_cores = total_executor_cores
        self.track_driver_via_k8s_api = track_driver_via_k8s_api
        self.use_krb5ccache = use_krb5ccache
        self.verbose = verbose
        self.yarn_queue = yarn_queue
        self.yarn_rm_auth = yarn_rm_auth
        self.yarn_track_via_rm_api = yarn_track_via_rm_api
        self.openlineage_inject_parent_job_info = _configured(
            openlineage_inject_parent_job_info, "spark_inject_parent_job_info"
        )
        self.openlineage_inject_transport_info = _configured(
            openlineage_inject_transport_info, "spark_inject_transport_info"
        )
        self.check_literals()
        self._killed = False
        self._runtime: SparkRuntime | None = None

    def announces(self, pipeline: str) -> bool:
        """Return whether the task may announce a pipeline; Airflow drops the events of an unknown alias."""
        return pipeline_alias(pipeline) in self.outlets

    def pre_execute(self, context: Context) -> None:
        """Prepare the log for named errors, read the arguments, and drop the outlets that only say what the
        task may write.

        Airflow makes an event for each asset among the outlets of a task that succeeds, even if the task
        wrote nothing. The task makes the events itself, through the pipeline's alias.
        """
        failures.log_named_errors()
        self.read_arguments()
        # The runtimes and the hook read these attributes.
        for name, kind in DeltaCdcOperator.kinds.items():
            setattr(self, name, kind.read(name, getattr(self, name)))
        self.name = self.name or DEFAULT_NAME
        self.outlets = [outlet for outlet in self.outlets if outlet not in self.producing]

    def execute(self, context: Context) -> Any:
        """Do the operator's work; each subclass documents the returned value."""
        raise NotImplementedError

    def answered(self, context: Context, text: Any = None, event: Any = None) -> Any:
        """Continue after a person has answered (:func:`airflow_delta_cdc.approval.asking`).

        :raises LimitExceeded: the person rejected the change
        """
        self.approval = approval.approved(text, event)
        return self.execute(context)

    # -- lineage, for Airflow's OpenLineage provider ----------------------------------------------
    def table_arguments(self) -> Mapping[str, Any] | None:
        """Return the arguments of the operator's table (:func:`airflow_delta_cdc.lineage.facets`).

        None for an operator that moves no rows: inlets and outlets are its lineage.
        """
        return None

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any] | None:
        """Return the tables that the task is about to read and to write."""
        given = self.table_arguments()
        return None if given is None else lineage.facets(given, None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what the task read and wrote."""
        given = self.table_arguments()
        return None if given is None else lineage.facets(given, self.published)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the same as at the start, unless the task failed after it published."""
        return self.get_openlineage_facets_on_complete(task_instance)

    def options_of_storage(self) -> dict[str, str] | None:
        """Return the storage options of the connection and the explicit ones, which win.

        :raises DeltaConnectionNotFound: the named connection doesn't exist
        """
        return table.storage_options(self.delta_conn_id, self.storage_options)

    def options_of_kafka(self) -> dict[str, str] | None:
        """Return the options of Kafka's client of the connection and the explicit ones, which win.

        :raises KafkaConnectionNotFound: the named connection doesn't exist
        """
        return kafka.kafka_options(self.kafka_conn_id, self.kafka_options)

    def connected(self) -> dict[str, Any]:
        """Return the fields of requests that come from the task's connections."""
        return {"scratch": self.has_scratch(), "storage_options": self.options_of_storage()}

    def work_id(self, context: Context) -> str:
        """Return an id of the work, for seals: the same in every try of this task, unique to this task."""
        return self.task_key(context)

    @staticmethod
    def task_key(context: Context) -> str:
        """Return the names of a task, which all its tries share, and no other task.

        The id of a DAG run is not enough: runs of several DAGs, and all tasks of one run, share it.
        """
        ti = context.get("ti")
        index = getattr(ti, "map_index", None)
        names = (getattr(ti, "dag_id", None), context["run_id"], getattr(ti, "task_id", None))
        mapped = () if index is None or index < 0 else (str(index),)
        return "/".join((*filter(None, names), *mapped))

    # -- one application ------------------------------------------------------------------------
    def run_job(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec in the Spark of the connection, and return the job's own result.

        A result with status ``failed`` is returned, not raised: the job may still have committed, and the
        target's log decides.

        :raises JobFailed: the job ended without a result
        """
        self._runtime = runtime.runtime_for(self)
        if self._killed:
            # The signal arrived before the runtime existed.
            self._runtime.kill()
        self.spark_ui = configured_spark_ui(self.spark_conn_id)
        if self.spark_ui and APPLICATION not in self.spark_ui:
            # Known while the application runs; Airflow stores links only at the task's end.
            context["ti"].xcom_push(key=SparkLink.xcom_key, value=self.spark_ui)
        result = self._runtime.run(context, spec)
        self.application_id = result.application
        names.forget_moved(self, context, spec, result)
        return result

    @contextmanager
    def application(self, context: Context) -> Iterator[Callable[[Spec], JobResult]]:
        """Yield :meth:`run_job`; at the end of the block, and after a named error, forget its application.

        After any other error, the application may still run, and the next try has to find it.
        """
        try:
            yield partial(self.run_job, context)
        except DeltaCdcError:
            self.forget_job(context)
            raise
        self.forget_job(context)

    def run_to_end(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec as :meth:`run_job` does, and forget its application.

        :raises DeltaCdcError: the named error that the job reported
        """
        result = self.run_job(context, spec)
        self.forget_job(context)
        if result.status != "failed":
            return result
        if result.error is None:
            raise JobFailed(
                f"The Spark application failed: {result.message or 'no reason given'}.",
                remedy="see the task's log; a retry is safe.",
            )
        raise DeltaCdcError.from_dict(result.error)

    def run_apart(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec as :meth:`run_to_end` does, before the task's own application.

        The task's state store is left alone: it may have the id of the task's own application, which an
        earlier try started, and which this try has to find.
        """
        apart = cast("Context", {**context, "task_state_store": _OwnStore()})
        return self.run_to_end(apart, spec)

    def has_scratch(self) -> bool:
        """Return whether a folder exists that this worker can write and its Spark can read.

        The answer is needed before the plan, so an error of the connection counts as no; the start of an
        application raises it.
        """
        if not self.spark_conn_id or exchange.results_uri():
            return True
        try:
            return manifests.is_here(runtime.runtime_for(self).master)
        except DeltaCdcError:
            return False

    def forget_job(self, context: Context) -> None:
        """Delete the stored entries and the files of an application that has ended, or cannot be found.

        An application that may still run keeps its entries, so that the next try can find it.
        """
        submitted = self._runtime if isinstance(self._runtime, submit.SubmitRuntime) else None
        if submitted is not None and submitted.may_still_run:
            return
        try:
            submit.drop_stored_job(context, self.external_id_key)
        except Exception as error:  # noqa: BLE001 - no error of the work, which has ended
            # With its entries, the next try finds the application again, so that it needs the files.
            self.log.warning("The application of this task could not be forgotten: %s", error)
            return
        if submitted is not None:
            submitted.clean_up()

    # -- the methods of Airflow's resumable jobs, for an application of a cluster -----------------
    def submit_job(self, context: Context) -> str:
        """Submit a new application and return its id."""
        return self._submitted.submit_job()

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of the stored application; ``UNREACHABLE`` if the cluster gives no answer."""
        store = context.get("task_state_store")
        succeeded = store.get(submit.SUCCEEDED_KEY) if store is not None else None
        try:
            return str(succeeded or self._submitted.tracked.status_of(str(external_id)))
        except Exception as error:  # noqa: BLE001 - any error: the txn makes a second application safe
            self.log.warning(
                "The Spark application %s cannot be found (%s); submitting again.", external_id, error
            )
            return submit.UNREACHABLE

    def is_job_active(self, status: str) -> bool:
        """Return whether an application of this status runs, or will run."""
        return self._submitted.tracked.is_active(status)

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether an application of this status has succeeded."""
        return status.upper() == "SUCCEEDED"

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait for the end of an application.

        :raises RuntimeError: the application failed, or cannot be tracked any more
        """
        hook, store = self._submitted.tracked, context.get("task_state_store")
        if hook.wait_for(str(external_id)) and hook.is_kubernetes and store is not None:
            store.set(submit.SUCCEEDED_KEY, "Succeeded")

    def get_job_result(self, external_id: JsonValue, context: Context) -> None:
        """Return None: the runtime reads the result, also of an application that was found again."""

    @property
    def _submitted(self) -> submit.SubmitRuntime:

        assert isinstance(self._runtime, submit.SubmitRuntime)
        return self._runtime

    def on_kill(self) -> None:
        """Stop the application, if one was started."""
        self._killed = True
        if self._runtime is not None:
            self._runtime.kill()


class _OwnStore:
    """Keeps the state of one application in memory, with the methods of Airflow's task state store."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._kept.get(key, default)

    def set(self, key: str, value: Any, **_: Any) -> None:
        self._kept[key] = value

    def delete(self, key: str) -> None:
        self._kept.pop(key, None)


def _configured(given: bool | None, option: str) -> bool:
    """Return a switch as given, or else its value in Airflow's configuration of OpenLineage."""
    return bool(configuration.getboolean("openlineage", option, fallback=False)) if given is None else given
