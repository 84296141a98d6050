"""Encoding: the interface that turns layouts and their columns into bytes or Arrow arrays. Worker.

An encoding is a stateless constant of a module. It compiles a layout once, when a table's plan is made, and encodes
blocks of records with the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.records.columns import Columns
from tailrace.records.layout import Node, RecordLayout


class Document(Protocol):
    """A layout compiled by an encoding. Each of its records has at least `size` bytes."""

    @property
    def size(self) -> int: ...


class Block(Protocol):
    """A block of records. Its keys, values and headers share encoded columns."""

    def encode(self, documents: Sequence[Any], of: npt.NDArray[np.int32]) -> pa.Array:
        """Return one value per record: record r as `documents[of[r]]`, null if that is None.

        The documents are of this encoding. Raises ExceedsArrow if the values have 2 GiB or more.
        """
        ...


class Encoding(Protocol):
    """A format of keys, values and headers."""

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Document | None:
        """Return the document of a layout; `schemas`: each record carries its schema.

        The layout is the key, the value or a header of `record`. Returns None for records whose key or value is null.
        """
        ...

    def block(self, columns: Columns) -> Block:
        """Return a block of records to encode."""
        ...

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> Any:
        """Return one value, as `Block.encode` makes it, of a layout with constant values only."""
        ...


@runtime_checkable
class WithHeaders(Protocol):
    """An encoding that puts part of a key or a value into headers of its record. Worker."""

    def headers(self, layout: Node, record: RecordLayout) -> tuple[tuple[str, bytes], ...]:
        """Return further headers of records, which follow all others; `layout` is the key's or the value's."""
        ...


@dataclass(frozen=True, slots=True)
class EncodingChoice:
    """An encoding with its converter's options applied, and the use of the options.

    `idle` have no effect here; `unknown` are not the converter's. `keeps_nulls`: a null stays null even if the column
    has a default; None leaves that to the converter's replace.null.with.default. `notices` are sentences without their
    end. `in_headers`: with these options the encoding is WithHeaders.
    """

    encoding: Encoding
    idle: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    keeps_nulls: bool | None = None
    notices: tuple[str, ...] = ()
    in_headers: bool = False


@runtime_checkable
class ConfiguredEncoding(Protocol):
    """An encoding with converter options. Driver, worker."""

    def with_options(self, part: str, options: Mapping[str, str]) -> EncodingChoice:
        """Return the encoding with the options of `part.converter.`, given without that prefix.

        `part` is `key`, `value` or `header`. Raises ConfigError for unsupported options.
        """
        ...
