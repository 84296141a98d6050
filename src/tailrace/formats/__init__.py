"""Formats: each has an encoding, which turns a layout and its columns into bytes or Arrow arrays.

`find` returns an encoding by name. Other packages add formats by entry points of the group `tailrace.formats`.
"""

from __future__ import annotations

from functools import lru_cache

from tailrace.config.formats import KNOWN, Format
from tailrace.formats.base import Block, ConfiguredEncoding, Document, Encoding
from tailrace.records.columns import Columns

__all__ = ["Block", "Blocks", "Document", "Encoding", "find"]


@lru_cache(maxsize=64)
def find(form: Format | str) -> Encoding:
    """Return the encoding of a format, by its name, or with its converter's options.

    `typed` is the encoding of typed rows, which no configuration names. Raises ConfigError for an unknown format.
    """
    name = form if isinstance(form, str) else form.name
    if name == "typed":
        from tailrace.formats.typed import TYPED

        return TYPED
    found: Encoding = KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)
    if isinstance(form, Format) and isinstance(found, ConfiguredEncoding):
        return found.with_options(form.part, dict(form.options)).encoding
    return found


class Blocks:
    """A block of records in every requested encoding. Keys, values and headers share the encoded columns.

    The columns must not refer to it: a reference cycle would keep both in memory until garbage collection.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._made: dict[int, Block] = {}

    def of(self, encoding: Encoding) -> Block:
        """Return the block in this encoding."""
        found = self._made.get(id(encoding))
        if found is None:
            found = self._made[id(encoding)] = encoding.block(self._columns)
        return found
