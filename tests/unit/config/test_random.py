"""Whatever is written, it is read, or told with its place; nothing else ever comes of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from delta_cdc import config
from delta_cdc.config import models
from delta_cdc.config.findings import Findings
from delta_cdc.config.tree import read_file

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.config.tree import Node

_KEYS = (*models.default_keys(), "mode", "x", "<<", "pipeline", *models.IN_GROUPS)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 10**30, 1.5, float("inf"), "", " ", "id", "a b", "\x00", "ü" * 300,
    "{{ x }}", "{% x %}", "$X", "${X}/y", "s3://a/b", "file:///x", "kafka://b:9/t", "kafka://", "/s", "C:\\x",
    "c.s.t", "`x`.y", "abfss://c@a.dfs.core.windows.net/x", "5 minutes", "@daily", "on_change", "2026-01-01",
    "change_log", "change_feed", "snapshot", "plain", "debezium", "json", "csv", "g", "p1",
    [], ["id"], ["id", "id"], [1], [None], [[]], {}, {"a": "b"}, {"last_by": []}, {"from_version": 1},
    {"none_at": "x"}, {"assets": ["a"]}, {"assets": []}, {"a": {"b": [1]}}, b"x", 3j,
)  # fmt: skip


def section(draw: random.Random, most: int) -> dict[str, Any]:
    def value(key: str) -> Any:
        names = models.IN_GROUPS.get(key, ())
        return {draw.choice(names): draw.choice(_VALUES)} if names else draw.choice(_VALUES)

    return {key: value(key) for key in draw.choices(_KEYS, k=draw.randint(0, most))}


def drawn(draw: random.Random) -> dict[str, Any]:
    """Return a mapping that is wrong in most of its places."""
    whole = {"source": "/s", "target": "/t", "keys": "id"}
    given: dict[str, Any] = {}
    if draw.random() < 0.3:
        given["defaults"] = section(draw, 2) if draw.random() < 0.95 else draw.choice(_VALUES)
    if draw.random() < 0.3:
        names = draw.sample(["g", "p1", "a b", 1, None], 2)
        given["groups"] = {
            n: section(draw, 3) if draw.random() < 0.9 else draw.choice(_VALUES) for n in names
        }
    names = draw.sample(["p1", "p2", "p3", "", 3, "p1__backfill"], draw.choice([1, 1, 2]))
    given["pipelines"] = {
        name: {**whole, **section(draw, 1)} if draw.random() < 0.9 else draw.choice(_VALUES) for name in names
    }
    return given


@pytest.mark.parametrize("seed", range(4))
def test_mappings(seed: int) -> None:
    draw, sound = random.Random(seed), 0
    for _ in range(400):
        given = drawn(draw)
        found = config.lint(given)
        assert all(finding.place.file and finding.message and finding.remedy for finding in found)
        if not found:
            sound += 1
            assert all(len(group.fingerprint) == 64 for group in config.load(given).groups)
    assert sound > 5


def test_texts(tmp_path: Path) -> None:
    """A right file with some characters changed."""
    text = (
        'defaults: {schedule: "@daily", where: "a > 1"}\n'
        "groups:\n  g: {conf: {a.b: 1.10}}\n"
        "pipelines:\n  p:\n    group: g\n    source: /s\n    target: /t\n    keys: [id, n]\n"
        "  q: {source: /f, log: /l, keys: id, adapter: my.own, adapter_options: {a: [1, ~, {b: c}]}}\n"
    )
    path, draw, sound = tmp_path / "p.yaml", random.Random(7), 0
    for _ in range(400):
        letters = list(text)
        for _ in range(draw.randint(1, 3)):
            letters[draw.randrange(len(letters))] = draw.choice(
                ":-#&*!|>'\"%@`{}[],?\n\t \x07\x85\ufeff\U0001f600a1~"
            )
        path.write_text("".join(letters), encoding="utf-8")
        found = config.lint(path)
        sound += not found
        assert all(finding.place.file == str(path) and finding.remedy for finding in found)
    assert 10 < sound < 390


def plain_data(draw: random.Random, depth: int = 0) -> Any:
    """Return data that YAML 1.1 and 1.2 write alike."""
    kind = draw.random()
    if depth < 4 and kind < 0.3:
        return {
            draw.choice(["a", "b.c", "yes", "1", "{{ x }}", "ü"]): plain_data(draw, depth + 1)
            for _ in range(draw.randrange(4))
        }
    if depth < 4 and kind < 0.5:
        return [plain_data(draw, depth + 1) for _ in range(draw.randrange(4))]
    texts = ("", "yes", "12:30", "2026-01-01", "012", "a: b # c", "~", "<<", " x ")
    lines = ("line\nline\n", "\t\U0001f600 ü")
    numbers = (draw.randrange(-(10**17), 10**17), draw.random() * 10 ** draw.randrange(-9, 20))
    return draw.choice([None, True, False, *numbers, *texts, *lines])


@pytest.mark.parametrize("seed", range(3))
def test_files_hold_what_pyyaml_reads(tmp_path: Path, seed: int) -> None:
    draw, path = random.Random(seed), tmp_path / "p.yaml"
    for _ in range(150):
        given = plain_data(draw)
        text = yaml.safe_dump(
            given,
            default_flow_style=draw.choice([None, True, False]),
            default_style=draw.choice([None, None, None, '"', "'"]) if given == str(given) else None,
            width=draw.choice([5, 80]),
            indent=draw.choice([2, 4]),
            allow_unicode=draw.random() < 0.5,
            explicit_start=draw.random() < 0.5,
        )
        path.write_text(text, encoding="utf-8")
        findings = Findings()
        node = read_file(path, "p", findings)
        assert findings.sorted() == []
        assert (None if node is None else node.plain()) == yaml.safe_load(text)


def as_written(node: Node | None) -> Any:
    if node is None or not isinstance(node.value, dict | list):
        return None if node is None else node.text
    if isinstance(node.value, list):
        return [as_written(item) for item in node.value]
    return {name: as_written(item) for name, item in node.value.items()}


def test_changed_files_hold_what_pyyaml_reads(tmp_path: Path) -> None:
    """PyYAML's loader that leaves all scalars as texts accepts what is accepted here, and reads the same."""
    draw, path, accepted = random.Random(11), tmp_path / "p.yaml", 0
    text = (
        "a: {b: 1.10, c: [x, ~, 'y z']}\nd:\n  - e: |\n      two\n      lines\n"
        '  - "f\\n"\ng: >-\n  h\n  i\n'
    )
    for _ in range(1500):
        letters = list(text)
        for _ in range(draw.randint(1, 3)):
            letters[draw.randrange(len(letters))] = draw.choice(":-#&*!|>'\"%@`{}[],?\n\t 1~a")
        path.write_text("".join(letters), encoding="utf-8")
        findings = Findings()
        node = read_file(path, "p", findings)
        if not findings.sorted():
            accepted += 1
            assert as_written(node) == yaml.load("".join(letters), yaml.CBaseLoader)
    assert 100 < accepted < 1400
