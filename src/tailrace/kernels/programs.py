"""Assembly of records from literals and fragments, row by row, with one move per part.

A program is the sequence of parts of one kind of document. A part is a literal and, unless it is the last part, a
fragment of the row: `data[offsets[i]:offsets[i + 1]]`, where i is the row's index for the part's kind (change,
transaction, marker, source block, record). Programs hold addresses, so the caller keeps their memory alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.kernels.buffers import Bytes, ExceedsArrow, Offsets, load_int32, move
from tailrace.kernels.compiled import kernel

Int64s = npt.NDArray[np.int64]
NO_PROGRAM = 0xFFFF
"""Stands for no document; also the limit for the number of programs."""
CHANGE, TRANSACTION, MARKER, SOURCE, RECORD = range(5)
KINDS = 5


@dataclass(slots=True)
class Fragment:
    """The encoded bytes of a column's values, one after another. `quoted`: each value still needs quotes around it."""

    data: Bytes
    offsets: Offsets
    quoted: bool = False


@dataclass(slots=True)
class Programs:
    """Programs under construction; `literal` and `fragment` extend the last one begun."""

    _parts: list[tuple[bytes, Fragment | None, int]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _pending: bytes = b""

    def begin(self) -> int:
        """Begin a program. Return its number, by which rows refer to it."""
        self._starts.append(len(self._parts))
        self._pending = b""
        return len(self._starts) - 1

    def literal(self, text: bytes) -> None:
        self._pending += text

    def fragment(self, fragment: Fragment, kind: int) -> None:
        if fragment.quoted:
            self._pending += b'"'
        self._parts.append((self._pending, fragment, kind))
        self._pending = b'"' if fragment.quoted else b""

    def end(self) -> None:
        self._parts.append((self._pending, None, 0))

    def run(self, program: npt.NDArray[np.uint16], index: npt.NDArray[np.int32]) -> tuple[Bytes, Offsets]:
        """Assemble one document per row: `program[r]` names its program, NO_PROGRAM leaves it empty.

        `index[k, r]` is the row's index for fragments of kind k. Raises ExceedsArrow beyond 2 GiB.
        """
        kept, table, starts = self._table()
        offsets = np.zeros(len(program) + 1, np.int32)
        total = measure(table, starts, program, index, offsets)
        if total > 2**31 - 1:
            raise ExceedsArrow("The records of one block exceed 2 GiB; a single row is too large for one record.")
        data = np.empty(max(total, 1), np.uint8)
        write(table, starts, program, index, offsets, _address(data))
        del kept
        return data[:total], offsets

    def sizes(self, program: npt.NDArray[np.uint16], index: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the size in bytes of each document of `run`. Raises ExceedsArrow beyond 2 GiB in all."""
        kept, table, starts = self._table()
        offsets = np.zeros(len(program) + 1, np.int32)
        total = measure(table, starts, program, index, offsets)
        del kept
        if total > 2**31 - 1:
            raise ExceedsArrow("The records of one block exceed 2 GiB; a single row is too large for one record.")
        return np.diff(offsets)

    def _table(self) -> tuple[Bytes, Int64s, Int64s]:
        """Return the literals, the table of parts with their addresses, and the start of each program in the table.

        The caller keeps the literals alive as long as it uses the table.
        """
        literals = np.frombuffer(b"".join(part[0] for part in self._parts) + b"\0", np.uint8)
        at = _address(literals)
        places: dict[int, tuple[int, int]] = {id(None): (0, 0)}
        # For each part: the literal's address and length, addresses of the fragment's bytes and bounds, its kind.
        rows: list[tuple[int, int, int, int, int]] = []
        for text, fragment, kind in self._parts:
            place = places.get(id(fragment))
            if place is None:
                assert fragment is not None
                place = places[id(fragment)] = _address(fragment.data), _address(fragment.offsets)
            rows.append((at, len(text), *place, kind))
            at += len(text)
        table = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 5).T)
        return literals, table, np.array([*self._starts, len(self._parts)], np.int64)


def _address(array: npt.NDArray[Any]) -> int:
    """Return the address of a contiguous array. NumPy's own way takes ten times as long."""
    address: int = pa.py_buffer(array).address
    return address


@kernel
def measure(table: Any, starts: Any, program: Any, index: Any, offsets: Any) -> Any:
    """Fill `offsets` with the documents' bounds, and return their total size in bytes."""
    total = 0
    fixed = np.zeros(len(starts) - 1, np.int64)
    for number in range(len(starts) - 1):
        for part in range(starts[number], starts[number + 1]):
            fixed[number] += table[1, part]
    for row in range(len(program)):
        number = program[row]
        if number != NO_PROGRAM:
            total += fixed[number]
            for part in range(starts[number], starts[number + 1]):
                bounds = table[3, part]
                if bounds != 0:
                    at = bounds + 4 * index[table[4, part], row]
                    total += load_int32(at + 4) - load_int32(at)
        offsets[row + 1] = total
    return total


@kernel
def write(table: Any, starts: Any, program: Any, index: Any, offsets: Any, target: Any) -> None:
    """Write the documents to the address `target`."""
    for row in range(len(program)):
        number = program[row]
        if number == NO_PROGRAM:
            continue
        cursor = target + offsets[row]
        for part in range(starts[number], starts[number + 1]):
            length = table[1, part]
            move(cursor, table[0, part], length)
            cursor += length
            bounds = table[3, part]
            if bounds != 0:
                at = bounds + 4 * index[table[4, part], row]
                begin = load_int32(at)
                length = load_int32(at + 4) - begin
                move(cursor, table[2, part] + begin, length)
                cursor += length
