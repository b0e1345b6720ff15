"""Commit the watermark of a custom sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.option import COUNT, PIPELINE, TABLE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_delta_cdc import publishing
    from delta_cdc.core.option import Kind
else:
    publishing = Lazy("airflow_delta_cdc.publishing")


class DeltaCommitWatermarkOperator(DeltaCdcOperator):
    """Commit the watermark of a batch in a staging table, once the batch has arrived in your sink.

    A ``DeltaReadChangesOperator`` without a target stages a batch, your own task writes it into your sink,
    and this operator follows. Until the commit, each read returns the same batch; then the next batch starts
    right after this one. So your sink gets each batch at least once, and misses no change. A repeated commit
    does nothing, and starts no process.

    The XCom ``return_value`` is a dict: pipeline, seal, source_table, source_table_id, version,
    starting_version, ending_version, applied, staging, staging_version, timestamp.

    :param pipeline: the pipeline's name, the same as in the read task (templated)
    :param staging: path or URI of the staging table, ``${ENV}`` allowed (templated)
    :param ending_version: last version of the batch that has arrived, from the read's XCom
        (``"{{ ti.xcom_pull('read')['ending_version'] }}"``). If the template renders to an empty value, the
        read had no batch, and the task commits nothing. If you omit this argument, the task commits the batch
        that is open when the task runs (templated)
    :param single_driver: you make sure that only one Spark driver at a time writes to staging; needed on S3
        if Spark's log store is not safe for several drivers, and on disks without hard links
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises NoOpenBatch: staging has no batch yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that ends at ``ending_version``
    :raises DeltaCdcError: the commit failed; the error names the remedy
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "pipeline": PIPELINE,
        "staging": TABLE,
        "ending_version": COUNT,
        **DeltaCdcOperator.kinds,
    }
    template_fields = attributes(kinds)
    ui_color = "#e3f2d9"

    def __init__(
        self,
        *,
        pipeline: str,
        staging: str,
        ending_version: int | str | None = None,
        single_driver: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.staging = staging
        self.ending_version = ending_version
        # Decided before the template is rendered: with native objects, an empty value also becomes None.
        self._names_batch = ending_version is not None
        self.single_driver = single_driver
        self.check_literals()

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""
        request = engine.CommitRequest(
            pipeline=arguments.required_pipeline("pipeline", self.pipeline),
            staging=arguments.table("staging", self.staging),
            ending_version=arguments.whole_number("ending_version", self.ending_version),
            single_driver=self.single_driver,
            run_id=self.work_id(context),
            storage_options=self.options_of_storage(),
        )
        if self._names_batch and request.ending_version is None:
            # Do not commit the open batch: another run may have read it since, and it is not in the sink.
            self.log.info("Nothing to commit: ending_version is empty, because the read found no changes.")
            result = engine.committed_so_far(request)
        else:
            with self.application(context) as execute:
                result = engine.run(request, engine.Services(execute=execute, say=self.log.info))
        return publishing.shown(self, context, result.to_dict())
