"""What Spark's launcher would find by itself, before it is told anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.storage_options import properties_text
from delta_cdc.launch.spark_defaults import parsed, spark_default

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("spark.a 1", {"spark.a": "1"}),
        ("spark.a=1\nspark.b: 2\r\n  spark.c\t=\t3  \n", {"spark.a": "1", "spark.b": "2", "spark.c": "3"}),
        ("# no\n ! no\n\nspark.a\n", {"spark.a": ""}),
        ("spark.a -Dx=y -Dz=w", {"spark.a": "-Dx=y -Dz=w"}),
        ("spark.a one \\\n    two\nspark.b 3", {"spark.a": "one two", "spark.b": "3"}),
        ("spark.a C:\\\\lib\\\\\nspark.b 3", {"spark.a": "C:\\lib\\", "spark.b": "3"}),
        ("spark.a 1\nspark.a 2", {"spark.a": "2"}),
        ("spark.\\u0061 \\u00fc\\n", {"spark.a": "ü"}),
    ],
)
def test_a_file_of_confs_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parsed(text) == found


def test_what_we_write_is_read() -> None:
    confs = {"spark.a": "a\\b=c:d#", "spark.b c": "1", "spark.d:e=f": " line\nbreak\tü"}
    assert parsed(properties_text(confs)) == {name: value.strip() for name, value in confs.items()}


def test_confs_win_over_the_file_that_is_named_and_that_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_default("spark.a", {}) == ""
    (tmp_path / "spark-defaults.conf").write_text("spark.a default\nspark.b default")
    (tmp_path / "own.conf").write_text("spark.a own")
    own = str(tmp_path / "own.conf")
    assert spark_default("spark.a", {}) == "default"
    assert spark_default("spark.a", {}, own) == "own"
    assert spark_default("spark.b", {}, own) == "", "spark-submit reads one of the two files"
    assert spark_default("spark.a", {"spark.a": 1}, own) == "1"
    assert spark_default("spark.a", {"spark.a": None}, own) == ""


def test_a_comment_may_have_other_bytes_than_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads such a file."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / "spark-defaults.conf"
    file.write_bytes("# für alle\nspark.a 1\n".encode("latin-1"))
    assert spark_default("spark.a", {}) == spark_default("spark.a", {}, str(file)) == "1"


def test_a_file_that_is_named_must_be_there() -> None:
    with pytest.raises(InvalidConfiguration, match="/not/there"):
        spark_default("spark.a", {}, "/not/there")
