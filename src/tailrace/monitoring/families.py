"""The metrics of an observed query: Debezium's names with Debezium's units, and names of tailrace's own. Driver.

Both kinds are made of the same observation, so they cannot disagree. All of Debezium's metrics are gauges, as the rules
of Debezium Server's exporter declare them. tailrace's metrics have base units, and counters end in `_total`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Literal

from tailrace.connectors.registry import find
from tailrace.monitoring.observation import FAILED_KINDS, Observation

Labels = Mapping[str, str]
Kind = Literal["gauge", "counter", "histogram"]

SLOT_STATUSES = ("reserved", "extended", "unreserved", "lost")
SNAPSHOT_STATUSES = ("waiting", "running", "paused", "done", "failed")
_BY_OP = {"Create": "c", "Update": "u", "Delete": "d", "Truncate": "t"}
_LOG_OPS = ("c", "u", "d", "t", "superseded")


@dataclass(frozen=True, slots=True)
class Buckets:
    """The value of a histogram: the numbers of durations up to each bound, and their sum in seconds."""

    counts: tuple[int, ...]
    sum_s: float


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric with its samples: labels and value. A counter's name ends in `_total`."""

    name: str
    kind: Kind
    help: str
    samples: tuple[tuple[Labels, float | Buckets], ...]


def families(observation: Observation) -> list[MetricFamily]:
    """Return the metrics. A metric without a value is left out."""
    numbers = _Numbers(observation)
    return [found for found in (*_compatible(numbers), *_own(numbers)) if found.samples]


class _Numbers:
    """An observation's numbers at one moment."""

    def __init__(self, observation: Observation) -> None:
        self.measures = observation.measures()
        self.state = observation.state()
        self.observation = observation
        self.now: float = self.state["at_s"]
        self.tally = self.measures.get("tally", {})
        self.tags = dict(tag.split("=", 1) for tag in self.measures.get("tags", []))
        self.tables: list[dict[str, Any]] = self.state["tables"]

    @property
    def own(self) -> dict[str, str]:
        named = self.state["connector"]
        # known even before the planner's file is there: a label that changes makes another series
        connector = self.measures.get("event_name") or (find(named).traits.event_name if named else "")
        return {**self.tags, "pipeline": self.state["pipeline"], "connector": connector}

    def compatible(self, context: str) -> dict[str, str]:
        """Return the labels of Debezium's metrics."""
        plugin, server = self.measures["plugin"], self.state["server"]
        found = {**self.tags, "plugin": plugin, "name": server, "context": context}
        if self.measures["has_task"]:
            found["task"] = "0"
        databases = self.measures.get("databases", [])
        if len(databases) == 1:
            found["database"] = databases[0]
        return found

    def total(self, ops: Sequence[str]) -> int:
        """Return the number of changes of these kinds."""
        return sum(table["events"][op] for table in self.tables for op in ops)

    def by_table(self, name: str) -> dict[str, int]:
        """Return counts of the tally by table; tables without a label of their own share the label `other`."""
        shown = {table["table"] for table in self.tables}
        found: dict[str, int] = {}
        for table, count in self.tally.get(name, {}).items():
            label = table if table in shown else "other"
            found[label] = found.get(label, 0) + count
        return found


# --- Debezium's names ------------------------------------------------------------------------------------------------


def _compatible(numbers: _Numbers) -> Iterator[MetricFamily]:
    if not numbers.measures:
        return
    contexts = {"streaming": _streaming(numbers), "snapshot": _snapshot(numbers)}
    for context in numbers.measures.get("disconnects", ()):
        contexts[context]["NumberOfDisconnects"] = sum(numbers.measures["reading"]["setbacks"].values())
    for context, attributes in numbers.measures["reading"].get("attributes", {}).items():
        contexts[context] |= attributes
    merged: dict[str, list[tuple[Labels, float | Buckets]]] = {}
    for context, attributes in contexts.items():
        labels = numbers.compatible(context)
        for attribute, value in attributes.items():
            merged.setdefault(attribute, []).append((labels, float(value)))
    streaming, snapshot = numbers.compatible("streaming"), numbers.compatible("snapshot")
    for kind, op in _BY_OP.items():
        counts = [({**streaming, "table": table["table"]}, float(table["events"][op])) for table in numbers.tables]
        merged[f"NumberOf{kind}EventsSeen"] = [*counts]
        if kind == "Create":
            merged["create_events_count"] = [*counts]
    merged["RowsScanned"] = [
        ({**snapshot, "table": table["table"]}, float(table["events"]["r"]))
        for table in numbers.tables
        if table["events"]["r"]
    ]
    chunked = [table for table in numbers.tables if table["unit"] == "chunks"]
    for attribute, part in (("TableChunkCounts", "rows_expected"), ("TableChunksCompletedCounts", "rows")):
        merged[attribute] = [
            ({**snapshot, "table": table["table"]}, float(table[part])) for table in chunked if table[part] is not None
        ]
    for attribute, samples in merged.items():
        yield MetricFamily(
            f"debezium_metrics_{attribute}", "gauge", _HELP.get(attribute, "As in Debezium."), tuple(samples)
        )


