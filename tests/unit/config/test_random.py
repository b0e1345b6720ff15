"""Whatever is written, it is read, or told with its place; nothing else ever comes of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import config
from delta_cdc.config import models

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = (*models.default_keys(), "mode", "x", "<<", "pipeline")
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 10**30, 1.5, float("inf"), "", " ", "id", "a b", "\x00", "ü" * 300,
    "{{ x }}", "{% x %}", "$X", "${X}/y", "s3://a/b", "file:///x", "kafka://b:9/t", "kafka://", "/s", "C:\\x",
    "c.s.t", "`x`.y", "abfss://c@a.dfs.core.windows.net/x", "5 minutes", "@daily", "on_change", "2026-01-01",
    "change_log", "change_feed", "snapshot", "plain", "debezium", "json", "csv", "g", "p1",
    [], ["id"], ["id", "id"], [1], [None], [[]], {}, {"a": "b"}, {"last_by": []}, {"from_version": 1},
    {"none_at": "x"}, {"assets": ["a"]}, {"assets": []}, {"a": {"b": [1]}}, b"x", 3j,
)  # fmt: skip


def section(draw: random.Random, most: int) -> dict[str, Any]:
    return {draw.choice(_KEYS): draw.choice(_VALUES) for _ in range(draw.randint(0, most))}


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
        assert all(finding.file and finding.message and finding.remedy for finding in found)
        if not found:
            sound += 1
            assert len(config.load(given).fingerprint) == 64
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
        assert all(finding.file == str(path) and finding.remedy for finding in found)
    assert 10 < sound < 390
