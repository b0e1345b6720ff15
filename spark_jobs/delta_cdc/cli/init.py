"""``delta-cdc init``: a configuration for tables that exist."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.common import json_file
from delta_cdc.cli.doctor import conf
from delta_cdc.cli.proposing import MAX_BYTES, Known, Proposing, Search, report
from delta_cdc.config import lint
from delta_cdc.config.combine import is_template
from delta_cdc.config.proposals import group_name, written
from delta_cdc.config.yaml_text import require_new, write_new
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.topics import is_topics
from delta_cdc.core.uris import canonical_uri, is_name
from delta_cdc.delta_log.folders import DEPTH
from delta_cdc.doctor.report import has_secret

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    parser = commands.add_parser(
        "init",
        help="write a configuration for tables that exist, with keys that a count proves (starts Spark here, "
        "to count)",
        description="The command proposes a pipeline for each Delta table in a folder or a schema, and for "
        "each topic of Debezium with a prefix. It proposes only keys that are unique and never NULL in the "
        "data; for the keys of a topic, the records decide. The YAML has the evidence in comments. Standard "
        "error has a line for each table without a proposal. Exit code 1: there are such lines.",
    )
    parser.add_argument(
        "tables", metavar="TABLES",
        help="a folder or a prefix of an object store; a schema of a catalog, such as main.sales; or "
        "kafka://HOST:PORT/PREFIX",
    )  # fmt: skip
    parser.add_argument(
        "--target", required=True, metavar="PLACE",
        help="folder (with a slash, such as ./silver) or schema of the targets; {name} stands for the name "
        "of a table, which otherwise follows",
    )  # fmt: skip
    parser.add_argument("--group", metavar="NAME", help="name of the group; default: that of the folder")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the YAML to this new file")
    takes_search(parser)
    parser.add_argument(
        "--depth", type=int, default=DEPTH, metavar="N", help=f"levels of folders; default: {DEPTH}"
    )
    parser.add_argument(
        "--leave-out", action="append", default=[], metavar="PATTERN",
        help="do not propose tables with such a name, such as 'tmp_*'; repeatable",
    )  # fmt: skip
    parser.set_defaults(run=_run)


def takes_search(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a search that init and discover share."""
    parser.add_argument(
        "--max-bytes", type=int, default=MAX_BYTES, metavar="N",
        help=f"count no keys of a table larger than this; default: {MAX_BYTES} (4 GiB)",
    )  # fmt: skip
    parser.add_argument("--storage-options", type=json_file, metavar="FILE",
                        help="JSON file with options of the store; default: the environment's")  # fmt: skip
    parser.add_argument("--kafka-options", type=json_file, metavar="FILE",
                        help="JSON file with options of Kafka's client")  # fmt: skip
    parser.add_argument("--conf", dest="confs", action="append", default=[], type=conf, metavar="NAME=VALUE",
                        help="conf of Spark, such as those of a catalog; repeatable; a value that may be a "
                        "secret is not written")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    if arguments.output is not None:
        # Before the tables are counted.
        require_new(arguments.output)
    if "$" in arguments.target or is_template(arguments.target):
        # A relative place becomes absolute here, also if it begins with a variable.
        raise InvalidConfiguration(
            f"The target {arguments.target} has a $ or a template, which a configuration would replace.",
            remedy="name a place without; you can write variables into the file later.",
        )
    tables, target = _absolute(arguments.tables), _absolute(arguments.target)
    search = Search(
        tables=tables,
        target=target,
        depth=arguments.depth,
        max_bytes=arguments.max_bytes,
        leave_out=tuple(arguments.leave_out),
        storage_options=arguments.storage_options,
        kafka_options=arguments.kafka_options,
        confs=dict(arguments.confs),
    )
    proposing = Proposing(search, Known()).run()
    report(proposing)
    if not proposing.proposals:
        raise InvalidConfiguration(
            f"{arguments.tables} has no table for which a pipeline can be proposed.",
            remedy="name another folder, schema or prefix; standard error says what was found.",
        )
    group = arguments.group or group_name(tables)
    discover: dict[str, Any] = {"tables": tables, "target": target}
    if arguments.leave_out:
        discover["leave_out"] = arguments.leave_out
    if arguments.depth != DEPTH and not is_topics(tables):
        discover["depth"] = arguments.depth
    confs = {name: value for name, value in arguments.confs if not has_secret(name, value)}
    hidden = sorted({name for name, _ in arguments.confs} - set(confs))
    settings: dict[str, Any] = {"discover": discover, **({"conf": confs} if confs else {})}
    origin = shlex.join(["delta-cdc", "init", arguments.tables, "--target", arguments.target])
    text = written(proposing.proposals, group, settings, origin, hidden)
    _require_lint(written([one.with_keys() for one in proposing.proposals], group, settings, origin))
    if arguments.output is None:
        print(text, end="")
    else:
        write_new(arguments.output, text)
    return 1 if proposing.remarks or not all(one.is_whole for one in proposing.proposals) else 0


def _absolute(place: str) -> str:
    """Return a place that means the same in another working folder."""
    return place if is_topics(place) or is_name(place) else canonical_uri(place)


def _require_lint(text: str) -> None:
    """Check a text as ``delta-cdc lint`` does.

    :raises InvalidConfiguration: it has a finding
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "written.yaml"
        file.write_text(text, encoding="utf-8")
        findings = lint(file)
    if findings:
        raise InvalidConfiguration(
            f"The proposals do not go together: {findings[0].message}",
            remedy=f"{findings[0].remedy} Or choose another --group or --target, or --leave-out tables.",
        )
