"""How Airflow's own logging writes down what ends a task."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

# As in the process of a task: the logger is in use before the operator runs.
_TASK = """
import sys
import structlog
from airflow.sdk.log import configure_logging
from airflow_delta_cdc.failures import log_named_errors
from delta_cdc.core.errors import ConfigurationDrift, JobFailed

configure_logging(json_output=True, output=sys.stdout.buffer, sending_to_supervisor=True)
log = structlog.get_logger("task")
log.info("before")
log_named_errors()
log_named_errors()

def drift():
    raise ConfigurationDrift("100% of keys are others.\\n", remedy="say on_drift.")

def unforeseen():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise JobFailed("It died.", remedy="retry.") from error

def plain():
    raise KeyError("x")

for fail in (drift, unforeseen, plain):
    try:
        fail()
    except Exception:
        log.exception("Task failed with exception")
try:
    drift()
except Exception:
    log.exception("A user's own line")
"""


@pytest.fixture(scope="module")
def entries() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", _TASK], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_named_error_is_two_lines_without_a_traceback(entries: list[dict[str, Any]]) -> None:
    named = entries[1]
    assert named["event"] == "ConfigurationDrift: 100% of keys are others.\nRemedy: say on_drift."
    assert (named["level"], "exception" in named, "error_detail" in named) == ("error", False, False)


def test_an_unforeseen_error_keeps_its_traceback(entries: list[dict[str, Any]]) -> None:
    for entry, names in zip(entries[2:4], (["JobFailed", "ZeroDivisionError"], ["KeyError"]), strict=True):
        assert entry["event"].startswith("Task failed with ")
        (detail,) = (entry[key] for key in ("exception", "error_detail") if key in entry)
        assert [one["exc_type"] for one in detail] == names


def test_other_lines_about_a_named_error_stay_as_they_are(entries: list[dict[str, Any]]) -> None:
    assert entries[4]["event"] == "A user's own line"
    assert {"exception", "error_detail"} & set(entries[4])
