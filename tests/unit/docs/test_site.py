"""What the site adds to the pages: navigation, a page for each row, addresses of files outside ``docs/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import site

_PAGE = """# Errors

<!-- a page for each row: errors -->

| error | meaning | what to do |
|---|---|---|
| `LogGap` | a commit is missing | see [retention](../howto/retention.md), or a\\|b |
| `NullKey` | a key is NULL | repair it |
"""


def test_each_row_of_a_marked_table_gets_a_page() -> None:
    page, made = site.row_pages("reference/errors.md", _PAGE)
    assert list(made) == ["reference/errors/LogGap.md", "reference/errors/NullKey.md"]
    assert made["reference/errors/LogGap.md"] == (
        "# LogGap\n\n[Errors](../errors.md)\n\n**Meaning:** a commit is missing\n\n"
        "**What to do:** see [retention](../../howto/retention.md), or a|b\n"
    )
    assert "| [`NullKey`](errors/NullKey.md) | a key is NULL |" in page
    unmarked = _PAGE.replace("<!--", "<!-- not ")
    assert site.row_pages("reference/errors.md", unmarked) == (unmarked, {})


def test_links_with_the_name_of_a_row_lead_to_its_page() -> None:
    rows = {"reference/errors.md": {"LogGap": "reference/errors/LogGap.md"}}
    link = "[`LogGap`](../errors.md)"
    code = f"```md\n{link}\n```\n"
    text = f"{link}, [`NullKey`](../errors.md), [errors](../errors.md), [`LogGap`](../other.md)\n{code}"
    assert site.to_rows("reference/operators/a.md", text, rows) == text.replace(
        "../errors.md", "../errors/LogGap.md", 1
    )
    assert site.to_rows("index.md", "[`LogGap`](reference/errors.md)", rows) == (
        "[`LogGap`](reference/errors/LogGap.md)"
    )


@pytest.mark.parametrize(
    ("link", "is_now"),
    [
        ("exactly-once.md#seal", "exactly-once.md#seal"),
        ("../pictures/scd.svg", "../pictures/scd.svg"),
        ("#here", "#here"),
        ("../../dags/x.py", "BASE/dags/x.py"),
        ("../../docker/README.md", "BASE/docker/README.md"),
        ("../grafana-dashboard.json", "BASE/docs/grafana-dashboard.json"),
    ],
)
def test_links_that_leave_the_pages_become_addresses(link: str, is_now: str) -> None:
    code = f"```md\n[x]({link})\n```\n"
    assert site.outward("explanation/a.md", f"[x]({link})\n{code}", "BASE") == f"[x]({is_now})\n{code}"


def test_pages_are_children_of_the_first_index_that_names_them() -> None:
    text = "[a](a.md) [b](../b.md#part) [other](../howto/c.md) [in](deep/index.md) [a](a.md) [x](https://x.y/z.md)"
    found = ["reference/a.md", "b.md", "reference/deep/index.md"]
    assert site.children("reference/index.md", text, set()) == found
    assert site.children("reference/index.md", text, {"b.md", "reference/a.md"}) == found[2:]
    # The outermost names pages beside it, and indexes.
    assert site.children("index.md", "[q](q.md) [h](howto/index.md) [c](howto/c.md)", set()) == [
        "q.md",
        "howto/index.md",
    ]


def test_every_page_has_a_place_and_every_error_a_page() -> None:
    made = site.prepared()
    named: set[str] = set()
    for path, text in made.items():
        here = Path(path).parent
        for entry in text.partition("```{toctree}")[2].partition("```")[0].splitlines()[2:]:
            named.add(Path(site.posixpath.normpath(f"{here}/{entry}.md")).as_posix() if entry else "")
    assert set(made) - named == {"index.md"}
    assert "reference/errors/VersionsExpired.md" in made
    assert "reference/options/max_versions.md" in made
    assert "[`rules`](../options/rules.md)" in made["reference/operators/DeltaApplyChangesOperator.md"]
    assert not [path for path, text in made.items() if "](../../dags" in text]


def test_the_pages_together_stay_short() -> None:
    """A new page replaces words elsewhere; ``python -m tools.site --words`` shows where they are."""
    assert site.words()["total"] <= 75_000
