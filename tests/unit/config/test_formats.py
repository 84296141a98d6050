"""The bytes of a format are JSON, other text, or neither."""

from __future__ import annotations

import pytest

from tailrace import sinks
from tailrace.config.formats import form_of
from tailrace.connectors.registry import parse
from tailrace.errors import SinkError

LOGIN = {"database.hostname": "h", "database.user": "u", "database.password": "p", "database.dbname": "d",
         "topic.prefix": "t"}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({}, "json"),
        ({"value.converter": "cloudevents"}, "json"),
        ({"value.converter": "cloudevents", "value.converter.serializer.type": "avro",
          "value.converter.data.serializer.type": "avro", "value.converter.avro.schema.registry.url": "http://r"},
         "bytes"),
        ({"value.converter": "simplestring"}, "text"),
        ({"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}, "bytes"),
        ({"value.converter": "binary"}, "bytes"),
        ({"value.converter": "short"}, "bytes"),
        ({"value.converter": "avro", "value.converter.schema.registry.url": "http://r"}, "bytes"),
    ],
)  # fmt: skip
def test_what_values_are(options: dict[str, str], form: str) -> None:
    source = parse("postgres", LOGIN | options)
    assert form_of(source, "value") == form
    assert form_of(source, "key") == "json"


def test_headers_are_texts_in_connects_own_format() -> None:
    assert form_of(parse("postgres", LOGIN | {"header.converter": "simpleheader"}), "header") == "text"


def test_an_array_of_values_that_are_no_json_is_refused_at_the_start() -> None:
    avro = {"value.converter": "cloudevents", "value.converter.serializer.type": "avro",
            "value.converter.data.serializer.type": "avro",
            "value.converter.avro.schema.registry.url": "http://r"}  # fmt: skip
    with pytest.raises(SinkError, match="values that are not JSON"):
        sinks.open("http", {"url": "http://h", "batch.enabled": "true"}, parse("postgres", LOGIN | avro))
