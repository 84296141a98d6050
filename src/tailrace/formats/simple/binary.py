"""Debezium's BinaryDataConverter: it writes bytes unchanged, and leaves other values to a second converter. Worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import ConfigError, ConversionError
from tailrace.formats.base import Block, Encoding, EncodingChoice
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.others import other
from tailrace.formats.simple.numbers import BYTES
from tailrace.records.columns import Columns
from tailrace.records.layout import Node, RecordLayout

_TYPE = "delegate.converter.type"


@dataclass(frozen=True, slots=True)
class _BinaryDocument:
    """A document of the encoding of bytes, or of the other encoding."""

    own: Any
    others: Any
    size: int


@dataclass(frozen=True, slots=True)
class BinaryData:
    """See formats.base.Encoding. `beside` writes values other than bytes, with their schema if `schemas`."""

    beside: Encoding | None = None
    schemas: bool = True

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """See formats.base.ConfiguredEncoding."""
        given = OptionReader(f"{part}.converter.", options)
        given.idle("schemas.enable")
        converter = given.text(_TYPE)
        if not converter:
            return given.taken(BinaryData())
        own = given.part(f"{_TYPE}.")
        schemas = given.boolean(f"{_TYPE}.schemas.enable", True)
        own = {name: text for name, text in own.items() if name.lower() != "schemas.enable"}
        beside = given.nested(f"{_TYPE}.", other(converter, part, _TYPE, own))
        if isinstance(beside, BinaryData):
            raise ConfigError(f"{given.prefix}{_TYPE} = {converter} is the same converter.", "Name another one.")
        return given.taken(BinaryData(beside, schemas))

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> _BinaryDocument | None:
        if layout.type.connect == "bytes":
            own = BYTES.compile(layout, False, record)
            return None if own is None else _BinaryDocument(own, None, own.size)
        made = self._beside(record).compile(layout, self.schemas, record)
        return None if made is None else _BinaryDocument(None, made, made.size)

    def block(self, columns: Columns) -> _BinaryBlock:
        return _BinaryBlock(BYTES.block(columns), None if self.beside is None else self.beside.block(columns))

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> Any:
        if layout.type.connect == "bytes":
            return BYTES.one(layout, False, record)
        return self._beside(record).one(layout, self.schemas, record)

    def _beside(self, record: RecordLayout) -> Encoding:
        if self.beside is None:
            topic = record.topic if isinstance(record.topic, str) else "a computed topic"
            raise ConversionError(
                f"BinaryDataConverter writes only bytes, and the record {record.op} for {topic} has something else.",
                f"Name the converter for it in value.converter.{_TYPE}.",
            )
        return self.beside


class _BinaryBlock:
    """See formats.base.Block."""

    def __init__(self, own: Block, beside: Block | None) -> None:
        self._own, self._beside = own, beside

    def encode(self, documents: Sequence[_BinaryDocument | None], of: npt.NDArray[np.int32]) -> pa.Array:
        found = self._own.encode([None if document is None else document.own for document in documents], of)
        others = [None if document is None else document.others for document in documents]
        if self._beside is None or not any(document is not None for document in others):
            return found
        return pc.coalesce(found, self._beside.encode(others, of))


BINARY_DATA = BinaryData()
