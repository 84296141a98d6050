"""Row columns that follow from the records' kinds: topic, key, value, headers, partition, timestamp, op. Worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace import formats
from tailrace.events.headers import header_column
from tailrace.events.settings import EventSettings
from tailrace.events.table_plan import KindPlan
from tailrace.formats.arrow import array_of, computed
from tailrace.records.columns import Columns, Indexes
from tailrace.records.layout import RECORD, Computed, Leaf

_Part = TypeVar("_Part")
MAX_RECORDS = 8_192
# Up to so many records a column is built anew; a longer one is cut from a cached column.
_FEW = 256


@dataclass(frozen=True, slots=True)
class KindColumns:
    """The records of a block: record r is of kind `kinds[of[r]]`, filled from `columns`. The methods raise Refused."""

    kinds: Sequence[KindPlan]
    of: npt.NDArray[np.int32]
    columns: Columns
    settings: EventSettings

    def makers(self, blocks: formats.Blocks) -> Mapping[str, Callable[[], pa.Array]]:
        """Return a maker for each column, in the form that `columns.row.rows_of` expects."""
        return {
            "topic": self._topics,
            "key": lambda: self.keys(blocks),
            "value": lambda: self.values(blocks),
            "headers": lambda: self._headers(blocks),
            "partition": lambda: self._by_leaf([kind.partition for kind in self.kinds], pa.int32()),
            "timestamp": lambda: self._by_leaf([kind.timestamp for kind in self.kinds], pa.int64()),
            "op": lambda: self._by_word([kind.op for kind in self.kinds]),
        }

    def keys(self, blocks: formats.Blocks) -> pa.Array:
        """Return the encoded keys."""
        encoding = formats.find(self.settings.key_encoding)
        return blocks.of(encoding).encode([kind.key for kind in self.kinds], self.of)

    def values(self, blocks: formats.Blocks) -> pa.Array:
        """Return the encoded values."""
        encoding = formats.find(self.settings.value_encoding)
        return blocks.of(encoding).encode([kind.value for kind in self.kinds], self.of)

    def _headers(self, blocks: formats.Blocks) -> pa.Array:
        kinds, encoding = [kind.headers for kind in self.kinds], formats.find(self.settings.header_format)
        return header_column(kinds, self.of, lambda: blocks.of(encoding))

    def _by_word(self, words: Sequence[str]) -> pa.Array:
        """Return the word of each record's kind; constant in most blocks."""
        if len(set(words)) <= 1:
            return repeated(words[0] if words else "", len(self.of))
        return pa.array(words, pa.string()).take(pa.array(self.of))

    def _by_leaf(self, leaves: Sequence[Leaf | None], of: pa.DataType) -> pa.Array:
        """Return the values of each record's leaf; null if its kind has none."""
        if all(leaf is None for leaf in leaves):
            return pa.nulls(len(self.of), of)

        def made(leaf: Leaf | None, records: Indexes) -> pa.Array:
            return pa.nulls(len(records), of) if leaf is None else array_of(leaf, self.columns, records).cast(of)

        return self._by_kind(leaves, made)

    def _topics(self) -> pa.Array:
        topics = [kind.topic for kind in self.kinds]
        words = [topic for topic in topics if isinstance(topic, str)]
        if len(words) == len(topics):
            return self._by_word(words)

        def made(topic: str | Computed, records: Indexes) -> pa.Array:
            return repeated(topic, len(records)) if isinstance(topic, str) else computed(topic, self.columns, records)

        return self._by_kind(topics, made)

    def _by_kind(self, parts: Sequence[_Part], made: Callable[[_Part, Indexes], pa.Array]) -> pa.Array:
        """Call `made` once per kind with its part and its records; return the results in the order of the records."""
        if len(parts) == 1:
            return made(parts[0], self.columns.index[RECORD])
        records = [np.flatnonzero(self.of == number).astype(np.int32) for number in range(len(parts))]
        found = [made(part, those) for part, those in zip(parts, records, strict=True)]
        places = np.empty(len(self.of), np.int32)
        places[np.concatenate(records)] = self.columns.index[RECORD]
        return pa.concat_arrays(found).take(pa.array(places))


@lru_cache(maxsize=256)
def _many(text: str) -> pa.Array:
    return pa.array([text] * MAX_RECORDS, pa.string())


@lru_cache(maxsize=8_192)
def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.string())


def repeated(text: str, count: int) -> pa.Array:
    """Return a text `count` times."""
    return _many(text).slice(0, count) if _FEW < count <= MAX_RECORDS else pa.repeat(_scalar(text), count)
