"""Shapes: changes of column options to the text of a value before it is written: cuts, masks and hashes.

A shape works on columns of server text and on single texts, with the same result.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.buffers import text_buffers

_FOUR_BYTES = 0xF0  # the first byte of a character beyond 16 bits in UTF-8, and above
_STREAM_HEADER = b"\xac\xed\x00\x05"
_STRING, _LONG_STRING = b"t", b"|"


class Shape(Protocol):
    """A change to a column's texts. Picklable; runs in workers."""

    def text(self, text: bytes) -> bytes:
        """Return one text in UTF-8, shaped."""
        ...

    def column(self, column: pa.Array) -> pa.Array:
        """Return a `binary` array of texts, shaped; nulls stay."""
        ...

    def null(self) -> bytes | None:
        """Return the replacement of a null; None if it stays null."""
        ...


@dataclass(frozen=True, slots=True)
class Truncation:
    """Texts cut to `length` UTF-16 units, as Java counts; a character of two units that does not fit is left out."""

    length: int

    def text(self, text: bytes) -> bytes:
        if len(text) <= self.length:
            return text
        try:
            units = text.decode().encode("utf-16-le")[: 2 * self.length]
        except UnicodeDecodeError:
            # not text; its conversion will report that
            return text
        return units.decode("utf-16-le", "ignore").encode()

    def column(self, column: pa.Array) -> pa.Array:
        data, bounds = text_buffers(column)
        if len(column) == 0 or int(np.diff(bounds).max()) <= self.length:
            return column
        if (data[bounds[0] : bounds[-1]] >= _FOUR_BYTES).any():
            return _each(column, self.text)
        try:
            return pc.utf8_slice_codeunits(column.cast(pa.string()), 0, self.length).cast(pa.binary())
        except pa.ArrowInvalid:
            return _each(column, self.text)

    def null(self) -> bytes | None:
        return None


@dataclass(frozen=True, slots=True)
class ByteTruncation:
    r"""Bytes, in the server's hexadecimal form after `\x`, cut to `length`."""

    length: int

    def text(self, text: bytes) -> bytes:
        return text[: 2 + 2 * self.length]

    def column(self, column: pa.Array) -> pa.Array:
        return pc.binary_slice(column, 0, 2 + 2 * self.length)

    def null(self) -> bytes | None:
        return None


@dataclass(frozen=True, slots=True)
class Mask:
    """Every value, including null, becomes the same `length` asterisks, which show neither length nor absence."""

    length: int

    def text(self, text: bytes) -> bytes:
        return b"*" * self.length

    def column(self, column: pa.Array) -> pa.Array:
        return pc.if_else(column.is_valid(), pa.scalar(b"*" * self.length, pa.binary()), pa.scalar(None, pa.binary()))

    def null(self) -> bytes | None:
        return b"*" * self.length


@dataclass(frozen=True, slots=True)
class Digest:
    """Texts replaced by at most `length` hexadecimal digits of their salted digest.

    `algorithm` is hashlib's name. Version 1 digests the salt and the text as Java serialises a string, version 2 the
    salt and the text.
    """

    algorithm: str
    salt: str = field(repr=False)
    version: int
    length: int

    def text(self, text: bytes) -> bytes:
        digest = hashlib.new(self.algorithm, self.salt.encode(), usedforsecurity=False)
        digest.update(text if self.version == 2 else java_serialised(text))
        return digest.hexdigest()[: self.length].encode()

    def column(self, column: pa.Array) -> pa.Array:
        return _each(column, self.text)

    def null(self) -> bytes | None:
        return None


def java_serialised(text: bytes) -> bytes:
    """Return a string as Java's ObjectOutputStream writes it: modified UTF-8 after its length (JLS, Object
    Serialization).

    Characters beyond 16 bits are two surrogates of three bytes each, and the zero character has two bytes.
    """
    modified = text.replace(b"\0", b"\xc0\x80")
    if any(byte >= _FOUR_BYTES for byte in modified):
        units = memoryview(text.decode("utf-8", "replace").encode("utf-16-le")).cast("H")
        modified = b"".join(chr(unit).encode("utf-8", "surrogatepass") if unit else b"\xc0\x80" for unit in units)
    if len(modified) > 0xFFFF:
        return _STREAM_HEADER + _LONG_STRING + struct.pack(">Q", len(modified)) + modified
    return _STREAM_HEADER + _STRING + struct.pack(">H", len(modified)) + modified


def _each(column: pa.Array, shaped: Callable[[bytes], bytes]) -> pa.Array:
    """Return the column with `shaped` applied once to each distinct text."""
    encoded = column.dictionary_encode()
    texts = pa.array([shaped(text) for text in encoded.dictionary.to_pylist()], pa.binary())
    return texts.take(encoded.indices)
