"""The sink `jdbc`: tables of PostgreSQL, as from Debezium's JDBC sink. At least once. Driver."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.config.config import Config
from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.events.event_settings import EventSettings
from tailrace.process import reachability
from tailrace.process.installation import pip_install
from tailrace.sinks.base import Settings, warn_of_partial_snapshots
from tailrace.sinks.jdbc import tables
from tailrace.sinks.jdbc.changes import (
    Cell,
    Parsed,
    Reader,
    UnreadableRecord,
    cells,
    header_payload,
    part,
    placeholders,
)
from tailrace.sinks.jdbc.done import MADE, NAME, BatchPlace, BatchProgress, forgetting
from tailrace.sinks.jdbc.tables import Name, TableCache
from tailrace.sinks.jdbc.url import libpq
from tailrace.sinks.jdbc.writing import Planned, RowStatement, StatementWriter
from tailrace.sinks.writer import DEAD_LETTERS, OneWriter, Record, log

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame

_KNOWN = (
    "connection.url", "connection.username", "connection.password", "insert.mode", "primary.key.mode",
    "primary.key.fields", "delete.enabled", "truncate.enabled", "schema.evolution", "collection.name.format",
    "table.name.format", "quote.identifiers", "batch.size", "flush.max.retries", "flush.retry.delay.ms",
    "field.include.list", "field.exclude.list", "use.time.zone", "database.time_zone", DEAD_LETTERS,
)  # fmt: skip
_IDLE = ("connection.pool.", "hibernate.", "use.reduction.buffer", "dialect.postgres.postgis.schema", "tasks.max")
_NO_OFFSETS = "records have no offsets of Kafka here"
_REFUSED = {
    "topics": "every topic is written; name tables in the options of the source",
    "topics.regex": "every topic is written; name tables in the options of the source",
    "column.naming.*": "columns are named after the fields",
    "table.naming.*": "collection.name.format names the tables",
    "collection.naming.*": "collection.name.format names the tables",
    "dialect.sqlserver.*": "the sink writes to PostgreSQL only",
    "connection.provider": "connections are psycopg's",
}
_KEY = (
    "Give its table a primary key, or name columns that are never null in message.key.columns, or in "
    "debezium.sink.jdbc.primary.key.fields."
)
_ROWS = frozenset(("c", "u", "r", "d", "t", "tombstone"))
_QUARANTINE = "quarantine"
_NULLS = "replace.null.with.default"
_CONVERTERS = (_NULLS, f"converter.{_NULLS}", f"value.converter.{_NULLS}")
_LOGIN = re.compile(r'FATAL: +(?:password authentication failed|(?:role|database) ".*" does not exist|no pg_hba)')
_PLACE = re.compile(r"\$\{([^}]*)\}")

# Classes of SQLSTATE: missing objects or rights; transient errors (connections, shutdowns, conflicts of transactions,
# lack of resources); errors that a value has caused.
_NOT_ALLOWED = ("42", "3F", "25")
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_MOST_BYTES = 63
"""Bytes that PostgreSQL keeps of a name."""
_PASSING, _OF_A_VALUE = ("08", "40", "53", "55", "57"), ("21", "22", "23")


class _OtherRecords(Exception):
    """The records of a replayed batch are not those that the database has."""


class JdbcSink(OneWriter):
    """A sink that writes each change of a row to the table named after its topic, in transactions of `batch.size`.

    It reads envelopes and flattened records as JSON with schemas, and skips records without a row, such as heartbeats
    and transaction boundaries. The options have the names of Debezium's JDBC sink.
    """

    name = "jdbc"
    columns = ("op", "topic", "key", "value", "headers", "position", "ordinal", "transaction")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.refuse(_REFUSED)
        for name in options:
            if name.startswith(_IDLE):
                log.warning("debezium.sink.jdbc.%s has no effect: there is one connection, of psycopg's", name)
        settings.only((*_KNOWN, *(name for name in options if name.startswith(_IDLE))))
        super().__init__(settings, settings.number("batch.size", 500, 1))
        self._login = _login(settings)
        self._mode = settings.word("insert.mode", "insert", ("insert", "upsert", "update"))
        modes = ("none", "record_key", "record_value", "kafka", "record_header")
        self._keys = settings.word("primary.key.mode", "none", modes)
        self._key_fields = settings.listed("primary.key.fields")
        # without a key an update's row does not identify the row that it replaces
        self._adds = self._keys == "none" or (self._keys == "record_value" and not self._key_fields)
        self._deletes, self._truncates = settings.boolean("delete.enabled"), settings.boolean("truncate.enabled")
        self._tables = TableCache(settings.word("schema.evolution", "none", ("none", "basic")) == "basic")
        self._format = settings.text("collection.name.format", settings.text("table.name.format", "${topic}"))
        # A dot outside of ${...} separates schema and table.
        self._parts = re.split(r"\.(?![^{]*})", self._format)
        self._asks_source = bool(_places(self._format) - {"topic"})
        # Parts of a table's name at the source that its name here lacks.
        self._lacking = [
            field
            for field in ("db", "schema")
            if "topic" not in _places(self._format)
            and "source.table" in _places(self._format)
            and f"source.{field}" not in _places(self._format)
        ]
        self._quotes = settings.boolean("quote.identifiers")
        self._retries = settings.number("flush.max.retries", 5)
        self._delay = settings.seconds("flush.retry.delay.ms", 1000)
        self._included, self._excluded = (
            frozenset(settings.listed(f"field.{kind}.list")) for kind in ("include", "exclude")
        )
        self._check(settings)
        self._hidden = placeholders(b"__debezium_unavailable_value")
        self._reader = Reader()
        self._connection: psycopg.Connection[Any] | None = None
        self._done = BatchProgress()
        # The place reached in the current batch, and the place up to which it was in the database when it began.
        self._place, self._before = BatchPlace(), BatchPlace()
        # True while a batch is written again whose records are not those of the attempt before.
        self._other = False
        self._writing = StatementWriter(self._tables, self._done)
        self._told: set[tuple[Name, str]] = set()
        # The source's name of each table, by its name in the target: all names, and names that are not stored yet.
        self._named_after: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._unkept: dict[tuple[str, ...], tuple[str, ...]] = {}

    def _check(self, settings: Settings) -> None:
        if self._keys in ("kafka", "record_header"):
            reason = _NO_OFFSETS if self._keys == "kafka" else "keys come from the record's key or value"
            raise SinkError(
                f"debezium.sink.jdbc.primary.key.mode = {self._keys} is not supported: {reason}.",
                "Use record_key, record_value or none.",
            )
        if self._mode != "insert" and self._keys == "none":
            raise settings.wrong("insert.mode", f"= {self._mode} needs debezium.sink.jdbc.primary.key.mode")
        if self._deletes and self._keys != "record_key":
            raise settings.wrong("delete.enabled", "= true needs debezium.sink.jdbc.primary.key.mode = record_key")
        if self._included and self._excluded:
            raise settings.wrong("field.include.list", "is given beside field.exclude.list")
        for option in ("use.time.zone", "database.time_zone"):
            if settings.text(option, "UTC").upper() not in ("UTC", "Z", "GMT"):
                raise settings.wrong(option, "must be UTC, because the times of events are in UTC")
        if not _places(self._format) <= {"topic"} | {name for name in _places(self._format) if name[:7] == "source."}:
            raise settings.wrong("collection.name.format", "may hold only the variables ${topic} and ${source.FIELD}")

    def source_options(self) -> dict[str, str]:
        return {"row.copy": "true"}

    def source_defaults(self) -> dict[str, str]:
        return {
            "event.converting.failure.handling.mode": "fail",
            "converter.replace.null.with.default": "false",
            # truncates are delivered: they empty the table, or a warning is logged
            "skipped.operations": "none",
        }

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        events = EventSettings.from_options(source)
        self._hidden = placeholders(events.placeholder)
        lacking = ""
        if {getattr(one, "name", one) for one in (events.value_format, events.key_format)} != {"json"}:
            lacking = "keys and values as JSON: debezium.format.key and debezium.format.value = json"
        elif not events.value_schemas_enable or (self._keys == "record_key" and not events.key_schemas_enable):
            lacking = "schemas in keys and values: debezium.format.schemas.enable = true"
        self._warn_of_defaults(source)
        _warn_of_dropped(events)
        warn_of_partial_snapshots(source)
        if lacking:
            raise SinkError("The sink jdbc reads the types of columns from records.", f"It needs {lacking}.")

    def _warn_of_defaults(self, source: Config) -> None:
        """Log a warning for options with which events have a column's default instead of null."""
        set_here = [name for name in _CONVERTERS if source.texts.get(name, "").lower() == "true"]
        for name in source.get("transforms") or ():
            if source.texts.get(f"transforms.{name}.type", "").endswith(".ExtractNewRecordState"):
                option = f"transforms.{name}.{_NULLS}"
                set_here += [option] if source.texts.get(option, "").lower() != "false" else []
        for option in set_here:
            log.warning(
                "jdbc: with %s = true, rows have a column's default where the source has null; remedy: set it to false",
                option,
            )

    def servers(self) -> list[reachability.Place]:
        hosts, ports = (self._login[name].split(",") for name in ("host", "port"))
        return [(host, int(port)) for host, port in zip(hosts, ports, strict=True) if not host.startswith("/")]

    def advice(self) -> list[Finding]:
        hosts = self._login["host"].split(",")
        mode = self._login.get("sslmode", "prefer")
        clear = mode in ("disable", "allow", "prefer")
        remedy = "Add sslmode=verify-full to debezium.sink.jdbc.connection.url."
        return [
            advice.in_the_clear(host, remedy, "The sink's session")
            for host in hosts
            if clear and advice.is_elsewhere(host)
        ]

    def begin(self) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise SinkError("The sink jdbc needs the package psycopg.", pip_install("tailrace[postgres]"))
        import psycopg

        try:
            self._open_done(self._opened())
        except psycopg.Error as error:
            self.close()
            raise self._failed(error) from None
        except SinkError:
            self.close()
            raise

    def _open_done(self, connection: psycopg.Connection[Any]) -> None:
        """Open or create the table `tailrace_batches`. Raises SinkError if it cannot be used and inserts need it."""
        import psycopg

        try:
            self._done.open(connection)
        except psycopg.Error as error:
            if connection.closed or not (error.sqlstate or "").startswith(_NOT_ALLOWED):
                raise
            connection.rollback()
            if self._mode == "insert":
                raise SinkError(
                    f"The table {NAME}, which records what was inserted before a crash, cannot be used: "
                    f"{_reason(error)}.",
                    f"Let an owner run: {MADE}; grant select, insert, update on it. Or set insert.mode = upsert.",
                ) from None
            log.warning(
                "jdbc: the table %s cannot be used (%s), so that the replay of a batch after a crash writes it again; "
                "to prevent that, let an owner run: %s, and grant select, insert, update on it",
                NAME,
                _reason(error),
                MADE,
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._tables.forget()
        if connection is not None:
            connection.close()

    def wanted(self, record: Record) -> bool:
        return record["op"] in _ROWS or record["op"] == _QUARANTINE

    @property
    def _skips(self) -> bool:
        """True if the record before the current place is left out, because the database has it.

        A replay reads snapshot rows anew, and the changes after them must be written again: records are skipped only if
        all records so far were changes.
        """
        return not self._other and self._before.records == self._before.changes >= self._place.records

    def write(self, batch: DataFrame, number: int) -> None:
        self._place, self._before, self._other = BatchPlace(), BatchPlace(), False
        try:
            super().write(batch, number)
            if not 0 < self._place.records < self._before.records or not self._skips:
                return
        except _OtherRecords:
            pass
        log.warning(
            "jdbc: batch %d was begun with other records, since the configuration has changed or the checkpoint was "
            "put back; all of it is written again: without a key, rows may be there twice; remedy: remove those",
            number,
        )
        self._place, self._other = BatchPlace(), True
        super().write(batch, number)

    def deliver(self, records: Sequence[Record], first: int) -> None:
        if first == 0:
            self._before = self._reached()
        planned: list[Planned] = []
        for record in records:
            self._place = self._place.after(record)
            if self._skips:
                if self._place.records == self._before.records and self._before.mark not in (None, self._place.mark):
                    raise _OtherRecords
                continue
            try:
                change = self._read(record)
            except UnreadableRecord as reason:
                self.refuse(record, str(reason), reason.remedy)
            else:
                if change is not None:
                    planned.append((record, change, self._place))
        # A replay leaves out what is committed, so refused records must be on disk before.
        self._letters.store()
        self._keep_names()
        self._deliver(planned)

    def _reached(self) -> BatchPlace:
        """Return the place up to which the current batch is in the database."""
        import psycopg

        tries = 0
        while True:
            try:
                place = self._done.begin(self._opened(), self.query_name(), self._number) or BatchPlace()
                if not self._named_after:
                    self._named_after = self._done.names(self._opened(), self.query_name())
                return place
            except psycopg.Error as error:
                self._wait_out(error, tries)
            tries += 1

    def _keep_names(self) -> None:
        """Store the names of new tables before their first row is written."""
        import psycopg

        tries = 0
        while self._unkept:
            try:
                self._done.keep_names(self._opened(), self.query_name(), self._unkept)
                self._unkept = {}
            except psycopg.Error as error:
                self._wait_out(error, tries)
            tries += 1

    def _deliver(self, planned: Sequence[Planned]) -> None:
        import psycopg

        tries = 0
        while planned:
            try:
                self._writing.flush(self._opened(), planned)
                return
            except psycopg.errors.InvalidColumnReference as error:
                # ON CONFLICT names the columns of the records' key.
                self._roll_back()
                if len(planned) == 1:
                    raise _keyless(planned[0][1]) from error
                self._refuse(planned, error)
                return
            except psycopg.Error as error:
                # psycopg itself refuses a text with the character NUL, without an SQLSTATE.
                is_unsent = isinstance(error, psycopg.DataError) and not error.sqlstate
                if is_unsent or (error.sqlstate or "").startswith(_OF_A_VALUE):
                    self._roll_back()
                    self._refuse(planned, error)
                    return
                self._wait_out(error, tries)
            tries += 1
            # The commit may have succeeded although its answer was lost. The place of an earlier attempt says nothing:
            # its snapshot rows may have been others.
            there = self._reached()
            if there != self._before:
                planned = [one for one in planned if one[2].records > there.records]

    def _wait_out(self, error: psycopg.Error, tries: int) -> None:
        """Wait before another attempt. Raises ConnectionFailed or SinkError if a retry is useless or none is left."""
        state = error.sqlstate or ""
        self.close()
        if (state and not state.startswith(_PASSING)) or tries == self._retries:
            raise self._failed(error) from None
        log.warning("jdbc: %s; try %d of %d follows", _reason(error), tries + 1, self._retries)
        self.wait(self._delay)

    def _refuse(self, planned: Sequence[Planned], error: psycopg.Error) -> None:
        """Refuse the record that caused `error`. Deliver several records one at a time, to find it."""
        if len(planned) == 1:
            record, change, _ = planned[0]
            name = tables.shown(change.table)
            remedy = (
                f"If a column's type has changed at the source, alter it in {name}, or drop {name} and read it by a "
                "snapshot (signal execute-snapshot)."
            )
            self.refuse(record, _reason(error), remedy if (error.sqlstate or "").startswith("22") else "")
            self._letters.store()
        else:
            for one in planned:
                self._deliver([one])

    def _read(self, record: Record) -> RowStatement | None:
        """Return the statement for a record; None if it changes nothing. Raises UnreadableRecord."""
        topic = record["topic"]
        if record["op"] == _QUARANTINE:
            raise UnreadableRecord("it is a change that could not become an event")
        value = None if record["value"] is None else self._reader.read(bytes(record["value"]), topic)
        if value is None or value.payload is None:
            return self._deletion(record, None)
        payload = value.payload
        if not value.is_envelope:
            return self._row(record, value, value.schema, payload)
        if payload["op"] == "t":
            table = self._table(topic, value)
            if not self._truncates:
                self._tell_left_out(table, "truncates", "truncate.enabled")
            return RowStatement(table, tables.truncate(table)) if self._truncates else None
        if payload["op"] == "d":
            return self._deletion(record, value)
        return self._row(record, value, part(value.schema, "after"), payload.get("after"))

    def _deletion(self, record: Record, value: Parsed | None) -> RowStatement | None:
        if value is None and self._asks_source:
            return None
        if not self._deletes:
            self._tell_left_out(self._table(record["topic"], value), "deletes", "delete.enabled")
            return None
        table, key = self._table(record["topic"], value), self._key(record, None)
        moved = None if self._mode == "insert" else self._other_key(record, NEW_KEY)
        if moved is None:
            return RowStatement(table, tables.delete(table, key), taken=key)
        # First the row gets its new key, so that it keeps values that the log lacks.
        first = tables.move(table, key, moved)
        return RowStatement(table, tables.delete(table, key), first=first, taken=key, moved=moved)

    def _tell_left_out(self, table: Name, what: str, option: str) -> None:
        """Log a warning, once per table, that changes of a kind are left out."""
        if (table, what) not in self._told:
            self._told.add((table, what))
            name = tables.shown(table)
            log.warning(
                "jdbc: %s of %s are left out, so that rows stay there which the source no longer has; remedy: set "
                "debezium.sink.jdbc.%s = true, and remove those rows",
                what, name, option,
            )  # fmt: skip

    def _tell_added(self, table: Name) -> None:
        """Log a warning, once per table, that updates add rows."""
        if (table, "updates") not in self._told:
            self._told.add((table, "updates"))
            log.warning(
                "jdbc: updates of %s add rows beside those with the earlier values, since no key tells them; "
                "remedy: set debezium.sink.jdbc.insert.mode = upsert and primary.key.mode = record_key, and remove "
                "those rows",
                tables.shown(table),
            )

    def _row(self, record: Record, value: Parsed, schema: Mapping[str, Any], row: Any) -> RowStatement | None:
        if not isinstance(row, dict):
            raise UnreadableRecord("its row is not a struct")
        table = self._table(record["topic"], value)
        every = cells(schema, row)
        found = [self._named(cell) for cell in every if self._shows(record["topic"], cell.name)]
        out = tuple(self._folded(cell.name) for cell in every if not self._shows(record["topic"], cell.name))
        key = self._key(record, found)
        names = {cell.name for cell in key}
        others = [cell for cell in found if cell.name not in names]
        # Columns whose values the log lacks keep their values in the table.
        known = [cell for cell in others if cell.text not in self._hidden]
        unknown = tuple(cell.name for cell in others if cell.text in self._hidden)
        if unknown and self._other_key(record, OLD_KEY) is not None and (self._mode == "insert" or not self._deletes):
            needed = "insert.mode = upsert" if self._mode == "insert" else "delete.enabled = true"
            raise UnreadableRecord(f"its key has changed, and only the old row has {unknown[0]}: that needs {needed}")
        if self._mode == "update":
            return RowStatement(table, tables.update(table, key, known), key, others, left_out=out) if known else None
        # True for a row that the batch may already have inserted before a crash; a plain insert would conflict with it.
        before = self._before.records > 0 if record["op"] == "r" else self._place.changes <= self._before.changes
        before = before or self._other
        if self._adds and record["op"] == "u":
            self._tell_added(table)
        if self._mode == "insert" and not (key and before):
            return RowStatement(table, tables.insert(table, key, known), key, others, left_out=out)
        upsert = tables.upsert(table, key, known)
        if not unknown:
            return RowStatement(table, upsert, key, others, left_out=out)
        # The update goes first: an upsert would fail for missing NOT NULL columns before it finds the row.
        first = tables.update(table, key, known or key)
        return RowStatement(table, first, key, others, upsert, unknown, left_out=out)

    def _other_key(self, record: Record, header: str) -> list[Cell] | None:
        """Return the key in a header of a key change; None if there is none or it is incomplete."""
        if self._keys != "record_key" or record["key"] is None:
            return None
        for one in record["headers"] or ():
            if one["key"] == header:
                try:
                    payload = header_payload(bytes(one["value"]))
                    key = self._reader.read(bytes(record["key"]), f"{record['topic']}\0key")
                    return self._whole(self._of_the_key(replace(key, payload=payload)))
                except UnreadableRecord:
                    return None
        return None

    def _key(self, record: Record, row: Sequence[Cell] | None) -> list[Cell]:
        """Return the columns of the primary key with their values. `row` holds the columns of the record's value."""
        if self._keys == "none":
            return []
        if self._keys == "record_value":
            found = list(row or ())
        else:
            if record["key"] is None:
                raise UnreadableRecord("it has no key", _KEY)
            key = self._reader.read(bytes(record["key"]), f"{record['topic']}\0key")
            found = self._of_the_key(key)
        return self._whole(found)

    def _whole(self, found: Sequence[Cell]) -> list[Cell]:
        """Return the key's columns among those found. Raises UnreadableRecord if a column is missing or has no
        value."""
        if self._key_fields:
            wanted = [self._folded(name) for name in self._key_fields]
            found = [cell for cell in found if cell.name in wanted]
            if len(found) < len(wanted):
                raise UnreadableRecord("it lacks a field of primary.key.fields")
        if not found:
            raise UnreadableRecord("its key has no columns", _KEY)
        for cell in found:
            if cell.text is None:
                raise UnreadableRecord(f"the column {cell.name} of its key is null", _KEY)
        return [replace(cell, required=True) for cell in found]

    def _of_the_key(self, key: Parsed) -> list[Cell]:
        if key.schema.get("type") == "struct":
            return [self._named(cell) for cell in cells(key.schema, key.payload or {})]
        if len(self._key_fields) != 1:
            raise UnreadableRecord("its key is not a struct, and primary.key.fields does not name its column")
        schema = {"fields": [{**key.schema, "field": self._key_fields[0]}]}
        return [self._named(cell) for cell in cells(schema, {self._key_fields[0]: key.payload})]

    def _shows(self, topic: str, field: str) -> bool:
        names = {field, f"{topic}:{field}"}
        return bool(names & self._included) if self._included else not names & self._excluded

    def _table(self, topic: str, value: Parsed | None) -> Name:
        """Return the name of a record's table. Raises SinkError if another name at the source has the same name
        here."""
        named: list[str] = []

        def filled(found: re.Match[str]) -> str:
            text = topic if found[1] == "topic" else None
            if text is None:
                source = (value.payload.get("source") if value is not None else None) or {}
                field = source.get(found[1].removeprefix("source."))
                if field is None:
                    raise UnreadableRecord(f"it has no {found[1]}, which collection.name.format names")
                text = str(field)
            named.append(text)
            return text.replace(".", "_")

        name = tuple(self._folded(_PLACE.sub(filled, part)) for part in self._parts)
        kept = tuple(part.encode()[:_MOST_BYTES].decode(errors="ignore") for part in name)
        if kept[-1] == NAME:
            raise SinkError(
                f"{'.'.join(named)} would be written to the table {tables.shown(name)}, which has the sink's progress.",
                "Leave it out, or give it another name by collection.name.format.",
            )
        source = ((value.payload.get("source") if value is not None and self._lacking else None) or {}).get
        above = ".".join(str(source(field)) for field in self._lacking if source(field) is not None)
        own = (above, *named) if above else tuple(named)
        if kept not in self._named_after:
            self._named_after[kept] = self._unkept[kept] = own
        first = self._named_after[kept]
        if above and first == tuple(named):
            # Earlier versions have stored the name without its schema.
            first = self._named_after[kept] = own
        if first != own and above and first[1:] == own[1:]:
            raise SinkError(
                f"{'.'.join(first)} and {'.'.join(own)} would both be written to the table {tables.shown(name)}.",
                "Leave one of them out, or tell them apart in collection.name.format, as by "
                f"${{source.{self._lacking[-1]}}}. If the first is gone for good, remove its rows, and run: "
                f"{forgetting(self.query_name(), kept, first)};",
            )
        if first != own:
            raise SinkError(
                f"{'.'.join(first)} and {'.'.join(own)} would both be written to the table {tables.shown(name)}: in "
                f"names of tables dots become underscores, {_MOST_BYTES} bytes are kept, and without "
                "quote.identifiers letters become small.",
                "Leave one of them out, or route it to another topic. A shorter collection.name.format keeps more of a "
                "name, quote.identifiers = true its capitals. If the first is gone for good, remove its rows, and run: "
                f"{forgetting(self.query_name(), kept, first)};",
            )
        return name

    def _named(self, cell: Cell) -> Cell:
        return replace(cell, name=self._folded(cell.name))

    def _folded(self, name: str) -> str:
        """Return a name as the server reads an unquoted one, with ASCII letters in lower case."""
        return name if self._quotes else name.translate(_SMALL)

    def _opened(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._tables.forget()
            self._connection = psycopg.connect(**self._login)  # type: ignore[arg-type]
        return self._connection

    def _roll_back(self) -> None:
        self._tables.forget()
        if self._connection is not None and not self._connection.closed:
            self._connection.rollback()

    def _failed(self, error: psycopg.Error) -> ConnectionFailed | SinkError:
        state = error.sqlstate or ""
        place = f"{self._login['host']}:{self._login['port']}"
        if not state and _LOGIN.search(str(error)):
            # Before a session exists, libpq reports the server's error without its SQLSTATE.
            state = "28"
        if not state or state.startswith(_PASSING):
            return ConnectionFailed(
                f"The database at {place} cannot be used: {_reason(error)}.",
                "Check debezium.sink.jdbc.connection.url and the server.",
            )
        remedy = "Check debezium.sink.jdbc.*, the table and the user's rights."
        if state.startswith("28"):
            remedy = "Check debezium.sink.jdbc.connection.url, connection.username and connection.password."
        return SinkError(f"The database at {place} refuses: {_reason(error)}.", remedy)


def _warn_of_dropped(events: EventSettings) -> None:
    """Log warnings for a transform that drops deletes or truncates, which the sink therefore never sees."""
    for one in events.transforms:
        step: Any = getattr(one, "transform", one)
        if type(step).__name__ != "ExtractNewRecordState":
            continue
        dropped = {"truncates": "leave it out: the sink reads events as they are"}
        if step.deletes == "drop" and not step.keeps_tombstones:
            dropped["deletes"] = "set its delete.tombstone.handling.mode = tombstone"
        for what, remedy in dropped.items():
            log.warning(
                "jdbc: ExtractNewRecordState drops %s, so that rows stay there which the source no longer has; "
                "remedy: %s, and remove those rows",
                what, remedy,
            )  # fmt: skip


_SMALL = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}


def _keyless(change: RowStatement) -> SinkError:
    name, key = tables.shown(change.table), ", ".join(cell.name for cell in change.key)
    return SinkError(
        f"The table {name} has no unique index over the key of its records ({key}).",
        f"If the source's key has changed, drop the table {name} and read it by a snapshot (signal execute-snapshot), "
        "or give it that primary key.",
    )


def _places(text: str) -> set[str]:
    return set(_PLACE.findall(text))


def _login(settings: Settings) -> dict[str, str]:
    """Return the options of libpq. Raises SinkError."""
    url = settings.required("connection.url")
    try:
        found = libpq(url)
    except ValueError as fault:
        raise settings.wrong("connection.url", str(fault)) from None
    given = {"user": settings.text("connection.username"), "password": settings.given.get("connection.password", "")}
    # Names and values are sent in UTF-8, whatever encoding the database or PGCLIENTENCODING names.
    return (
        {"application_name": "tailrace", "connect_timeout": "10", "client_encoding": "UTF8"}
        | found
        | {name: text for name, text in given.items() if text}
    )


def _reason(error: psycopg.Error) -> str:
    """Return the server's message without the values that it quotes."""
    state = error.sqlstate
    if state is None:
        # libpq's own messages name addresses, never passwords.
        return " ".join(str(error).split()).rstrip(".") or "the connection is lost"
    described = error.diag.message_primary or ""
    if state.startswith(("21", "22")) or not described:
        named = [f"{what} {name}" for what, name in (
            ("column", error.diag.column_name), ("table", error.diag.table_name)) if name]  # fmt: skip
        described = " of ".join([type(error).__name__, *named])
    return f"{described} (SQLSTATE {state})"
