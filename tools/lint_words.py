"""Keep words out of names of code and out of sentences: the list is ``words.toml``.

Existing occurrences are counted for each word and top folder in ``words_allowed.json``. The check fails if a
count rises, and reports the counts that have fallen; ``lint_words.py --lower`` writes those. A count never
rises by this program.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
WORDS, ALLOWED = ROOT / "tools" / "words.toml", ROOT / "tools" / "words_allowed.json"
FOLDERS = (
    *("airflow_delta_cdc", "benchmarks", "dags", "demo", "docker", "docs", "spark_jobs", "tests", "tools"),
)
#: These quote the words.
EXCEPT = {ROOT / "tools" / "lint_words.py", ROOT / "tests" / "unit" / "test_lint_words.py"}
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

#: For each word (its place and expression): how often each top folder has it.
Counts = dict[str, dict[str, int]]
#: For each place one expression, with a group for each word, and the words' entries by their groups.
Words = dict[str, tuple[re.Pattern[str], dict[str, dict[str, str]]]]


def words(path: Path = WORDS) -> Words:
    """Return the list, as expressions."""
    listed: Words = {}
    entries = tomllib.loads(path.read_text())["word"]
    for place in ("names", "sentences"):
        groups = {f"w{at}": entry for at, entry in enumerate(entries) if entry["in"] == place}
        each = "|".join(f"(?P<{group}>{entry['find']})" for group, entry in groups.items())
        listed[place] = re.compile(rf"\b(?:{each})\b", re.IGNORECASE), groups
    return listed


def places(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the place (``names`` or ``sentences``) and the text of each piece of a file."""
    if not name.endswith(".py"):
        yield from ((number, "sentences", line) for number, line in enumerate(text.splitlines(), 1))
        return
    for node in ast.walk(ast.parse(text)):
        number = getattr(node, "lineno", 1)
        for value in vars(node).values():
            if isinstance(value, str) and isinstance(node, ast.Constant):
                yield from ((at, "sentences", line) for at, line in enumerate(value.splitlines(), number))
            elif isinstance(value, str):
                yield from ((number, "names", part) for part in _PART.findall(value))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], "sentences", token.string


def occurrences(name: str, text: str, listed: Words) -> Iterator[tuple[str, str]]:
    """Yield each word of the list that a file has, with a line for people."""
    for number, place, piece in places(name, text):
        pattern, entries = listed[place]
        for match in pattern.finditer(piece):
            entry = entries[match.lastgroup or ""]
            line = f"{name}:{number}: {match[0]!r} in {place}; write instead: {entry['instead']}"
            yield f"{place}: {entry['find']}", line


def findings(files: Iterable[tuple[str, str]], allowed: Counts) -> tuple[list[str], Counts]:
    """Return the lines on words that a folder has more often than allowed, and the counts of all files.

    :param files: name (from the root of the project) and text of each file
    """
    lines: dict[tuple[str, str], list[str]] = {}
    listed = words()
    for name, text in files:
        folder = name.partition("/")[0] if "/" in name else "."
        for word, line in occurrences(name, text, listed):
            lines.setdefault((word, folder), []).append(line)
    counts: Counts = {}
    for (word, folder), found in sorted(lines.items()):
        counts.setdefault(word, {})[folder] = len(found)
    wrong = [
        line
        for (word, folder), found in lines.items()
        if len(found) > (most := allowed.get(word, {}).get(folder, 0))
        for line in [*found, f"{folder}: {len(found)} of {word}, and {most} allowed"]
    ]
    return wrong, counts


def main(arguments: list[str]) -> int:
    """Check the project; return the exit code."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path not in EXCEPT]
    paths = sorted(path for path in (*paths, *ROOT.glob("*.md")) if path.suffix in (".py", ".md"))
    allowed: Counts = json.loads(ALLOWED.read_text())
    wrong, counts = findings(((str(p.relative_to(ROOT)), p.read_text()) for p in paths), allowed)
    lower = {
        word: {folder: min(most, counts.get(word, {}).get(folder, 0)) for folder, most in of.items()}
        for word, of in allowed.items()
    }
    print("\n".join(wrong) or "words: no folder has more of the list than allowed")
    if "--lower" in arguments:
        ALLOWED.write_text(json.dumps(lower, indent=1, sort_keys=True) + "\n")
    elif lower != allowed:
        print("words: some folders have fewer than allowed; tools/lint_words.py --lower records that")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
