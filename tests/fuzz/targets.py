"""The fuzz targets by name."""

from __future__ import annotations

from tests.fuzz import binlog, documents, pgoutput, recorded, stored, tables, texts
from tests.fuzz.machine import Target

_ALL = (
    pgoutput.MESSAGES,
    pgoutput.ENVELOPE,
    documents.MONGODB,
    binlog.EVENTS,
    recorded.EVENTS,
    tables.ROWS,
    texts.TEXTS,
    stored.OFFSETS,
    stored.SIGNALS,
    stored.FILES,
)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
