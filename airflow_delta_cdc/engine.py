# mypy: implicit-reexport
# ruff: noqa: F401
"""The parts of the engine that only a run needs, each loaded at first use.

The parsing of a DAG file must not import the log reader, the planner or Spark. So the provider's modules
import only ``delta_cdc.core`` at their top, and use the rest of the engine through this module:
``engine.run(...)`` loads ``delta_cdc.run.flows`` when that line runs. Requests, specs and their steps are in
``core``, but they are here too, because the import of their many dataclasses takes long.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# isort: off
# Type checkers read these imports. At run time, NAMES holds them, and each is imported at first use.
if TYPE_CHECKING:
    from delta_cdc.cli import command_line, main as run_command
    from delta_cdc.cli.doctor import questions as doctor_questions
    from delta_cdc.config import Code, Group, load as load_configuration
    from delta_cdc.config.combine import is_template
    from delta_cdc.config.verification import (
        paired as paired_requests,
        request_of as verify_request_of,
    )
    from delta_cdc.config.why import request_of as why_request_of
    from delta_cdc.core.requests import CommitRequest, ReadRequest
    from delta_cdc.core.spec import (
        LINE_PREFIX,
        BatchSpec,
        EnableSpec,
        ExpireSpec,
        JobResult,
        OptimizeSpec,
        ResolveSpec,
        TargetName,
        VacuumSpec,
        fingerprint,
        sha256,
        to_json,
    )
    from delta_cdc.core.steps import ranges_of
    from delta_cdc.delta_log.file_manifests import forget as delete_manifests, prepared as with_manifests
    from delta_cdc.delta_log.requests import Storage, delete_folder
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
        INTERPRETED,
        JAVA_OPTIONS,
        delta_confs,
        embedded_confs,
        get_session,
        engine_zip,
        extensions,
    )
    from delta_cdc.launch.spark_defaults import spark_default, text_of as properties_file_text
    from delta_cdc.launch.storage_secrets import storage_confs, write_private
    from delta_cdc.planning.consumers import consumers_of
    from delta_cdc.planning.erasure import Flow, readers, sorted_out, with_downstream
    from delta_cdc.planning.expiry import plan_expiry
    from delta_cdc.planning.ingest import plan_ingest
    from delta_cdc.planning.optimize import plan_optimize
    from delta_cdc.planning.reconcile import reconcile
    from delta_cdc.planning.staging import arrived
    from delta_cdc.planning.renewal import seal_due_at
    from delta_cdc.planning.size import SMALL, TINY, job_size
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
    from delta_cdc.planning.why import MOST_BYTES as MOST_BYTES_OF_WHY, WhyRequest
    from delta_cdc.run.batch import PipelineJob, PipelineResult, run_batch, since_key
    from delta_cdc.run.commit import committed_by_run, committed_so_far
    from delta_cdc.run.detect_changes import detect_changes, plan_ending_at, written as written_table
    from delta_cdc.run.erase import Erasure, run as run_erasure
    from delta_cdc.run.flows import run
    from delta_cdc.run.loop import Services
    from delta_cdc.run.maintain import raise_failed as raise_failed_maintenance, run as run_maintenance
    from delta_cdc.run.table_arguments import (
        is_ingested,
        placed,
        placed_ingest,
        replays,
        requests as table_requests,
    )
    from delta_cdc.run.verify import raise_if_wrong, run_verify, text_of as verification_text
    from delta_cdc.run.saved_plans import forget_saved_plans
    from delta_cdc.run.publication import publish_versions
    from delta_cdc.run.watermarks import versions_of
    from delta_cdc.run.why import run_why
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

#: The engine's names that the provider uses: the module of each, and its name in that module.
#: ``tools/signatures.py`` writes them from the imports above.
NAMES = {
    # -- names
    "command_line": ("delta_cdc.cli", "command_line"),
    "run_command": ("delta_cdc.cli", "main"),
    "doctor_questions": ("delta_cdc.cli.doctor", "questions"),
    "Code": ("delta_cdc.config", "Code"),
    "Group": ("delta_cdc.config", "Group"),
    "load_configuration": ("delta_cdc.config", "load"),
    "is_template": ("delta_cdc.config.combine", "is_template"),
    "paired_requests": ("delta_cdc.config.verification", "paired"),
    "verify_request_of": ("delta_cdc.config.verification", "request_of"),
    "why_request_of": ("delta_cdc.config.why", "request_of"),
    "CommitRequest": ("delta_cdc.core.requests", "CommitRequest"),
    "ReadRequest": ("delta_cdc.core.requests", "ReadRequest"),
    "LINE_PREFIX": ("delta_cdc.core.spec", "LINE_PREFIX"),
    "BatchSpec": ("delta_cdc.core.spec", "BatchSpec"),
    "EnableSpec": ("delta_cdc.core.spec", "EnableSpec"),
    "ExpireSpec": ("delta_cdc.core.spec", "ExpireSpec"),
    "JobResult": ("delta_cdc.core.spec", "JobResult"),
    "OptimizeSpec": ("delta_cdc.core.spec", "OptimizeSpec"),
    "ResolveSpec": ("delta_cdc.core.spec", "ResolveSpec"),
    "TargetName": ("delta_cdc.core.spec", "TargetName"),
    "VacuumSpec": ("delta_cdc.core.spec", "VacuumSpec"),
    "fingerprint": ("delta_cdc.core.spec", "fingerprint"),
    "sha256": ("delta_cdc.core.spec", "sha256"),
    "to_json": ("delta_cdc.core.spec", "to_json"),
    "ranges_of": ("delta_cdc.core.steps", "ranges_of"),
    "delete_manifests": ("delta_cdc.delta_log.file_manifests", "forget"),
    "with_manifests": ("delta_cdc.delta_log.file_manifests", "prepared"),
    "Storage": ("delta_cdc.delta_log.requests", "Storage"),
    "delete_folder": ("delta_cdc.delta_log.requests", "delete_folder"),
    "open_store": ("delta_cdc.delta_log.store", "open_store"),
    "DeltaLog": ("delta_cdc.delta_log.table", "DeltaLog"),
    "run_sync": ("delta_cdc.delta_log.table", "run_sync"),
    "Check": ("delta_cdc.doctor.report", "Check"),
    "examined_checks": ("delta_cdc.doctor.report", "examined"),
    "check_ok": ("delta_cdc.doctor.report", "ok"),
    "print_checks": ("delta_cdc.doctor.report", "print_report"),
    "check_skipped": ("delta_cdc.doctor.report", "skipped"),
    "RoundTrip": ("delta_cdc.doctor.store", "RoundTrip"),
    "run_spec": ("delta_cdc.job", "run"),
    "ClassDataArchive": ("delta_cdc.launch.class_data_archive", "ClassDataArchive"),
    "child_environment": ("delta_cdc.launch.environment", "child_environment"),
    "require_one_pyspark": ("delta_cdc.launch.environment", "require_one_pyspark"),
    "submit_binary": ("delta_cdc.launch.environment", "submit_binary"),
    "cache_home": ("delta_cdc.launch.jars", "cache_home"),
    "needed_jars": ("delta_cdc.launch.jars", "needed"),
    "s3_jars": ("delta_cdc.launch.jars", "s3_jars"),
    "log_store_confs": ("delta_cdc.launch.log_store", "log_store_confs"),
    "run_folder": ("delta_cdc.launch.run_folder", "run_folder"),
    "CLASS_PATH": ("delta_cdc.launch.session", "CLASS_PATH"),
    "DEFAULT_JAVA_OPTIONS": ("delta_cdc.launch.session", "DEFAULT_JAVA_OPTIONS"),
    "INTERPRETED": ("delta_cdc.launch.session", "INTERPRETED"),
    "JAVA_OPTIONS": ("delta_cdc.launch.session", "JAVA_OPTIONS"),
    "delta_confs": ("delta_cdc.launch.session", "delta_confs"),
    "embedded_confs": ("delta_cdc.launch.session", "embedded_confs"),
    "get_session": ("delta_cdc.launch.session", "get_session"),
    "engine_zip": ("delta_cdc.launch.session", "engine_zip"),
    "extensions": ("delta_cdc.launch.session", "extensions"),
    "spark_default": ("delta_cdc.launch.spark_defaults", "spark_default"),
    "properties_file_text": ("delta_cdc.launch.spark_defaults", "text_of"),
    "storage_confs": ("delta_cdc.launch.storage_secrets", "storage_confs"),
    "write_private": ("delta_cdc.launch.storage_secrets", "write_private"),
    "consumers_of": ("delta_cdc.planning.consumers", "consumers_of"),
    "Flow": ("delta_cdc.planning.erasure", "Flow"),
    "readers": ("delta_cdc.planning.erasure", "readers"),
    "sorted_out": ("delta_cdc.planning.erasure", "sorted_out"),
    "with_downstream": ("delta_cdc.planning.erasure", "with_downstream"),
    "plan_expiry": ("delta_cdc.planning.expiry", "plan_expiry"),
    "plan_ingest": ("delta_cdc.planning.ingest", "plan_ingest"),
    "plan_optimize": ("delta_cdc.planning.optimize", "plan_optimize"),
    "reconcile": ("delta_cdc.planning.reconcile", "reconcile"),
    "arrived": ("delta_cdc.planning.staging", "arrived"),
    "seal_due_at": ("delta_cdc.planning.renewal", "seal_due_at"),
    "SMALL": ("delta_cdc.planning.size", "SMALL"),
    "TINY": ("delta_cdc.planning.size", "TINY"),
    "job_size": ("delta_cdc.planning.size", "job_size"),
    "MOST_COMMITS": ("delta_cdc.planning.status", "MOST_COMMITS"),
    "lag_of": ("delta_cdc.planning.status", "lag_of"),
    "already_enabled": ("delta_cdc.planning.table_properties", "already_enabled"),
    "described_tables": ("delta_cdc.planning.table_properties", "described"),
    "is_path": ("delta_cdc.planning.table_properties", "is_path"),
    "plan_vacuum": ("delta_cdc.planning.vacuum", "plan_vacuum"),
    "VerifyRequest": ("delta_cdc.planning.verify", "VerifyRequest"),
    "Condition": ("delta_cdc.planning.waiting", "Condition"),
    "Watch": ("delta_cdc.planning.waiting", "Watch"),
    "position_from_json": ("delta_cdc.planning.waiting", "position_from_json"),
    "position_now": ("delta_cdc.planning.waiting", "position_now"),
    "position_to_json": ("delta_cdc.planning.waiting", "position_to_json"),
    "MOST_BYTES_OF_WHY": ("delta_cdc.planning.why", "MOST_BYTES"),
    "WhyRequest": ("delta_cdc.planning.why", "WhyRequest"),
    "PipelineJob": ("delta_cdc.run.batch", "PipelineJob"),
    "PipelineResult": ("delta_cdc.run.batch", "PipelineResult"),
    "run_batch": ("delta_cdc.run.batch", "run_batch"),
    "since_key": ("delta_cdc.run.batch", "since_key"),
    "committed_by_run": ("delta_cdc.run.commit", "committed_by_run"),
    "committed_so_far": ("delta_cdc.run.commit", "committed_so_far"),
    "detect_changes": ("delta_cdc.run.detect_changes", "detect_changes"),
    "plan_ending_at": ("delta_cdc.run.detect_changes", "plan_ending_at"),
    "written_table": ("delta_cdc.run.detect_changes", "written"),
    "Erasure": ("delta_cdc.run.erase", "Erasure"),
    "run_erasure": ("delta_cdc.run.erase", "run"),
    "run": ("delta_cdc.run.flows", "run"),
    "Services": ("delta_cdc.run.loop", "Services"),
    "raise_failed_maintenance": ("delta_cdc.run.maintain", "raise_failed"),
    "run_maintenance": ("delta_cdc.run.maintain", "run"),
    "is_ingested": ("delta_cdc.run.table_arguments", "is_ingested"),
    "placed": ("delta_cdc.run.table_arguments", "placed"),
    "placed_ingest": ("delta_cdc.run.table_arguments", "placed_ingest"),
    "replays": ("delta_cdc.run.table_arguments", "replays"),
    "table_requests": ("delta_cdc.run.table_arguments", "requests"),
    "raise_if_wrong": ("delta_cdc.run.verify", "raise_if_wrong"),
    "run_verify": ("delta_cdc.run.verify", "run_verify"),
    "verification_text": ("delta_cdc.run.verify", "text_of"),
    "forget_saved_plans": ("delta_cdc.run.saved_plans", "forget_saved_plans"),
    "publish_versions": ("delta_cdc.run.publication", "publish_versions"),
    "versions_of": ("delta_cdc.run.watermarks", "versions_of"),
    "run_why": ("delta_cdc.run.why", "run_why"),
    "close_session": ("delta_cdc.spark.sessions", "close"),
    "delta_version": ("delta_cdc.spark.sessions", "delta_version"),
    "end_session": ("delta_cdc.spark.sessions", "end"),
    "is_connect_session": ("delta_cdc.spark.sessions", "is_connect"),
    "is_session_lost": ("delta_cdc.spark.sessions", "is_lost"),
    "refuses_java": ("delta_cdc.spark.sessions", "refuses_java"),
    "require_clones": ("delta_cdc.spark.sessions", "require_clones"),
    # -- end
}

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name):
        """Return the object with a name in :data:`NAMES`; load its module at first use."""
        if name not in NAMES:
            raise AttributeError(f"{__name__} has no {name!r}: add its import, and run tools/signatures.py.")
        module, there = NAMES[name]
        return getattr(import_module(module), there)
