"""``delta-cdc erase``: remove a key from the tables of pipelines, and remember that it was erased."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.cli.application import Application, settings_of
from delta_cdc.cli.common import newest_seal, single_driver
from delta_cdc.cli.pipelines import Chosen, chosen, is_configuration, made_or_error, takes_pipelines
from delta_cdc.config import load
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.validation import ingest_options_of
from delta_cdc.core.variables import expand
from delta_cdc.planning.erasure import TABLES, Flow, readers, sorted_out, with_downstream
from delta_cdc.run.erase import Erasure, run

if TYPE_CHECKING:
    import argparse

    from delta_cdc.planning.consumers import Consumer


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    erase = commands.add_parser(
        "erase",
        help="remove a key from the tables of pipelines for good (starts Spark here)",
        description="The command removes the rows of one key from targets and change logs, their quarantine "
        "and staging, and from the tables of all pipelines of the configuration that read these tables. The "
        "tables remember a keyed hash of the key, so that no replay, reload or late event brings it back. "
        "Begin with --dry-run. A command that was interrupted is run again. Exit code 1: a table failed.",
    )
    takes_pipelines(erase)
    erase.add_argument(
        "--key", dest="keys", action="append", required=True, metavar="COLUMN=VALUE",
        help="a key column and its value, as Spark casts it from a text; repeat it for each key column",
    )  # fmt: skip
    erase.add_argument(
        "--dry-run", action="store_true", help="count what would be deleted, and write nothing"
    )
    erase.add_argument(
        "--purge", action="store_true",
        help="also remove masked rows from the current files, and VACUUM the tables where every consumer of "
        "the configuration has read what VACUUM may delete",
    )  # fmt: skip
    erase.add_argument(
        "--quarantined-records", action="store_true",
        help="also delete the records in the quarantine of an ingest whose text contains the key's values; "
        "without it, they are counted, because such a record may be of another key",
    )  # fmt: skip
    single_driver(erase, "")
    erase.add_argument("--json", action="store_true", help="print the report as JSON")
    erase.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    run_id = f"delta-cdc-erase-{uuid.uuid4().hex[:12]}"
    pipelines = chosen(arguments, with_sources=True)
    settings = settings_of(pipelines)
    configuration = load(arguments.tables[0]) if is_configuration(arguments.tables[0]) else None
    everything = pipelines
    if configuration is not None:
        everything = [Chosen(table, group) for group, table in configuration.chosen()]
    found = sorted_out(
        [(one.pipeline, made_or_error(one, _flow, TABLES)) for one in everything],
        chosen={one.pipeline for one in pipelines},
    )
    consumers = readers(found.first)
    if configuration is not None:
        consumers = tuple(map(_expanded, configuration.consumers()))
    flows = with_downstream(found.first, found.flows)
    work = Erasure(
        keys=(_key(arguments.keys),),
        flows=flows,
        consumers=consumers,
        purge=arguments.purge,
        deletes_records=arguments.quarantined_records,
        dry_run=arguments.dry_run,
        single_driver=arguments.single_driver,
        refused=found.refused,
        unknown=found.unknown,
    )
    with Application(settings, [replace(flow, source=None) for flow in flows]) as application:
        report = run(
            work,
            execute=application.execute,
            run_id=run_id,
            storage_options=settings["storage_options"],
        )
    errors = {table: f"{type(error).__name__}: {error}" for table, error in report.errors.items()}
    if arguments.json:
        print(json.dumps({"tables": report.rows, "outside": report.outside, "errors": errors}, indent=2))
    else:
        print(report)
        outside = [f"- {text}" for text in report.outside]
        print("\n".join(["", "Outside the reach of this command:", *outside]))
        for table, error in errors.items():
            print(f"{table}: {error}", file=sys.stderr)
    return 1 if errors else 0


def _key(texts: list[str]) -> dict[str, str]:
    """Return the key that the command line gives.

    :raises InvalidConfiguration: a text has no equals sign, or a column is given twice
    """
    key: dict[str, str] = {}
    for text in texts:
        column, sign, value = text.partition("=")
        if not sign or not column:
            raise InvalidConfiguration(
                "--key names no column.",
                remedy="write COLUMN=VALUE, for instance --key id=17.",
                argument="key",
            )
        if column in key:
            raise InvalidConfiguration(
                f"--key gives the column {column} twice.",
                remedy="erase one key at a time.",
                argument="key",
            )
        key[column] = value
    return key


def _expanded(one: Consumer) -> Consumer:
    """Return a consumer with the variables of its tables substituted, or with the error."""
    try:
        return replace(one, source=one.source and expand(one.source), target=expand(one.target))
    except InvalidConfiguration as error:
        return replace(one, error=error, source=None)


def _flow(one: Chosen) -> Flow:
    """Return the tables of a pipeline; of PIPELINE=TARGET, its seal shows whether it is a change log."""
    if one.group is not None:
        given = one.table.arguments
        shadow_of = tuple(given.get("shadow_of") or ())
        source, staging = one.location("source"), one.location("staging")
        return Flow(one.pipeline, source, one.log, one.target, staging, shadow_of)
    assert one.target is not None
    seal = newest_seal(one.target, one.pipeline, one.storage_options)
    source = one.source or (seal.source_uri if seal is not None else None)
    if seal is not None and ingest_options_of(seal) is not None:
        return Flow(one.pipeline, source, log=one.target)
    return Flow(one.pipeline, source, target=one.target)
