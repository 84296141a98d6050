"""Accepted differences for SQL Server in which ours is right, as `accept` for PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass

from tests.golden.accept import Place, but, quoted_twice
from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text

DAY_MS = 86_400_000
PER_MILLISECOND = {
    "io.debezium.time.Time": 1,
    "org.apache.kafka.connect.data.Time": 1,
    "io.debezium.time.MicroTime": 1000,
    "io.debezium.time.NanoTime": 1_000_000,
}
"""The semantic types of times of day, with a millisecond in the unit of each."""
TEMPORAL = {
    "io.debezium.time.Date",
    "io.debezium.time.MicroTime",
    "io.debezium.time.NanoTime",
    "io.debezium.time.Time",
    "io.debezium.time.Timestamp",
    "io.debezium.time.MicroTimestamp",
    "io.debezium.time.NanoTimestamp",
    "io.debezium.time.ZonedTimestamp",
}


@dataclass(frozen=True, slots=True)
class Reasons:
    """The rules for recordings of one version of the connector, as `1.0.0.Final`."""

    version: str

    def of_value(self, place: Place, wanted: object, got: object) -> str | None:
        """Return why the value `got` may stand for the recorded `wanted`; None if it may not."""
        unit = PER_MILLISECOND.get(_name(place.got_schema))
        if unit and self.version.startswith("1.") and _rounded(wanted, got, unit):
            return "a time of day keeps its fraction; there it is rounded to ms, the last of a day to midnight"
        return None

    def of_schema(self, wanted: object, got: object) -> str | None:
        """Return why the schema of a field may be `got` instead of the recorded `wanted`; None if it may not."""
        if not isinstance(wanted, dict) or not isinstance(got, dict):
            return None
        if quoted_twice(wanted.get("default"), got.get("default")) and but("default", wanted, got):
            return "a default has its quotes undone; there they stay doubled"
        if "default" not in wanted and "default" in got and _name(got) in TEMPORAL and but("default", wanted, got):
            return "a default of a day or a time is read here; there the server is asked, and the test server is not"
        return None


def without_last_end(expected: list[Record], got: list[Record]) -> list[Record]:
    """Return `got` without the END of its last transaction if the recording ends before it.

    Debezium writes END when it sees the next transaction, so the last transaction of a recording has none.
    """
    ends = [record for record in got if _status(record) == "END"]
    begun = [record for record in expected if _status(record) is not None]
    if not ends or not begun or _status(begun[-1]) != "BEGIN":
        return got
    return [record for record in got if record is not ends[-1]]


def _status(record: Record) -> str | None:
    value = payload(record.value)
    leaf = value.get("status") if isinstance(value, dict) and "data_collections" in value else None
    return leaf.string if isinstance(leaf, Text) else None


def _name(schema: object) -> str:
    leaf = schema.get("name") if isinstance(schema, dict) else None
    return (leaf.string or "") if isinstance(leaf, Text) else ""


def _rounded(wanted: object, got: object, unit: int) -> bool:
    """Return True if `wanted` is `got` rounded to a millisecond; for a time in ms, if rounding made it midnight."""
    if not isinstance(wanted, Text) or not isinstance(got, Text) or NULL in (wanted, got):
        return False
    if wanted.integer is None or got.integer is None:
        return False
    if unit == 1:
        return wanted.integer == 0 and got.integer == DAY_MS - 1
    return wanted.integer == (got.integer + unit // 2) // unit % DAY_MS * unit
