"""What a source of files is, locally and in an object store."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, SourceNotFound
from delta_cdc.core.spec import SourceFile
from delta_cdc.planning.file_heads import heads
from delta_cdc.planning.file_listing import check_glob, find_file, list_files, read_source
from delta_cdc.planning.parquet_footers import footers
from tests.support.http_store import HttpStore

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = (
    "a.json", "2024/01/b c.json", "2024/01/%41.json", "2024/02/[x].json", "2024/02/{y}.json",
    "2024/02/#z+&.json", "2024/02/s.csv", "2024/ü/é.json", "2024/k=1/z.json",
)  # fmt: skip
HIDDEN = ("_tmp/x.json", "2024/_x/y.json", "2024/.h.json", "2024/c.json._COPYING_", "2024/01/.crc/a.json")


def fill(root: Path) -> None:
    for name in (*NAMES, *HIDDEN):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name}\n")


def names(found: list[SourceFile], home: str) -> list[str]:
    assert all(file.uri.startswith(f"{home}/") for file in found)
    return [file.uri[len(home) + 1 :] for file in found]


def listed(source: str, *given: Any, **named: Any) -> list[SourceFile]:
    return asyncio.run(list_files(source, *given, **named))


#: A source as the user names it, as Spark does, and its options.
Place = tuple[str, str, dict[str, str] | None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HttpStore]:
    with HttpStore(tmp_path / "root") as made:
        yield made


@pytest.fixture(params=["local", "store"])
def place(request: pytest.FixtureRequest, store: HttpStore) -> Place:
    """Where the files lie: as the user names it, as Spark does, and with which options."""
    fill(store.root / "in")
    if request.param == "local":
        return f"{store.root}/in", f"{store.root}/in", None
    return "s3://lake/in", "s3a://lake/in", store.options()


PLACES = {
    "": NAMES,
    "/": NAMES,
    "/2024": tuple(name for name in NAMES if name.startswith("2024/")),
    "/a.json": ("a.json",),
}


@pytest.mark.parametrize("place_in", PLACES)
def test_a_source_means(place: Place, place_in: str) -> None:
    source, home, options = place
    assert names(listed(source + place_in, options), home) == sorted(PLACES[place_in])


def test_names_alone(place: Place) -> None:
    source, home, options = place
    odd = ["2024/01/%41.json", "2024/02/#z+&.json", "2024/02/[x].json", "2024/02/{y}.json", "2024/ü/é.json"]
    for glob, wanted in (
        ("*.csv", ["2024/02/s.csv"]),
        ("[[]x].json", ["2024/02/[x].json"]),
        ("[!a-z]*.json", odd),
        ("?.json", ["2024/k=1/z.json", "2024/ü/é.json", "a.json"]),
    ):
        assert names(listed(source, options, glob), home) == wanted


def test_only_names_after_the_last_one(place: Place) -> None:
    source, home, options = place
    for last in NAMES:
        found = names(listed(source, options, after=f"{home}/{last}"), home)
        assert found == [name for name in sorted(NAMES) if name > last]


def test_a_store_lists_only_what_is_after(store: HttpStore) -> None:
    fill(store.root / "in")
    store.forget()
    listed("s3://lake/in", store.options(), after="s3a://lake/in/2024/ü/é.json")
    (request,) = store.requests
    assert request.query["start-after"] == "in/2024/ü/é.json"


def test_what_is_told_of_a_file(store: HttpStore) -> None:
    fill(store.root / "in")
    (local,) = listed(f"{store.root}/in/a.json")
    stat = (store.root / "in/a.json").stat()
    changed = f"changed {stat.st_ctime_ns}"
    assert local == SourceFile(local.uri, stat.st_size, stat.st_mtime_ns // 1_000_000, changed)
    assert local.uri == f"{store.root}/in/a.json"
    (stored,) = listed("s3a://lake/in/a.json", store.options())
    assert (stored.uri, stored.size) == ("s3a://lake/in/a.json", stat.st_size)
    assert stored.modified == stat.st_mtime_ns // 1_000_000_000 * 1000
    assert stored.etag
    for known, folder, options in (
        (stored, "s3a://lake/in", store.options()),
        (local, f"{store.root}/in", None),
    ):
        assert asyncio.run(find_file(f"{folder}/a.json", options)) == known
        assert asyncio.run(find_file(f"{folder}/a.json ", options)) is None
        assert asyncio.run(find_file(f"{folder}/b.json", options)) is None


def test_a_local_name_that_is_not_utf8(tmp_path: Path) -> None:
    """No other program can be given such a name: the file alone goes to quarantine."""
    (tmp_path / "ü.json").touch()
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.json"), "wb"):  # noqa: PTH118, PTH123
        pass
    reason = "Spark reads no file whose path is not UTF-8; rename it"
    found = listed(str(tmp_path))
    by_name = {file.uri[len(str(tmp_path)) + 1 :]: file for file in found}
    assert {name: file.unreadable for name, file in by_name.items()} == {
        "caf\\xe9.json": reason,
        "ü.json": "",
    }
    # Neither its first bytes nor its footer are looked for.
    one = replace(by_name["caf\\xe9.json"], size=9)
    assert asyncio.run(heads([one], "json")) == asyncio.run(footers([one])) == (one,)


def test_a_folder_that_is_there_is_meant_by_its_name(tmp_path: Path) -> None:
    for folder in ("in[1]", "in1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.json").touch()
    assert names(listed(f"{tmp_path}/in[1]"), str(tmp_path)) == ["in[1]/a.json"]
    with pytest.raises(InvalidConfiguration, match="looks like a pattern"):
        listed(f"{tmp_path}/in[12]")


def test_a_folder_that_may_not_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As below a folder without rights: the configuration can be read; the run says what is missing."""

    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    for source in ("/landing/orders", "/landing/in[1]"):
        assert read_source(source) == source


