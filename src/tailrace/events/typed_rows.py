"""Typed rows: parts of records in columns of their own, in the declared types. Worker.

The schema was made from a catalog at one moment. In an older change a column has the name that it had at that moment,
if the database numbers columns; otherwise a change is matched by field names. A field that the change lacks is null. A
field that the schema lacks was either dropped before that moment, and may be left out, or is newer, which is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import formats
from tailrace.columns import ChangeBatch, Marker, TableId
from tailrace.columns.logical import ABSENT
from tailrace.columns.typed import OF_TABLES, TypedRows, is_variant, typed_schema
from tailrace.errors import ConfigError, SchemaChanged
from tailrace.events.envelope import Envelopes
from tailrace.events.event_settings import EventSettings
from tailrace.events.warnings import warn_of_infinite
from tailrace.formats.typed.spark_types import NotHeld, conform, held
from tailrace.records.layout import AFTER, BEFORE
from tailrace.values.arrow import arrow_type_of
from tailrace.values.conversion import ColumnPlan
from tailrace.values.infinite import finite, may_be_infinite

_REMEDY = (
    "Start the query again with the same checkpoint: it reads the schema anew, and the batch is repeated. "
    "Or name a schema yourself: readStream.schema(…)."
)
log = logging.getLogger("tailrace")
_warned: set[str] = set()
_UNAVAILABLE = pa.list_(pa.field("element", pa.string()))


def as_typed(plan: ColumnPlan) -> ColumnPlan:
    """Return the plan of a column of typed rows: a missing value is null, whatever JSON shows instead."""
    schema = plan.schema.with_optional(True).with_default(ABSENT)
    return replace(plan, schema=schema, null=b"null", unavailable=b"null")


def _further(made: pa.DataType, kind: pa.DataType, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields of `made` that `kind` does not have, at any depth."""
    if pa.types.is_list(made) and pa.types.is_list(kind):
        yield from _further(made.value_type, kind.value_type, path)
    if pa.types.is_struct(made) and pa.types.is_struct(kind) and not is_variant(kind):
        for field in made:
            place = kind.get_field_index(field.name)
            if place < 0:
                yield path + field.name
            else:
                yield from _further(field.type, kind.field(place).type, f"{path}{field.name}.")


class ShownRecords(Protocol):
    """The part of a block that typed rows need: `of` has the number of each record's kind, `change` its change."""

    batch: ChangeBatch
    change: npt.NDArray[np.int32]
    of: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RecordKinds:
    """The kinds of a block's records: documents of their keys and values, and whether they show a row after the change.

    Also the block's table and its columns.
    """

    table: TableId
    columns: Sequence[ColumnPlan]
    keys: Sequence[Any]
    values: Sequence[Any]
    shows_after: Sequence[bool]


