"""CloudEvents, as Debezium's CloudEventsConverter writes them: in JSON or Avro, with data in JSON or Avro."""

from __future__ import annotations

from tailrace.formats.cloudevents.encoding import CLOUD_EVENTS

__all__ = ["CLOUD_EVENTS"]
