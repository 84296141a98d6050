"""JSON, as Kafka Connect's JsonConverter writes it: with or without the schema of each record."""

from __future__ import annotations

from tailrace.formats.json.encoding import JSON

__all__ = ["JSON"]
