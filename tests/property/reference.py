"""A plain Python reference for the events of a batch, which the columnar path must equal byte for byte.

It is slow and meant to be read; tests compare every other path with it. It shares with the columnar path only the
inputs of both: the columns' plans with their plain conversions, and the text of schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.columns import ChangeBatch, Image
from tailrace.columns.logical import STRING, LogicalType
from tailrace.events.event_settings import TASK_ID, EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.schema_changes import marker_of, plain_source
from tailrace.values.conversion import ColumnPlan
from tailrace.values.json_text import Verbatim, dumps, quoted, schema_text

Row = dict[str, Verbatim]


@dataclass(frozen=True, slots=True)
class Event:
    """A record: serialised key, value and headers, and the `op` of the row schema."""

    op: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A serialiser of the changes of one table. `now` is the envelope's time in ns since 1970.

    `told` is a further field of every key and its value.
    """

    columns: Sequence[ColumnPlan]
    key: Sequence[ColumnPlan]
    key_schema: LogicalType | None
    value_schema: LogicalType
    settings: EventSettings
    form: SourceForm
    now: int
    told: tuple[str, str] | None = None

    def events(self, batch: ChangeBatch) -> Iterator[Event]:
        """Return the records of `batch` in order."""
        for change in range(len(batch)):
            op, skipped = chr(batch.op[change]), self.settings.skipped_operations
            moved = op == "u" and self._moved(batch, change)
            if (op in skipped and not moved) or (op == "t" and self.settings.drops_truncates):
                continue
            before, after = self._row(batch.before, change), self._row(batch.after, change)
            if op == "d":
                yield from self._delete(batch, change, before, None)
            elif moved:
                old, new = self._key(batch.before, change), self._key(batch.after, change)
                if "d" not in skipped:
                    yield from self._delete(batch, change, before, ("__debezium.newkey", new))
                if "c" not in skipped:
                    header = ("__debezium.oldkey", old)
                    yield self._event("c", batch, change, old=None, new=after, key=new, moved=header)
            elif op == "t":
                yield self._event("t", batch, change, old=None, new=None, key=None)
            else:
                key = self._key(batch.after, change)
                yield self._event(op, batch, change, old=before if op == "u" else None, new=after, key=key)

    def _delete(
        self, batch: ChangeBatch, change: int, before: Row | None, moved: tuple[str, Row | None] | None
    ) -> Iterator[Event]:
        key = self._key(batch.before, change)
        event = self._event("d", batch, change, old=before, new=None, key=key, moved=moved)
        yield event
        if self.settings.tombstones_on_delete:
            yield Event("tombstone", event.key, None, event.headers)

    def _transaction(self, batch: ChangeBatch, change: int, second: bool) -> dict[str, Any] | None:
        """Return the transaction block; with `second`, that of the create of a key change, its second event."""
        if batch.total_order is None or batch.table_order is None:
            return None
        return {
            "id": self.form.source(batch, change, marker_of(batch, change), self.settings).transaction,
            "total_order": int(batch.total_order[change]) + second,
            "data_collection_order": int(batch.table_order[change]) + second,
        }

    def _event(
        self,
        op: str,
        batch: ChangeBatch,
        change: int,
        *,
        old: Row | None,
        new: Row | None,
        key: Row | None,
        moved: tuple[str, Row | None] | None = None,
    ) -> Event:
        settings = self.settings
        value: dict[str, Any] = {
            "before": old,
            "after": new,
            "source": plain_source(batch, change, self.settings, self.form),
        }
        second = moved is not None and moved[0] == "__debezium.oldkey" and "d" not in settings.skipped_operations
        block = self._transaction(batch, change, second)
        if settings.has_nanos:
            value |= {"transaction": block, "op": op, "ts_ms": self.now // 1_000_000}
            value |= {"ts_us": self.now // 1000, "ts_ns": self.now}
        else:
            value |= {"op": op, "ts_ms": self.now // 1_000_000}
            value |= {"transaction": block} if settings.has_transaction_block else {}
        headers = [] if moved is None else [(moved[0], self._header(moved[1], self.key_schema))]
        if settings.extended_headers_enabled and not settings.legacy:
            context = {
                "connectorLogicalName": settings.logical_name,
                "taskId": TASK_ID,
                "connectorName": settings.connector,
                "runId": settings.run_id,
            }
            for name, text in context.items():
                headers.append(("__debezium.context." + name, self._header(text, STRING)))
        key_text = None
        if key is not None:
            key_text = _with_schema(dumps(key), self.key_schema if settings.key_schemas_enable else None)
        return Event(op, key_text, self._enclosed(value, self.value_schema), tuple(headers))

    def _enclosed(self, payload: Any, schema: LogicalType | None) -> bytes:
        return _with_schema(dumps(payload), schema if self.settings.value_schemas_enable else None)

    def _header(self, payload: Any, schema: LogicalType | None) -> bytes:
        return _with_schema(dumps(payload), schema if self.settings.header_schemas_enable else None)

    def _row(self, image: Image | None, change: int) -> Row | None:
        return self._values(self.columns, image, change)

    def _key(self, image: Image | None, change: int) -> Row | None:
        values = self._values(self.key, image, change) if self.key or self.told else None
        if values is None or self.told is None:
            return values
        name, text = self.told
        return values | {name: Verbatim(quoted(text))}

    def _values(self, plans: Sequence[ColumnPlan], image: Image | None, change: int) -> Row | None:
        if image is None or (image.present is not None and not image.present[change]):
            return None
        return {plan.name: self._value(plan, image, change) for plan in plans}

    @staticmethod
    def _value(plan: ColumnPlan, image: Image, change: int) -> Verbatim:
        flags = image.unavailable[plan.index]
        if flags is not None and flags[change]:
            return Verbatim(plan.unavailable.decode())
        text = image.columns[plan.index][change].as_py()
        value = None
        if text is not None:
            try:
                value = plan.conversion.plain(text.decode())
            except (ValueError, KeyError, IndexError, ArithmeticError):
                value = None
        return Verbatim(plan.null.decode() if value is None else dumps(value))

    def _moved(self, batch: ChangeBatch, change: int) -> bool:
        """Return True if the old tuple has another text in a key column, or lacks it."""
        before, after = batch.before, batch.after
        if before is None or after is None or (before.present is not None and not before.present[change]):
            return False
        for plan in self.key:
            flags = after.unavailable[plan.index]
            kept = flags is not None and bool(flags[change])
            if not kept and before.columns[plan.index][change].as_py() != after.columns[plan.index][change].as_py():
                return True
        return False


def _with_schema(payload: str, schema: LogicalType | None) -> bytes:
    if schema is None:
        return payload.encode()
    return f'{{"schema":{schema_text(schema)},"payload":{payload}}}'.encode()
