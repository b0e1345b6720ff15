"""Words of the list are refused where a folder has more of them than allowed."""

from __future__ import annotations

import pytest

from tools import lint_words

CODE = '''
def run_bundle(on_tie: str) -> str:
    """The text that
    nobody was told."""
    return f"somebody {on_tie}"  # anew
'''


def test_words_in_names_texts_and_comments() -> None:
    wrong, counts = lint_words.findings([("tools/x.py", CODE)], {})
    found = {
        line.partition(" ")[0] + line.split(":")[2].partition(";")[0] for line in wrong if ".py:" in line
    }
    assert found == {
        "tools/x.py:2: 'bundle' in names",
        "tools/x.py:2: 'tie' in names",
        "tools/x.py:4: 'nobody' in sentences",
        "tools/x.py:4: 'told' in sentences",
        "tools/x.py:5: 'somebody' in sentences",
        "tools/x.py:5: 'tie' in names",
        "tools/x.py:5: 'anew' in sentences",
    }
    assert counts["names: ties?"] == {"tools": 2}


def test_a_count_may_stay_or_fall_but_not_rise() -> None:
    files = [("docs/a.md", "It is said."), ("docs/b.md", "It was told, and told again.")]
    _, counts = lint_words.findings(files, {})
    assert lint_words.findings(files, counts) == ([], counts)
    assert lint_words.findings(files[:1], counts)[0] == []
    more = [*files, ("docs/c.md", "Told.")]
    assert lint_words.findings(more, counts)[0][-1] == "docs: 3 of sentences: told|untold, and 2 allowed"
    assert lint_words.findings([("README.md", "Told.")], counts)[0], "each folder has counts of its own"


@pytest.mark.parametrize("text", ["aggregate retold", "`told_of`", "entities"])
def test_other_words(text: str) -> None:
    assert lint_words.findings([("docs/a.md", text)], {})[0] == []


def test_names_of_code_are_compared_by_their_parts() -> None:
    wrong, _ = lint_words.findings([("tools/x.py", "aggregates = untied = Delegate().properties")], {})
    assert wrong == []
