# mypy: implicit-reexport
# ruff: noqa: F401
"""What the provider uses of the engine beyond ``delta_cdc.core``, loaded when it is first used.

A DAG file that names an operator must not pay for the log reader, the planner or Spark. So the modules of the
provider import ``delta_cdc.core`` at their top, and use the rest of the engine through this module:
``engine.run_apply(...)`` loads ``delta_cdc.run.apply`` when that line runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# isort: off
# For type checkers: the names of NAMES.
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
    from delta_cdc.launch.environment import child_environment, release as release_of, submit_binary
    from delta_cdc.launch.jars import cache_home, installed_delta, needed as needed_jars, s3_jars
    from delta_cdc.launch.session import (
        CLASS_PATH,
        DEFAULT_JAVA_OPTIONS,
        JAVA_OPTIONS,
        delta_confs,
        embedded_confs,
        embedded_session,
        engine_zip,
    )
    from delta_cdc.launch.spark_defaults import said as spark_default, text_of as properties_file_text
    from delta_cdc.launch.storage_secrets import telling as storage_confs, write_private
    from delta_cdc.planning.consumers import consumers_of
    from delta_cdc.planning.expiry import ExpireRequest, plan_expiry
    from delta_cdc.planning.ingest import plan_ingest
    from delta_cdc.planning.optimize import OptimizeRequest, plan_optimize
    from delta_cdc.planning.reconcile import reconcile
    from delta_cdc.planning.renewal import seal_due_at
    from delta_cdc.planning.request import CommitRequest, ReadRequest
    from delta_cdc.planning.size import is_small
    from delta_cdc.planning.table_properties import already_enabled, described as described_tables, is_path
    from delta_cdc.planning.vacuum import VacuumRequest, deleted as deleted_files, plan_vacuum
    from delta_cdc.planning.verify_request import VerifyRequest
    from delta_cdc.planning.waiting import Condition, Position, Watch, position_now
    from delta_cdc.run.apply import run_apply
    from delta_cdc.run.batch import Piece, PieceResult, run_bundle, since_key
    from delta_cdc.run.commit import committed_by_run, committed_so_far, run_commit
    from delta_cdc.run.detect_changes import Looked, detect_changes, written as written_table
    from delta_cdc.run.maintain import (
        Work as MaintenanceWork,
        raise_failed as raise_failed_maintenance,
        run as run_maintenance,
    )
    from delta_cdc.run.read import run_read
    from delta_cdc.run.saved_plans import NoPins
    from delta_cdc.run.table_arguments import (
        is_ingested,
        pipeline_of,
        requests as table_requests,
    )
    from delta_cdc.run.times import iso as iso_time, moment, start as start_time
    from delta_cdc.run.verify import Verification, raise_if_wrong, rows_of as verification_rows, run_verify
    from delta_cdc.run.verify_text import text_of as verification_text
    from delta_cdc.run.watermarks import published as forget_saved_plans, versions_of
    from delta_cdc.spark.sessions import (
        close as close_session,
        delta_version,
        end as end_session,
        is_connect as is_connect_session,
        is_lost as is_session_lost,
    )
# isort: on

#: What is used of each module: names, and behind an equals sign the name that it has here.
_USED = {
    "delta_cdc.cli.doctor": "DESCRIPTION=DOCTOR_DESCRIPTION options=doctor_options "
    "questions=doctor_questions",
    "delta_cdc.config": "Group load=load_configuration",
    "delta_cdc.config.verification": "paired=paired_requests request_of=verify_request_of",
    "delta_cdc.delta_log.file_manifests": "forget=delete_manifests prepared=with_manifests",
    "delta_cdc.delta_log.requests": "delete_folder",
    "delta_cdc.delta_log.store": "open_store",
    "delta_cdc.delta_log.table": "DeltaLog run_sync",
    "delta_cdc.doctor.report": "Check examined=examined_checks ok=check_ok "
    "print_report=print_checks skipped=check_skipped",
    "delta_cdc.doctor.store": "RoundTrip",
    "delta_cdc.job": "run=run_spec",
    "delta_cdc.launch.class_data_archive": "ClassDataArchive",
    "delta_cdc.launch.environment": "child_environment release=release_of submit_binary",
    "delta_cdc.launch.jars": "cache_home installed_delta needed=needed_jars s3_jars",
    "delta_cdc.launch.session": "CLASS_PATH DEFAULT_JAVA_OPTIONS JAVA_OPTIONS delta_confs "
    "embedded_confs embedded_session engine_zip",
    "delta_cdc.launch.spark_defaults": "said=spark_default text_of=properties_file_text",
    "delta_cdc.launch.storage_secrets": "telling=storage_confs write_private",
    "delta_cdc.planning.consumers": "consumers_of",
    "delta_cdc.planning.expiry": "ExpireRequest plan_expiry",
    "delta_cdc.planning.ingest": "plan_ingest",
    "delta_cdc.planning.optimize": "OptimizeRequest plan_optimize",
    "delta_cdc.planning.reconcile": "reconcile",
    "delta_cdc.planning.renewal": "seal_due_at",
    "delta_cdc.planning.request": "CommitRequest ReadRequest",
    "delta_cdc.planning.size": "is_small",
    "delta_cdc.planning.table_properties": "already_enabled described=described_tables is_path",
    "delta_cdc.planning.vacuum": "VacuumRequest deleted=deleted_files plan_vacuum",
    "delta_cdc.planning.verify_request": "VerifyRequest",
    "delta_cdc.planning.waiting": "Condition Position Watch position_now",
    "delta_cdc.run.apply": "run_apply",
    "delta_cdc.run.batch": "Piece PieceResult run_bundle since_key",
    "delta_cdc.run.commit": "committed_by_run committed_so_far run_commit",
    "delta_cdc.run.detect_changes": "Looked detect_changes written=written_table",
    "delta_cdc.run.maintain": "Work=MaintenanceWork raise_failed=raise_failed_maintenance "
    "run=run_maintenance",
    "delta_cdc.run.read": "run_read",
    "delta_cdc.run.saved_plans": "NoPins",
    "delta_cdc.run.table_arguments": "is_ingested pipeline_of requests=table_requests",
    "delta_cdc.run.times": "iso=iso_time moment start=start_time",
    "delta_cdc.run.verify": "Verification raise_if_wrong rows_of=verification_rows run_verify",
    "delta_cdc.run.verify_text": "text_of=verification_text",
    "delta_cdc.run.watermarks": "published=forget_saved_plans versions_of",
    "delta_cdc.spark.sessions": "close=close_session delta_version end=end_session "
    "is_connect=is_connect_session is_lost=is_session_lost",
}
#: Each name, with its module and its name there.
NAMES = {
    name or there: (module, there)
    for module, names in _USED.items()
    for there, _, name in (one.partition("=") for one in names.split())
}

if not TYPE_CHECKING:
    # Hidden from type checkers, for which any name would exist otherwise.
    def __getattr__(name):
        """Return what a name of :data:`NAMES` stands for; its module is loaded where it is not yet."""
        if name not in NAMES:
            raise AttributeError(f"{__name__} has no {name!r}: add it to NAMES.")
        module, there = NAMES[name]
        return getattr(import_module(module), there)
