"""Avro with a schema registry, as Confluent's AvroConverter and Apicurio's converter write it."""

from __future__ import annotations

from tailrace.formats.avro.encoding import APICURIO, CONFLUENT

__all__ = ["APICURIO", "CONFLUENT"]