def _streaming(numbers: _Numbers) -> dict[str, float]:
    measures, state = numbers.measures, numbers.state
    reading = measures["reading"]
    unchanged = _unchanged(numbers)
    limit, held = reading["limit_bytes"], reading["held_bytes"]
    places = measures.get("queue_places", 0)
    behind = 0.0 if state["lag_s"] is None else state["lag_s"] * 1000
    return {
        "MilliSecondsSinceLastEvent": (numbers.now - measures["arrived_s"]) * 1000 if measures["arrived_s"] else -1,
        "TotalNumberOfEventsSeen": numbers.total(_LOG_OPS),
        **{f"TotalNumberOf{kind}EventsSeen": numbers.total([_BY_OP[kind]]) for kind in ("Create", "Update", "Delete")},
        "NumberOfErroneousEvents": state["quarantined"] + (state["error"] is not None),
        "NumberOfUnchangedEventsSkipped": unchanged,
        "NumberOfEventsSkipped": max(unchanged, 0),
        "QueueTotalCapacity": places,
        "QueueRemainingCapacity": int(places * (1 - min(held / limit, 1))) if limit else places,
        "MaxQueueSizeInBytes": limit,
        "CurrentQueueSizeInBytes": held,
        "Connected": state["is_connected"],
        "MilliSecondsBehindSource": behind,
        **({} if reading["transactions"] is None else {"NumberOfCommittedTransactions": reading["transactions"]}),
        **{f"MilliSecondsBehindSource{name}": value for name, value in measures["behind_ms"].items()},
    }


def _snapshot(numbers: _Numbers) -> dict[str, float]:
    watch, rows = numbers.observation.snapshot, numbers.total(["r"])
    # a short snapshot may begin and end between two observations, and a snapshot of empty tables has no rows
    tables = numbers.measures["reading"].get("snapshot_tables", 0)
    is_done = not watch.is_running and (bool(watch.ended_s) or rows > 0 or tables > 0)
    return {
        "TotalNumberOfEventsSeen": rows,
        **{f"TotalNumberOf{kind}EventsSeen": 0 for kind in ("Create", "Update", "Delete")},
        "NumberOfEventsSkipped": 0,
        "NumberOfErroneousEvents": 0,
        "TotalTableCount": max(watch.total, tables),
        "RemainingTableCount": watch.remaining if watch.is_running else 0,
        "SnapshotRunning": watch.is_running and not watch.is_paused,
        "SnapshotPaused": watch.is_paused,
        "SnapshotAborted": watch.is_running and numbers.state["state"] == "failed",
        "SnapshotCompleted": is_done,
        "SnapshotSkipped": not watch.is_running and not is_done,
        "SnapshotDurationInSeconds": int(watch.seconds(numbers.now)),
        "SnapshotPausedDurationInSeconds": int(watch.paused_s),
    }


def _unchanged(numbers: _Numbers) -> int:
    """Return the number of updates left out because they change no delivered column; -1 if such updates are kept."""
    return int(numbers.measures.get("unchanged", -1))


