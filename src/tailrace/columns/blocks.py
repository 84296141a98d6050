"""Blocks: many changes of one version of a table in one row, for the tables of a lakehouse. Values only, any process.

The row's `op` is BLOCK, its `key` the text of a Head, its `value` a stream of Arrow's IPC format with the columns

========== =============== =======================================================================================
column     type            content
========== =============== =======================================================================================
op         string          c, u, d, r, t; the new key of a key change is a c, its old key a d before it
position   string          as in the row schema
ordinal    int64           as in the row schema
part       int8            1 for the new key of a key change, else 0: (position, ordinal, part) orders the changes
at         timestamp       commit time, UTC, µs
missing    list<int32>     columns whose values neither the log nor an earlier change of the block had; null: none.
                           Deleted rows have such a list only if they are KEPT
origin     struct          the previous key of a row with missing values, if the key changed within the block
c0, c1, …  of the columns  the row after the change; for a delete, its key and whatever else the log has
========== =============== =======================================================================================
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tailrace.columns.typed import VARIANT

BLOCK = "block"
"""The value of the row's column `op`."""

COUNTED = "cast(get_json_object(cast(key as string), '$.changes') as bigint)"
"""Spark expression for the number of changes in a row that is a block."""

LAST, EVERY, KEPT = "last", "every", "kept"
"""The changes in a block. LAST: the last change of each key. EVERY: all changes. KEPT: the last change of each key, for
tables that keep deleted rows: a delete has the row's values, and the rows that a truncate has removed have op `t`."""

ROWS = "rows"
"""Instead of blocks: rows with columns as in blocks, named c0, c1, …"""

FIXED = (
    pa.field("op", pa.string()),
    pa.field("position", pa.string()),
    pa.field("ordinal", pa.int64()),
    pa.field("part", pa.int8()),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("missing", pa.list_(pa.field("element", pa.int32()))),
)
"""The fields before `origin` and before the table's columns."""

Place = tuple[str, int]
"""A position and an ordinal; sorts in log order."""


@dataclass(frozen=True, slots=True)
class BlockForm:
    """The form of a block's rows. `names` are the columns' names, `key` the indexes of key columns.

    `added` are the indexes of columns in which rows older than the column may have a value other than null; `values`
    has that value, if it is the same for all such rows and known, as Arrow writes it as text, instants in µs. `numbers`
    identify the columns in the source's table, so that a renamed column is recognised; 0 if unknown. `relation` is the
    number of the source's table, so that a table made anew under the same name is recognised. `shard` is the name of
    the source's table if several tables share one, else "".
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    added: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    relation: int = 0
    values: tuple[tuple[int, str], ...] = ()
    shard: str = ""

    def number(self, place: int) -> int:
        """Return the column's number; 0 if unknown."""
        return self.numbers[place] if self.numbers else 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the stream."""
        key = pa.struct([pa.field(f"k{place}", self.types[index]) for place, index in enumerate(self.key)])
        own = (pa.field(f"c{index}", kind) for index, kind in enumerate(self.types))
        return pa.schema([*FIXED, pa.field("origin", key), *own])


DOCUMENTS = BlockForm(("_id", "document"), (pa.string(), VARIANT), (0,))
"""The form of every collection of documents: the document under the text of its key in events."""


@dataclass(frozen=True, slots=True)
class Head:
    """The description of a block, readable without opening it.

    `first` and `last` are the places of its first and last change, `rows` their number. `snapshot` names the snapshot
    of its rows, "" for changes of the log and of incremental snapshots. `truncate` is the place of the last truncate
    among the block's changes. `moved`: some row has an `origin`. `routed`: the named table receives several tables of
    the source. `apart`: no other task of the batch has changes of its keys. `changes` is the number of changes from
    which the block was made, including those left out for later changes; if they became several blocks, only the first
    block has the number.
    """

    database: str
    schema: str
    table: str
    form: BlockForm
    rows: int
    first: Place
    last: Place
    snapshot: str = ""
    truncate: Place | None = None
    missing: bool = False
    moved: bool = False
    routed: bool = False
    apart: bool = False
    changes: int = 0

    def text(self) -> bytes:
        """Return the head as the row's key."""
        return json.dumps(
            {
                "table": [self.database, self.schema, self.table],
                "form": _form_text(self.form),
                "rows": self.rows,
                "first": self.first,
                "last": self.last,
                "snapshot": self.snapshot,
                "truncate": self.truncate,
                "missing": self.missing,
                "moved": self.moved,
                "routed": self.routed,
                "changes": self.changes,
                "apart": self.apart,
            }
        ).encode()

    @classmethod
    def of(cls, text: bytes) -> Head:
        """Return the head that `Head.text` has written."""
        fields: dict[str, Any] = json.loads(text)
        truncate = fields["truncate"]
        database, schema, table = fields["table"]
        return cls(
            database,
            schema,
            table,
            form=_form_of(fields["form"]),
            rows=fields["rows"],
            first=(fields["first"][0], fields["first"][1]),
            last=(fields["last"][0], fields["last"][1]),
            snapshot=fields["snapshot"],
            truncate=None if truncate is None else (truncate[0], truncate[1]),
            missing=fields["missing"],
            moved=fields["moved"],
            routed=fields["routed"],
            changes=fields["changes"],
            apart=fields["apart"],
        )


@lru_cache(maxsize=256)
def _form_text(form: BlockForm) -> str:
    fields = [pa.field(name, kind) for name, kind in zip(form.names, form.types, strict=True)]
    schema = base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()
    return json.dumps([schema, form.key, form.added, form.numbers, form.relation, form.values, form.shard])


@lru_cache(maxsize=256)
def _form_of(text: str) -> BlockForm:
    schema, key, added, numbers, relation, values, shard = json.loads(text)
    fields = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return BlockForm(
        tuple(fields.names), tuple(fields.types), tuple(key), tuple(added), tuple(numbers), relation,
        tuple((place, value) for place, value in values), shard,
    )  # fmt: skip


def written(rows: pa.RecordBatch) -> bytes:
    """Return rows of a block as its value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def read(value: bytes) -> pa.Table:
    """Return the rows that `written` has written."""
    with pa.ipc.open_stream(pa.py_buffer(value)) as stream:
        return stream.read_all()
