"""OpenTelemetry gets Debezium Server's names with their units, and tailrace's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from tailrace.errors import ConfigError
from tailrace.monitoring.opentelemetry import exporting
from tests.unit.monitoring.planner_file import observation, written


def test_metrics_have_the_names_of_debezium_server(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    end = exporting(observation(written(tmp_path)), reader)
    try:
        data = reader.get_metrics_data()
        assert data is not None
        metrics = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
        counts = {
            point.attributes["debezium.event.type"]: point.value
            for point in metrics["debezium.event.count"].data.data_points
            if isinstance(point, NumberDataPoint) and point.attributes
            and point.attributes["debezium.context"] == "streaming"
        }  # fmt: skip
        assert counts == {"create": 2, "update": 1, "delete": 0}
        (lag,) = metrics["debezium.source.lag"].data.data_points
        assert isinstance(lag, NumberDataPoint)
        assert (lag.value, metrics["debezium.source.lag"].unit) == (2.0, "s")
        (state,) = metrics["debezium.connection.status"].data.data_points
        assert state.attributes is not None
        assert state.attributes["debezium.connection.state"] == "connected"
        (committed,) = metrics["debezium.transaction.committed.count"].data.data_points
        assert isinstance(committed, NumberDataPoint)
        assert committed.value == 7
        assert metrics["tailrace.spool.bytes"].unit == "By"
    finally:
        end()


def test_a_missing_sdk_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[opentelemetry\]"):
        exporting(observation())
