"""The quickstart, word by word: its files, its commands, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

_PROJECT = Path(__file__).parents[2]
_PAGE = (_PROJECT / "docs" / "quickstart.md").read_text(encoding="utf-8")
#: tools/wheel_check.sh does what these two say, with the pinned dependencies and the wheel of this checkout.
_NOT_RUN = ("python3 -m venv", "pip install")


def _steps(page: str) -> list[tuple[str, str]]:
    """Return files and commands in their order: ``("dags/x.py", code)`` or ``("$ command", output)``."""
    found: list[tuple[str, str]] = []
    for kind, text in re.findall(r"^```(python|console)\n(.*?)^```$", page, re.M | re.S):
        if kind == "python":
            found.append((text.partition("\n")[0].removeprefix("# "), text))
            continue
        for command in re.split(r"^(?=\$ )", text, flags=re.M)[1:]:
            line, _, printed = command.partition("\n")
            found.append((line, printed))
    return found


def _pattern(printed: str) -> str:
    """Return an expression for what a command prints; an ellipsis stands for anything."""
    lines = [re.escape(line).replace("…", ".*") for line in printed.splitlines()]
    return "".join(r"(?:.*\n)*?" if line == ".*" else rf"{line}[ ]*\n" for line in lines)


def test_steps_are_read_in_their_order() -> None:
    page = "```console\n$ a\n1\n…\n$ b x\n```\n\n```python\n# d/f.py\nimport os\n```\n"
    assert _steps(page) == [("$ a", "1\n…\n"), ("$ b x", ""), ("d/f.py", "# d/f.py\nimport os\n")]
    assert re.search(_pattern("1 … 2\n…\n3\n"), "0\n1 x 2\nx\ny\n3\n")
    assert not re.search(_pattern("1\n3\n"), "1\n2\n3\n")


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(tmp_path: Path) -> None:
    here = tmp_path / "cdc"
    here.mkdir()
    steps = [(name, text.replace("/tmp/cdc", str(here))) for name, text in _steps(_PAGE)]
    script, expected = [], {}
    for at, (name, text) in enumerate(steps):
        if name.startswith("$ "):
            command = name.removeprefix("$ ").replace("/tmp/cdc", str(here))
            if not command.startswith(_NOT_RUN):
                script += [f"echo '<{at}>'", command]
                expected[at] = text
        else:
            # A file is there when the commands after it run.
            script.append(f"cat >{name} <<'END'\n{text}END")
    file = tmp_path / "quickstart.sh"
    file.write_text("\n".join(["exec 2>&1", f"cd {here}", *script]))
    done = subprocess.run(
        [str(_PROJECT / "tools" / "wheel_check.sh"), "bash", str(file)],
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout
    printed = dict(re.findall(r"^<(\d+)>\n(.*?)(?=^<\d+>$|\Z)", done.stdout, re.M | re.S))
    assert len(expected) > 8
    for at, text in expected.items():
        assert re.search(_pattern(text), printed[str(at)]), f"{steps[at][0]} printed:\n{printed[str(at)]}"