_HELP = {
    "MilliSecondsSinceLastEvent": "Milliseconds since a change arrived; -1 before the first.",
    "MilliSecondsBehindSource": "Milliseconds from a change at the source to now, for the newest; 0 if nothing waits.",
    "TotalNumberOfEventsSeen": "Changes since the start.",
    "NumberOfErroneousEvents": "Changes that were quarantined, and the failure that ended the query.",
    "NumberOfEventsSkipped": "Changes that were left out.",
    "Connected": "1 while the database is connected.",
    "NumberOfCommittedTransactions": "Transactions whose end was read from the log.",
    "NumberOfDisconnects": "Lost sessions.",
    "BinlogPosition": "Bytes of the present log file that were read.",
    "IsGtidModeEnabled": "1 if transactions have GTIDs.",
    "HoldingGlobalLock": "1 while a snapshot keeps everybody from writing: snapshot.locking.mode=extended.",
    "RowsScanned": "Rows that snapshots have read.",
    "TableChunkCounts": "Chunks of the table that a snapshot reads.",
    "TableChunksCompletedCounts": "Chunks of the table that the snapshot has read.",
    "TotalTableCount": "Tables of the latest snapshot.",
    "RemainingTableCount": "Tables that the snapshot has not read to their end.",
    "SnapshotRunning": "1 while a snapshot is read.",
    "SnapshotCompleted": "1 if the latest snapshot is complete.",
    "SnapshotAborted": "1 if the query failed during a snapshot.",
    "SnapshotSkipped": "1 if there was no snapshot since the start.",
}


# --- tailrace's names -------------------------------------------------------------------------------------------------


def _own(numbers: _Numbers) -> Iterator[MetricFamily]:
    yield from _query(numbers)
    if numbers.measures:
        yield from _durations(numbers)
        yield from _tables(numbers)
        yield from _slots(numbers)


def _query(numbers: _Numbers) -> Iterator[MetricFamily]:
    state, own, measures = numbers.state, numbers.own, numbers.measures
    error = state["error"]

    def single(name: str, kind: Kind, text: str, value: float | None, labels: Labels | None = None) -> MetricFamily:
        samples = () if value is None else (({**own, **(labels or {})}, float(value)),)
        return MetricFamily(f"tailrace_{name}", kind, text, samples)

    yield single("build_info", "gauge", "Versions and the format of values, as labels.", 1, _build(numbers))
    yield single("up", "gauge", "1 while the query runs.", state["state"] in ("starting", "running"))
    yield single("source_lag_bytes", "gauge", "Log written and not yet delivered.", state["lag_bytes"])
    yield single("source_lag_seconds", "gauge", "Age of the moment up to which all is delivered.", state["lag_s"])
    yield single("batches_total", "counter", "Batches with changes.", state["batches"])
    yield single("last_batch_timestamp_seconds", "gauge", "End of the newest batch.", state["committed_s"])
    yield MetricFamily(
        "tailrace_errors_total", "counter", "Failures that ended the query, by the class of the exit code.",
        tuple(({**own, "kind": kind}, float(error is not None and error["kind"] == kind))
              for kind in sorted(set(FAILED_KINDS.values()))),
    )  # fmt: skip
    sink = numbers.observation.sink
    if sink is not None:
        labels = {"sink": sink.sink}
        yield single("sink_retries_total", "counter", "Waits of the sink before another try.", sink.retries, labels)
        yield single("sink_refused_total", "counter", "Records that the sink refuses for good.", sink.refused, labels)
    if not measures:
        return
    reading = measures["reading"]
    yield single("connected", "gauge", "1 while the database is connected.", state["is_connected"])
    yield MetricFamily(
        "tailrace_reconnects_total", "counter", "Lost sessions, by kind.",
        tuple(({**own, "kind": kind}, float(count)) for kind, count in sorted(reading["setbacks"].items())),
    )  # fmt: skip
    yield single("read_bytes_total", "counter", "Bytes of the log that were read.", reading["read_bytes"])
    yield single("delivered_bytes_total", "counter", "Bytes of delivered records.", numbers.tally["bytes"])
    yield single("spool_bytes", "gauge", "Bytes of the log that wait for Spark.", reading["held_bytes"])
    yield single("spool_limit_bytes", "gauge", "Bytes above which reading stops.", reading["limit_bytes"] or None)
    text = "Bytes of the largest transaction since the start, also of one that is not over."
    yield single("transaction_bytes_max", "gauge", text, reading["transaction_bytes"])
    yield single("captured_tables", "gauge", "Tables that are captured.", reading["captured_tables"])
    yield single(
        "silent_batches_total", "counter", "Batches whose tasks reported no numbers, because they run on another host.",
        measures["silent_batches"],
    )  # fmt: skip


