"""Every metric: its name, kind, labels and meaning. Airflow's stats and ``delta-cdc status`` publish these.

Airflow's stats get ``delta_cdc.<name>``, and Prometheus gets ``delta_cdc_<name>``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core.value_rules import broken_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Who publishes a metric: a task that writes or detects, the sensor, or ``delta-cdc status --metrics``.
Publisher = Literal["run", "sensor", "status"]


@dataclass(frozen=True)
class Metric:
    """One metric. It has the label ``pipeline``; a gauge holds the newest value, a counter is a sum.

    :param doc: the meaning, without a full stop
    :param label: a further label; "" without one
    """

    name: str
    kind: Literal["gauge", "counter"]
    doc: str
    publishers: tuple[Publisher, ...]
    label: str = ""


@dataclass(frozen=True)
class Sample:
    """A value of a metric.

    :param label: the value of the metric's further label
    """

    metric: Metric
    pipeline: str
    value: float
    label: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels by name."""
        further = {self.metric.label: self.label} if self.metric.label else {}
        return {"pipeline": self.pipeline, **further}


_ALL: tuple[Publisher, ...] = ("run", "sensor", "status")
#: All metrics by name.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("versions_behind", "gauge", "Versions of the source after the watermark", _ALL),
        Metric(
            "seconds_behind",
            "gauge",
            "Age of the oldest change that is not applied; 0 if all changes are applied",
            _ALL,
        ),
        Metric(
            "seconds_until_unreadable",
            "gauge",
            "Seconds until retention removes what the next run needs; 0 if it has already removed it",
            _ALL,
        ),
        Metric(
            "late",
            "gauge",
            "1 if the oldest change that is not applied is older than freshness",
            ("run", "status"),
        ),
        Metric("problems", "gauge", "Findings and errors that need attention; 0 for none", ("status",)),
        Metric("rows", "counter", "Rows written, by kind", ("run",), "kind"),
        Metric("bytes_written", "counter", "Bytes of the files that the commits added", ("run",)),
        Metric("quarantined", "counter", "Records or events put into quarantine", ("run",)),
        Metric(
            "rows_in_quarantine",
            "gauge",
            "Records or events that are in quarantine now",
            ("status",),
        ),
        Metric("rule_broken", "counter", "Rows that broke a rule, by rule", ("run",), "rule"),
        Metric(
            "shadow_differences",
            "gauge",
            "Keys or rows that differ between a target and its shadow",
            ("run", "status"),
        ),
        Metric(
            "attempts_lost",
            "counter",
            "Attempts to commit that failed because another writer committed first",
            ("run",),
        ),
        Metric("stage_seconds", "gauge", "Seconds of the newest run, by stage", ("run",), "stage"),
        Metric("last_rows", "gauge", "Rows of the newest sealed commit, by kind", ("status",), "kind"),
        Metric("last_bytes_written", "gauge", "Bytes that the newest sealed commit added", ("status",)),
        Metric(
            "last_quarantined",
            "gauge",
            "Records or events that the newest sealed commit put into quarantine",
            ("status",),
        ),
        Metric(
            "last_rule_broken",
            "gauge",
            "Rows of the newest sealed commit that broke a rule, by rule",
            ("status",),
            "rule",
        ),
        Metric("last_commit_age_seconds", "gauge", "Age of the newest sealed commit", ("status",)),
    )
}
#: Counts that are not rows by kind: files, totals, and the counts that have their own metric.
_NOT_ROWS = ("files", "missing", "quarantined", "rows")


def is_late(seconds_behind: float | None, freshness: float | None) -> bool | None:
    """Return whether a pipeline is late; None if it has no freshness, or its lag is unknown."""
    return None if seconds_behind is None or freshness is None else seconds_behind > freshness


def lag_samples(pipeline: str, lag: Mapping[str, Any] | None, now: datetime) -> Iterator[Sample]:
    """Yield the samples of a published lag (:meth:`delta_cdc.planning.status.Lag.to_dict`).

    :param lag: also with ``late``; None yields nothing
    """
    values = lag or {}
    until = values.get("readable_until")
    remaining = None
    if until is not None:
        remaining = max(0.0, (datetime.fromisoformat(until) - now).total_seconds())
    for name, value in (
        ("versions_behind", values.get("versions")),
        ("seconds_behind", values.get("seconds")),
        ("seconds_until_unreadable", remaining),
        ("late", values.get("late")),
    ):
        if value is not None:
            yield Sample(METRICS[name], pipeline, float(value))


def commit_samples(
    pipeline: str, counts: Mapping[str, int], bytes_written: int, *, prefix: str = ""
) -> Iterator[Sample]:
    """Yield the samples of what commits wrote.

    :param counts: rows by kind
    :param prefix: ``last_`` for the metrics of the newest commit
    """
    for kind, count in counts.items():
        if kind not in _NOT_ROWS and ":" not in kind:
            yield Sample(METRICS[f"{prefix}rows"], pipeline, count, kind)
    yield Sample(METRICS[f"{prefix}bytes_written"], pipeline, bytes_written)
    yield Sample(METRICS[f"{prefix}quarantined"], pipeline, counts.get("quarantined", 0))
    for rule, count in broken_in(counts):
        yield Sample(METRICS[f"{prefix}rule_broken"], pipeline, count, rule)


def effort_samples(pipeline: str, seconds: Mapping[str, float], attempts_lost: int) -> Iterator[Sample]:
    """Yield the samples of what a run took."""
    for stage, value in seconds.items():
        yield Sample(METRICS["stage_seconds"], pipeline, value, stage)
    yield Sample(METRICS["attempts_lost"], pipeline, attempts_lost)


def shadow_samples(pipeline: str, counts: Iterable[Mapping[str, int]]) -> Iterator[Sample]:
    """Yield the sample of comparisons with shadows.

    :param counts: of each comparison that was made: differences by kind
    """
    numbers = [sum(one.values()) for one in counts]
    if numbers:
        yield Sample(METRICS["shadow_differences"], pipeline, sum(numbers))


def prometheus_text(samples: Iterable[Sample]) -> str:
    """Return samples in the text format of Prometheus, version 0.0.4."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.metric.name, []).append(sample)
    lines = []
    for name in (name for name in METRICS if name in by_name):
        full_name = f"delta_cdc_{name}"
        lines.append(f"# HELP {full_name} {METRICS[name].doc}.")
        lines.append(f"# TYPE {full_name} {METRICS[name].kind}")
        for sample in by_name[name]:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
            lines.append(f"{full_name}{{{labels}}} {float(sample.value)!r}")
    return "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
