"""Publish metrics through Airflow's own stats: StatsD, DogStatsD or OpenTelemetry, by its configuration."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Stats, conf

from delta_cdc.core.metrics import commit_samples, effort_samples, lag_samples, shadow_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delta_cdc.core.metrics import Sample


def are_published() -> bool:
    """Return whether Airflow publishes metrics at all."""
    switches = ("statsd_on", "statsd_datadog_enabled", "otel_on")
    return any(conf.getboolean("metrics", name, fallback=False) for name in switches)


def emit(samples: Iterable[Sample]) -> None:
    """Publish samples as ``delta_cdc.<name>`` with labels as tags.

    Plain StatsD has no tags; there, the values of the labels follow the name: ``delta_cdc.late.orders``.
    """
    has_tags = not conf.getboolean("metrics", "statsd_on") or any(
        conf.getboolean("metrics", name) for name in ("statsd_datadog_enabled", "statsd_influxdb_enabled")
    )
    for sample in samples:
        name, tags = f"delta_cdc.{sample.metric.name}", sample.labels
        if not has_tags:
            name = ".".join([name, *(_part(value) for value in tags.values())])
        if sample.metric.kind == "counter":
            Stats.incr(name, int(sample.value), tags=tags)
        else:
            Stats.gauge(name, sample.value, tags=tags)


def emit_lag(pipeline: str, lag: Mapping[str, Any] | None) -> None:
    """Publish how far a pipeline is behind (:meth:`delta_cdc.planning.status.Lag.to_dict`)."""
    emit(lag_samples(pipeline, lag, datetime.now(UTC)))


def emit_run(published: Mapping[str, Any]) -> None:
    """Publish what a run did, and how far its pipeline is behind.

    :param published: the published dict of an apply or an ingest
    """
    emit_lag(published["pipeline"], published.get("lag"))
    emit(_run_samples(published))


def _run_samples(published: Mapping[str, Any]) -> Iterator[Sample]:
    pipeline = published["pipeline"]
    for part in (published.get("ingested") or {}, published):
        if part.get("applied"):
            yield from commit_samples(pipeline, part["counts"], part["bytes_written"])
    made = [one for one in published.get("shadow") or () if one["status"] != "not_compared"]
    yield from shadow_samples(pipeline, [one["counts"] for one in made])
    yield from effort_samples(pipeline, published["seconds"], published["attempts_lost"])


def _part(value: str) -> str:
    """Return a label's value as a part of a name: a dot would begin another part."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", value.replace(".", "__"))
