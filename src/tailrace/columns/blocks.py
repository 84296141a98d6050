"""Blocks: many changes of one version of a table in one row, for the tables of a lakehouse. Values only, any process.

The row's `op` is BLOCK, its `key` the text of a Head, its `value` a stream of Arrow's IPC format with the columns

========== =============== =======================================================================================
column     type            content
========== =============== =======================================================================================
op         string          c, u, d, r, t; the new key of a key change is a c, its old key a d before it
position   string          as the row schema has it
ordinal    int64           as the row schema has it
part       int8            1 for the new key of a key change, else 0: (position, ordinal, part) orders the changes
at         timestamp       commit time, UTC, µs
missing    list<int32>     columns whose values neither the log nor an earlier change of the block had; null: none.
                           Rows that are gone have such a list where these are KEPT
origin     struct          the key that a row with missing values had before the block, where it was another one
c0, c1, …  of the columns  the row after the change; of a delete its key, and what else the log has of it
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
"""The word of the row's column `op`."""

COUNTED = "cast(get_json_object(cast(key as string), '$.changes') as bigint)"
"""How many changes a row that is a block was made of, for Spark."""

LAST, EVERY, KEPT = "last", "every", "kept"
"""What a block holds: the last change of each key, or every change; or the last ones where deleted rows are kept, with
the values that they had: then rows that a truncate has removed are among them, as `t`."""

ROWS = "rows"
"""In the place of these: no blocks, but the rows' own columns as they stand in blocks, called c0, c1, …"""

FIXED = (
    pa.field("op", pa.string()),
    pa.field("position", pa.string()),
    pa.field("ordinal", pa.int64()),
    pa.field("part", pa.int8()),
    pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("missing", pa.list_(pa.field("element", pa.int32()))),
)
"""The fields before `origin` and those of the table."""

Place = tuple[str, int]
"""A position and an ordinal; sorts in log order."""


@dataclass(frozen=True, slots=True)
class Form:
    """What the rows of a block are made of. `names` are the columns', `key` the indexes of those of the key.

    `added` are the indexes of the columns for which rows that are older than the column have another value than null,
    `values` those of them, with their one value, of which it is known: as Arrow writes it as a text, instants in µs.
    `numbers` are the columns' own in the source's table, by which a renamed one is told from another, 0 where it is not
    known; `relation` is the number of the source's table, by which one that was made anew under the same name is told.
    `shard` is the name of the source's table where several are put into one, else "".
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
        """The column's number, 0 where it is not known."""
        return self.numbers[place] if self.numbers else 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the stream."""
        key = pa.struct([pa.field(f"k{place}", self.types[index]) for place, index in enumerate(self.key)])
        own = (pa.field(f"c{index}", kind) for index, kind in enumerate(self.types))
        return pa.schema([*FIXED, pa.field("origin", key), *own])


DOCUMENTS = Form(("_id", "document"), (pa.string(), VARIANT), (0,))
"""That of every collection of documents: under the text that keys of events have, the document."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a block without opening it.

    `first` and `last` are the places of its first and last change, `rows` their number. `snapshot` names the snapshot
    that its rows are of, "" for changes of the log and of incremental snapshots; `truncate` is the place of the last
    truncate among the changes that the block was made of. `moved` says that some row has an `origin`, `routed` that
    several tables of the source are put into the one that is named, `apart` that no other task of the batch has changes
    of its keys. `changes` is the number of changes that it was made of, before all but the last ones were left out;
    where they were made into several blocks, the first one has it.
    """

    database: str
    schema: str
    table: str
    form: Form
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
        """The head as the row's key."""
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
        """The head that `text` gave."""
        told: dict[str, Any] = json.loads(text)
        truncate = told["truncate"]
        database, schema, table = told["table"]
        return cls(
            database,
            schema,
            table,
            form=_form_of(told["form"]),
            rows=told["rows"],
            first=(told["first"][0], told["first"][1]),
            last=(told["last"][0], told["last"][1]),
            snapshot=told["snapshot"],
            truncate=None if truncate is None else (truncate[0], truncate[1]),
            missing=told["missing"],
            moved=told["moved"],
            routed=told["routed"],
            changes=told["changes"],
            apart=told["apart"],
        )


@lru_cache(maxsize=256)
def _form_text(form: Form) -> str:
    fields = [pa.field(name, kind) for name, kind in zip(form.names, form.types, strict=True)]
    schema = base64.b64encode(pa.schema(fields).serialize().to_pybytes()).decode()
    return json.dumps([schema, form.key, form.added, form.numbers, form.relation, form.values, form.shard])


@lru_cache(maxsize=256)
def _form_of(text: str) -> Form:
    schema, key, added, numbers, relation, values, shard = json.loads(text)
    fields = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema)))
    return Form(
        tuple(fields.names), tuple(fields.types), tuple(key), tuple(added), tuple(numbers), relation,
        tuple((place, value) for place, value in values), shard,
    )  # fmt: skip


def written(rows: pa.RecordBatch) -> bytes:
    """Rows of a block as its value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue().to_pybytes())


def read(value: bytes) -> pa.Table:
    """The rows that `written` gave."""
    with pa.ipc.open_stream(pa.py_buffer(value)) as stream:
        return stream.read_all()
