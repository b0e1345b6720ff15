"""Verify that targets match their pipelines."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.backup import stored_copy
from airflow_delta_cdc.files import configuration, rendered
from airflow_delta_cdc.jobs import source_of
from airflow_delta_cdc.lookups import chosen, each_located
from airflow_delta_cdc.operators.base import MOST_BYTES_OF_REPORT, DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.checks import CHECKS, SEAL, Verification, finding, ok
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, TableNotFound
from delta_cdc.core.option import CONFLICT, NAMES, OPTIONAL_TABLE, PIPELINE, POSITIVE, TEXT, choice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option import Kind
    from delta_cdc.planning.verify import VerifyRequest


class DeltaVerifyOperator(DeltaCdcOperator):
    """Verify that a target, or all targets of a configuration, match their pipelines.

    The task writes nothing. All checks read one version of each target, and the source as of the watermark,
    so pipelines may run at the same time. Only checks of rows need Spark, in one application.

    The task log shows a table of all checks. The XCom ``return_value`` is a list with one dict per check:
    ``pipeline``, ``table``, ``version``, ``check``, ``status`` (``ok``, ``finding`` or ``skipped``),
    ``count``, ``detail``, ``samples`` and ``remedy``. If the list is too long for an XCom, a table without
    findings has one entry, ``all``.

    Give either ``pipeline`` and ``target``, or ``config``.

    :param pipeline: the pipeline that fills the target (templated)
    :param target: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param source: source of the target; None takes the location in the seal. If the value contains no Jinja,
        its asset is an inlet of the task, and the task also checks the copy of the seal in the asset's state
        store (templated)
    :param current: a target of the other SCD type with the same keys: the task compares the current rows with
        the open rows of the history (templated)
    :param on_conflict: for a change log: the value of this option in the pipeline, because the seal does not
        contain it (templated)
    :param config: instead of ``pipeline`` and ``target``, a configuration: a YAML file or a folder of YAML
        files. The task renders its templates. A relative path counts from the folder of the DAG's file. The
        task uses its own connections and storage options, not those in the file (templated)
    :param group: check only this group of the configuration (templated)
    :param tables: check only these pipelines of the configuration (templated)
    :param checks: names from the table of checks in ``docs/howto/verification.md``; None makes all checks
        (templated)
    :param on_finding: ``fail``; or ``report``: the task log and the XCom show the findings, and the task
        succeeds (templated)
    :param parallel: the number of targets that Spark checks at once (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises VerificationFailed: a check has findings; the message names the first ones, and their remedies
    :raises InvalidConfiguration: an argument is invalid
    :raises DeltaCdcError: the task could not check a target
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "pipeline": PIPELINE,
        "target": OPTIONAL_TABLE,
        "source": OPTIONAL_TABLE,
        "current": OPTIONAL_TABLE,
        "on_conflict": CONFLICT,
        "config": TEXT,
        "group": TEXT,
        "tables": NAMES,
        "checks": NAMES,
        "on_finding": choice("fail", "report"),
        "parallel": POSITIVE,
        **DeltaCdcOperator.kinds,
    }
    template_fields = attributes(kinds)
    ui_color = "#d9ead3"

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        target: str | None = None,
        source: str | None = None,
        current: str | None = None,
        on_conflict: str | Mapping[str, Sequence[str]] = "fail",
        config: str | None = None,
        group: str | None = None,
        tables: Sequence[str] | str | None = None,
        checks: Sequence[str] | str | None = None,
        on_finding: str = "fail",
        parallel: int | str = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.target = target
        self.source = source
        self.current = current
        self.on_conflict = on_conflict
        self.config = config
        self.group = group
        self.tables = tables
        self.checks = checks
        self.on_finding = on_finding
        self.parallel = parallel
        self.check_literals()
        if self.source is not None and is_literal(self.source):
            self.add_inlets([delta_asset(self.source)])

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Check the logs, run at most one Spark application, show the results, and fail for findings."""
        fails = arguments.one_of(("fail", "report"), "on_finding", self.on_finding) != "report"
        targets = self._targets(context)
        with self.application(context) as execute:
            results = engine.run_verify(
                engine.paired_requests(targets),
                execute=execute,
                run_id=context["run_id"],
                parallel=arguments.whole_number("parallel", self.parallel, minimum=1) or 1,
                say=self.log.info,
            )
        self.log.info("Verified %d table(s):\n%s", len(results), engine.verification_text(results))
        rows = xcom_rows(results)
        # Push before a failure: a failed task returns no value.
        context["ti"].xcom_push(key="return_value", value=rows)
        engine.raise_if_wrong(results, findings=fails)
        return rows

    def _targets(self, context: Context) -> list[VerifyRequest | Verification]:
        """Return the request of each target, or the result if its request or location is invalid."""
        check_names = arguments.names("checks", self.checks)
        common: dict[str, Any] = {
            "wanted": CHECKS if check_names is None else check_names,
            "run_id": context["run_id"],
            "storage_options": self.options_of_storage(),
        }
        if not arguments.is_given(self.config):
            return [self._one(context, common)]
        others = self._given("pipeline", "target", "source", "current")
        if others:
            raise InvalidConfiguration(f"config and {others} are given.", remedy="leave one of them out.")
        return self._configured(context, common)

    def _given(self, *names: str) -> str:
        values = {name: self.kinds[name].read(name, getattr(self, name)) for name in names}
        return ", ".join(name for name, value in values.items() if value is not None)

    def _one(self, context: Context, common: dict[str, Any]) -> VerifyRequest:
        others = self._given("group", "tables")
        if others:
            raise InvalidConfiguration(
                f"{others} given without config.", remedy="name the configuration, or leave it out."
            )
        pipeline = arguments.required_pipeline("pipeline", self.pipeline)
        request = engine.VerifyRequest(
            pipeline=pipeline,
            target=arguments.table("target", self.target),
            source=arguments.optional_table("source", self.source),
            current=arguments.optional_table("current", self.current),
            on_conflict=arguments.conflict("on_conflict", self.on_conflict) or "fail",
            backup=self._backup(context, self.source, pipeline),
            **common,
        )
        return _placed(request, each_located(self, context, _tables(request)))

    def _configured(self, context: Context, common: dict[str, Any]) -> list[VerifyRequest | Verification]:
        tables = configuration(context, arguments.required("config", self.config)).chosen(
            arguments.text("group", self.group), arguments.names("tables", self.tables)
        )
        targets: list[VerifyRequest | Verification] = []
        for _, table in tables:
            one = table.arguments
            try:
                one = rendered(self, context, table)
                request = engine.verify_request_of(one, **common)
            except DeltaCdcError as error:
                # An invalid table does not affect the others.
                target = str(one.get("target") or one.get("log"))
                targets.append(Verification(one["pipeline"], target, error=error))
            else:
                backup = self._backup(context, source_of(one), one["pipeline"])
                targets.append(replace(request, backup=backup))
        locations = each_located(self, context, [name for one in targets for name in _tables(one)])
        return [one if isinstance(one, Verification) else _located(one, locations) for one in targets]

    def _backup(self, context: Context, source: Any, pipeline: str) -> Callable[[], Any] | None:
        """Return a function that reads the copy of a seal; None if this task has no copy."""
        if source is None or not is_literal(source) or delta_asset(source) not in self.inlets:
            return None
        return partial(stored_copy, context, self.inlets, source, pipeline)


def _tables(target: VerifyRequest | Verification) -> list[str]:
    """Return the tables of a request, as paths, URIs or catalog names."""
    if isinstance(target, Verification):
        return []
    return [name for name in (target.target, target.source, target.current) if name is not None]


def _placed(request: VerifyRequest, locations: Mapping[str, str | DeltaCdcError]) -> VerifyRequest:
    """Return a request with locations instead of catalog names.

    :raises DeltaCdcError: a table has no location
    """
    places = chosen(locations, _tables(request))
    current = places[request.current] if request.current is not None else None
    source = places[request.source] if request.source is not None else None
    return replace(request, target=places[request.target], source=source, current=current)


def _located(
    request: VerifyRequest, locations: Mapping[str, str | DeltaCdcError]
) -> VerifyRequest | Verification:
    """Return a request with locations, or the result if a table has none."""
    try:
        return _placed(request, locations)
    except TableNotFound as error:
        no_source = finding(SEAL, error.message, error.remedy)
        return Verification(request.pipeline, request.target, checks=(no_source,))
    except DeltaCdcError as error:
        return Verification(request.pipeline, request.target, error=error)


def xcom_rows(results: Sequence[Verification]) -> list[dict[str, Any]]:
    """Return the rows of the XCom: all checks.

    If that is too long, return the findings, and one entry for each of the other tables.
    """
    rows = [row for one in results for row in one.to_rows()]
    wrong = [row for row in rows if row["status"] == "finding"]
    passed = [_summary(one) for one in results if not one.findings and one.error is None]
    for entries in (rows, [*wrong, *passed], wrong):
        if len(json.dumps(entries)) <= MOST_BYTES_OF_REPORT:
            return entries
    while len(json.dumps(wrong)) > MOST_BYTES_OF_REPORT:
        wrong.pop()
    return wrong


def _summary(verification: Verification) -> dict[str, Any]:
    passed = sum(check.status == "ok" for check in verification.checks)
    check = ok("all", f"{passed} ok, {len(verification.checks) - passed} skipped.").to_dict()
    return {
        "pipeline": verification.pipeline,
        "table": verification.table,
        "version": verification.version,
        **check,
    }
