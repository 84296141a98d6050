"""Schema ids: requested once per process, subject and schema, never per record. Worker."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from tailrace.errors import ConfigError, RegistryError
from tailrace.formats.registry import apicurio, confluent
from tailrace.formats.registry.base import Client, Unanswered
from tailrace.formats.registry.options import Access, Registry, variable
from tailrace.formats.registry.proto_shape import proto_shape
from tailrace.formats.registry.shape import alike, shape

_TRIES, _WAIT = 3, 0.3
_Found = TypeVar("_Found")
_lock = threading.Lock()
_known: dict[tuple[Registry, str, str], int] = {}
_clients: dict[tuple[str, Access], Client] = {}


def prefix(registry: Registry, topic: str, schema: str, record: str | None, kind: str = "AVRO") -> bytes:
    """Return the bytes before records of this schema: a zero byte and the schema's id; nothing if ids are in headers.

    `record` is the schema's full name, None if it is not a record; `kind` is the registry's name of the schema
    language. Raises RegistryError if there is no id.
    """
    number = schema_id(registry, topic, schema, record, kind)
    if registry.in_headers:
        return b""
    return struct.pack(">bi" if registry.width == 4 else ">bq", 0, number)


def id_headers(registry: Registry, topic: str, schema: str, record: str | None) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that name the schema of records; none if their bytes do. Raises like `prefix`."""
    if not registry.in_headers:
        return ()
    name, number = f"apicurio.{registry.part}.", schema_id(registry, topic, schema, record)
    word = "globalId" if registry.is_global else "contentId"
    return (name + word, struct.pack(">q", number)), (f"{name}encoding", b"BINARY")


def schema_id(registry: Registry, topic: str, schema: str, record: str | None, kind: str = "AVRO") -> int:
    """Return the id of a schema; register it if the options say so."""
    subject = registry.subject(topic, record)
    # Apicurio's converters identify a schema by its text, under whichever subject it was registered first
    by_text = registry.kind == "apicurio" and not registry.latest
    place = (registry, "" if by_text else subject, schema)
    with _lock:
        if place not in _known:
            grouped = replace(registry, group=registry.group_of(record))
            _known[place] = _asked(grouped, subject, schema, kind)
        return _known[place]


def forget() -> None:
    """Forget all ids and clients, as in a new process."""
    with _lock:
        _known.clear()
        _clients.clear()


def _asked(registry: Registry, subject: str, schema: str, kind: str) -> int:
    access = registry.access
    if not access.url:
        raise ConfigError(
            f"{registry.option} is missing.",
            "In Kafka Connect the worker may name the registry; here the configuration has to, or the environment: "
            f"{variable(registry.option)}.",
        )
    client = _clients.get((registry.kind, access))
    if client is None:
        make: Callable[[Access], Client] = confluent.Client if registry.kind == "confluent" else apicurio.Client
        client = _clients[registry.kind, access] = make(access)
    if registry.registers:
        return _answer(lambda: client.register(registry, subject, schema, kind), registry)
    if not registry.latest:
        return _answer(lambda: client.find(registry, subject, schema, kind), registry)
    number, text = _answer(lambda: client.latest(registry, subject), registry)
    if not same(schema, text, kind):
        raise RegistryError(
            f"The latest schema of the subject {subject} has other fields than the records, or other scales or units.",
            "Register the schema that the records have, or let the converter do it.",
        )
    return number


def same(own: str, other: str, kind: str) -> bool:
    """Return True if bytes written with `own` can be read with `other` and mean the same.

    Both have the same types and the same fields in the same order; decimals and moments in `other` agree with `own`.
    """
    found: Callable[[str], Any] = proto_shape if kind == "PROTOBUF" else shape
    return alike(found(own), found(other))


def _answer(ask: Callable[[], _Found], registry: Registry) -> _Found:
    """Return the registry's answer; ask again a few times if there is none."""
    for remaining in reversed(range(_TRIES)):
        try:
            return ask()
        except Unanswered as fault:
            if not remaining:
                raise RegistryError(
                    f"The schema registry of {registry.option} does not answer: {fault}.",
                    "Check that it runs and that Spark's workers can reach it; then start the query again: it goes on "
                    "where it stopped.",
                ) from None
            time.sleep(_WAIT * (_TRIES - remaining))
    raise AssertionError("unreachable")
