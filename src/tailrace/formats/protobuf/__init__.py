"""Protobuf with a schema registry, as Confluent's ProtobufConverter writes it."""

from __future__ import annotations

from tailrace.formats.protobuf.encoding import CONFLUENT

__all__ = ["CONFLUENT"]
