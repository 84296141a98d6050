"""An encoding in a package of its own: records as lines of name=value, with paths as names inside structs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.formats.arrow import array_of
from tailrace.records.columns import Columns
from tailrace.records.layout import Node, RecordLayout


@dataclass(frozen=True)
class Document:
    """A compiled layout; with schemas, the schema's name is the first line of a record."""

    layout: Node
    first: tuple[str, ...]
    size: int = 0


class Pairs:
    """A tailrace.formats.base.Encoding."""

    def compile(self, layout: Node, schemas: bool, record: RecordLayout) -> Document:
        name = layout.type.name
        return Document(layout, (f"#{name}",) if schemas and name is not None else ())

    def block(self, columns: Columns) -> Block:
        return Block(columns)

    def one(self, layout: Node, schemas: bool, record: RecordLayout) -> bytes:
        value = array_of(layout, None, np.zeros(1, np.int32))[0].as_py()
        return written(self.compile(layout, schemas, record), value)


class Block:
    """A tailrace.formats.base.Block."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def encode(self, documents: Sequence[Document | None], of: npt.NDArray[np.int32]) -> pa.Array:
        values: list[bytes | None] = [None] * len(of)
        for number, document in enumerate(documents):
            if document is not None:
                records = np.flatnonzero(of == number).astype(np.int32)
                found = array_of(document.layout, self.columns, records).to_pylist()
                for record, value in zip(records.tolist(), found, strict=True):
                    values[record] = written(document, value)
        return pa.array(values, pa.binary())


def written(document: Document, value: Any) -> bytes:
    return "\n".join((*document.first, *pairs("", value))).encode()


def pairs(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from pairs(f"{path}.{name}" if path else name, part)
    elif value is not None:
        yield f"{path}={value}"


PAIRS = Pairs()