def _durations(numbers: _Numbers) -> Iterator[MetricFamily]:
    own, known = numbers.own, numbers.measures["histograms"]
    durations = numbers.observation.durations
    stages = {name: found for name, found in known.items() if name != "end_to_end"}
    stages |= {name: durations[name].to_json() for name in ("write", "commit")}
    yield MetricFamily(
        "tailrace_stage_seconds", "histogram", "Durations of the stages of a batch.",
        tuple(({**own, "stage": stage}, _buckets(found)) for stage, found in stages.items()),
    )  # fmt: skip
    yield MetricFamily(
        "tailrace_batch_seconds", "histogram", "Durations of batches.", ((own, _buckets(durations["batch"].to_json())),)
    )
    yield MetricFamily(
        "tailrace_end_to_end_seconds", "histogram",
        "From the commit of a batch's oldest change to the commit of the batch.",
        ((own, _buckets(known["end_to_end"])),),
    )  # fmt: skip


def _buckets(found: Mapping[str, Any]) -> Buckets:
    return Buckets(tuple(accumulate(found["counts"])), found["sum_s"])


def _tables(numbers: _Numbers) -> Iterator[MetricFamily]:
    own, tables, state = numbers.own, numbers.tables, numbers.state
    yield MetricFamily(
        "tailrace_events_total", "counter", "Changes that were delivered.",
        tuple(({**own, "table": table["table"], "op": op}, float(count))
              for table in tables for op, count in table["events"].items() if count),
    )  # fmt: skip
    for name, text, by_table in (
        ("quarantined", "Changes that were quarantined.", numbers.tally.get("quarantined", {})),
        ("schema_changes", "Changes of tables that the log has shown.", numbers.measures["reading"]["schema_changes"]),
    ):
        yield MetricFamily(
            f"tailrace_{name}_total", "counter", text,
            tuple(({**own, "table": table, "kind": kind}, float(count))
                  for table, kinds in _kinds(numbers, by_table).items() for kind, count in kinds.items()),
        )  # fmt: skip
    for name, metric, text in (
        ("reselected", "reselected", "Values that were read again."),
        ("unavailable", "unavailable_values", "Values that the log lacks."),
        ("sizes", "table_bytes", "Bytes of the values in the log, and in rows of snapshots."),
    ):
        counts = numbers.by_table(name)
        yield MetricFamily(
            f"tailrace_{metric}_total", "counter", text,
            tuple(({**own, "table": table}, float(count)) for table, count in counts.items()),
        )  # fmt: skip
    lag = state["lag_s"]
    yield MetricFamily(
        "tailrace_table_freshness_seconds", "gauge", "Age of the moment up to which the table is whole.",
        () if lag is None else tuple(
            ({**own, "table": table["table"]}, float(lag)) for table in tables if table["phase"] == "streaming"
        ),
    )  # fmt: skip
    reading = [table for table in tables if table["rows"] is not None]
    units = {"rows": ("snapshot_rows", "snapshot_rows_expected"), "chunks": ("snapshot_chunks_done", "snapshot_chunks")}
    for unit, (done, of) in units.items():
        yield MetricFamily(
            f"tailrace_{done}", "gauge", f"{unit.capitalize()} of the table that a snapshot has read.",
            tuple(({**own, "table": table["table"]}, float(table["rows"]))
                  for table in reading if table["unit"] == unit),
        )  # fmt: skip
        yield MetricFamily(
            f"tailrace_{of}", "gauge", f"{unit.capitalize()} of the table that the snapshot has to read.",
            tuple(({**own, "table": table["table"]}, float(table["rows_expected"])) for table in reading
                  if table["unit"] == unit and table["rows_expected"] is not None),
        )  # fmt: skip
    yield MetricFamily(
        "tailrace_snapshot_state", "gauge", "1 for the state of the table in the latest snapshot.",
        tuple(({**own, "table": table["table"], "status": status}, float(status == found))
              for table in tables if (found := _status(table, state["state"])) for status in SNAPSHOT_STATUSES),
    )  # fmt: skip


