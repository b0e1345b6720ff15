# mypy: implicit-reexport
# ruff: noqa: F401
"""The parts of the engine beyond ``delta_cdc.core`` that the provider uses, each loaded at first use.

The parsing of a DAG file must not import the log reader, the planner or Spark. So the provider's modules
import only ``delta_cdc.core`` at their top, and use the rest of the engine through this module:
``engine.run(...)`` loads ``delta_cdc.run.flows`` when that line runs.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

# isort: off
# Type checkers read these imports. At run time, NAMES holds them, and each is imported at first use.
if TYPE_CHECKING:
    from delta_cdc.cli.doctor import (
        DESCRIPTION as DOCTOR_DESCRIPTION,
        options as doctor_options,
        questions as doctor_questions,
    )
    from delta_cdc.config import Group, load as load_configuration
    from delta_cdc.config.verification import (
        paired as paired_requests,
        request_of as verify_request_of,
    )
    from delta_cdc.delta_log.file_manifests import forget as delete_manifests, prepared as with_manifests
    from delta_cdc.delta_log.requests import delete_folder
    from delta_cdc.delta_log.store import open_store
    from delta_cdc.delta_log.table import DeltaLog, run_sync
    from delta_cdc.doctor.report import (
        Check,
        examined as examined_checks,
        ok as check_ok,
        print_report as print_checks,
        skipped as check_skipped,
    )
    from delta_cdc.doctor.store import RoundTrip
    from delta_cdc.job import run as run_spec
    from delta_cdc.launch.class_data_archive import ClassDataArchive
    from delta_cdc.launch.environment import child_environment, require_one_pyspark, submit_binary
    from delta_cdc.launch.jars import cache_home, needed as needed_jars, s3_jars
    from delta_cdc.launch.log_store import log_store_confs
    from delta_cdc.launch.run_folder import run_folder
    from delta_cdc.launch.session import (
        CLASS_PATH,
        DEFAULT_JAVA_OPTIONS,
        JAVA_OPTIONS,
        delta_confs,
        embedded_confs,
        get_session,
        engine_zip,
    )
    from delta_cdc.launch.spark_defaults import spark_default, text_of as properties_file_text
    from delta_cdc.launch.storage_secrets import storage_confs, write_private
    from delta_cdc.planning.consumers import consumers_of
    from delta_cdc.planning.expiry import plan_expiry
    from delta_cdc.planning.ingest import plan_ingest
    from delta_cdc.planning.optimize import plan_optimize
    from delta_cdc.planning.reconcile import reconcile
    from delta_cdc.planning.renewal import seal_due_at
    from delta_cdc.planning.size import is_small
    from delta_cdc.planning.status import MOST_COMMITS, lag_of
    from delta_cdc.planning.table_properties import already_enabled, described as described_tables, is_path
    from delta_cdc.planning.vacuum import plan_vacuum
    from delta_cdc.planning.verify import VerifyRequest
    from delta_cdc.planning.waiting import (
        Condition,
        Watch,
        position_from_json,
        position_now,
        position_to_json,
    )
    from delta_cdc.run.batch import PipelineJob, PipelineResult, run_batch, since_key
    from delta_cdc.run.commit import committed_by_run, committed_so_far
    from delta_cdc.run.detect_changes import detect_changes, plan_ending_at, written as written_table
    from delta_cdc.run.flows import run
    from delta_cdc.run.loop import Services
    from delta_cdc.run.maintain import raise_failed as raise_failed_maintenance, run as run_maintenance
    from delta_cdc.run.table_arguments import is_ingested, placed, placed_ingest, requests as table_requests
    from delta_cdc.run.verify import raise_if_wrong, run_verify, text_of as verification_text
    from delta_cdc.run.watermarks import published as forget_saved_plans, versions_of
    from delta_cdc.spark.sessions import (
        close as close_session,
        delta_version,
        end as end_session,
        is_connect as is_connect_session,
        is_lost as is_session_lost,
        refuses_java,
        require_clones,
    )
# isort: on


def _names() -> dict[str, tuple[str, str]]:
    """Read the imports above from this file: each name, with its module and its name in that module."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("delta_cdc.")
        for alias in node.names
    }


#: The engine's names that the provider uses.
NAMES = _names()

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name):
        """Return the object with a name in :data:`NAMES`; load its module at first use."""
        if name not in NAMES:
            raise AttributeError(f"{__name__} has no {name!r}: add its import.")
        module, there = NAMES[name]
        return getattr(import_module(module), there)
