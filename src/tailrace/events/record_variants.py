"""Record variants: the layouts of a batch's records, and the columns of rows that follow from them. Worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import formats
from tailrace.errors import ConversionError
from tailrace.events.envelope import RecordVariant
from tailrace.events.event_settings import EventSettings
from tailrace.events.expansion import TOMBSTONE, Records
from tailrace.events.headers import header_column
from tailrace.events.table_plan import AnyPlan, KindPlan, SplitPlan, TablePlans
from tailrace.formats.arrow import array_of, computed
from tailrace.records.columns import Columns, Indexes
from tailrace.records.layout import RECORD, ComputedColumn, Leaf, Node
from tailrace.records.transform import LeftOutRecords, RefusedRecord

# --- variants ---------------------------------------------------------------------------------------------------------

log = logging.getLogger("tailrace")
Int32s = npt.NDArray[np.int32]
# The ops of records, and for each op the number of combinations of the other properties.
_OPS = (TOMBSTONE, *b"cudrt")
_ROOM = 36
_KINDS = len(_OPS) * _ROOM
_PLACES = np.zeros(256, np.int32)
_PLACES[list(_OPS)] = np.arange(len(_OPS))


Drop = Callable[[str, int, int], None]
"""Called with dropped records: the reason, the index of the first record's change, and the number of records."""


class RefusedChange(Exception):
    """A transform cannot process a record of the change with this index in its batch."""

    def __init__(self, reason: str, change: int) -> None:
        super().__init__(reason, change)
        self.reason = reason
        self.change = change


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """Records in order: record r is of kind `kinds[of[r]]`, and every kind has records.

    `change` is the index of each record's change, `op` as in `tailrace.events.expansion.Records`. A record with `of`
    below 0 is left out; `left_out` has the messages about that, each with the number of records.
    """

    change: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]
    kinds: Sequence[AnyPlan]
    of: npt.NDArray[np.int32]
    left_out: tuple[tuple[LeftOutRecords, int], ...] = ()

    def delivered(self) -> KnownRecords:
        """Return the records that are not left out."""
        kept = self.of >= 0
        if kept.all():
            return self
        return KnownRecords(self.change[kept], self.op[kept], self.kinds, self.of[kept], self.left_out)

    def part(self, first: int, last: int) -> KnownRecords:
        """Return the records `first` to `last`."""
        if last - first == len(self.change):
            return self
        change, op, of = self.change[first:last], self.op[first:last], self.of[first:last]
        return KnownRecords(change, op, self.kinds, of).used()

    def used(self) -> KnownRecords:
        """Return the records without kinds that have no records."""
        change, op, of = self.change, self.op, self.of
        used = np.flatnonzero(np.bincount(of))
        if len(used) == len(self.kinds):
            return self
        number = np.zeros(len(self.kinds), np.int32)
        number[used] = np.arange(len(used))
        return KnownRecords(change, op, [self.kinds[kind] for kind in used.tolist()], number[of], self.left_out)


def by_kind(records: Records, tables: TablePlans, ordered: bool, drop: Drop | None = None) -> KnownRecords:
    """Return the records with their kinds, without records that a transform leaves out.

    `ordered`: whether the places of changes in their transactions are known. With `drop`, records that cannot be made
    are left out. Raises RefusedChange, ConversionError.
    """
    code = _PLACES[records.op] * np.int32(_ROOM)
    code += records.before * np.int32(18) + records.after * np.int32(9)
    code += records.key * np.int32(3) + records.header
    known = np.flatnonzero(np.bincount(code, minlength=_KINDS))
    place = np.zeros(_KINDS, np.int32)
    place[known] = np.arange(len(known))
    every = place[code]
    if tables.of is not None:
        every += tables.of[records.change] * np.int32(len(known))
    used = np.flatnonzero(np.bincount(every))
    kinds: list[AnyPlan] = []
    left_out: list[tuple[LeftOutRecords, int]] = []
    number = np.zeros(len(known) * len(tables.plans), np.int32)
    for combination in used.tolist():
        table, which = divmod(combination, len(known))
        kind: AnyPlan | LeftOutRecords | None = None
        try:
            kind = tables.plans[table].kind(_kind(int(known[which]), ordered))
        except (RefusedRecord, ConversionError) as fault:
            refused = np.flatnonzero(every == combination)
            _refused(fault, int(records.change[refused[0]]), len(refused), drop)
        if isinstance(kind, LeftOutRecords):
            left_out.append((kind, int(np.count_nonzero(every == combination))))
        number[combination] = len(kinds) if isinstance(kind, AnyPlan) else -1
        if isinstance(kind, AnyPlan):
            kinds.append(kind)
    return KnownRecords(records.change, records.op, kinds, number[every], tuple(left_out)).delivered()


def _refused(fault: RefusedRecord | ConversionError, change: int, count: int, drop: Drop | None) -> None:
    """Drop `count` records that cannot be made, of which the first belongs to `change`; without `drop`, raise."""
    if drop is None and isinstance(fault, RefusedRecord):
        raise RefusedChange(fault.reason, change) from None
    if drop is None:
        raise fault
    drop(reason_of(fault), change, count)


