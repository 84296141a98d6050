"""Encoding: what turns layouts and the columns that fill them into bytes, or into Arrow. Worker.

An encoding is a module's constant, without state. It compiles a layout once, when a table's plan is made, and then
encodes blocks of records with what it has compiled.
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
    """What an encoding has compiled of a layout. `size` is how many bytes each of its records has at least."""

    @property
    def size(self) -> int: ...


class Block(Protocol):
    """One block of records, whose parts share what was made of their columns."""

    def encode(self, documents: Sequence[Any], of: npt.NDArray[np.int32]) -> pa.Array:
        """One value for each record: record r as `documents[of[r]]`, null where that is None.

        The documents are of this encoding. Raises ExceedsArrow where the values have 2 GiB or more.
        """
        ...


class Encoding(Protocol):
    """A format of keys, values and headers."""

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Document | None:
        """What `Block.encode` takes of a layout; `schemas` says whether its schema goes with each record.

        `record` is what the layout is the key, the value or a header of. None stands for records whose key or value
        is null.
        """
        ...

    def block(self, columns: Columns) -> Block:
        """A block of records to be encoded."""
        ...

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> Any:
        """One value as `Block.encode` makes them, of a layout whose values are all constant."""
        ...


@runtime_checkable
class WithHeaders(Protocol):
    """An encoding that puts something of a key or a value into headers of its record. Worker."""

    def headers(self, layout: Node, record: RecordLayout) -> tuple[tuple[str, bytes], ...]:
        """Further headers of records, behind all others; `layout` is the key's or the value's."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """An encoding with the options of its converter, and what became of these.

    `idle` have no effect here, `unknown` are not the converter's. `keeps_nulls` tells whether a null stays null where
    the column has a default; None leaves that to the converter's replace.null.with.default. `notices` are sentences
    without their end. `in_headers` tells that the encoding is WithHeaders with these options.
    """

    encoding: Encoding
    idle: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    keeps_nulls: bool | None = None
    notices: tuple[str, ...] = ()
    in_headers: bool = False


@runtime_checkable
class Configured(Protocol):
    """An encoding that takes options of its converter. Driver, worker."""

    def with_options(self, part: str, options: Mapping[str, str]) -> Taken:
        """The encoding with the options that begin with `key.converter.`, `value.converter.` or `header.converter.`,
        without that beginning; `part` is `key`, `value` or `header`. Raises ConfigError for what is not supported."""
        ...
