"""The CloudEvents encoding: records get another layout, which JSON or Avro encodes. Worker."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConfigError
from tailrace.formats.arrow import folded
from tailrace.formats.avro.encoding import Avro
from tailrace.formats.base import Encoding, EncodingChoice
from tailrace.formats.cloudevents.layout import DATA, EventLayout, event
from tailrace.formats.cloudevents.options import CloudEventsOptions, options_of
from tailrace.formats.option_reader import OptionReader
from tailrace.records.columns import Columns, ImageTexts, Indexes, SharedValue, WrittenJson
from tailrace.records.layout import BlockColumn, Constant, ImageColumn, Node, RecordLayout, Struct
from tailrace.values.binaries import base64_text
from tailrace.values.conversion import ColumnPlan

_DATA_SUBJECT = "-data"


@dataclass(frozen=True, slots=True)
class _CloudEventsDocument:
    """An event's document, and the document of its data if that has its own encoding."""

    event: Any
    data: Any
    size: int


@dataclass(frozen=True, slots=True)
class CloudEvents:
    """See formats.base.Encoding. It needs its converter's options."""

    options: CloudEventsOptions | None = None

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        found = options_of(part, given)
        return given.taken(CloudEvents(found), keeps_nulls=found.nulls_stay)

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> _CloudEventsDocument | None:
        found = self._event(layout, record)
        if found is None:
            return None
        data = None
        if found.data is not None:
            data = self._data.compile(found.data, True, self._data_record(record))
            assert data is not None
        made = self._outer.compile(found.layout, False, record)
        assert made is not None
        return _CloudEventsDocument(made, data, made.size + (0 if data is None else data.size))

    def block(self, columns: Columns) -> _CloudEventsBlock:
        return _CloudEventsBlock(columns, self._outer, None if self._options.data_avro is None else self._data)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> Any:
        found = self._event(layout, record)
        if found is None:
            return None
        event_layout: Node = found.layout
        if found.data is not None:
            data = self._data.one(found.data, True, self._data_record(record))
            event_layout = found.layout.with_part("data", Constant(base64_text(data), DATA.type))
        return self._outer.one(folded(event_layout), False, record)

    @property
    def _options(self) -> CloudEventsOptions:
        return _DEFAULTS if self.options is None else self.options

    @property
    def _outer(self) -> Encoding:
        return self._options.avro or self._options.json

    @property
    def _data(self) -> Encoding:
        assert self._options.data_avro is not None
        return self._options.data_avro

    def _data_record(self, record: RecordLayout) -> RecordLayout:
        """Return the record whose value is only the data; within an Avro event the data has its own subject."""
        if self._options.avro is None:
            return record
        if not isinstance(record.topic, str):
            raise ConfigError(
                "CloudEvents in Avro cannot be written for topics that depend on values.",
                "Let the event be JSON (serializer.type=json).",
            )
        return replace(record, topic=record.topic + _DATA_SUBJECT)

    def _event(self, layout: Node, record: RecordLayout) -> EventLayout | None:
        """Return the event, with the address of its data's schema."""
        found = event(layout, record, self._options)
        if found is None or found.data is None:
            return found
        assert isinstance(self._data, Avro)
        number = self._data.schema_id(found.data, self._data_record(record))
        address = Constant(f"{self._options.registry_url}/schemas/ids/{number}", _text_of(found.layout, "dataschema"))
        return replace(found, layout=found.layout.with_part("dataschema", address))


def _text_of(layout: Struct, name: str) -> Any:
    part = layout.part(name)
    assert part is not None
    return part.type


class _CloudEventsBlock:
    """See formats.base.Block."""

    def __init__(self, columns: Columns, outer: Encoding, data: Encoding | None) -> None:
        self._columns, self._outer = columns, outer
        self._data = None if data is None else data.block(columns)

    def encode(self, documents: Sequence[_CloudEventsDocument | None], of: npt.NDArray[np.int32]) -> pa.Array:
        columns = self._columns
        if self._data is not None:
            made = self._data.encode([None if document is None else document.data for document in documents], of)
            # a record without an event has no data, and its data is not read
            columns = _WithData(columns, pc.fill_null(made, b""))
        events = [None if document is None else document.event for document in documents]
        return self._outer.block(columns).encode(events, of)


class _WithData:
    """The columns of a block and the data of its events. See records.columns.Columns."""

    def __init__(self, columns: Columns, data: pa.Array) -> None:
        self._columns, self._data = columns, data
        self.index: Indexes = columns.index
        self.kept: dict[Hashable, Any] = columns.kept
        self.made: dict[Hashable, Any] = columns.made

    def texts(self, leaf: ImageColumn) -> ImageTexts:
        return self._columns.texts(leaf)

    def values(self, leaf: BlockColumn) -> pa.Array | SharedValue | WrittenJson:
        return self._data if leaf.name == DATA.name else self._columns.values(leaf)

    def lost(self, column: ColumnPlan, count: int) -> None:
        self._columns.lost(column, count)


_DEFAULTS = options_of("value", OptionReader("value.converter.", {}))
CLOUD_EVENTS = CloudEvents()
