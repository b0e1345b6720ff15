"""``@task.delta_changes``: pass the changes to a function of the user, then commit their watermark."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import (
    AirflowSkipException,
    DecoratedOperator,
    determine_kwargs,
    task_decorator_factory,
)

from airflow_delta_cdc import engine
from airflow_delta_cdc.operators.base import DEFAULT_NAME
from airflow_delta_cdc.operators.read import StagingOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from airflow_delta_cdc.runtime.manifests import manifests_for
from airflow_delta_cdc.runtime.worker_session import WorkerSession, refuse_submit_arguments
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration, JobFailed
from delta_cdc.core.uris import spark_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from airflow.providers.common.compat.sdk import TaskDecorator
    from airflow.sdk import Context
    from pyspark.sql import DataFrame

    from delta_cdc.core.requests import CommitRequest
    from delta_cdc.core.spec import JobResult, Spec
    from delta_cdc.run.outcomes import Outcome

#: A parameter of this name gets a dict about the batch: its range, counts and staging table.
BATCH = "batch"


class _DeltaChangesDecoratedOperator(DecoratedOperator, StagingOperator):
    """Stage the open batch, call the function with its rows, then commit the batch's watermark.

    All three steps run in the worker's process, in one Spark session. If the function raises, the task
    commits nothing, and the next try gets the same batch. If there are no new changes, the task does not
    start Spark or call the function, and Airflow skips the task and the tasks that need the function's
    result.

    :param python_callable: the function. Its first parameter is the DataFrame of the changes; a parameter
        ``batch`` gets a dict about the batch; the other parameters are those of any TaskFlow function
    :param op_args: positional arguments of the call, after the DataFrame (templated)
    :param op_kwargs: keyword arguments of the call (templated)
    :param kwargs: arguments of :class:`DeltaReadChangesOperator`, except ``target``, and those arguments of
        :class:`SparkSubmitOperator` for which Spark has a conf (memory, cores, executors, queue, JARs and
        packages, Kerberos). Arguments about tracking an application (``durable``, ``verbose``, …) have no
        effect
    :raises InvalidConfiguration: an argument needs a process of ``spark-submit``
    """

    custom_operator_name = "@task.delta_changes"
    template_fields = (*DecoratedOperator.template_fields, *StagingOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **StagingOperator.template_fields_renderers,
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("target") is not None:
            raise InvalidConfiguration(
                "@task.delta_changes was given a target.",
                remedy="leave it out: the watermark is in staging; for a Delta target there is "
                "DeltaApplyChangesOperator.",
            )
        refuse_submit_arguments(kwargs)
        _refuse_signature(python_callable)
        super().__init__(
            python_callable=_give_batch_default(python_callable),
            # Airflow checks the arguments against the signature; None replaces the DataFrame until run time.
            op_args=[None, *(op_args or ())],
            op_kwargs=op_kwargs,
            **kwargs,
        )
        self._session: WorkerSession | None = None

    def execute(self, context: Context) -> Any:
        """Stage or find the batch, call the function, commit, and return the function's value."""
        saved_plans = TaskSavedPlans(context)
        with engine.run_folder() as directory:
            session = self._session = WorkerSession(self, directory.path, self._session_name())
            try:
                returned = self._processed(context, session, directory.path, saved_plans)
                directory.keep_log = False
            finally:
                session.stop()
        return self._handle_output(returned)

    def on_kill(self) -> None:
        """Interrupt the session's operations on a server."""
        super().on_kill()
        if self._session is not None:
            self._session.kill()

    def _session_name(self) -> str:
        return self.name if self.name != DEFAULT_NAME else f"{self.dag_id}-{self.task_id}"

    def _processed(
        self, context: Context, session: WorkerSession, directory: Path, saved_plans: TaskSavedPlans
    ) -> Any:
        def run(spec: Spec) -> JobResult:
            options = self.options_of_storage()
            with manifests_for(spec, session.master, directory, options=options, log=self.log) as ready:
                return engine.run_spec(session.get(spec.locations), ready)

        batch = self.staged(context, run, saved_plans)
        self._stop_if_killed()
        if batch.versions is None:
            self._nothing_new(context, batch, saved_plans)
            return None
        returned = self._called(context, batch, self._changes(session, batch))
        request = self._commit_request(context, batch.pipeline, batch.versions.ending_version)
        committed = engine.run(request, engine.Services(execute=run, say=self.log.info))
        engine.forget_saved_plans(batch, saved_plans)
        self._push(context, {**committed.to_dict(), "rows": batch.rows, "counts": batch.counts})
        return returned

    def _stop_if_killed(self) -> None:
        """Refuse to send a batch: after a kill, Airflow ends the process only some seconds later.

        What the function has sent is committed all the same, or the next run would send it again.
        """
        if self._killed:
            raise JobFailed(
                "The task was killed before its function was called.",
                remedy="clear the task to run it again; it gets the same batch.",
            )

    def _nothing_new(self, context: Context, batch: Outcome, saved_plans: TaskSavedPlans) -> None:
        """Publish that nothing is new, or the batch of an earlier try that died after its commit.

        :raises AirflowSkipException: this run has committed nothing
        """

        earlier = engine.committed_by_run(self._commit_request(context, batch.pipeline))
        engine.forget_saved_plans(batch, saved_plans)
        if earlier is None:
            self._push(context, {**batch.to_dict(), "applied": False})
            raise AirflowSkipException(f"{batch.source_table} has no changes after the watermark.")
        self.log.warning(
            "This run has committed versions %s already: an earlier try died before it published them, or "
            "the task was cleared after its success. The return value of the function is lost, so this task "
            "returns None.",
            earlier.versions,
        )
        self._push(context, {**earlier.to_dict(), "rows": None, "counts": {}})

    def _changes(self, session: WorkerSession, batch: Outcome) -> DataFrame:
        spark = session.get([spark_uri(batch.source_table or ""), spark_uri(batch.staging)])
        reader = spark.read.format("delta").option("versionAsOf", batch.staging_version or 0)
        return reader.load(spark_uri(batch.staging))

    def _called(self, context: Context, batch: Outcome, changes: DataFrame) -> Any:
        args = [changes, *list(self.op_args)[1:]]
        available: dict[str, Any] = {**context, BATCH: batch.to_dict(), **self.op_kwargs}
        return self.python_callable(*args, **determine_kwargs(self.python_callable, args, available))

    def _commit_request(
        self, context: Context, pipeline: str, ending_version: int | None = None
    ) -> CommitRequest:
        return engine.CommitRequest(
            pipeline=pipeline,
            staging=arguments.table("staging", self.staging),
            ending_version=ending_version,
            single_driver=self.single_driver,
            run_id=self.work_id(context),
            storage_options=self.options_of_storage(),
        )

    @staticmethod
    def _push(context: Context, watermark: dict[str, Any]) -> None:
        context["ti"].xcom_push(key="watermark", value=watermark)


def _refuse_signature(function: Callable[..., Any]) -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in (*kinds, inspect.Parameter.VAR_POSITIONAL):
        raise InvalidConfiguration(
            f"The function {getattr(function, '__name__', function)} has no positional parameter.",
            remedy="make its first parameter the DataFrame of the changes: def load(changes): ...",
        )


def _give_batch_default(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let Airflow's check of the arguments pass without ``batch``, whose value exists only at run time."""
    signature = inspect.signature(function)
    if BATCH in signature.parameters:
        parameters = [
            one.replace(default=None) if one.name == BATCH else one for one in signature.parameters.values()
        ]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def delta_changes_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Decorate a function that writes the changes of a Delta table to a custom sink.

    .. code-block:: python

        @task.delta_changes(pipeline="orders_out", table=SOURCE, staging=STAGING, query="upsert", keys=["id"])
        def send(changes, batch=None): ...

    The arguments are those of :class:`DeltaReadChangesOperator`, except ``target``. The function's value is
    the XCom ``return_value``; the XCom ``watermark`` contains the committed watermark and the batch's counts.

    :param multiple_outputs: split a returned dict into one XCom per key
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=_DeltaChangesDecoratedOperator,
        **kwargs,
    )