class TypedBlock:
    """A block of records as columns of typed rows; `encoded` turns the documents of `kinds` into arrays."""

    def __init__(self, block: ShownRecords, kinds: RecordKinds, encoded: formats.Block, typed: TypedRows) -> None:
        self._block, self._kinds, self._encoded, self._typed = block, kinds, encoded, typed
        self._schema = typed.schema
        self._later: Mapping[str, str | None] = {}
        self._uncarried: Sequence[str] = ()

    def follow_names(self, positions: pa.Array) -> None:
        """Give the columns of older changes the names that they had when the schema was made.

        Columns that were there, and that the changes do not carry, are unavailable. Raises SchemaChanged if a column
        was dropped, and another one made under its name.
        """
        typed, table = self._typed, self._block.batch.table
        if not typed.numbers or table.id != typed.table or self._is_newer(positions).any():
            return
        numbers = {plan.name: table.columns[table.index(plan.source_name)].number for plan in self._kinds.columns}
        if not all(numbers.values()):
            return
        names = dict(typed.numbers)
        later = {name: names.get(number) for name, number in numbers.items()}
        self._later = {name: other for name, other in later.items() if other != name}
        highest = max(numbers.values(), default=0)
        # generated or not published then: columns get ascending numbers
        self._uncarried = [name for number, name in typed.numbers if number < highest and name not in later.values()]
        dropped = [name for name, other in self._later.items() if other is None]
        for name in dropped:
            if name in names.values():
                # in the transaction that did so, the log may show both columns alike
                raise SchemaChanged(
                    f"{table.id} had another column {name} up to the position {positions[-1].as_py()}: it was dropped "
                    "and made again, and values of both cannot be told apart.",
                    "Name a schema yourself, whose columns are matched by their names: readStream.schema(…).",
                )
        if dropped:
            self._warn(dropped)

    def _is_newer(self, positions: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which changes may be newer than the schema."""
        newer: npt.NDArray[np.bool_] = pc.greater(positions, self._typed.position).to_numpy(zero_copy_only=False)
        if self._block.batch.marker is not None:
            # the position of a snapshot's row may be older than the form in which it was read
            newer = newer | (self._block.batch.marker[self._block.change] != Marker.FALSE)
        return newer

    def column(self, name: str, positions: pa.Array) -> pa.Array:
        """Return the column `name`, one of OF_TABLES, in the declared type. Raises SchemaChanged."""
        made = self._finite(self._made(name), name)
        if name != "source":
            made = self._with_later_names(made)
        kind = held(made.type) if self._schema is None else self._schema.field(name).type
        if self._schema is not None and name != "source" and not is_variant(kind):
            self._check(name, made, kind, positions)
        try:
            return conform(made, kind, name)
        except NotHeld as fault:
            raise self._not_held(fault, positions) from None

    def _finite(self, made: pa.Array, name: str) -> pa.Array:
        """Return the values with infinite ones replaced, and warn about these."""
        if name == "source" or not may_be_infinite(made.type):
            return made
        for place, field in enumerate(made.type):
            if finite(made.field(place))[1]:
                named = [plan for plan in self._kinds.columns if plan.name == field.name]
                for plan in named:
                    warn_of_infinite(self._block.batch, plan)
        return finite(made)[0]

    def _made(self, name: str) -> pa.Array:
        if name == "key":
            return self._encoded.encode(self._kinds.keys, self._block.of)
        documents = [None if value is None else value.part(name) for value in self._kinds.values]
        return self._encoded.encode(documents, self._block.of)

    def _with_later_names(self, made: pa.Array) -> pa.Array:
        if not self._later or not pa.types.is_struct(made.type):
            return made
        named = [(self._later.get(one.name, one.name), place) for place, one in enumerate(made.type)]
        kept = [(name, place) for name, place in named if name is not None]
        if not kept:
            # Arrow takes the number of structs from their fields
            return pa.array([{} if is_valid else None for is_valid in made.is_valid().to_pylist()], pa.struct([]))
        fields = [made.type.field(place).with_name(name) for name, place in kept]
        arrays = [made.field(place) for _, place in kept]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=made.is_null())

    def _check(self, name: str, made: pa.Array, kind: pa.DataType, positions: pa.Array) -> None:
        """Raise SchemaChanged if changes have fields that the schema, at its age, should have."""
        typed, table = self._typed, self._kinds.table
        if typed.table is None or not pa.types.is_struct(made.type):
            return
        if table != typed.table:
            # after another start the schema would still be newer than this change
            is_older = bool(pc.all(pc.less_equal(positions, typed.position)).as_py())
            raise SchemaChanged(
                f"A change of {table} arrived, but the rows have the types of {typed.table}.",
                "It was written before the table was renamed, or by another table that is gone. Name a schema "
                "yourself: readStream.schema(…)."
                if is_older
                else _REMEDY,
            )
        further = list(_further(made.type, kind))
        if not further:
            return
        newer = self._is_newer(positions) & made.is_valid().to_numpy(zero_copy_only=False)
        if newer.any():
            place = positions[int(np.flatnonzero(newer)[0])].as_py()
            raise SchemaChanged(
                f"{table} has the column {further[0]} at the position {place}, and the schema of "
                f"the query, which was read when the query began, lacks it in {name}.",
                _REMEDY,
            )
        dropped = [field for field in further if "." not in field]
        lacking = [field.name for field in kind if made.type.get_field_index(field.name) < 0]
        if dropped and lacking and not typed.numbers and made.null_count < len(made):
            raise SchemaChanged(
                f"{table} had the column {dropped[0]} up to the position {positions[-1].as_py()}, and has {lacking[0]} "
                "now: it may be the same column under another name.",
                "Name a schema with both columns yourself: readStream.schema(…).",
            )
        self._warn(further)

    def check_key(self, positions: pa.Array) -> None:
        """Raise SchemaChanged if changes have another key than the schema: they would not show which row they mean."""
        typed, table = self._typed, self._kinds.table
        keys = [key for key in self._kinds.keys if key is not None]
        if typed.schema is None or typed.table != table or not keys:
            return
        if not typed.is_keyless and "key" not in typed.schema.names:
            # the query leaves the column out
            return
        names = [field.name for field in keys[0].type]
        wanted = [] if typed.is_keyless else [field.name for field in typed.schema.field("key").type]
        if {self._later.get(name, name) for name in names} == {*wanted}:
            return
        has_key = np.array([key is not None for key in self._kinds.keys], np.bool_)[self._block.of]
        if not has_key.any():
            return
        place = positions[int(np.flatnonzero(has_key)[-1])].as_py()
        shown = ", ".join(names)
        others = f"the key ({', '.join(wanted)})" if wanted else "none"
        if self._is_newer(positions).any():
            raise SchemaChanged(
                f"{table} has the key ({shown}) at the position {place}, and had {others} when the query began.",
                _REMEDY,
            )
        raise SchemaChanged(
            f"{table} had the key ({shown}) up to the position {place}, and has {others} now, so that rows do not show "
            "which row of the table such a change means.",
            "Name a schema with that key yourself: readStream.schema(…).",
        )

    def _warn(self, dropped: Sequence[str]) -> None:
        """Log, once per process, which columns are left out."""
        for column in dropped:
            message = f"column {column} of {self._kinds.table} was dropped since, and is left out of older changes"
            if message not in _warned:
                _warned.add(message)
                self._block.batch.warnings.append(message)
                log.warning(message)

    def _not_held(self, fault: NotHeld, positions: pa.Array) -> SchemaChanged:
        return SchemaChanged(
            f"{self._kinds.table} has values of the type {fault.kind} in {fault.path}, in the changes from "
            f"the position {positions[0].as_py()} on, which the declared type {fault.declared} does not hold.",
            "Name a schema with a type that does, such as string: readStream.schema(…).",
        )

    def unavailable(self) -> pa.Array:
        """Return the fields of `after` that the log did not carry."""
        block, count = self._block, len(self._block.change)
        image = block.batch.after
        flags = [] if image is None else [(plan, image.unavailable[plan.index]) for plan in self._kinds.columns]
        named = [(self._later.get(plan.name, plan.name), flag) for plan, flag in flags]
        known = [(name, flag[block.change]) for name, flag in named if name and flag is not None and flag.any()]
        known += [(name, np.ones(count, np.bool_)) for name in self._uncarried]
        if not known:
            return pa.nulls(count, _UNAVAILABLE)
        missing = np.stack([flag for _, flag in known], axis=1)
        shown = np.array(self._kinds.shows_after, np.bool_)[block.of]
        missing &= shown[:, None]
        _, places = np.nonzero(missing)
        counts = missing.sum(axis=1)
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        names = pa.array([name for name, _ in known], pa.string()).take(pa.array(places))
        return pa.ListArray.from_arrays(pa.array(bounds, mask=np.append(counts == 0, False)), names, _UNAVAILABLE)


def typed_rows_of(
    settings: EventSettings, made: TypedBlock, makers: Mapping[str, Callable[[], pa.Array]]
) -> pa.RecordBatch:
    """Return typed rows of `settings.columns`; `makers` make the other columns. Raises SchemaChanged."""
    positions = makers["position"]()
    made.follow_names(positions)
    made.check_key(positions)
    typed = {name: partial(made.column, name, positions) for name in OF_TABLES}
    return shown_rows(settings, {**typed, "unavailable": made.unavailable}, makers, len(positions))


def shown_rows(
    settings: EventSettings,
    typed: Mapping[str, Callable[[], pa.Array]],
    makers: Mapping[str, Callable[[], pa.Array]],
    count: int,
) -> pa.RecordBatch:
    """Return `count` typed rows of `settings.columns`, in the declared types if there are any. Raises SchemaChanged."""
    assert settings.typed is not None
    schema = settings.typed.schema
    arrays = []
    for name in settings.columns:
        if name in typed:
            found = typed[name]()
            kind = held(found.type) if schema is None else schema.field(name).type
            if is_variant(found.type) and not is_variant(kind):
                raise ConfigError(
                    f"The schema declares a type for {name}, but documents have none.", "Declare variant."
                )
            arrays.append(found if is_variant(found.type) else conform(found, kind, name))
        elif name in makers:
            arrays.append(makers[name]())
        else:
            kind = typed_schema((name,)).field(name).type if schema is None else schema.field(name).type
            arrays.append(pa.nulls(count, kind))
    if schema is not None:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_arrays(arrays, names=list(settings.columns))


def table_kinds(layouts: Envelopes) -> dict[str, pa.DataType]:
    """Return the types of OF_TABLES in rows of a table; null for the key of a table without one."""
    key, value = layouts.key_layout(AFTER), layouts.whole()
    parts = {"key": key, BEFORE: value.part(BEFORE), AFTER: value.part(AFTER), "source": value.part("source")}
    assert tuple(parts) == OF_TABLES
    return {name: pa.null() if part is None else held(arrow_type_of(part.type)) for name, part in parts.items()}
