"""Metrics as text for Prometheus, by its client library. Driver."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from tailrace.metrics.distribution import BOUNDS_S
from tailrace.monitoring.families import Buckets, MetricFamily, families
from tailrace.monitoring.observation import Observation


class _Collector(Collector):
    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def collect(self) -> Iterator[Metric]:
        return map(metric, families(self._observation))


def exposed(observation: Observation, accept: str = "") -> tuple[bytes, str]:
    """Return the metrics and their content type: Prometheus' text 0.0.4, or OpenMetrics if `accept` asks for it."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(observation))
    return encode(registry), content_type


def metric(family: MetricFamily) -> Metric:
    """Return a family in the terms of the client library."""
    found: Metric
    if family.kind == "counter":
        found = CounterMetricFamily(family.name, family.help)
    elif family.kind == "histogram":
        found = HistogramMetricFamily(family.name, family.help)
    else:
        found = GaugeMetricFamily(family.name, family.help)
    for labels, value in family.samples:
        if isinstance(value, Buckets):
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            for bound, count in zip(bounds, value.counts, strict=True):
                found.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
            found.add_sample(f"{family.name}_count", dict(labels), value.counts[-1])
            found.add_sample(f"{family.name}_sum", dict(labels), value.sum_s)
        else:
            found.add_sample(family.name, dict(labels), value)
    return found
