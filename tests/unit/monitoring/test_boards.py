"""No query of a board or an alert asks for a series that is not exposed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tailrace.connectors.source_status import TableProgress
from tailrace.monitoring.exposition import exposed
from tests.unit.monitoring.planner_file import NOW, observation, progress, slot, written

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "examples" / "monitoring"
_SERIES = re.compile(r"\b((?:tailrace|debezium_metrics)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')

Sample = tuple[str, dict[str, str]]


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    """Return the samples of a pipeline in which everything has happened that a series needs."""
    retention = {
        "slots": [slot(limit_bytes=10_000_000, limit_s=40.0, growth_bytes_s=1.0, safe_bytes=1, inactive_s=1.0)],
        "oldest_s": NOW - 3600, "kept_s": 7200.0,
    }  # fmt: skip
    place = written(tmp_path, retention=retention)
    content = json.loads(place.read_text())
    content["tally"]["quarantined"] = {"public.a": {"value": 1}}
    content["tally"]["sizes"] = {"public.a": 100}
    place.write_text(json.dumps(content))
    found = observation()
    found.update(progress(place, snapshot=[{"table": "public.b", "rows": 5, "of": 50}], log={"idle": "0/10"}))
    assert found._status is not None
    chunked = TableProgress("public.c", 1, 3, "chunks")
    found._status = replace(found._status, lag_bytes=100, tables=(*found._status.tables, chunked))
    return [
        (sample.name, sample.labels)
        for family in text_string_to_metric_families(exposed(found)[0].decode())
        for sample in family.samples
    ]


def series(query: str) -> Iterator[Sample]:
    """Yield the name and the matchers of each series of a query, as name and `label operator value`."""
    for name, matchers in _SERIES.findall(query):
        yield name, {f"{label}{operator}": value for label, operator, value in _MATCHER.findall(matchers)}


def matches(wanted: Sample, found: Sample) -> bool:
    """Return True if a sample is one of those that a series names; variables of a board match everything."""
    name, matchers = wanted
    if name != found[0]:
        return False
    for matcher, value in matchers.items():
        label, operator = re.fullmatch(r"(\w+)(\W+)", matcher).groups()  # type: ignore[union-attr]
        text = found[1].get(label, "")
        is_equal = value.startswith("$") or (re.fullmatch(value, text) if "~" in operator else value == text)
        if bool(is_equal) == operator.startswith("!"):
            return False
    return True


def queries() -> list[str]:
    board = json.loads((MONITORING / "grafana" / "tailrace.json").read_text())
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in board["templating"]["list"] if isinstance(one["query"], dict)]
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("query", queries())
def test_each_series_of_a_query_is_exposed(samples: list[Sample], query: str) -> None:
    wanted = list(series(query))
    assert wanted
    for one in wanted:
        assert any(matches(one, found) for found in samples), one


DEBEZIUMS = [
    *(f'{name}{{plugin="postgres",name="shop",context=~"(binlog|streaming)"}}' for name in (
        "debezium_metrics_MilliSecondsSinceLastEvent", "debezium_metrics_TotalNumberOfEventsSeen",
        "debezium_metrics_NumberOfEventsSkipped", "debezium_metrics_Connected",
    )),
    *(f'{name}{{plugin="postgres",name="shop",context="snapshot"}}' for name in (
        "debezium_metrics_TotalTableCount", "debezium_metrics_RemainingTableCount", "debezium_metrics_SnapshotRunning",
        "debezium_metrics_SnapshotCompleted", "debezium_metrics_SnapshotAborted",
        "debezium_metrics_TotalNumberOfEventsSeen", "debezium_metrics_NumberOfEventsSkipped",
        "debezium_metrics_RowsScanned",
    )),
    'debezium_metrics_create_events_count{plugin="postgres",name="shop",context="streaming",table="public.a"}',
]  # fmt: skip
"""The series of Debezium's own boards, with their variables filled in."""


@pytest.mark.parametrize("query", DEBEZIUMS)
def test_debeziums_own_boards_show_numbers(samples: list[Sample], query: str) -> None:
    ((name, matchers),) = series(query)
    assert any(matches((name, matchers), found) for found in samples)


def test_the_evaluation_finds_a_series_that_is_missing(samples: list[Sample]) -> None:
    for query in ("tailrace_nothing", 'tailrace_up{pipeline="other"}', 'tailrace_slot_wal_status{status=~"x|y"}'):
        ((name, matchers),) = series(query)
        assert not any(matches((name, matchers), found) for found in samples)


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) == 9
    for rule in alerts:
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_compose_file_mounts_files_that_exist() -> None:
    services = yaml.safe_load((MONITORING / "compose.yaml").read_text())["services"]
    mounts = [mount.split(":")[0] for service in services.values() for mount in service["volumes"]]
    assert mounts
    for mount in mounts:
        assert (MONITORING / mount).exists(), mount
    prometheus = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert prometheus["rule_files"] == ["/etc/prometheus/alerts.yml"]
    for path in (MONITORING / "grafana" / "provisioning").rglob("*.yaml"):
        assert yaml.safe_load(path.read_text())["apiVersion"] == 1


def test_panels_of_the_board_do_not_overlap() -> None:
    board = json.loads((MONITORING / "grafana" / "tailrace.json").read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [(x, y) for g in places for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
