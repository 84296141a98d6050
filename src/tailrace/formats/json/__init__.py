"""JSON, as Kafka Connect's JsonConverter writes it: with the schema of each record, or without."""

from __future__ import annotations

from tailrace.formats.json.encoding import JSON

__all__ = ["JSON"]
