"""Source blocks in plain values: an oracle for the columnar path, and for records made one at a time."""

from __future__ import annotations

from typing import Any

from tailrace.columns import ChangeBatch, Marker
from tailrace.events.envelope import marker_text
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings


def marker_of(batch: ChangeBatch, change: int) -> Marker:
    return Marker.FALSE if batch.marker is None else Marker(batch.marker[change])


def plain_source(batch: ChangeBatch, change: int, settings: EventSettings, form: SourceForm) -> dict[str, Any]:
    """Return the source block of one change."""
    us = int(batch.transactions.commit_us[batch.transaction[change]])
    marker = marker_of(batch, change)
    own = form.source(batch, change, marker, settings)
    source: dict[str, Any] = {
        "version": settings.version,
        "connector": settings.connector,
        "name": settings.logical_name,
        "ts_ms": us // 1000,
        "snapshot": marker_text(marker, settings),
        "db": batch.table.id.database,
    }
    if settings.has_sequence:
        source["sequence"] = own.sequence
    if settings.has_nanos:
        source |= {"ts_us": us, "ts_ns": us * 1000}
    return source | {"schema": batch.table.id.schema, "table": batch.table.id.table, **own.tail}
