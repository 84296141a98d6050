"""Metrics by OpenTelemetry: the SDK sends them, as its own environment variables OTEL_* say. Driver.

Debezium's metrics have the names of Debezium Server's mapping. tailrace's metrics have the names that Prometheus gets,
with dots: `tailrace_source_lag_bytes` is `tailrace.source.lag.bytes`. Histograms are left out, since the SDK accepts
single durations only, not counts of buckets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tailrace.errors import ConfigError
from tailrace.monitoring.families import Buckets, MetricFamily, families
from tailrace.monitoring.observation import Observation
from tailrace.process.installation import pip_install

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.metrics import Observation as Point

_PREFIX = "debezium_metrics_"

LOOK_SECONDS = 5.0
"""Seconds between two looks for metrics that had no value before."""

_EVENT = "debezium.event.type"
_MAPPED: Mapping[str, tuple[str, str, str, float, Mapping[str, str]]] = {
    # attribute: name, kind, unit, factor, further attributes
    "TotalNumberOfCreateEventsSeen": ("event.count", "counter", "{event}", 1, {_EVENT: "create"}),
    "TotalNumberOfUpdateEventsSeen": ("event.count", "counter", "{event}", 1, {_EVENT: "update"}),
    "TotalNumberOfDeleteEventsSeen": ("event.count", "counter", "{event}", 1, {_EVENT: "delete"}),
    "NumberOfErroneousEvents": ("event.erroneous.count", "counter", "{event}", 1, {}),
    "NumberOfUnchangedEventsSkipped": ("event.skipped.count", "counter", "{event}", 1, {}),
    "MilliSecondsSinceLastEvent": ("event.time_since_last", "gauge", "s", 1e-3, {}),
    "MilliSecondsBehindSource": ("source.lag", "gauge", "s", 1e-3, {}),
    "NumberOfCommittedTransactions": ("transaction.committed.count", "counter", "{transaction}", 1, {}),
    "QueueTotalCapacity": ("queue.limit", "gauge", "{event}", 1, {}),
    "QueueRemainingCapacity": ("queue.remaining_capacity", "updown", "{event}", 1, {}),
    "MaxQueueSizeInBytes": ("queue.size.limit", "gauge", "By", 1, {}),
    "CurrentQueueSizeInBytes": ("queue.size", "updown", "By", 1, {}),
    "SnapshotDurationInSeconds": ("snapshot.duration", "gauge", "s", 1, {}),
    "SnapshotPausedDurationInSeconds": ("snapshot.paused_duration", "gauge", "s", 1, {}),
    "TotalTableCount": ("snapshot.table.count", "gauge", "{table}", 1, {}),
    "RemainingTableCount": ("snapshot.table.remaining_count", "gauge", "{table}", 1, {}),
}
_STATES = {
    "Connected": ("connection.status", "debezium.connection.state", ("disconnected", "connected")),
    **{
        f"Snapshot{state}": (f"snapshot.{state.lower()}", f"debezium.snapshot.{state.lower()}", ("false", "true"))
        for state in ("Running", "Completed", "Aborted", "Paused", "Skipped")
    },
}
_LABELS = {
    "name": "debezium.logical.name", "context": "debezium.context", "task": "debezium.task.id",
    "database": "debezium.database",
}  # fmt: skip


def points(observation: Observation) -> dict[str, tuple[str, str, list[tuple[float, dict[str, str]]]]]:
    """Return the metrics by name: kind (`counter`, `updown` or `gauge`), unit, and values with their attributes."""
    found: dict[str, tuple[str, str, list[tuple[float, dict[str, str]]]]] = {}
    for family in families(observation):
        if family.kind == "histogram":
            continue
        for name, kind, unit, value, attributes in _translated(family):
            found.setdefault(name, (kind, unit, []))[2].append((value, attributes))
    return found


def _translated(family: MetricFamily) -> Iterable[tuple[str, str, str, float, dict[str, str]]]:
    """Yield name, kind, unit, value and attributes of each sample; nothing for a metric without a counterpart."""
    attribute = family.name.removeprefix(_PREFIX)
    for labels, value in family.samples:
        assert not isinstance(value, Buckets)
        if attribute == family.name:
            name, unit = family.name.removesuffix("_total").replace("_", "."), _unit(family.name)
            yield name, "counter" if family.kind == "counter" else "gauge", unit, value, dict(labels)
            continue
        named = {_LABELS.get(label, label): text for label, text in labels.items() if label != "plugin"}
        if attribute in _MAPPED:
            name, kind, unit, factor, further = _MAPPED[attribute]
            # -1 stands for no value
            if value >= 0:
                yield f"debezium.{name}", kind, unit, value * factor, {**named, **further}
        elif attribute in _STATES:
            name, label, words = _STATES[attribute]
            yield f"debezium.{name}", "gauge", "1", 1.0, {**named, label: words[bool(value)]}


def _unit(name: str) -> str:
    parts = name.removesuffix("_total").split("_")
    return "By" if "bytes" in parts else "s" if parts[-1] == "seconds" else "1"


def exporting(observation: Observation, reader: Any = None) -> Callable[[], None]:
    """Begin to send the metrics; return a function that sends them for the last time and stops.

    `reader` is a MetricReader of the SDK; None stands for a reader that sends over OTLP. Raises ConfigError if the SDK
    is missing.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.metrics import Observation as Point
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError:
        raise ConfigError(
            "metrics.opentelemetry is true, and the SDK is not installed.", pip_install("tailrace[opentelemetry]")
        ) from None
    provider = MeterProvider(metric_readers=[reader or PeriodicExportingMetricReader(OTLPMetricExporter())])
    meter = provider.get_meter("tailrace", version("tailrace"))
    makers = {
        "counter": meter.create_observable_counter,
        "updown": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }
    known: set[str] = set()

    def values(name: str) -> Callable[[CallbackOptions], Iterable[Point]]:
        def observed(_: CallbackOptions) -> Iterable[Point]:
            found = points(observation).get(name)
            return [] if found is None else [Point(value, attributes) for value, attributes in found[2]]

        return observed

    def register() -> None:
        for name, (kind, unit, _) in points(observation).items():
            if name not in known:
                known.add(name)
                makers[kind](name, callbacks=[values(name)], unit=unit)

    # Metrics appear while the pipeline runs. A callback of the SDK must not make instruments: it holds their lock.
    closed = threading.Event()

    def look() -> None:
        while not closed.wait(LOOK_SECONDS):
            register()

    register()
    threading.Thread(target=look, name="tailrace-opentelemetry", daemon=True).start()

    def end() -> None:
        closed.set()
        register()
        provider.shutdown()

    return end
