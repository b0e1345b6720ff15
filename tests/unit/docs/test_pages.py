"""The pages say what the code has: every parameter, every error, every link."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import errors
from delta_cdc.core.option_schema import INGEST
from delta_cdc.planning.request import check_apply

if TYPE_CHECKING:
    from types import ModuleType

_PROJECT = Path(__file__).parents[3]
_DOCS = _PROJECT / "docs"
_PAGES = sorted([_PROJECT / "README.md", *_DOCS.glob("*.md")])


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_reference", _DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["docs_reference"] = script
    spec.loader.exec_module(script)
    return script


def test_operators_page_is_up_to_date(reference: ModuleType) -> None:
    written = (_DOCS / "operators.md").read_text(encoding="utf-8")
    assert written == reference.page(), "run python docs/reference.py"


def test_every_constructor_parameter_is_described(reference: ModuleType) -> None:
    classes = reference.classes()
    assert len(classes) >= 5
    for cls in classes:
        _, described, _ = reference.described(cls)
        missing = set(reference.parameters(cls)) - set(described)
        assert not missing, f"{cls.__name__}: {missing}"
        for name in reference.parameters(cls):
            assert f"| `{name}` |" in (_DOCS / "operators.md").read_text(encoding="utf-8")


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
        r"^\| `(\w+)` \| (.+) \| (.+) \|$", (_DOCS / "errors.md").read_text(encoding="utf-8"), re.M
    )
    named = {
        name
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.DeltaCdcError) and cls is not errors.DeltaCdcError
    }
    assert len(named) > 20
    assert sorted(name for name, _, _ in rows) == sorted(named)
    assert all(meaning.strip() and remedy.strip() for _, meaning, remedy in rows)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" in link:
            # Pages of vendors say what could not be tested here; nothing else leads out.
            assert page.name == "platforms.md"
            assert re.match(r"https://[a-z.]+/", link)
            continue
        assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_code_of_a_page_is_that_of_its_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (_DOCS / "sinks.md").read_text(encoding="utf-8"), re.S)
    example = (_PROJECT / "dags" / "orders_to_sqlite.py").read_text(encoding="utf-8")
    assert len(blocks) == 1
    assert blocks[0] in example


def _ingests() -> list[tuple[str, str]]:
    pages = [_PROJECT / "README.md", *sorted(_DOCS.glob("*.md"))]
    blocks = [
        (page.name, block)
        for page in pages
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    ]
    return [(name, block) for name, block in blocks if "DeltaIngestChangesOperator(" in block]


@pytest.mark.parametrize(("page", "block"), _ingests(), ids=lambda value: value if ".md" in value else "")
def test_every_ingest_on_a_page_is_one(page: str, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken by the operator, and by the planner, which looks at nothing for it."""
    from airflow.sdk import DAG

    from airflow_delta_cdc import operators, tables
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
        (pipeline_job,) = tables.planned(tables.pipeline_jobs(task, {"run_id": "r"}, [taken(task, INGEST)]))
        try:
            pipeline_job.ingest.check()
            if pipeline_job.apply is not None:
                check_apply(pipeline_job.apply)
        except DeltaCdcError as error:
            pytest.fail(f"{page}: {error}")
