"""Whatever the code is, it becomes a configuration, or findings with their places; nothing else happens."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from delta_cdc.config import MORE, Code, imported, load
from delta_cdc.config.yaml_text import yaml_of
from delta_cdc.core.errors import InvalidConfiguration
from tests.support.published_flows import PUBLISHED
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

_WHOLE = {
    "py": """
import dlt
from pyspark.sql import functions as F
KEYS = ["id", 'b']
NAME = f"{'c'}.s"
@dlt.view(name="v")
@dlt.expect("a", "b")
def v():
    '''Text.'''
    return (spark.readStream.format("delta").option("readChangeFeed", "true").table("a.b")
            .filter("_change_type != 'update_preimage'"))
dlt.create_streaming_table("t", comment="c", table_properties={"a": "b"}, cluster_by=["id"],
                           expect_all_or_drop={"x": "y > 0"})
dlt.apply_changes("t", "s", KEYS, F.struct("a", F.col("b.c")), apply_as_deletes=~(F.col("op") == 'D')
                  | F.expr("x"), ignore_null_updates=False, stored_as_scd_type="2",
                  track_history_column_list=["d", F.col("e")])
def make(name, keys=("id",)):
    dlt.create_streaming_table(name)
    dlt.apply_changes(name, "m", KEYS, "q")
def copies(version):
    return None
make("m1")
TABLES = {"x": {"keys": ["id"], "off": False}, "y": {}}
for n, c in TABLES.items():
    if c.get("off") or n in ("z", f"{n}z"):
        continue
    @dlt.view(name=n + "_v")
    def w(n=n):
        return spark.readStream.table(f"b.{n}")
    dlt.apply_changes(n, n + "_v", c.get("keys", KEYS), "q")
dlt.create_auto_cdc_from_snapshot_flow("u", "w", ["k"], stored_as_scd_type=2)
""",
    "sql": """
-- a comment; with a semicolon
SET x = 'y';
CREATE OR REFRESH STREAMING TABLE t (CONSTRAINT c EXPECT (a > 0) ON VIOLATION DROP ROW) COMMENT 'it''s'
  TBLPROPERTIES ("a" = 'b', c.d = 1) CLUSTER BY (id);
CREATE TEMPORARY VIEW v AS SELECT * FROM STREAM a.b WHERE x /* ; */ IN (1, 2);
CREATE FLOW f COMMENT "c" AS AUTO CDC INTO `t` FROM stream(v) KEYS (id, `k k`) WHERE a BETWEEN 1 AND 2
APPLY AS DELETE WHEN op = "D" AND CASE WHEN x THEN 1 ELSE INTERVAL 1 DAY END
SEQUENCE BY struct(a, coalesce(b, c))
COLUMNS * EXCEPT (op) STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (n);
CREATE STREAMING TABLE u FLOW AUTO CDC FROM (SELECT * FROM STREAM s WHERE (a)) KEYS (k) SEQUENCE BY b;
""",
}
_PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "`",
        '"""',
        "--",
        "/*",
        "*/",
        "#",
        ";",
        ",",
        "*",
        "=",
        "\\",
        "\n",
        "\t",
    ),
    *(
        "\0",
        "ü",
        "\u2028",
        "${x}",
        "{{ x }}",
        "f'{x}'",
        "None",
        "1e999",
        "9" * 50,
        "(" * 300,
        "not " * 300,
        "-" * 200,
    ),
    *(
        " SELECT ",
        " KEYS ",
        " FROM ",
        " EXCEPT ",
        " STREAM ",
        " AS ",
        " INTO ",
        " lambda: ",
        " for x in y: ",
        "**k, ",
    ),
    *(
        "dlt.",
        "spark.",
        "expr(",
        "col(",
        ".a" * 400,
        "await ",
        "yield ",
        "import x\n",
        "x = y = ",
        "del KEYS\n",
    ),
)
_PLACED = re.compile(r"\S*flows\.(?:py|sql)(?::\d+:\d+)?: .+ Remedy: .+")


def _mutated(draw: random.Random, text: str) -> str:
    """Return a text with some damage: shortened, or with parts removed, doubled, exchanged or inserted."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(text) + 1)
        end = min(len(text), start + draw.choice([1, 1, 3, 20, 200]))
        at = draw.randrange(len(text) + 1)
        text = draw.choice(
            [
                text[:start],
                text[:start] + text[end:],
                text[:end] + text[start:end] + text[end:],
                text[:at] + draw.choice(_PIECES) + text[at:],
                text[:at] + draw.choice(_PIECES) + text[at:],
                text[:start] + text[start:end].swapcase() + text[end:],
            ]
        )
    return text


@pytest.mark.parametrize("seed", slow_but(range(4), 0))
@pytest.mark.parametrize("suffix", ["py", "sql"])
def test_damaged_code(tmp_path: Path, seed: int, suffix: str) -> None:
    draw, sound = random.Random(f"{seed} {suffix}"), 0
    whole = [
        _WHOLE[suffix],
        *(example.codes[suffix] for example in PUBLISHED.values() if suffix in example.codes),
    ]
    file, written = tmp_path / f"flows.{suffix}", tmp_path / "flows.yaml"
    for number in range(250):
        text = _mutated(draw, draw.choice(whole)) if number else whole[0]
        file.write_text(text, encoding="utf-8")
        given = Code({}, {"target": "/lake/t"}) if draw.random() < 0.1 else Code()
        try:
            content, _ = imported(file, given)
        except InvalidConfiguration as error:
            findings = str(error).splitlines()[1:-1]
            assert findings, text
            _check_findings(findings)
            continue
        sound += 1
        written.write_text(yaml_of(content), encoding="utf-8")
        assert load(written).groups[0].fingerprint == load(file, given).groups[0].fingerprint, text
    assert 5 < sound < 240, "most texts are damaged, and some are not"


@pytest.mark.parametrize("suffix", ["py", "sql"])
def test_every_beginning(tmp_path: Path, suffix: str) -> None:
    """A file that is not whole yet."""
    file, text = tmp_path / f"flows.{suffix}", _WHOLE[suffix]
    for end in range(0, len(text), 7):
        file.write_text(text[:end], encoding="utf-8")
        _check_findings(_findings(file))


def _findings(file: Path) -> list[str]:
    """Return the findings of a file, as lines."""
    try:
        load(file)
    except InvalidConfiguration as error:
        return str(error).splitlines()[1:-1]
    return []


def _check_findings(lines: list[str]) -> None:
    for line in lines:
        assert _PLACED.fullmatch(line) or line == MORE
