"""What encodings of bytes share: a layout as literals with holes between them, which compiled programs fill. Worker.

Of each leaf that a block needs, one fragment is made (the bytes of all its values, one after another), and every
record is put together from literals and fragments in one pass.
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

from tailrace.assembly.programs import NO_PROGRAM, Fragment, Programs
from tailrace.buffers import binary_array
from tailrace.records.columns import Columns

Pieces = list[tuple[Fragment | bytes, int]]
"""Fragments and literals, one after another; with each fragment, what it has a value for."""


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of a leaf's value. `by` is what there is a value for, `key` what tells its column from others of the
    block; None where it is not shared. `way` is the encoding's own word for how the value is written here."""

    leaf: Any
    by: int
    way: Any
    key: Hashable


@dataclass(frozen=True, slots=True)
class Assembly:
    """A compiled layout: each hole with the literal before it, and the literal behind the last; `opening` stands
    before all of it, and may be shared by layouts. A record that has `null_size` bytes is null; 0 where none is."""

    opening: bytes
    steps: tuple[tuple[bytes, Hole], ...]
    closing: bytes
    size: int
    null_size: int = 0

    @classmethod
    def of(cls, opening: bytes, parts: Iterable[bytes | Hole], null_size: int = 0) -> Assembly:
        """What literals and holes make in their order."""
        steps: list[tuple[bytes, Hole]] = []
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
        """The whole of an assembly without holes."""
        assert not self.steps
        return self.opening + self.closing


class AssembledBlock(ABC):
    """See formats.base.Block."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        # what is written for holes
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
        """A document with its holes filled; `records` are those that have it."""
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
    def filled(self, hole: Hole, records: Callable[[], npt.NDArray[np.int32]]) -> Fragment | bytes | Pieces:
        """The fragment of a hole's column, or the literal where all records have one value; several of them where one
        hole has several. `records` are those of the hole's document."""


def add(programs: Programs, pieces: Pieces) -> None:
    """Write pieces to the program that was begun last."""
    for piece, by in pieces:
        if isinstance(piece, bytes):
            programs.literal(piece)
        else:
            programs.fragment(piece, by)


def _records(of: npt.NDArray[np.int32], place: int) -> npt.NDArray[np.int32]:
    """The places of the records that have this document."""
    return np.flatnonzero(of == place).astype(np.int32)
