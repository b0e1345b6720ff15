"""Words of the list are refused where a folder has more of them than allowed."""

from __future__ import annotations

from tools import lint_words


def test_a_word_of_the_list_is_found() -> None:
    wrong, counts = lint_words.findings(
        [("tools/x.py", 'def f(on_tie: str) -> None:\n    """Told."""\n')], {}
    )
    assert any(line.startswith("tools/x.py:1: 'tie' in names") for line in wrong)
    assert any(line.startswith("tools/x.py:2: 'Told' in sentences") for line in wrong)
    assert counts["names: ties?"] == {"tools": 1}


def test_a_count_may_stay_or_fall_but_not_rise() -> None:
    files = [("docs/a.md", "It is said."), ("docs/b.md", "It was told, and told again.")]
    _, counts = lint_words.findings(files, {})
    assert lint_words.findings(files, counts) == ([], counts)
    assert lint_words.findings(files[:1], counts)[0] == []
    more = [*files, ("docs/c.md", "Told.")]
    assert lint_words.findings(more, counts)[0][-1] == "docs: 3 of sentences: told|untold, and 2 allowed"
    assert lint_words.findings([("README.md", "Told.")], counts)[0], "each folder has counts of its own"
