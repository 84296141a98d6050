"""Kafka Connect's converters of single values: text, bytes and numbers unchanged; and of headers as text."""

from __future__ import annotations

from tailrace.formats.simple.binary import BINARY_DATA
from tailrace.formats.simple.numbers import BOOLEAN, BYTES, DOUBLE, FLOAT, INTEGER, LONG, SHORT
from tailrace.formats.simple.texts import SIMPLE, STRING

__all__ = ["BINARY_DATA", "BOOLEAN", "BYTES", "DOUBLE", "FLOAT", "INTEGER", "LONG", "SHORT", "SIMPLE", "STRING"]
