"""Assembly of bytes in every encoding: a layout is literals with holes, which compiled programs fill. Worker.

Each leaf of a block becomes one fragment (the bytes of all its values, one after another). Then one pass assembles
every record from literals and fragments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.kernels.buffers import binary_array
from tailrace.kernels.programs import NO_PROGRAM, Fragment, Programs
from tailrace.records.columns import Columns

Pieces = list[tuple[Fragment | bytes, int]]
"""Fragments and literals, in order; with each fragment, the index row that selects its values."""


@dataclass(frozen=True, slots=True)
class ValueHole:
    """The place of a leaf's value.

    `by` is the index row that selects the value. `key` identifies the column within the block; None if it is not
    shared. `way` is the encoding's own description of how the value is written here.
    """

    leaf: Any
    by: int
    way: Any
    key: Hashable


@dataclass(frozen=True, slots=True)
class Assembly:
    """A compiled layout: each hole with the literal before it, and the literal after the last one.

    `opening` precedes all of it, and layouts may share it. A record of `null_size` bytes is null; 0: no record is.
    """

    opening: bytes
    steps: tuple[tuple[bytes, ValueHole], ...]
    closing: bytes
    size: int
    null_size: int = 0

    @classmethod
    def of(cls, opening: bytes, parts: Iterable[bytes | ValueHole], null_size: int = 0) -> Assembly:
        """Return the assembly of literals and holes in their order."""
        steps: list[tuple[bytes, ValueHole]] = []
        literal = b""
        for part in parts:
            if isinstance(part, bytes):
                literal += part
            else:
                steps.append((literal, part))
                literal = b""
        size = len(opening) + sum(len(text) for text, _ in steps) + len(literal)
        return cls(opening, tuple(steps), literal, size, null_size)

    @property
    def text(self) -> bytes:
        """The bytes of an assembly without holes."""
        assert not self.steps
        return self.opening + self.closing


class AssembledBlock(ABC):
    """See formats.base.Block."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._found: dict[Hashable, Fragment | bytes | Pieces] = {}

    def encode(self, documents: Sequence[Assembly | None], of: npt.NDArray[np.int32]) -> pa.Array:
        programs = Programs()
        numbers = np.full(len(documents), NO_PROGRAM, np.uint16)
        for place, document in enumerate(documents):
            if document is not None:
                numbers[place] = programs.begin()
                add(programs, self.pieces(document, partial(_records, of, place)))
                programs.end()
        if (numbers == NO_PROGRAM).all():
            return pa.nulls(len(of), pa.binary())
        program = numbers[of]
        data, offsets = programs.run(program, self._columns.index)
        present = program != NO_PROGRAM
        for place, document in enumerate(documents):
            if document is not None and document.null_size:
                present &= (of != place) | (np.diff(offsets) != document.null_size)
        return binary_array(data, offsets, None if present.all() else present)

    def pieces(self, document: Assembly, records: Callable[[], npt.NDArray[np.int32]]) -> Pieces:
        """Return a document with its holes filled; `records()` returns the places of the records of this document."""
        made: Pieces = [(document.opening, 0)]
        for literal, hole in document.steps:
            found = self._found.get(hole.key)
            if found is None:
                found = self.filled(hole, records)
                if hole.key is not None:
                    self._found[hole.key] = found
            made.append((literal, 0))
            made += found if isinstance(found, list) else [(found, hole.by)]
        made.append((document.closing, 0))
        return made

    @abstractmethod
    def filled(self, hole: ValueHole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes | Pieces:
        """Return the fragment of a hole's column, a literal if all records have the same value, or several pieces.

        `records()` returns the places of the records of the hole's document.
        """


def add(programs: Programs, pieces: Pieces) -> None:
    """Write pieces to the program that was begun last."""
    for piece, by in pieces:
        if isinstance(piece, bytes):
            programs.literal(piece)
        else:
            programs.fragment(piece, by)


def _records(of: npt.NDArray[np.int32], place: int) -> npt.NDArray[np.int32]:
    """Return the places of the records that have this document."""
    return np.flatnonzero(of == place).astype(np.int32)
