"""Encoding: what turns layouts and the columns that fill them into bytes, or into Arrow. Worker.

An encoding is a module's constant, without state. It compiles a layout once, when a table's plan is made, and then
encodes blocks of records with what it has compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.records.columns import Columns
from tailrace.records.layout import Node


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

    def compile(self, layout: Node, schemas: bool) -> Document:
        """What `Block.encode` takes of a layout; `schemas` says whether its schema goes with each record."""
        ...

    def block(self, columns: Columns) -> Block:
        """A block of records to be encoded."""
        ...

    def one(self, layout: Node, schemas: bool) -> Any:
        """One value as `Block.encode` makes them, of a layout whose values are all constant."""
        ...
