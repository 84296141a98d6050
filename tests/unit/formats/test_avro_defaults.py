"""Defaults of bytes in Avro's schemas, as another library reads them into records that lack the field."""

from __future__ import annotations

import base64
import io
import json

import pytest

from tailrace.columns.logical import BYTES, INT32, Field, LogicalType, semantic, struct
from tailrace.formats.avro.schema import AvroRules, schema_text

fastavro = pytest.importorskip("fastavro")


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("properties", [False, True])
@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"\x80\x7f\xc3\xbf", bytes(range(256))])
def test_a_default_of_bytes_is_read_back(data: bytes, properties: bool, optional: bool) -> None:
    """These are defaults as of SQL Server's `varbinary` and PostgreSQL's `varbit`."""
    kinds = (BYTES, semantic(BYTES, "io.debezium.data.Bits", length="16"))
    for kind in kinds:
        found = kind.with_optional(optional).with_default(base64.b64encode(data).decode())
        assert read(found, AvroRules(properties=properties)).encode("latin-1") == data


def read(kind: LogicalType, rules: AvroRules) -> str:
    """Return the value of a field that the record was written without, as a character for each byte."""
    older, newer = (struct(*fields, name="n.R") for fields in ((ID,), (ID, Field("b", kind))))
    written = fastavro.parse_schema(json.loads(schema_text(older, rules)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, written, {"id": 1})
    out.seek(0)
    reading = fastavro.parse_schema(json.loads(schema_text(newer, rules)))
    found: str = fastavro.schemaless_reader(out, written, reading)["b"]
    return found


ID = Field("id", INT32)
