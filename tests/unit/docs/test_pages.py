"""The pages say what the code has: every parameter, every error, every link."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import tomllib
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, get_args

import pytest

import delta_cdc
from airflow_delta_cdc import operators, sensors, triggers
from delta_cdc.api.changes import apply_changes
from delta_cdc.cli import main
from delta_cdc.core import errors
from delta_cdc.core.arguments import MODES
from delta_cdc.core.options import APPLY, INGEST, READ, Query, ReadMethod, SourceKind
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.quarantine import SETTLED_BY
from delta_cdc.core.rules import check_apply
from delta_cdc.planning import read_methods
from delta_cdc.planning.ingest_request import checked
from delta_cdc.run.loop import Services
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import batches, layout, refusals

if TYPE_CHECKING:
    from types import ModuleType

_PROJECT = Path(__file__).parents[3]
_DOCS = _PROJECT / "docs"
_URL = tomllib.loads((_PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
_FILES = f"{_URL}/blob/main"
_RAW = f"{_URL}/raw/main"
#: Tables of figures: longer than what a page may have.
_LONG = ("benchmarks.md", "exactly-once.md")
_PAGES = sorted([_PROJECT / "README.md", *_DOCS.rglob("*.md")])
#: Names on the pages that look like those of errors, and belong to other programs.
_OF_OTHERS = {
    *("AirflowSkipException", "AssetOrTimeSchedule", "AssetWatcher", "BaseSensorOperator"),
    *("CronDataIntervalTimetable", "SparkSubmitOperator", "TriggerRunner", "SparkApplication"),
    *("GenericError", "SignatureDoesNotMatch", "StartJobRun", "ExtractNewRecordState"),
    *("AddColumnName", "BeforeImageSettings", "CsvNullValue", "IncludeOpForFullLoad"),
    *("PreserveTransactions", "TimestampColumnName"),
}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_reference", _DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["docs_reference"] = script
    spec.loader.exec_module(script)
    return script


def test_reference_is_up_to_date(reference: ModuleType) -> None:
    for path, page in reference.pages().items():
        written = (reference.FOLDER / path).read_text(encoding="utf-8")
        assert written == page, f"run python docs/reference.py: {path}"
    assert reference.stale() == []
    public = {name for name in delta_cdc.__all__ if inspect.isfunction(getattr(delta_cdc, name))}
    assert public <= {function.__name__ for _, function in reference.functions()}


def test_every_parameter_is_described(reference: ModuleType) -> None:
    found = [*reference.classes(), *(function for _, function in reference.functions())]
    assert len(found) > 25
    pages = reference.pages_by_name()
    for one in found:
        _, described, _ = reference.described(one)
        missing = set(reference.parameters(one)) - set(described)
        assert not missing, f"{one.__name__}: {missing}"
        page = pages[one.__name__]
        for name in reference.parameters(one):
            # In a list of its own, or among the links.
            assert re.search(rf"^(?:- |.*[:,] )\[?`{name}`", page, re.M), f"{one.__name__}: {name}"


def test_every_operator_has_an_example_and_every_option_a_phrase(reference: ModuleType) -> None:
    for cls in reference.classes()[:-1]:
        (block,) = _blocks(_DOCS / "reference" / "operators" / f"{cls.__name__}.md")
        names: dict[str, Any] = {}
        exec(
            compile(block.replace(f"\n{cls.__name__}(", f"\nmade = {cls.__name__}("), cls.__name__, "exec"),
            names,
        )
        assert isinstance(names["made"], cls)
    assert set(reference._PHRASES) == {name for name in (*APPLY, *INGEST, *READ) if not _grouped(name)}
    assert [phrase for phrase in reference._PHRASES.values() if len(phrase.split()) > 8] == []


def _grouped(name: str) -> bool:
    return any(name in options and options[name].group for options in (APPLY, INGEST, READ))


def test_templated_says_what_template_fields_say(reference: ModuleType) -> None:
    for cls in reference.classes():
        _, described, _ = reference.described(cls)
        said = {name for name, meaning in described.items() if "(templated)" in meaning}
        # An operator's attribute `log` is its logger.
        templated = {"log" if name == "log_table" else name for name in cls.template_fields}
        own = templated & set(reference.parameters(cls))
        assert own - said == set(), f"{cls.__name__}: templated, and not said so"
        assert said - templated == set(), f"{cls.__name__}: said to be templated, and isn't"


def test_every_error_has_its_row() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.+) \| (.+) \|$",
        (_DOCS / "reference" / "errors.md").read_text(encoding="utf-8"),
        re.M,
    )
    named = {
        name
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.DeltaCdcError) and cls is not errors.DeltaCdcError
    }
    assert len(named) > 20
    assert sorted(name for name, _, _ in rows) == sorted(named)
    assert all(meaning.strip() and remedy.strip() for _, meaning, remedy in rows)


def test_every_name_of_an_error_is_one() -> None:
    """Of every page: a name in words with capitals is an error's, a class's of the provider, or listed."""
    named = {
        (name, page.relative_to(_PROJECT).as_posix())
        for page in _PAGES
        for name in re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", _prose(page))
    }
    known = {*vars(errors), *operators.__all__, *sensors.__all__, *triggers.__all__, *_OF_OTHERS}
    assert {(name, page) for name, page in named if name not in known} == set()
    assert {name for name, _ in named} >= _OF_OTHERS
    assert len(named) > 200


NUMBERS = {
    ("explanation/change-queries.md", "howto/read-changes.md"): (
        f"at most {read_methods.MOST_VERSIONS} versions with changes one by one",
        f"at most {read_methods.MOST_PARTS} parts",
        f"at most {read_methods.MOST_COMPARED} of these",
        f"{read_methods.WORTHWHILE // 1024**2} MiB of changes or more",
        f"are more than {read_methods.CROSSOVER:g} times smaller",
    ),
    ("explanation/files.md", "howto/expire-events.md"): (
        f"up to {batches.MOST_RANGES} of them",
        f"clustered by its keys (up to {layout._MAX_CLUSTERING_COLUMNS})",
        f"a batch has {layout._MANY_ROWS:,} rows or more",
        f"a target of up to {layout._WHOLE_FILES_TARGET // 1024**2} MiB",
        f"over {layout._COPY_FROM:.0%} of the target's rows".replace("%", " %"),
        f"larger than {layout._FILE_SIZE // 1024**2} MiB",
        f'"target_properties": {{"{layout.FILE_SIZE}":',
        f"{['', 'one', 'two', 'three', 'four', 'five', 'six'][Services.max_attempts]} tries in all",
        f"'{LATENESS_HORIZON}' = '3'",
    ),
}


@pytest.mark.parametrize("pages", NUMBERS)
def test_numbers(pages: tuple[str, ...]) -> None:
    page = _text(*pages)
    assert [number for number in NUMBERS[pages] if number not in page] == []


def test_columns_of_the_quarantine() -> None:
    rows = _rows("column of the quarantine", "howto/quarantine.md")
    assert sorted(name for row in rows for name in _codes(row[0])) == sorted(
        [*quarantine.COLUMNS, SETTLED_BY]
    )
    assert {refusals.NULL_KEY, refusals.NULL_SEQUENCE} <= set(_codes(rows[0][1]))


def test_every_choice_has_its_row() -> None:
    reading = _text("explanation/change-queries.md", "howto/read-changes.md")
    assert set(get_args(Query)) <= set(re.findall(r"^\| [^|]+ \| `(\w+)`[^|]*\| [^|]+ \|$", reading, re.M))
    assert set(get_args(ReadMethod)) - {"auto"} <= set(re.findall(r"^\| `(\w+)` \|", reading, re.M))
    kinds = [code for row in _rows("the source is", "explanation/rows.md") for code in _codes(row[1])]
    assert kinds == list(get_args(SourceKind))
    modes = {_codes(row[0])[0] for row in _rows("`mode`", "howto/repair.md")}
    assert modes == set(MODES) - {"incremental", "backfill", "interval"}


def test_what_is_the_same_as_in_auto_cdc_exists_here() -> None:
    parameters = set(inspect.signature(apply_changes).parameters)
    rows = _rows("AUTO CDC", "coming-from/databricks-auto-cdc.md")
    same = [name for row in rows if row[1] == "the same" for name in _codes(row[0])]
    assert len(same) > 12
    assert {name for name in same if not name.startswith("__")} <= parameters
    other = {name for row in rows for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row[1])}
    assert other <= parameters | {option.key for option in APPLY.values() if option.group}


def test_every_option_of_delta_cdc_changes_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["changes", "--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    commands = re.findall(
        r"delta-cdc changes .*", "\n".join(page.read_text(encoding="utf-8") for page in _PAGES)
    )
    used = {option for command in commands for option in re.findall(r"(--[a-z-]+)", command)}
    assert len(used) > 5
    assert used <= known


def _codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def _rows(first: str, page: str) -> list[list[str]]:
    """Return the rows of the table whose first column has that head."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", _text(page), re.M)
    assert found is not None, first
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def _text(*names: str) -> str:
    return "\n".join((_DOCS / name).read_text(encoding="utf-8") for name in names)


