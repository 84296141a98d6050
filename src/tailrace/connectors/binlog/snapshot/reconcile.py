"""Detection of rows of a window that changes in the log supersede, so that only the changes are delivered. Planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import ChangeBatch, Flags, Image
from tailrace.columns.table import Column
from tailrace.connectors.binlog.snapshot.keys import base

_SEPARATOR = b"\0"


class NotComparable(Exception):
    """Changes cannot be compared with rows: the log lacks a key, or the table lacks a column of the key."""


@dataclass(frozen=True, slots=True)
class SupersededKeys:
    """The keys with changes, in the form of `key_texts`; with `everything` the table was truncated."""

    keys: pa.Array | None = None
    everything: bool = False

    def stays(self, texts: pa.Array) -> pa.Array | None:
        """Return a mask of the keys `texts` that are not superseded; None if none are."""
        if self.everything:
            return pa.array(np.zeros(len(texts), np.bool_))
        if self.keys is None:
            return None
        found = pc.is_in(texts, value_set=self.keys)
        return pc.invert(found) if pc.any(found).as_py() else None


def superseded(identity: Sequence[str], changes: Iterable[ChangeBatch]) -> SupersededKeys:
    """Return the keys, in the columns `identity`, of the changes of a table. Raises NotComparable."""
    keys: list[pa.Array] = []
    for batch in changes:
        if (batch.op == ord("t")).any():
            return SupersededKeys(everything=True)
        columns = {column.name: place for place, column in enumerate(batch.table.columns)}
        if any(name not in columns for name in identity):
            raise NotComparable
        places = [columns[name] for name in identity]
        known = np.zeros(len(batch), np.bool_)
        for image in (batch.before, batch.after):
            if image is None:
                continue
            of = [batch.table.columns[place] for place in places]
            texts = key_texts(of, [image.columns[place] for place in places])
            carried = _carried(len(batch), image, places)
            keys.append(texts.filter(pa.array(carried)))
            known |= carried
        if not known.all():
            raise NotComparable
    return SupersededKeys(pa.concat_arrays(keys).unique()) if keys else SupersededKeys()


def _carried(count: int, image: Image, places: Sequence[int]) -> Flags:
    """Return a mask of the changes that have this image with the whole key."""
    carried = np.ones(count, np.bool_) if image.present is None else image.present.copy()
    for place in places:
        lacking = image.unavailable[place]
        if lacking is not None:
            carried &= ~lacking
    return carried


def key_texts(columns: Sequence[Column], values: Sequence[pa.Array]) -> pa.Array:
    """Return the keys of the rows, each as a single binary value."""
    parts = [_canonical(column, of) for column, of in zip(columns, values, strict=True)]
    # lengths make the result unique, since texts may contain the separator
    if len(parts) == 1:
        return parts[0]
    lengths = [pc.cast(pc.binary_length(part), pa.string()).cast(pa.binary()) for part in parts]
    joined = [one for pair in zip(lengths, parts, strict=True) for one in pair]
    return pc.binary_join_element_wise(*joined, pa.scalar(_SEPARATOR, pa.binary()))


def _canonical(column: Column, values: pa.Array) -> pa.Array:
    """Return the values in a normal form, as the log and the server write some differently. Nulls become empty."""
    texts = pc.fill_null(values.cast(pa.binary()), b"")
    writing = _WRITINGS.get(base(column))
    if writing is None:
        return texts
    return pa.array([writing(text) for text in texts.to_pylist()], pa.binary())


def _float(text: bytes) -> bytes:
    return repr(np.float32(text.decode())).encode() if text else text


def _double(text: bytes) -> bytes:
    return repr(float(text)).encode() if text else text


_WRITINGS: dict[str, Callable[[bytes], bytes]] = {"float": _float, "double": _double}
