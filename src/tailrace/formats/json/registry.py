"""JSON with its schema in a registry, as Apicurio's ExtJsonConverter writes it. Worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConfigError
from tailrace.formats.arrow import computed
from tailrace.formats.assembly import Assembly, ValueHole
from tailrace.formats.base import EncodingChoice
from tailrace.formats.json.encoding import JsonBlock, parts_of
from tailrace.formats.json.values import spread
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.registry.options import Registry, apicurio, refuse_headers
from tailrace.formats.registry.schema_ids import schema_id
from tailrace.kernels.buffers import text_buffers
from tailrace.kernels.programs import Fragment
from tailrace.records.columns import Columns
from tailrace.records.layout import RECORD, ComputedColumn, Constant, Node, RecordLayout
from tailrace.values.json_text import schema_text

_KIND = "KCONNECT"


@dataclass(frozen=True, slots=True)
class RegistryJson:
    """See formats.base.Encoding. It needs its converter's options."""

    registry: Registry | None = None

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        found = apicurio(part, given)
        refuse_headers(found, "by this converter")
        given.idle("schemas.enable", "schemas.cache.size")
        given.one_of("decimal.format", ("BASE64",), "BASE64")
        return given.taken(RegistryJson(found))

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Assembly | None:
        if isinstance(layout, Constant) and layout.value is None:
            return None
        text = schema_text(layout.type)
        if isinstance(record.topic, str):
            return Assembly.of(self.opening(record.topic, text), (*parts_of(layout), b"}"))
        return Assembly.of(b"", (ValueHole(record.topic, RECORD, text, None), *parts_of(layout), b"}"))

    def block(self, columns: Columns) -> _RegisteredBlock:
        return _RegisteredBlock(columns, self)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes | None:
        made = self.compile(layout, schemas, record)
        return None if made is None else made.text

    def opening(self, topic: str, schema: str) -> bytes:
        """Return the bytes before the payload of records for the topic."""
        if self.registry is None:
            raise ConfigError("ExtJsonConverter needs its options.", "Name it in key.converter or value.converter.")
        return f'{{"schemaId":{schema_id(self.registry, topic, schema, None, _KIND)},"payload":'.encode()


class _RegisteredBlock(JsonBlock):
    """See formats.base.Block."""

    def __init__(self, columns: Columns, encoding: RegistryJson) -> None:
        super().__init__(columns)
        self._encoding = encoding

    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes:
        if not isinstance(hole.way, str) or not isinstance(hole.leaf, ComputedColumn):
            return super().filled(hole, records)
        places = records()
        topics = pc.dictionary_encode(computed(hole.leaf, self._columns, places))
        known = [self._encoding.opening(topic, hole.way) for topic in topics.dictionary.to_pylist()]
        openings = spread(pa.array(known, pa.binary()).take(topics.indices), places, self._columns.index.shape[1])
        return Fragment(*text_buffers(pc.fill_null(openings, b"")))


REGISTRY_JSON = RegistryJson()
