"""What all operators that start a Spark application share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_delta_cdc.applications import application_for
from airflow_delta_cdc.applications.exchange import results_uri
from airflow_delta_cdc.applications.slices import is_here
from airflow_delta_cdc.applications.submitted import FINGERPRINT_KEY, SubmittedApplication
from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from delta_cdc.errors import DeltaCdcError, InvalidConfiguration, JobFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import Context
    from pydantic import JsonValue

    from airflow_delta_cdc.applications import Application
    from delta_cdc.spec import JobResult, Spec

#: Of an application.
DEFAULT_NAME = "delta-cdc"


class DeltaCdcOperator(SparkSubmitOperator):
    """Base of the operators that run the engine in one Spark application.

    The worker waits while the application runs, so none of these operators is deferrable: in client mode
    the driver is a child of this very task. ``DeltaVersionSensor`` is what defers.

    Everything :class:`SparkSubmitOperator` takes works here as well, but for ``application``,
    ``application_args``, ``java_class`` and ``conn_id``, which this class provides.

    :param spark_conn_id: connection of type ``spark`` (an application is submitted) or ``spark_connect`` (a
        server runs already); None runs Spark inside the worker, with master ``local[*]``. A connection that
        doesn't exist is an error. (templated)
    :param delta_conn_id: connection of type ``delta``: what logs are read with, and what Spark is given for
        the same storage, its credentials never in confs or on the command line. None is the identity of the
        machine. (templated)
    :param deploy_mode: ``client`` or ``cluster``; None takes the connection's. (templated)
    :param jars: JARs for Spark, Delta's (and Kafka's) among them; None hands over the provider's own.
        (templated)
    :param packages: Maven coordinates, Delta's among them, in the place of the provider's JARs. (templated)
    :param conf: Spark confs, winning over those the provider sets; a class path, options for the driver's
        JVM, and lists of JARs and files come behind the provider's. (templated)
    :param durable: find an application of a cluster again after the worker died. Turned off, and said so,
        where the connection doesn't allow tracking.
    :raises SparkConnectionNotFound: the named connection doesn't exist
    :raises DeltaConnectionNotFound: the same for ``delta_conn_id``
    :raises DeployModeUnsupported: the connection cannot run a Python application this way
    :raises SparkServerUnreachable: the Spark Connect server does not answer
    :raises SparkServerLost: it went away while the job ran
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
        self._application: Application | None = None

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

    def work_id(self, context: Context) -> str:
        """Return who works here, for seals: the same in every try of this task, and in no other task.

        The id of a DAG run alone would not do: runs of several DAGs share it, and so do tasks of one run.
        """
        ti = context.get("ti")
        index = getattr(ti, "map_index", None)
        names = (getattr(ti, "dag_id", None), context["run_id"], getattr(ti, "task_id", None))
        mapped = () if index is None or index < 0 else (str(index),)
        return "/".join((*filter(None, names), *mapped))

    # -- one application ------------------------------------------------------------------------
    def run_job(self, context: Context, spec: Spec) -> JobResult:
        """Run one spec in Spark, as the connection says, and return what the job said about itself.

        A result with status ``failed`` is returned, not raised: the commit may be there all the same, and
        the target's log decides.

        :raises JobFailed: the job ended without a result
        """
        self._application = application_for(self)
        if self._killed:
            # The signal came while there was nothing to tell.
            self._application.kill()
        return self._application.run(context, spec)

    def has_scratch(self) -> bool:
        """Return whether there is a folder that this worker can write and its Spark can read.

        Asked before it is known whether there is anything to do: what is wrong with a connection is said when
        an application is to start.
        """
        if not self.spark_conn_id or results_uri():
            return True
        try:
            return is_here(application_for(self).master)
        except DeltaCdcError:
            return False

    # -- the base class's reconnect, told which job it may reconnect to --------------------------
    def submit_job(self, context: Context) -> str | None:
        """Submit a new application; an older result of the same spec is removed first."""
        assert isinstance(self._application, SubmittedApplication)
        self._application.drop_older_result()
        self.application = self._application.file
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

    def forget_job(self, context: Context) -> None:
        """Drop what is stored about an application, and its files: its outcome is known, or nobody can tell.

        One that was lost sight of, and may run, stays: the next try has to find it.
        """
        submitted = self._application if isinstance(self._application, SubmittedApplication) else None
        if submitted is not None and submitted.may_run:
            return
        self.drop_stored_job(context)
        if submitted is not None:
            submitted.clean_up()

    def drop_stored_job(self, context: Context) -> None:
        """Drop what is stored about an application."""
        store = context.get("task_state_store")
        if store is None:
            return
        for key in (self.external_id_key, self._K8S_DRIVER_STATUS_KEY, FINGERPRINT_KEY):
            if store.get(key) is not None:
                store.delete(key)

    # -- hook -----------------------------------------------------------------------------------
    def _get_hook(self, log_file: Path | None = None) -> DeltaCdcSubmitHook:
        """Build the hook; the files of the run are filled in once it is known where the driver will be.

        :param log_file: see :class:`DeltaCdcSubmitHook`
        """
        return DeltaCdcSubmitHook(
            conn_id=self.spark_conn_id or None,
            log_file=log_file,
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

    def on_kill(self) -> None:
        """Stop what runs. With nothing started there is nothing to stop, nor to look up."""
        self._killed = True
        if self._application is not None:
            self._application.kill()


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
