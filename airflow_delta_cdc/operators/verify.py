"""Look whether targets are what their pipelines say they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.files import configuration
from airflow_delta_cdc.mirror import kept
from airflow_delta_cdc.names import chosen, each_located
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.tables import source_of
from delta_cdc.core import arguments
from delta_cdc.core.checks import CHECKS, SEAL, finding, ok
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.planning.verify_request import VerifyRequest
    from delta_cdc.run.verify import Verification

#: The fields of a request that name tables.
_TABLES = ("target", "source", "current")
#: What an XCom takes.
_MOST_BYTES = 48 * 1024


class DeltaVerifyOperator(DeltaCdcOperator):
    """Look whether a target, or all targets of a configuration, are what their pipelines say they are.

    Nothing is written. Everything is looked at as of one version of each target, and of its source as of the
    watermark, so pipelines may run meanwhile. What the logs tell needs no Spark; the rows of all targets take
    one application.

    The log shows a table of all checks. The XCom ``return_value`` is a list with one dict per check:
    ``pipeline``, ``table``, ``version``, ``check``, ``status`` (``ok``, ``finding`` or ``skipped``),
    ``count``, ``detail``, ``samples`` and ``remedy``. Where that is too long for an XCom, a table without
    findings has one entry, ``all``.

    Either ``pipeline`` and ``target`` are given, or ``config``.

    :param pipeline: the pipeline that fills the target (templated)
    :param target: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param source: its source; None takes the location that the seal names. Where it is given literally, its
        asset is an inlet, and the copy of the seal that is kept there is looked at (templated)
    :param current: a target of the other SCD type with the same keys: current rows are compared with the open
        rows of the history (templated)
    :param on_conflict: a change log: as the pipeline has it, which no seal tells (templated)
    :param config: a configuration instead: a YAML file or a folder of them, in which templates are filled in.
        A relative path counts from the DAG's file. Connections and storage options are the task's own
        (templated)
    :param group: of the configuration: only this group (templated)
    :param tables: of the configuration: only these pipelines (templated)
    :param checks: names of checks; None makes all of them (templated)
    :param on_finding: ``fail``, or ``report``: findings are in log and XCom, and the task succeeds
        (templated)
    :param parallel: how many targets Spark looks at in the same moment (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`: connections, ``storage_options``, all about Spark
    :raises VerificationFailed: something was found; names the first of it, and what to do
    :raises InvalidConfiguration: what is asked for cannot be meant
    :raises DeltaCdcError: a target could not be looked at
    """

    template_fields = (
        "pipeline",
        "target",
        "source",
        "current",
        "on_conflict",
        "config",
        "group",
        "tables",
        "checks",
        "on_finding",
        "parallel",
        *DeltaCdcOperator.template_fields,
    )
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
        if self.source is not None and is_literal(self.source):
            self.add_inlets([delta_asset(self.source)])

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Look at the logs, run at most one Spark application, show what was found, and fail if asked to."""

        fails = arguments.one_of(("fail", "report"), "on_finding", self.on_finding) != "report"
        targets = self._targets(context)
        requests = [one.request for one in targets if not isinstance(one.request, DeltaCdcError)]
        with self.application(context) as execute:
            results = engine.run_verify(
                engine.paired_requests(requests),
                execute=execute,
                mirrors=[one.mirror for one in targets if not isinstance(one.request, DeltaCdcError)],
                run_id=context["run_id"],
                parallel=arguments.whole_number("parallel", self.parallel, minimum=1) or 1,
                say=self.log.info,
            )
        verified = iter(results)
        found = [
            one.unknown(one.request) if isinstance(one.request, DeltaCdcError) else next(verified)
            for one in targets
        ]
        self.log.info("Verified %d table(s):\n%s", len(found), engine.verification_text(found))
        rows = published(found)
        # Before it may fail: a failed task returns nothing.
        context["ti"].xcom_push(key="return_value", value=rows)
        engine.raise_if_wrong(found, findings=fails)
        return rows

    def _targets(self, context: Context) -> list[_Target]:
        wanted = arguments.names("checks", self.checks)
        given: dict[str, Any] = {
            "wanted": CHECKS if wanted is None else wanted,
            "run_id": context["run_id"],
            "storage_options": self.options_of_storage(),
        }
        if not arguments.is_given(self.config):
            return [self._one(context, given)]
        names = ("pipeline", *_TABLES)
        named = [name for name in names if arguments.is_given(getattr(self, name))]
        if named:
            raise InvalidConfiguration(
                f"config and {', '.join(named)} are given.", remedy="leave one of them out."
            )
        return self._configured(context, given)

    def _one(self, context: Context, given: dict[str, Any]) -> _Target:
        named = [name for name in ("group", "tables") if arguments.is_given(getattr(self, name))]
        if named:
            raise InvalidConfiguration(
                f"{', '.join(named)} given without config.", remedy="name the configuration, or leave it out."
            )
        pipeline = arguments.required("pipeline", self.pipeline)
        request = engine.VerifyRequest(
            pipeline=pipeline,
            target=expand(arguments.required("target", self.target)),
            source=_table(self.source),
            current=_table(self.current),
            on_conflict=arguments.conflict("on_conflict", self.on_conflict) or "fail",
            **given,
        )
        mirror = self._mirror(context, self.source, pipeline)
        (one,) = self._located(context, [_Target(pipeline, request.target, request, mirror)])
        if isinstance(one.request, DeltaCdcError):
            raise one.request
        return one

    def _configured(self, context: Context, given: dict[str, Any]) -> list[_Target]:
        tables = configuration(self, context, arguments.required("config", self.config)).chosen(
            arguments.text(self.group), arguments.names("tables", self.tables)
        )
        targets = []
        for one in (table.arguments for _, table in tables):
            mirror = self._mirror(context, source_of(one), one["pipeline"])
            place = str(one.get("target") or one.get("log"))
            try:
                targets.append(
                    _Target(one["pipeline"], place, engine.verify_request_of(one, **given), mirror)
                )
            except DeltaCdcError as error:
                # A table that is wrong stops no other.
                targets.append(_Target(one["pipeline"], place, error, None))
        return self._located(context, targets)

    def _mirror(self, context: Context, source: Any, pipeline: str) -> Callable[[], Any] | None:
        """Return what returns the copy of a seal; None where this task has none to look at."""
        if source is None or not is_literal(source) or delta_asset(source) not in self.inlets:
            return None
        return partial(kept, context, self.inlets, source, pipeline)

    def _located(self, context: Context, targets: Sequence[_Target]) -> list[_Target]:
        """Return targets with locations for catalog names, or why one has none."""
        names = [name for one in targets for name in one.tables]
        at = each_located(self, context, names)

        def placed(one: _Target) -> VerifyRequest | DeltaCdcError:
            try:
                places = chosen(at, one.tables)
            except DeltaCdcError as error:
                return error
            if isinstance(one.request, DeltaCdcError):
                return one.request
            changed = {name: places.get(getattr(one.request, name)) for name in _TABLES}
            return replace(one.request, **changed)  # type: ignore[arg-type]

        return [replace(one, request=placed(one)) for one in targets]


@dataclass(frozen=True)
class _Target:
    """One target.

    :param request: what to verify, or why there is no request
    :param mirror: returns the copy of the seal that is kept outside
    """

    pipeline: str
    target: str
    request: VerifyRequest | DeltaCdcError
    mirror: Callable[[], Any] | None

    @property
    def tables(self) -> list[str]:
        """Return the tables of the request, as paths, URIs or catalog names."""
        if isinstance(self.request, DeltaCdcError):
            return []
        return [name for name in (getattr(self.request, field) for field in _TABLES) if name is not None]

    def unknown(self, error: DeltaCdcError) -> Verification:
        """Return the result of a target without a request."""
        if isinstance(error, TableNotFound):
            missing = finding(SEAL, error.message, error.remedy)
            return engine.Verification(self.pipeline, self.target, checks=(missing,))
        return engine.Verification(self.pipeline, self.target, error=error)


def _table(value: Any) -> str | None:
    given = arguments.text(value)
    return expand(given) if given is not None else None


def published(found: Sequence[Verification]) -> list[dict[str, Any]]:
    """Return what an XCom is given: every check; where that is too long, those that found something, and one
    entry for each of the other tables."""

    rows = engine.verification_rows(found)
    if len(json.dumps(rows)) <= _MOST_BYTES:
        return rows
    wrong = [row for row in rows if row["status"] == "finding"]
    sound = [_summary(one) for one in found if not one.findings and one.error is None]
    for some in ([*wrong, *sound], wrong):
        if len(json.dumps(some)) <= _MOST_BYTES:
            return some
    while len(json.dumps(wrong)) > _MOST_BYTES:
        wrong.pop()
    return wrong


def _summary(one: Verification) -> dict[str, Any]:
    done = sum(check.status == "ok" for check in one.checks)
    check = ok("all", f"{done} ok, {len(one.checks) - done} skipped.").to_dict()
    return {"pipeline": one.pipeline, "table": one.table, "version": one.version, **check}
