"""The layouts of keys and values: key, row, source block, transaction block and envelope, in every event format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.columns import TableId
from tailrace.columns.batch import Marker
from tailrace.columns.logical import INT64, STRING, semantic
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.expansion import AFTER as OF_AFTER
from tailrace.events.expansion import NO_IMAGE, TOMBSTONE
from tailrace.events.headers import context
from tailrace.events.mapping import SourceForm
from tailrace.records.layout import (
    AFTER,
    BEFORE,
    MARKER,
    RECORD,
    TRANSACTION,
    BlockColumn,
    Constant,
    Header,
    ImageColumn,
    Member,
    RecordLayout,
    Struct,
)
from tailrace.records.transform import behind_delete
from tailrace.values.conversion import ColumnPlan

_MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_OLDER_MARKERS = "true,last,false"
_OPTIONAL_INT64 = INT64.with_optional(True)
_NEW_KEY = "__debezium.newkey"
_OLD_KEY = "__debezium.oldkey"


def marker_text(marker: Marker, settings: EventSettings, nulls: str = "") -> str | None:
    """Return `source.snapshot`; None if the event shows null instead of the default.

    Transforms may have the default in any case (`nulls` is "filled"), or the null ("bare").
    """
    if marker is Marker.FALSE:
        return "false" if nulls == "filled" or (settings.replace_null_with_default and not nulls) else None
    inner = (Marker.FIRST, Marker.FIRST_IN_DATA_COLLECTION, Marker.LAST_IN_DATA_COLLECTION)
    if not settings.has_nanos and marker in inner:
        return "true"
    return marker.name.lower()


def source_layout(table: TableId, settings: EventSettings, form: SourceForm) -> Struct:
    """Return the source block of the events of one table."""
    allowed = _MARKERS if settings.has_nanos else _OLDER_MARKERS
    if settings.names_schemas and not settings.has_nanos:
        allowed += ",incremental"
    marker = semantic(STRING, "io.debezium.data.Enum", allowed=allowed).with_optional(True).with_default("false")
    members = [
        Member("version", Constant(settings.version, STRING)),
        Member("connector", Constant(settings.connector, STRING)),
        Member("name", Constant(settings.logical_name, STRING)),
        Member("ts_ms", BlockColumn("commit_ms", INT64, TRANSACTION)),
        Member("snapshot", BlockColumn("marker", marker, MARKER)),
        Member("db", Constant(table.database, STRING)),
    ]
    if settings.has_sequence:
        members.append(Member("sequence", form.sequence(settings)))
    if settings.has_nanos:
        members.append(Member("ts_us", BlockColumn("commit_us", _OPTIONAL_INT64, TRANSACTION)))
        members.append(Member("ts_ns", BlockColumn("commit_ns", _OPTIONAL_INT64, TRANSACTION)))
    if settings.has_schemas:
        members.append(Member("schema", Constant(table.schema, STRING)))
    members.append(Member("table", Constant(table.table, STRING.with_optional(not settings.has_schemas))))
    members += form.source_fields(settings)
    name = names.schema_name(settings, f"io.debezium.connector.{settings.connector}.Source")
    return Struct(tuple(members), name, 1 if settings.has_nanos else None)


def transaction_layout(settings: EventSettings) -> Struct:
    """Return the block that holds an event's place in its transaction."""
    members = (
        Member("id", BlockColumn("transaction_name", STRING, RECORD)),
        Member("total_order", BlockColumn("total_order", INT64, RECORD)),
        Member("data_collection_order", BlockColumn("table_order", INT64, RECORD)),
    )
    if not settings.names_schemas:
        return Struct(members, optional=True)
    return Struct(members, "event.block", 1, optional=True)


@dataclass(frozen=True, slots=True)
class RecordVariant:
    """The properties in which the records of a table differ: `op` is the envelope's op, TOMBSTONE for a tombstone.

    `before` and `after`: whether the envelope shows that image. `key` and `header`: the image of the key, and of the
    other key in a header (see `tailrace.events.expansion`). `ordered`: whether its place in its transaction is known.
    """

    op: int
    before: bool
    after: bool
    key: int
    header: int
    ordered: bool


@dataclass(frozen=True, slots=True)
class Envelopes:
    """The layouts of a table's records: `columns` are the columns of values, `key` the columns of the key.

    `apart` has the indexes of key columns that values leave out or show shaped.
    """

    table: TableId
    columns: Sequence[ColumnPlan]
    key: Sequence[ColumnPlan]
    apart: frozenset[int]
    settings: EventSettings
    form: SourceForm

    def record(self, kind: RecordVariant) -> RecordLayout:
        """Return the layout of a kind of records."""
        headers = []
        if kind.header != NO_IMAGE:
            other = self.key_layout(AFTER if kind.header == OF_AFTER else BEFORE)
            assert other is not None
            headers.append(Header(_NEW_KEY if kind.header == OF_AFTER else _OLD_KEY, other))
        key = None if kind.key == NO_IMAGE else self.key_layout(AFTER if kind.key == OF_AFTER else BEFORE)
        tombstone = kind.op == TOMBSTONE
        made = RecordLayout(
            "tombstone" if tombstone else chr(kind.op),
            names.own_topic(self.settings, self.table),
            key,
            None if tombstone else self.value_layout(kind),
            (*headers, *context(self.settings)),
        )
        if not tombstone:
            return made
        return behind_delete(made, self.record(replace(kind, op=ord("d"), before=True)), self.settings.transforms)

    def key_layout(self, image: str) -> Struct | None:
        """Return the key of an image; None if the table has none."""
        members = [Member(column.name, ImageColumn(image, column, column.index in self.apart)) for column in self.key]
        further = names.table_field(self.settings, self.table)
        if further is not None:
            members.append(Member(further[0], Constant(further[1], STRING)))
        return Struct(tuple(members), self._prefix + ".Key") if members else None

    def whole(self) -> Struct:
        """Return an envelope with every optional part."""
        return self.value_layout(RecordVariant(ord("u"), True, True, OF_AFTER, NO_IMAGE, True))

    def value_layout(self, kind: RecordVariant) -> Struct:
        """Return the envelope of a kind of records."""
        settings = self.settings
        members = [Member(image, self._image(image, shown)) for image, shown in (
            (BEFORE, kind.before), (AFTER, kind.after))]  # fmt: skip
        members.append(Member("source", source_layout(self.table, settings, self.form)))
        block = transaction_layout(settings)
        transaction = Member("transaction", block if kind.ordered else Constant(None, block.type))
        op = Member("op", Constant(chr(kind.op), STRING))
        made = [Member(f"ts_{unit}", BlockColumn(f"made_{unit}", _OPTIONAL_INT64)) for unit in ("ms", "us", "ns")]
        if settings.has_nanos:
            members += [transaction, op, *made]
        else:
            members += [op, made[0]]
            members += [transaction] if settings.has_transaction_block else []
        version = (2 if settings.has_nanos else 1) if settings.names_schemas else None
        return Struct(tuple(members), self._prefix + ".Envelope", version)

    def _image(self, image: str, shown: bool) -> Struct | Constant:
        members = tuple(Member(column.name, ImageColumn(image, column)) for column in self.columns)
        row = Struct(members, self._prefix + ".Value", optional=True)
        return row if shown else Constant(None, row.type)

    @property
    def _prefix(self) -> str:
        return names.schema_prefix(self.settings, self.table)