def _kinds(numbers: _Numbers, by_table: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return counts by table and kind; tables without a label of their own share the label `other`."""
    shown = {table["table"] for table in numbers.tables}
    found: dict[str, dict[str, int]] = {}
    for table, kinds in by_table.items():
        counts = found.setdefault(table if table in shown else "other", {})
        for kind, count in kinds.items():
            counts[kind] = counts.get(kind, 0) + count
    return found


def _status(table: Mapping[str, Any], query: str) -> str:
    """Return the state of a table's snapshot, given the state of the query; "" if no snapshot was seen."""
    if table["rows"] is not None and query == "failed":
        return "failed"
    if table["phase"] == "reading paused":
        return "paused"
    if table["phase"] == "snapshot waiting":
        return "failed" if query == "failed" else "waiting"
    if table["rows"] is not None:
        return "paused" if table["phase"] == "snapshot paused" else "running"
    return "done" if table["events"]["r"] else ""


def _slots(numbers: _Numbers) -> Iterator[MetricFamily]:
    retention = numbers.measures["retention"]
    slots = retention.get("slots", [])
    for name, (field, kind, text) in _OF_SLOTS.items():
        yield MetricFamily(
            f"tailrace_slot_{name}", kind, text,
            tuple(({**numbers.own, "slot": slot["name"]}, float(slot[field])) for slot in slots
                  if slot[field] is not None),
        )  # fmt: skip
    yield MetricFamily(
        "tailrace_slot_wal_status", "gauge", "1 for the state of the slot's log.",
        tuple(({**numbers.own, "slot": slot["name"], "status": status}, float(slot["status"] == status))
              for slot in slots if slot["status"] for status in SLOT_STATUSES),
    )  # fmt: skip
    yield MetricFamily(
        "tailrace_slot_invalidated", "gauge", "1 for a slot that cannot be read any more.",
        tuple(({**numbers.own, "slot": slot["name"], "reason": slot["invalidated"]}, 1.0)
              for slot in slots if slot["invalidated"]),
    )  # fmt: skip
    for field, name, text in (
        ("oldest_s", "log_oldest_timestamp_seconds", "Time of the oldest change that the log has."),
        ("kept_s", "log_retention_seconds", "Seconds for which the server keeps its log."),
    ):
        value = retention.get(field)
        yield MetricFamily(f"tailrace_{name}", "gauge", text, () if value is None else ((numbers.own, float(value)),))
    level = retention.get("level")
    yield MetricFamily(
        "tailrace_doctor_level", "gauge",
        "What the pipeline does about its slot, or its lag: 0 nothing, 1 it has warned, 2 snapshots wait, 3 it ends.",
        () if level is None else ((numbers.own, float(level)),),
    )  # fmt: skip
    oldest, whole_s = retention.get("oldest_s"), numbers.measures["whole_s"]
    if oldest is not None and whole_s:
        margin = whole_s - oldest
        text = "Time up to which all is delivered - time of the oldest change in the log: below 0 changes are lost."
        yield MetricFamily("tailrace_log_margin_seconds", "gauge", text, ((numbers.own, margin),))


_OF_SLOTS: dict[str, tuple[str, Kind, str]] = {
    "retained_bytes": ("retained_bytes", "gauge", "Log that the server keeps for the slot."),
    "unconfirmed_bytes": ("unconfirmed_bytes", "gauge", "Log that the slot's reader has not confirmed."),
    "limit_bytes": ("limit_bytes", "gauge", "Log that the server keeps at most for the slot."),
    "safe_bytes": ("safe_bytes", "gauge", "Log that may still be written before the slot is lost."),
    "active": ("is_active", "gauge", "1 while the slot is read."),
    "inactive_seconds": ("inactive_s", "gauge", "Seconds since the slot's reader left."),
    "growth_bytes_per_second": ("growth_bytes_s", "gauge", "Growth of the retained log over five minutes."),
    "limit_seconds": ("limit_s", "gauge", "Seconds until the slot's limit, at the present growth."),
    "spilled_bytes_total": ("spilled_bytes", "counter", "Bytes that decoding has written to the server's disk."),
    "spilled_transactions_total": (
        "spilled_transactions", "counter", "Transactions that decoding has written to the server's disk.",
    ),
}  # fmt: skip


def _build(numbers: _Numbers) -> dict[str, str]:
    return _versions() | {"java": _java_version(), "format": numbers.measures.get("format", "")}


@cache
def _versions() -> dict[str, str]:
    # the user may have installed Spark without pip, so its package metadata may be missing
    import pyspark

    return {"version": version("tailrace"), "pyspark": pyspark.__version__, "python": platform.python_version()}


@cache
def _java(_: int) -> str:
    from pyspark.core.context import SparkContext

    with suppress(Exception):
        jvm: Any = SparkContext._jvm
        return str(jvm.java.lang.System.getProperty("java.version"))
    # the JVM is ending
    return ""


def _java_version() -> str:
    """Return the version of Spark's JVM; "" if this process has none, as with Spark Connect."""
    from pyspark.core.context import SparkContext

    gateway = SparkContext._gateway
    return "" if gateway is None else _java(id(gateway))