def _prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.relative_to(_PROJECT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)", text):
        file, _, part = link.removeprefix(f"{_FILES}/").removeprefix(f"{_RAW}/").partition("#")
        if "://" in file:
            # Pages of vendors say what could not be tested here; nothing else leads out.
            assert page.parent.name == "platforms", f"{page.name}: {link}"
            assert re.match(r"https://[a-z.]+/", file)
            continue
        # README is a page of the package index too, where only whole addresses lead somewhere.
        assert page.name != "README.md" or link.startswith((_FILES, _RAW)), link
        target = (page.parent / file) if file else page
        assert target.exists(), f"{page.name}: {link}"
        if part:
            assert part in _anchors(target), f"{page.name}: {link}"


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = [head.strip().lower() for head in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "page", [p for p in _PAGES if "reference" not in p.parts], ids=lambda page: page.stem
)
def test_pages_are_short(page: Path) -> None:
    words = len(page.read_text(encoding="utf-8").split())
    most = 600 if page.name == "README.md" else 1500
    assert words <= most or page.name in _LONG, f"{words} words"


def _blocks(page: Path) -> list[str]:
    """Return the blocks of Python: ``python`` runs as it is, ``py`` is a part, or needs what is not here."""
    return re.findall(r"^ *```py(?:thon)?\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.parametrize("page", [p for p in _PAGES if _blocks(p)], ids=lambda page: page.stem)
def test_every_block_of_python_compiles(page: Path) -> None:
    for block in _blocks(page):
        # One page shows the head of a function.
        body = "\n    ...\n" if block.rstrip().endswith(":") else ""
        compile(dedent(block) + body, page.name, "exec")


def test_the_sink_can_be_pasted() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    (block,) = _blocks(_DOCS / "howto" / "sinks.md")
    names: dict[str, Any] = {}
    exec(compile(block, "sinks.md", "exec"), names)
    dag = names["dag"]
    (task,) = dag.tasks
    assert (task.task_id, task.staging, dag.max_active_runs) == ("load", "/lake/orders_for_files", 1)
    assert DagSerialization.to_dict(dag)


@pytest.mark.parametrize(
    "page", [_PROJECT / "README.md", _DOCS / "quickstart.md"], ids=lambda page: page.stem
)
def test_the_first_dag_can_be_pasted(page: Path) -> None:
    """It has its imports, needs no sensor, and no two of its runs are under way at once."""
    from airflow.sdk import DAG

    (block,) = [block for block in _blocks(page) if "with DAG(" in block]
    names: dict[str, Any] = {}
    exec(compile(block, page.name, "exec"), names)
    dag = names["apply"].dag
    assert isinstance(dag, DAG)
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert [type(task).__name__ for task in dag.tasks] == [
        "DeltaEnableChangeDataFeedOperator",
        "DeltaApplyChangesOperator",
    ]
    assert names["apply"].upstream_task_ids == {"enable"}


def _ingests() -> list[tuple[str, str]]:
    blocks = [(page.name, block) for page in _PAGES for block in _blocks(page)]
    return [(name, block) for name, block in blocks if "    DeltaIngestChangesOperator(" in block]


@pytest.mark.parametrize(("page", "block"), _ingests(), ids=lambda value: value if ".md" in value else "")
def test_every_ingest_on_a_page_is_one(page: str, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken by the operator, and by the planner, which looks at nothing for it."""
    from airflow.sdk import DAG

    from airflow_delta_cdc import jobs
    from airflow_delta_cdc.arguments import taken
    from delta_cdc.core.errors import DeltaCdcError

    made: list[Any] = []

    class Kept(operators.DeltaIngestChangesOperator):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            made.append(self)

    names: dict[str, Any] = {"DAG": DAG, "datetime": datetime}
    code = block.replace("from airflow_delta_cdc.operators import DeltaIngestChangesOperator\n", "")
    exec(compile(code, page, "exec"), {**names, "DeltaIngestChangesOperator": Kept})
    assert made
    monkeypatch.setattr(Kept, "connected", lambda _: {"scratch": True, "storage_options": None})
    monkeypatch.setattr(Kept, "options_of_kafka", lambda _: None)
    for task in made:
        (pipeline_job,) = jobs.planned(jobs.pipeline_jobs(task, {"run_id": "r"}, [taken(task, INGEST)]))
        try:
            checked(pipeline_job.ingest)
            if pipeline_job.apply is not None:
                check_apply(pipeline_job.apply)
        except DeltaCdcError as error:
            pytest.fail(f"{page}: {error}")
