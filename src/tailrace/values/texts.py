"""The form of kernels: a column of texts, the literals for rows without a value, and the memory to fill.

Every kernel that writes JSON has the same form. `data[bounds[i]:bounds[i+1]]` is the text of row i. `state` is empty if
all rows have a text. Else 0 marks a row with a text, and k a row shown as literal k - 1, which is
`literals[ends[k-1]:ends[k]]`: literal 0 is the JSON of a null, 1 that of an unchanged TOAST value, 2 that of a text
that could not be converted. The JSON goes to `out`, its bounds to `offsets`. The kernel returns the number of texts
that could not be converted.

A kernel that reads numbers for an Arrow array also has `data`, `bounds`, `state` and `argument`. Row i's number goes to
`out[i]`, and its outcome to `outcome[i]`: 0 a value, 1 a null, 2 an unchanged TOAST value, 3 a text that could not be
converted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.kernels.buffers import Bytes, ExceedsArrow, Offsets, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment

Flags = npt.NDArray[np.bool_]
Ends = npt.NDArray[np.int64]
Int = int | np.integer[Any]
Bool = bool | np.bool_
VALUE, NULL, UNAVAILABLE, LOST = 0, 1, 2, 3
"""The outcome of a row."""

_MAX_ROOM = 2**31 - 1
_NO_STATE = readonly(np.zeros(0, np.uint8))


class ShownValues(NamedTuple):
    """The JSON of a column's null, of an unchanged TOAST value and of a text that could not be converted."""

    column: str
    null: bytes
    unavailable: bytes
    lost: bytes


@dataclass(slots=True)
class Texts:
    """The texts of a column in UTF-8, an Arrow array; `data`, `bounds` and `state` are arguments of kernels."""

    column: pa.Array
    data: Bytes
    bounds: Offsets
    state: Bytes

    @classmethod
    def of(cls, column: pa.Array, unavailable: Flags | None = None) -> Texts:
        """Return the texts of a `binary` or `string` array; `unavailable` marks unchanged TOAST values."""
        return cls(column, *text_buffers(column), state_of(column, unavailable))

    def replaced(self, column: pa.Array) -> Texts:
        """Return other texts in place of these, with the same nulls."""
        return Texts(column, *text_buffers(column), self.state)

    def __len__(self) -> int:
        return len(self.column)

    @property
    def size(self) -> int:
        """The bytes of all texts together."""
        return int(self.bounds[-1]) - int(self.bounds[0])

    def exceed(self, size: int) -> bool:
        """Return True if any text has more than `size` bytes."""
        return self.size > size and int(np.diff(self.bounds).max(initial=0)) > size


def state_of(column: pa.Array, unavailable: Flags | None) -> Bytes:
    """Return the kernels' argument `state`."""
    valid = valid_flags(column)
    if valid is None and unavailable is None:
        return _NO_STATE
    state = np.zeros(len(column), np.uint8)
    if valid is not None:
        state[~valid] = NULL
    if unavailable is not None:
        state[unavailable] = UNAVAILABLE
    return readonly(state)


def literals_of(shown: ShownValues) -> tuple[Bytes, Ends]:
    """Return the kernels' arguments `literals` and `ends`."""
    return _literals(shown.null, shown.unavailable, shown.lost)


@lru_cache(maxsize=1024)
def _literals(*texts: bytes) -> tuple[Bytes, Ends]:
    ends = np.cumsum([0, *map(len, texts)])
    return readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), readonly(ends)


def output(room: int, rows: int, shown: ShownValues) -> tuple[Bytes, Offsets]:
    """Return the kernels' arguments `out` and `offsets`. Raises ExceedsArrow for more than 2 GiB."""
    if room > _MAX_ROOM:
        raise ExceedsArrow(f"The values of column {shown.column} in one block exceed 2 GiB as JSON.")
    return np.empty(room, np.uint8), np.zeros(rows + 1, np.int32)


def written(
    written_by: Callable[..., Any], texts: Texts, shown: ShownValues, argument: int, *, each: int = 48, more: int = 0
) -> tuple[Fragment, int]:
    """Return the JSON of texts by a kernel, and how many could not be converted.

    The kernel writes at most as many bytes as the texts have, plus `each` per text, plus `more`.
    """
    literals, ends = literals_of(shown)
    rows = len(texts)
    # Any row may prove to be unconvertible and then takes a literal.
    out, offsets = output(texts.size + rows * (each + len(literals)) + more + 1, rows, shown)
    lost = written_by(texts.data, texts.bounds, texts.state, literals, ends, argument, out, offsets)
    return Fragment(readonly(out), readonly(offsets)), int(lost)


def strings_fragment(texts: list[bytes]) -> Fragment:
    """Return a fragment of JSON texts. Raises ExceedsArrow beyond 2 GiB."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    if len(ends) and int(ends[-1]) > _MAX_ROOM:
        raise ExceedsArrow("The values of a column in one block exceed 2 GiB as JSON.")
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = ends
    return Fragment(readonly(np.frombuffer(b"".join(texts) + b"\0", np.uint8)), readonly(offsets))


def without_bad_text(column: pa.Array, unavailable: Flags | None) -> tuple[Texts, Flags | None]:
    """Return the texts with null for those that are not UTF-8, and a mask of these; None if there are none.

    Databases without an encoding send such texts, and so do faulty servers. `unavailable` is as in `Texts.of`.
    """
    texts = Texts.of(column, unavailable)
    if is_ascii(texts.data, int(texts.bounds[0]), int(texts.bounds[-1])):
        return texts, None
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        values = column.to_pylist()
        bad = np.array([value is not None and not _is_text(value) for value in values], np.bool_)
        good = pa.array([None if wrong else value for value, wrong in zip(values, bad, strict=True)], pa.binary())
        return Texts.of(good, unavailable), bad
    return texts, None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def word(text: bytes) -> Bytes:
    """Return the bytes of a word as kernels use them from a module."""
    return np.frombuffer(text, np.uint8).copy()


@kernel
def is_ascii(data: Bytes, begin: int, end: int) -> bool:
    """Return True if no byte is above 127; any byte that is not UTF-8 is."""
    part = data[begin:end]
    for start in range(0, len(part), 4096):
        found = np.uint8(0)
        for byte in part[start : start + 4096]:
            found |= byte
        if found >= np.uint8(128):
            return False
    return True


@kernel(leaf=True)
def put_literal(literals: Bytes, ends: Ends, number: Int, out: Bytes, at: Int) -> Int:
    """Write literal `number` at `at`; return the end."""
    for position in range(ends[number], ends[number + 1]):
        out[at] = literals[position]
        at += 1
    return at


@kernel(leaf=True)
def put_bytes(text: Bytes, out: Bytes, at: Int) -> Int:
    """Write all of `text` at `at`; return the end."""
    for position in range(len(text)):
        out[at] = text[position]
        at += 1
    return at


@kernel(leaf=True, inlined=True)
def is_word(data: Bytes, begin: Int, end: Int, word: Bytes) -> bool:
    """Return True if the bytes are those of `word`."""
    if end - begin != len(word):
        return False
    for position in range(len(word)):  # noqa: SIM110  (numba has no generators in all())
        if data[begin + position] != word[position]:
            return False
    return True
