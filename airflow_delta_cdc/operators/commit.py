"""Commit the watermark of a custom sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine, tables
from airflow_delta_cdc.arguments import expand
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core import arguments

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeltaCommitWatermarkOperator(DeltaCdcOperator):
    """Commit the watermark of a batch in a staging table, once it has arrived in your sink.

    It comes after the step of yours that brings the batch of a ``DeltaReadChangesOperator`` without a target
    into your sink. Until it has succeeded, reading again returns the same batch; after it, the next batch
    starts right behind. So each batch is offered at least once, and none is passed over. Committing again
    does nothing, and starts no process.

    The XCom ``return_value`` and the key ``watermark`` hold the same dict: pipeline, seal, source_table,
    source_table_id, version, starting_version, ending_version, applied, staging, staging_version, timestamp.

    :param pipeline: the flow's name, as the read was given it (templated)
    :param staging: path or URI of the staging table, ``${ENV}`` allowed (templated)
    :param ending_version: last version of the batch that has arrived, from the read's XCom
        (``"{{ ti.xcom_pull('read')['ending_version'] }}"``). Where that is nothing when the task runs, the
        read had no batch, and nothing is committed. Left out, it is the open batch's, whichever that is
        then (templated)
    :param single_driver: nothing but one Spark driver at a time ever writes to staging; needed on S3 without
        a log store for several writers, and without effect elsewhere
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that ends at ``ending_version``
    :raises DeltaCdcError: a named error, with its remedy
    """

    template_fields = (
        "pipeline",
        "staging",
        "ending_version",
        *DeltaCdcOperator.template_fields,
    )
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
        # Decided before it is rendered: with native objects, an empty value becomes None, too.
        self._names_batch = ending_version is not None
        self.single_driver = single_driver

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, run at most one Spark application per attempt, confirm from the staging table's log."""
        request = engine.CommitRequest(
            pipeline=arguments.required("pipeline", self.pipeline),
            staging=expand(arguments.required("staging", self.staging)),
            ending_version=arguments.whole_number("ending_version", self.ending_version),
            single_driver=self.single_driver,
            run_id=self.work_id(context),
            storage_options=self.options_of_storage(),
        )
        if self._names_batch and request.ending_version is None:
            # Not the open batch: another run may have read that since, and it has arrived nowhere.
            self.log.info("Nothing to commit: ending_version came out empty, so the read had no batch.")
            result = engine.committed_so_far(request)
        else:
            with self.application(context) as execute:
                result = engine.run_commit(request, execute=execute, say=self.log.info)
        return tables.shown(context, result.to_dict())
