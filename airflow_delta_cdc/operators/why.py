"""Explain the row of a key: where each value comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes, is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.operators.base import MOST_BYTES_OF_REPORT, DeltaCdcOperator
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import CONFLICT, KEY_VALUES, NAMES, OPTIONAL_TABLE, PIPELINE, SIZE, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import files, lookups
    from delta_cdc.core.option import Kind
    from delta_cdc.core.why import Answer
    from delta_cdc.planning.why import WhyRequest
else:
    files, lookups = Lazy("airflow_delta_cdc.files"), Lazy("airflow_delta_cdc.lookups")


#: As long as what says how many rows are left out.
_LEFT_ROWS = f"{10**9} of {10**9} rows"


class DeltaWhyOperator(DeltaCdcOperator):
    """Explain the row of one key: for each value, the change that set it, and the run that applied that.

    The task writes no table. It reads the rows of the key in the target, and its changes as far as the source
    still has them. The task log shows the answer as text. The XCom ``return_value`` is the answer as a dict
    (:class:`delta_cdc.core.why.Answer`). ``left_out`` names the parts that were too long for an XCom.

    Give either ``pipeline`` and ``target``, or ``config`` and ``pipeline``.

    :param pipeline: the pipeline that fills the target; with ``config``, one of its pipelines, which may be
        left out if there is only one (templated)
    :param target: path, URI or catalog name, ``${ENV}`` allowed (templated)
    :param source: source of the target; None takes the location in the seal. If the value contains no Jinja,
        its asset is an inlet of the task (templated)
    :param on_conflict: for a change log: the value of this option in the pipeline, because the seal does not
        contain it (templated)
    :param config: instead of ``target``, a configuration: a YAML file or a folder of YAML files, from which
        the task takes tables and options. A relative path counts from the folder of the DAG's file. The task
        uses its own connections and storage options, not those in the file (templated)
    :param key: each key column with its value: a mapping, or a text such as ``id=17, line=3`` (templated)
    :param columns: explain only these columns; None explains all (templated)
    :param at: a version of the target, or a time (ISO 8601 with offset); None: the newest version (templated)
    :param max_bytes: the most bytes to read of one table, such as ``20GiB``; None: 1 GiB. Of a longer feed,
        the task reads the newest part (templated)
    :param kwargs: arguments of :class:`DeltaCdcOperator`: connections, ``storage_options``, Spark settings
    :raises InvalidConfiguration: an argument is invalid, or the target has no such version or column
    :raises RangeTooLong: the source is a change log, and more than ``max_bytes`` of it may have the key
    :raises DeltaCdcError: a table cannot be read
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "pipeline": PIPELINE,
        "target": OPTIONAL_TABLE,
        "source": OPTIONAL_TABLE,
        "on_conflict": CONFLICT,
        "config": TEXT,
        "key": KEY_VALUES,
        "columns": NAMES,
        "at": TEXT,
        "max_bytes": SIZE,
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
        on_conflict: str | Mapping[str, Sequence[str]] = "fail",
        config: str | None = None,
        key: Mapping[str, Any] | str | None = None,
        columns: Sequence[str] | str | None = None,
        at: int | str | None = None,
        max_bytes: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.target = target
        self.source = source
        self.on_conflict = on_conflict
        self.config = config
        self.key = key
        self.columns = columns
        self.at = at
        self.max_bytes = max_bytes
        self.check_literals()
        if self.source is not None and is_literal(self.source):
            self.add_inlets([delta_asset(self.source)])

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the row and its changes in Spark, log the answer, and return it."""
        columns = arguments.names("columns", self.columns)
        request = self._request(context)
        names = [name for name in (request.target, request.source) if name is not None]
        places = lookups.located(self, context, names)
        request = replace(
            request,
            target=places[request.target],
            source=None if request.source is None else places[request.source],
        )
        with self.application(context) as execute:
            answer = engine.run_why(request, execute=execute, say=self.log.info)
        if columns:
            answer = answer.only(columns)
        self.log.info("%s", answer)
        return xcom_answer(answer)

    def _request(self, context: Context) -> WhyRequest:
        """Return the question, with the tables as paths, URIs or catalog names."""
        key = arguments.key_values("key", self.key)
        if key is None:
            raise InvalidConfiguration(
                "The task has no key.", remedy="give key, such as id=17.", argument="key"
            )
        question: dict[str, Any] = {
            "key": key,
            "at": arguments.text("at", self.at),
            "most_bytes": arguments.size("max_bytes", self.max_bytes) or engine.MOST_BYTES_OF_WHY,
            "run_id": context["run_id"],
            "storage_options": self.options_of_storage(),
        }
        given = self.arguments_of_table(context)
        if given is not None:
            return engine.why_request_of(given, **question)
        return engine.WhyRequest(
            pipeline=arguments.required_pipeline("pipeline", self.pipeline),
            target=arguments.table("target", self.target),
            source=arguments.optional_table("source", self.source),
            policies={"on_conflict": arguments.conflict("on_conflict", self.on_conflict) or "fail"},
            **question,
        )

    def arguments_of_table(self, context: Context) -> Mapping[str, Any] | None:
        """Return the arguments of the pipeline's table in the configuration; None without a configuration.

        :raises InvalidConfiguration: the configuration has not exactly one pipeline of this name
        """
        path = arguments.text("config", self.config)
        if path is None:
            return None
        others = ", ".join(name for name in ("target", "source") if arguments.is_given(getattr(self, name)))
        if others:
            raise InvalidConfiguration(f"config and {others} are given.", remedy="leave one of them out.")
        name = arguments.pipeline("pipeline", self.pipeline)
        chosen = files.configuration(context, path).chosen(None, None if name is None else [name])
        tables = [table for _, table in chosen]
        the_only([table.arguments for table in tables], path)
        return files.rendered(self, context, tables[0])


def the_only(tables: Sequence[Mapping[str, Any]], place: str) -> Mapping[str, Any]:
    """Return the arguments of the only table.

    :param place: where the tables come from, for people
    :raises InvalidConfiguration: there are several tables
    """
    if len(tables) != 1:
        names = ", ".join(table["pipeline"] for table in tables[:10])
        raise InvalidConfiguration(
            f"{place} has {len(tables)} pipelines, and the task names none of them.",
            remedy=f"name one in pipeline: {names}{', …' if len(tables) > 10 else ''}.",
            argument="pipeline",
        )
    return tables[0]


def xcom_answer(answer: Answer) -> dict[str, Any]:
    """Return the answer as a dict, as much of it as fits into an XCom.

    If it is too long, ``left_out`` names what is missing: ``upstream``, ``not_taken`` and, of the rows, the
    oldest ones.
    """
    shown = answer.to_dict()
    left_out: list[str] = []
    for name in ("upstream", "not_taken"):
        if _fits(shown):
            break
        if shown.pop(name, None):
            left_out.append(name)
            shown["left_out"] = left_out
    if not _fits(shown):
        rows = shown.pop("rows")
        room = MOST_BYTES_OF_REPORT - len(
            json.dumps({**shown, "rows": [], "left_out": [*left_out, _LEFT_ROWS]})
        )
        # A history may have many thousand rows, so each is measured once.
        kept = 0
        for row in reversed(rows):
            room -= len(json.dumps(row)) + len(", ")
            if room < 0:
                break
            kept += 1
        shown["rows"] = rows[len(rows) - kept :]
        shown["left_out"] = [*left_out, f"{len(rows) - kept} of {len(rows)} rows"]
    return shown


def _fits(shown: dict[str, Any]) -> bool:
    return len(json.dumps(shown)) <= MOST_BYTES_OF_REPORT
