"""Tables of the source whose rows go into one table, told apart by an additional key column. Worker."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.columns.blocks import BlockForm
from tailrace.columns.table import TableId
from tailrace.config.expressions import compile_groups
from tailrace.config.naming import substituted
from tailrace.errors import ConversionError


@dataclass(frozen=True, slots=True)
class Routing:
    """A rule that puts several tables into one.

    `regex` matches a whole name `database.schema.table`; `replacement` makes another name of it. `field` is the column
    with the original name; "" if keys are unique over all tables.
    """

    regex: str
    replacement: str
    field: str

    def text(self) -> str:
        """Return the routing as an option."""
        return json.dumps([self.regex, self.replacement, self.field])

    @classmethod
    def of(cls, text: str | None) -> Routing | None:
        """Return the routing that `Routing.text` has written; None without a text."""
        return cls(*json.loads(text)) if text else None

    def target(self, table: TableId) -> TableId | None:
        """Return the table that receives the rows of `table`; None if `regex` does not match its name."""
        name = substituted(compile_groups(self.regex), self.replacement, whole_name(table))
        if name is None:
            return None
        parts = name.split(".", 2)
        if len(parts) < 3 or not all(parts):
            raise ConversionError(
                f"The routing of {whole_name(table)} does not name a database, a schema and a table.",
                "Write all three into debezium.sink.tables.route.replacement.",
            )
        return TableId(*parts)

    def merged(self, rows: pa.RecordBatch, form: BlockForm, table: TableId) -> tuple[pa.RecordBatch, BlockForm]:
        """Return the rows of a block with the column that names their table, and their form."""
        # each table numbers its columns by itself
        form = replace(form, numbers=(), relation=0, shard=whole_name(table))
        if not self.field:
            return rows, form
        if self.field in form.names:
            raise ConversionError(
                f"{table} has a column {self.field} of its own.",
                "Give another name in debezium.sink.tables.route.key.field.name.",
            )
        place = len(form.names)
        key = (*form.key, place) if form.key else ()
        names, types = (*form.names, self.field), (*form.types, pa.string())
        wider = replace(form, names=names, types=types, key=key)
        shard = pa.repeat(whole_name(table), rows.num_rows)
        columns = {name: rows[name] for name in rows.schema.names} | {f"c{place}": shard}
        origin = columns["origin"]
        if form.key:
            parts = [*origin.flatten(), shard]
            fields = list(wider.schema.field("origin").type)
            columns["origin"] = pa.StructArray.from_arrays(parts, fields=fields, mask=origin.is_null())
        return pa.RecordBatch.from_arrays([columns[name] for name in wider.schema.names], schema=wider.schema), wider


def whole_name(table: TableId) -> str:
    """Return a table's name with all of its parts."""
    return f"{table.database}.{table.schema}.{table.table}"
