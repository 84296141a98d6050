"""The encoding of typed rows: the layout as nested Arrow structs, without bytes and without embedded schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.formats.arrow import array_of
from tailrace.records.columns import Columns
from tailrace.records.layout import Node, RecordLayout, Struct
from tailrace.values import arrow_type_of


@dataclass(frozen=True, slots=True)
class _TypedDocument:
    """A layout and the Arrow type of its values."""

    layout: Node
    type: pa.DataType
    size: int = 0

    def part(self, name: str) -> _TypedDocument | None:
        """Return the document of a part of the layout; None if it has no such part."""
        found = self.layout.part(name) if isinstance(self.layout, Struct) else None
        return None if found is None else _TypedDocument(found, arrow_type_of(found.type))


class TypedEncoding:
    """See formats.base.Encoding. The layouts of a block share one schema."""

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> _TypedDocument:
        return _TypedDocument(layout, arrow_type_of(layout.type))

    def block(self, columns: Columns) -> _TypedBlock:
        return _TypedBlock(columns)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> Any:
        return array_of(layout, None, np.zeros(1, np.int32))[0].as_py()


class _TypedBlock:
    """See formats.base.Block."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def encode(self, documents: Sequence[_TypedDocument | None], of: npt.NDArray[np.int32]) -> pa.Array:
        kind = next((document.type for document in documents if document is not None), pa.null())
        places, parts = [], []
        if len(documents) == 1 and documents[0] is not None and not of.any():
            return array_of(documents[0].layout, self._columns, np.arange(len(of), dtype=np.int32))
        for number, document in enumerate(documents):
            records = np.flatnonzero(of == number).astype(np.int32)
            places.append(records)
            if document is None:
                parts.append(pa.nulls(len(records), kind))
            else:
                parts.append(array_of(document.layout, self._columns, records))
        if not parts:
            return pa.nulls(0, kind)
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))


TYPED = TypedEncoding()
