"""The columns that fill layouts: what an encoding is given of a block of records. Worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.programs import Fragment
from tailrace.records.layout import Column, ImageColumn
from tailrace.values.conversion import ColumnPlan

Flags = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Same:
    """In the place of a column: a value that all records of the block have. It has the form of JSON."""

    value: Any


@dataclass(frozen=True, slots=True)
class Written:
    """In the place of a column: one whose values are JSON already, of any type."""

    json: Fragment


@dataclass(slots=True)
class Texts:
    """A column of an image, one value for each change of the block.

    `texts` is what `ColumnPlan` calls a column of texts; `unavailable` marks the values that the log did not carry,
    None where it carried all.
    """

    texts: pa.Array
    unavailable: Flags | None


class Columns(Protocol):
    """The columns of one block of records, made when an encoding first asks for them.

    `index[by, r]` is the place of record r in columns of that kind (see `Column.by`). `kept` is for encodings: what
    one has made of columns by transaction or marker lasts as long as the batch, from block to block; and so is `made`,
    for what is made of columns by change, which lasts as long as the block. Keys begin with the encoding's name.
    """

    index: Indexes
    kept: dict[Hashable, Any]
    made: dict[Hashable, Any]

    def texts(self, leaf: ImageColumn) -> Texts:
        """The texts of a column of an image."""
        ...

    def values(self, leaf: Column) -> pa.Array | Same | Written:
        """A column by its name: numbers as int64, texts as string. Columns by marker and transaction are the same
        object in all blocks of a batch."""
        ...

    def lost(self, column: ColumnPlan, count: int) -> None:
        """Take note that so many values of the column do not fit its type and are shown as null.

        Raises what makes the block's maker put the change aside, where the configuration says so.
        """
        ...