def test_nothing_there(tmp_path: Path, store: HttpStore) -> None:
    """A folder without files is nothing to do; an object store has no folders that could be missing."""
    (tmp_path / "empty").mkdir()
    assert listed(f"{tmp_path}/empty") == []
    store.root.mkdir()
    assert listed("s3://lake/none", store.options()) == []
    with pytest.raises(SourceNotFound, match=r"nothing at .*/none to ingest from"):
        listed(f"{tmp_path}/none")


def test_links(tmp_path: Path) -> None:
    """A linked folder is a folder; one that leads back up is not gone into again."""
    files = ("in/2024/b.json", "other/a.json", "in/.versions/1/v.json")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "in/x").mkdir()
    for link in (
        *(
            "in/linked other",
            "in/up in",
            "in/gone.json nowhere",
            "in/x/latest in/2024",
            "other/round in/2024",
        ),
        *("in/newest.json in/2024/b.json", "in/current in/.versions/1", "in/previous in/.versions/1"),
        "in/2024/and_round other",
    ):
        name, target = link.split()
        (tmp_path / name).symlink_to(tmp_path / target)
    # What a link leads to inside the source is listed once, by its own name.
    found = names(listed(f"{tmp_path}/in", follow_links=True), str(tmp_path))
    assert found == ["in/2024/and_round/a.json", "in/2024/b.json", "in/current/v.json"]
    # Unless that is not meant.
    assert names(listed(f"{tmp_path}/in", glob="new*"), str(tmp_path)) == ["in/newest.json"]


def test_links_that_lead_out(tmp_path: Path, caplog: Any) -> None:
    """Whoever may write into a landing folder must not choose which files of the machine are read."""
    for name in ("in/a.json", "in/deep/b.json", "secret/key.json", "other.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "in/all").symlink_to(tmp_path / "secret")
    (tmp_path / "in/one.json").symlink_to("../other.json")
    (tmp_path / "in/round.json").symlink_to("../in/a.json")
    (tmp_path / "inside").symlink_to("in")
    for source in ("in", "inside"):
        caplog.clear()
        found = names(listed(f"{tmp_path}/{source}"), f"{tmp_path}/{source}")
        assert found == ["a.json", "deep/b.json"]
        assert "2 files below" in caplog.text
        assert "set follow_links" in caplog.text
    followed = names(listed(f"{tmp_path}/in", follow_links=True), f"{tmp_path}/in")
    assert followed == ["a.json", "all/key.json", "deep/b.json", "one.json"]


def test_a_copy_with_the_same_size_and_time_is_another_delivery(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("1")
    (first,) = listed(str(file))
    (tmp_path / "b.json").write_text("2")
    os.utime(tmp_path / "b.json", ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    (tmp_path / "b.json").rename(file)
    (second,) = listed(str(file))
    assert (first.size, first.modified) == (second.size, second.modified)
    assert first.etag != second.etag


def test_marks_of_folders_in_a_store(store: HttpStore) -> None:
    (store.root / "in/2024").mkdir(parents=True)
    (store.root / "in/2024/empty.json").touch()
    assert names(listed("s3://lake/in", store.options()), "s3a://lake/in") == ["2024/empty.json"]


@pytest.mark.parametrize(
    "source", ["/data/[a]/x", "/data/{a,b}", "/data/*.json", "s3://lake/*/x", "s3://lake/x?"]
)
def test_a_pattern_is_no_source(source: str) -> None:
    with pytest.raises(InvalidConfiguration, match="looks like a pattern") as caught:
        read_source(source)
    assert "glob=" in caught.value.remedy


@pytest.mark.parametrize("glob", ["", " ", "a/b"])
def test_no_glob(glob: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"glob|pattern"):
        check_glob(glob)