def reason_of(fault: RefusedRecord | RefusedChange | ConversionError) -> str:
    """Return why a record cannot be made, as a sentence without its end."""
    return fault.message.rstrip(".") if isinstance(fault, ConversionError) else fault.reason


def by_op(
    change: Int32s, op: npt.NDArray[np.uint8], kind: Callable[[int], AnyPlan | LeftOutRecords | None]
) -> KnownRecords:  # fmt: skip
    """Return records whose kind follows from `op` alone, without records that a transform leaves out."""
    kinds: list[AnyPlan] = []
    left_out: list[tuple[LeftOutRecords, int]] = []
    counts = np.bincount(op, minlength=256)
    number = np.full(256, -1, np.int32)
    for code in np.flatnonzero(counts).tolist():
        try:
            found = kind(code)
        except RefusedRecord as fault:
            raise RefusedChange(fault.reason, int(change[np.flatnonzero(op == code)[0]])) from None
        if isinstance(found, LeftOutRecords):
            left_out.append((found, int(counts[code])))
        elif found is not None:
            number[code] = len(kinds)
            kinds.append(found)
    return KnownRecords(change, op, kinds, number[op], tuple(left_out)).delivered()


def told_apart(
    records: KnownRecords, values: Callable[[Node, Int32s], pa.Array], drop: Drop | None = None
) -> KnownRecords:
    """Return the records with layouts that no longer depend on values, without records that a transform leaves out.

    `values` returns the values of a leaf for the records at some places; `drop` as in `by_kind`.
    """
    kinds, of = list(records.kinds), records.of.copy()
    left_out: list[tuple[LeftOutRecords, int]] = []
    for number, kind in enumerate(kinds):
        # new kinds may have to be told apart again: they are appended to the list
        if isinstance(kind, SplitPlan):
            left_out += _split(kind, number, kinds, of, records, values, drop)
    found = KnownRecords(records.change, records.op, kinds, of, tuple(left_out)).delivered()
    return found.used()


def _split(
    kind: SplitPlan,
    number: int,
    kinds: list[AnyPlan],
    of: Int32s,
    records: KnownRecords,
    values: Callable[[Node, Int32s], pa.Array],
    drop: Drop | None,
) -> list[tuple[LeftOutRecords, int]]:
    """Give the records of a kind their final kinds; return the messages about records that are left out."""
    left_out: list[tuple[LeftOutRecords, int]] = []
    places = np.flatnonzero(of == number).astype(np.int32)
    try:
        known = values(kind.by, places)
    except RefusedRecord as fault:
        raise RefusedChange(fault.reason, int(records.change[fault.row])) from None
    for value, those in _by_value(known, places):
        made: AnyPlan | LeftOutRecords | None = None
        try:
            made = kind.of(value)
        except (RefusedRecord, ConversionError) as fault:
            _refused(fault, int(records.change[those[0]]), len(those), drop)
        if isinstance(made, LeftOutRecords):
            left_out.append((made, len(those)))
        of[those] = len(kinds) if isinstance(made, AnyPlan) else -1
        if isinstance(made, AnyPlan):
            kinds.append(made)
    return left_out


def _by_value(values: pa.Array, places: Int32s) -> Iterator[tuple[Any, Int32s]]:
    """Yield each different value and the places that have it, in order of first appearance."""
    if pa.types.is_boolean(values.type) and not values.null_count:
        flags = values.to_numpy(zero_copy_only=False)
        for value in (True, False) if flags[:1].any() else (False, True):
            those = places[flags == value]
            if len(those):
                yield value, those
        return
    known = pc.dictionary_encode(values, null_encoding="encode")
    codes = known.indices.to_numpy()
    for code, value in enumerate(known.dictionary.to_pylist()):
        yield value, places[codes == code]


def tell_left_out(left_out: Iterable[tuple[LeftOutRecords, int]], warnings: list[str]) -> None:
    """Log which records are left out, and how many; append the sentences to `warnings`."""
    for what, count in left_out:
        message = f"{count} records are left out: {what.reason}."
        log.log(logging.ERROR if what.is_error else logging.WARNING, message)
        warnings.append(message)


@lru_cache(maxsize=_KINDS * 2)
def _kind(code: int, ordered: bool) -> RecordVariant:
    """Return the kind of records that a code stands for."""
    op, rest = divmod(code, _ROOM)
    return RecordVariant(_OPS[op], rest // 18 == 1, rest // 9 % 2 == 1, rest // 3 % 3, rest % 3, ordered)


# --- columns of rows --------------------------------------------------------------------------------------------------

_Part = TypeVar("_Part")
MAX_RECORDS = 8_192
# Up to so many records a column is built anew; a longer one is cut from a cached column.
_FEW = 256


@dataclass(frozen=True, slots=True)
class KindColumns:
    """The records of a block: record r is of kind `kinds[of[r]]`, filled from `columns`. The methods raise
    RefusedRecord."""

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

        def made(topic: str | ComputedColumn, records: Indexes) -> pa.Array:
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
