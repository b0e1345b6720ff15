"""Proposed pipelines: as YAML with the evidence of each value in comments, and added to a configuration."""

from __future__ import annotations

import re
import shutil
import tempfile
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.config import lint, load
from delta_cdc.config.findings import Findings
from delta_cdc.config.tree import files_of, read_file
from delta_cdc.config.yaml_text import WIDTH, yaml_key, yaml_of
from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.text_table import clipped

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from delta_cdc.config.configuration import Configuration

#: Stands for keys that are not known yet, where the other arguments are checked.
_ANY_KEY = ["key"]
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Proposal:
    """A pipeline that a configuration may get.

    :param pipeline: its name
    :param values: its keys with their values, in the order in which they are written
    :param comments: the evidence: lines before a key of ``values``; those of "" follow the last key
    :param missing: why its keys are missing, so that ``lint`` refuses it until a person has named them; ""
        if it has keys, or needs none
    """

    pipeline: str
    values: dict[str, Any]
    comments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether a configuration with it passes ``lint``."""
        return not self.missing

    def problem(self) -> str:
        """Return why a configuration would not accept it, apart from missing keys; "" if it would."""
        values = {**self.with_keys().values, "group": "g"}
        findings = lint({"pipelines": {self.pipeline: values}, "groups": {"g": {}}})
        return findings[0].message if findings else ""

    def with_keys(self) -> Proposal:
        """Return it with some keys, if they are missing, so that all else can be checked."""
        return self if self.is_whole else replace(self, values={**self.values, "keys": _ANY_KEY}, missing="")

    def text(self, group: str | None, indent: int = 2) -> str:
        """Return it as YAML: an entry of ``pipelines``.

        :param group: its group; None: it gets none
        :param indent: the number of spaces before its name
        """
        outer, inner = " " * indent, " " * (indent + 2)
        lines = [f"{outer}{yaml_key(self.pipeline)}:"]
        of_group = {"group": group} if group is not None else {}
        for key, value in {**of_group, **self.values}.items():
            lines += self._comments(key, inner)
            lines += [inner + line for line in yaml_of({key: value}).splitlines()]
        if self.missing:
            lines += comment(f"TODO keys: [<column>, ...]: {self.missing}.", inner)
        return "\n".join([*lines, *self._comments("", inner), ""])

    def _comments(self, key: str, indent: str) -> list[str]:
        return [line for text in self.comments.get(key, ()) for line in comment(text, indent)]


def comment(text: str, indent: str = "") -> list[str]:
    """Return a text as lines of comments. What cannot be printed is escaped: it would end a comment."""
    shown = clipped(text, 10_000)
    return textwrap.wrap(
        shown, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


def pipeline_name(name: str, taken: Container[str]) -> str:
    """Return a name for the pipeline of a table, which no other pipeline has.

    :param name: the table's name, with any characters
    """
    short = re.sub(r"[^A-Za-z0-9_.\-]+", "_", name).lstrip("_.-")[: _LONGEST_NAME - 5] or "table"
    found, number = short, 2
    while found in taken:
        found, number = f"{short}_{number}", number + 1
    return found


def group_name(place: str) -> str:
    """Return a name for the group of the tables at a place."""
    return pipeline_name(re.split(r"[/]", place.rstrip("/.-"))[-1], ())


def written(
    proposals: Sequence[Proposal],
    group: str,
    settings: Mapping[str, Any],
    origin: str,
    secret_confs: Sequence[str] = (),
) -> str:
    """Return a whole configuration with one group.

    :param settings: keys of the group
    :param origin: the command that wrote it, for the first line
    :param secret_confs: names of Spark's confs whose values are not written
    """
    todo = (
        f"TODO conf: {', '.join(secret_confs)}: not written, because it may be a secret. Set it in "
        "spark-defaults.conf or in Airflow's connection, and give it to delta-cdc discover with --conf."
    )
    lines = [
        *comment(f"Written by {origin}. Each comment is the evidence of the next line."),
        *comment("Next: delta-cdc lint FILE, delta-cdc plan FILE, delta-cdc run FILE."),
        "groups:",
        f"  {yaml_key(group)}:",
        *comment("Without schedule, only you start runs. Each 15 minutes: schedule: '*/15 * * * *'", "    "),
        *(comment(todo, "    ") if secret_confs else ()),
        *("    " + line for line in yaml_of(settings).splitlines()),
        "pipelines:",
    ]
    return "\n".join([*lines, ""]) + "".join(one.text(group) for one in proposals)


def entries(proposals: Sequence[Proposal], group: str | None) -> str:
    """Return proposals as ``pipelines`` of a configuration that has the group, or without a group."""
    return "pipelines:\n" + "".join(one.text(group) for one in proposals)


def add(source: Path, proposals: Sequence[Proposal], name: str, *, is_alone: bool = False) -> Path:
    """Add proposals to a configuration on disk: at the end of its file, or to a file of its folder.

    In a folder, the file is ``discovered-<name>.yaml``. Nothing else of a file changes, comments included;
    and nothing is written if the configuration would then have a problem, or another content besides.

    :param name: of the group of the proposals
    :param is_alone: it is the name of a pipeline without a group, and so the proposals get none
    :return: the file
    :raises InvalidConfiguration: the file cannot be added to, or the result would have a problem
    """
    before = load(source)
    file = source / f"discovered-{name}.yaml" if source.is_dir() else source
    text = _appended(file, proposals, None if is_alone else name)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        # The folder may have much else, such as a repository.
        for one in files_of(source) if source.is_dir() else ():
            shutil.copyfile(one, copy / one.name)
        (copy / file.name).write_bytes(text.encode())
        after = load(copy if source.is_dir() else copy / file.name)
    if not _only_added(before, after, proposals):
        raise _not_added(file, "other pipelines would change, too")
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    try:
        with replacing(file.resolve(), mode=mode) as draft:
            draft.write(text.encode())
    except OSError as error:
        raise _not_added(file, f"it cannot be written: {error.strerror}") from error
    return file


def _appended(file: Path, proposals: Sequence[Proposal], group: str | None) -> str:
    if not file.exists():
        return entries(proposals, group)
    # Not read as text, which would change the ends of lines.
    old = file.read_bytes().decode()
    tree = read_file(file, str(file), Findings())
    names = tree.value if tree is not None and tree.is_mapping else {}
    pipelines = names.get("pipelines")
    end = "\r\n" if "\r\n" in old else "\n"
    old += "" if old.endswith("\n") or not old else end
    if pipelines is None or pipelines.value is None:
        if pipelines is not None:
            raise _not_added(file, "pipelines: is empty")
        return old + entries(proposals, group).replace("\n", end)
    assert tree is not None
    columns = {place.column for place in pipelines.keys.values()}
    first = min(place.line for place in pipelines.keys.values())
    if list(names)[-1] != "pipelines" or len(columns) != 1 or first == tree.keys["pipelines"].line:
        raise _not_added(file, "pipelines: is not its last key, with each pipeline in lines of its own")
    new = "".join(one.text(group, columns.copy().pop() - 1) for one in proposals)
    return old + new.replace("\n", end)


def _only_added(before: Configuration, after: Configuration, proposals: Sequence[Proposal]) -> bool:
    old = {table.pipeline: (table.arguments, table.own_application) for table in before.tables()}
    new = {table.pipeline: (table.arguments, table.own_application) for table in after.tables()}
    added = {one.pipeline for one in proposals}
    return old == {name: value for name, value in new.items() if name not in added} and added <= set(new)


def _not_added(file: Path, problem: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"Nothing is added to {file}: {problem}.",
        remedy="add the printed lines yourself; or put the configuration into a folder, where new pipelines "
        "get a file of their own.",
    )
