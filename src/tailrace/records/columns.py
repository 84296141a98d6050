"""The columns of a block of records, from which encodings fill layouts. Worker."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.kernels.programs import Fragment
from tailrace.records.layout import BlockColumn, ImageColumn
from tailrace.values.conversion import ColumnPlan

Flags = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class SharedValue:
    """Replaces a column: a value, in JSON form, that all records of the block share."""

    value: Any


@dataclass(frozen=True, slots=True)
class WrittenJson:
    """Replaces a column: values that are JSON already, of any type."""

    json: Fragment


@dataclass(slots=True)
class ImageTexts:
    """A column of an image, one value per change of the block.

    `texts` is a column of texts in the sense of `ColumnPlan`; `unavailable` marks the values that the log did not
    carry, None if it carried all.
    """

    texts: pa.Array
    unavailable: Flags | None


class Columns(Protocol):
    """The columns of one block of records, made when an encoding first requests them.

    `index[by, r]` is the place of record r in columns of that kind (see `BlockColumn.by`). Encodings cache results in
    `kept`, for columns by transaction or marker, as long as the batch lasts; and in `made`, for columns by change, as
    long as the block lasts. Cache keys begin with the encoding's name.
    """

    index: Indexes
    kept: dict[Hashable, Any]
    made: dict[Hashable, Any]

    def texts(self, leaf: ImageColumn) -> ImageTexts:
        """Return the texts of a column of an image."""
        ...

    def values(self, leaf: BlockColumn) -> pa.Array | SharedValue | WrittenJson:
        """Return a column by its name: numbers as int64, texts as string.

        Columns by marker and transaction are the same object in all blocks of a batch.
        """
        ...

    def lost(self, column: ColumnPlan, count: int) -> None:
        """Note that `count` values of the column do not fit its type and are shown as null.

        Raises if the configuration says that the change is quarantined.
        """
        ...
