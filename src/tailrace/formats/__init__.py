"""Formats: each an encoding, which turns a layout and the columns that fill it into bytes or into Arrow.

`find` gives one by its name. Other packages bring more, by entry points of the group `tailrace.formats`.
"""

from __future__ import annotations

from functools import lru_cache

from tailrace.config.formats import KNOWN, Format
from tailrace.formats.base import Block, Configured, Document, Encoding
from tailrace.records.columns import Columns

__all__ = ["Block", "Blocks", "Document", "Encoding", "find"]


@lru_cache(maxsize=64)
def find(form: Format | str) -> Encoding:
    """The encoding of a format, by its name, or with the options of its converter; `typed` is the one of typed rows,
    which no configuration names.

    Raises ConfigError where there is none.
    """
    name = form if isinstance(form, str) else form.name
    if name == "typed":
        from tailrace.formats.typed import TYPED

        return TYPED
    found: Encoding = KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)
    if isinstance(form, Format) and isinstance(found, Configured):
        return found.with_options(form.part, dict(form.options)).encoding
    return found


class Blocks:
    """One block of records in every encoding that is asked for: keys, values and headers share what is made of columns.

    The columns may not hold it: a circle would keep the memory of both until the garbage is collected.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._made: dict[int, Block] = {}

    def of(self, encoding: Encoding) -> Block:
        """The block in this encoding."""
        found = self._made.get(id(encoding))
        if found is None:
            found = self._made[id(encoding)] = encoding.block(self._columns)
        return found
