"""A history whose copies are kept by a reader of typed rows, and a read by `spark.read` at its end. No Spark.

Typed rows show a change as its table was when it was written, so each is compared with what a SELECT showed behind the
statement that wrote it. The reader of typed rows keeps rows by the columns' numbers, as a reader does that follows
renamed columns; it is left to him to give old rows the columns that are added or get another type.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from pyspark.sql.types import LongType, StringType, StructField, StructType, VariantVal

from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.sinks.base import Sink
from tailrace.spark.source import new_run_id
from tailrace.spark.stream_reader import ChangeStreamReader
from tailrace.spark.typed import declared, typed_type
from tests.fix_postgres import Database
from tests.simulation.schema.author import ALTERATIONS, Alterations
from tests.simulation.schema.copies import Copies
from tests.simulation.schema.history import SIGNALS, History, expressions
from tests.simulation.schema.pipeline import Pipeline, plain

_TABLES = """
select n.nspname || '.' || c.relname, c.relkind::text, c.oid::int8,
  (select json_agg(json_build_array(a.attname, a.attnum, format_type(a.atttypid, a.atttypmod)) order by a.attnum)
   from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('public', 'other') and c.relkind in ('r', 'p') and c.relname <> 'signals'
"""
_END_OF_LOG = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8"

Cells = dict[int, tuple[str, str]]
"""Values and types of a row by the columns' numbers."""


@dataclass(frozen=True, slots=True)
class Form:
    """A table at a moment: the numbers and types of its columns, by name."""

    oid: int
    columns: Mapping[str, tuple[int, str]]

    def cells(self, values: Mapping[str, Any], without: Collection[str] = ()) -> Cells:
        """Return the cells of a row with this form."""
        return {
            self.columns[name][0]: (_text(value), self.columns[name][1])
            for name, value in values.items()
            if name in self.columns and name not in without
        }


@dataclass
class Moment:
    """The tables as a SELECT showed them behind a statement."""

    forms: dict[str, Form] = field(default_factory=dict)
    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)


class Witness:
    """The rows that a SELECT showed behind each statement of the source, by the ends of transactions in the log."""

    def __init__(self) -> None:
        self._ends: list[int] = [0]
        self._moments: list[list[Moment]] = [[Moment()]]
        self._open: list[Moment] = []

    def note(self, connection: psycopg.Connection[Any]) -> None:
        """Note what the tables show now, inside of a transaction."""
        moment = Moment()
        for name, kind, oid, columns in connection.execute(_TABLES).fetchall():
            schema, _, table = name.partition(".")
            own = "" if kind == "p" else "only "
            with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
                rows = cursor.execute(f'select * from {own}"{schema}"."{table}"'.encode()).fetchall()
            moment.forms[name] = Form(oid, {column: (number, kind) for column, number, kind in columns or ()})
            moment.rows[name] = [{column: _text(value) for column, value in row.items()} for row in rows]
        self._open.append(moment)

    def end(self, connection: psycopg.Connection[Any], is_committed: bool) -> None:
        """Note the end of a transaction."""
        if self._open and is_committed:
            row = connection.execute(_END_OF_LOG).fetchone()
            assert row is not None
            self._ends.append(row[0])
            self._moments.append(self._open)
        self._open = []

    def of(self, position: str) -> list[Moment]:
        """Return the moments of the transaction at a position; the first one is that before it."""
        place = min(bisect_left(self._ends, int(position, 16)), len(self._ends) - 1)
        return [self._moments[max(place - 1, 0)][-1], *self._moments[place]]

    def present(self) -> Moment:
        """Return the moment behind the last transaction."""
        return self._moments[-1][-1]


class Reader:
    """The rows of a reader of typed rows, by the numbers of tables and columns, and the faults of what it was shown."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self.rows: dict[int, list[Cells]] = {}
        self.faults: dict[str, str] = {}
        self._number, self._before, self._shown = -1, self.rows, ""
        self._loaded: Form | None = None
        self._is_own = self._has_keys = False

    def start(self, loaded: Form | None, is_own: bool, has_keys: bool) -> None:
        """Note the form of the table from which a schema is made, None for one's own schema and for variants.

        `has_keys` is True if the schema's key has the columns of several keys. In one's own schema a null may be a
        column that a change does not have.
        """
        self._loaded, self._is_own, self._has_keys = loaded, is_own, has_keys

    def _as_then(self, form: Form, values: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return values by the names that the columns had in `form`, of those that it had."""
        loaded = self._loaded
        if values is None or loaded is None or loaded.oid != form.oid:
            return values
        names = {number: name for name, (number, _) in form.columns.items()}
        numbers = {name: loaded.columns[name][0] if name in loaded.columns else 0 for name in values}
        return {names[number]: values[name] for name, number in numbers.items() if number in names}

    def write(self, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Apply a batch; one that comes again replaces what it has done."""
        shown = str(rows)
        if number == self._number:
            self.rows = self._before
            if shown != self._shown:
                self.faults["public.t0"] = "a batch that came again shows other rows"
        self._number, self._shown = number, shown
        self._before = {oid: [dict(one) for one in kept] for oid, kept in self.rows.items()}
        for row in sorted(rows, key=lambda one: (one["position"] or "", one["ordinal"] or 0)):
            if row["op"] in ("c", "u", "d", "r", "t") and f"{row['schema']}.{row['table']}" != SIGNALS:
                self._apply({**row, **{name: _opened(row.get(name)) for name in ("key", "before", "after")}})

    def _apply(self, row: Mapping[str, Any]) -> None:
        name = f"{row['schema']}.{row['table']}"
        found = self._found(name, row)
        if found is None:
            return
        form, after, unavailable = found
        kept = self.rows.setdefault(form.oid, [])
        if row["op"] == "t":
            kept.clear()
            return
        # a key of a unique index may have nulls, and identifies no row then
        key, before = (self._as_then(form, row[part]) or {} for part in ("key", "before"))
        if self._has_keys:
            key = {name: value for name, value in key.items() if value is not None}
        old = form.cells(before if None in key.values() else key or before)
        place = next((place for place, one in enumerate(kept) if old and _agree(one, old)), None)
        cells = None if after is None else form.cells(after, unavailable)
        if place is None:
            if cells is not None:
                kept.append(cells)
            return
        known = kept.pop(place)
        if cells is not None:
            kept.insert(place, {**{number: known[number] for number in known.keys() - cells.keys()}, **cells})

    def _found(
        self, name: str, row: Mapping[str, Any]
    ) -> tuple[Form, Mapping[str, Any] | None, Collection[str]] | None:
        """Return the form that the table had when a change was written, its row by the names of then, and the columns
        that the log lacks; None if the table was not there.

        Notes a fault if no SELECT has shown such a row.
        """
        moments = self._witness.of(row["position"]) if row["op"] != "r" else [self._witness.present()]
        there = [moment for moment in moments if name in moment.forms]
        if not there:
            self.faults[name] = f"a change at {row['position']} of a table that was not there"
            return None
        if row["after"] is None:
            named = [one for one in there if set(row["key"] or row["before"] or ()) <= set(one.forms[name].columns)]
            return (named or there)[0].forms[name], None, ()
        missing = dict.fromkeys(row["unavailable"] or ())
        for moment in there:
            form = moment.forms[name]
            after, unavailable = self._as_then(form, row["after"]), self._as_then(form, missing)
            assert after is not None
            assert unavailable is not None
            values = {
                column: _text(value)
                for column, value in after.items()
                if column not in unavailable and not (self._is_own and value is None)
            }
            if any(_shows(one, values) for one in moment.rows[name]):
                return form, after, unavailable
        self.faults[name] = f"{row['op']} at {row['position']} shows {row['after']}, and no SELECT did"
        return there[-1].forms[name], row["after"], missing


def _shows(row: Mapping[str, str], values: Mapping[str, str]) -> bool:
    """Return True if a change may show `values` of a row: columns that came or went between are null."""
    return all(row.get(column, "None") == value for column, value in values.items())


def _agree(cells: Cells, others: Cells) -> bool:
    return all(number in cells and cells[number][0] == value for number, (value, _) in others.items())


_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}Z?")


def _text(value: Any) -> str:
    # the texts of a column that a reader declares as a string
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        return plain(datetime.fromisoformat(value))
    return str(value).lower() if isinstance(value, bool) else plain(value)


def _opened(value: Any) -> Any:
    """Return a struct or a variant as a dictionary."""
    if isinstance(value, dict) and value.keys() == {"value", "metadata"}:
        return VariantVal(value["value"], value["metadata"]).toPython()
    return value


class TypedPipeline(Pipeline):
    """A query of typed rows with one checkpoint; each start reads its schema anew, unless fields were named."""

    def __init__(self, dice: random.Random, statements: list[str], witness: Witness) -> None:
        super().__init__(dice, statements)
        self._witness = witness
        self._texts: set[str] = set()
        self._is_own = False
        self._key: frozenset[str] = frozenset()
        """The columns of all keys that the table has had, if there were several."""

    def configure(self, source: Mapping[str, str]) -> None:
        self._source = source
        self._config = registry.parse("postgres", {**source, "rows": "typed"})

    def begin(self) -> None:
        self._run_id = new_run_id()
        self.committed = None
        self._batch = 0
        self.reader = Reader(self._witness)

    def name_text(self, path: str) -> None:
        """Declare a field as a string from now on."""
        self._texts.add(path.partition(".")[2])

    def name_schema(self) -> None:
        """Declare a schema of one's own from now on: it is of no table."""
        self._is_own = True

    def name_key(self, names: Collection[str]) -> None:
        """Declare a schema of one's own from now on, whose key has these columns, too."""
        self._is_own = True
        self._key |= {*names}

    def make_reader(self) -> ChangeStreamReader:
        schema = typed_type(self._config)
        is_own = bool(self._texts or self._is_own)
        row = schema["before"].dataType
        if is_own:
            schema = StructType([_with_texts(one, self._texts) for one in schema])
        if self._key and isinstance(row, StructType):
            key = schema["key"].dataType if "key" in schema.names else StructType()
            assert isinstance(key, StructType)
            known = {one.name: one for one in key}
            # keys are numbers, and a column that is gone has no type any more
            kinds = {one.name: one.dataType for one in row}
            further = sorted(self._key - known.keys())
            missing = [StructField(one, kinds.get(one, LongType())) for one in further]
            others = [one for one in schema if one.name != "key"]
            schema = StructType([*others, StructField("key", StructType([*known.values(), *missing]))])
        typed = declared(schema)
        table = "" if typed.table is None else f"{typed.table.schema}.{typed.table.table}"
        self.reader.start(self._witness.present().forms.get(table), is_own, bool(self._key))
        return ChangeStreamReader(self._config, self._run_id, typed=typed)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.reader.write(self._batch, rows)

    def held(self) -> list[dict[str, Any]]:
        """Return the rows that `spark.read` reads now. Raises TailraceError."""
        schema = typed_type(self._config)
        settings = EventSettings.from_options(self._config, self._run_id).as_typed(
            declared(schema), tuple(schema.names)
        )
        reading = registry.find("postgres").load_consistent_read()
        assert reading is not None
        held = reading(self._config, settings)
        try:
            return [row for task in held.tasks for batch in task.read() for row in batch.to_pylist()]
        finally:
            held.close()


def _with_texts(field: StructField, texts: set[str]) -> StructField:
    """Return a column of typed rows in which the fields `texts` are strings; the mark of its table goes."""
    if not isinstance(field.dataType, StructType) or field.name not in ("key", "before", "after"):
        return StructField(field.name, field.dataType)
    fields = [StructField(one.name, StringType() if one.name in texts else one.dataType) for one in field.dataType]
    return StructField(field.name, StructType(fields))


_FORMER_KEY = re.compile(r" had the key \((.*?)\) up to the position \S+, and has (?:none|the key \((.*)\)) now")
_OF_A_PARTITION = re.compile(r"its changes arrive under the names of other tables \((\S+)\).* Capture the partitioned")


class TypedHistory(History):
    """A history of `seed`, read as typed rows: of one table, or of all of them as variants."""

    pipeline: TypedPipeline

    def __init__(self, database: Database, seed: int, rounds: int = 4, alterations: Alterations = ALTERATIONS) -> None:
        self._witness = Witness()
        self._listed: list[str] = []
        super().__init__(database, seed, rounds, alterations)

    def _make(self, copies: Callable[[Sink], Copies], options: Mapping[str, str]) -> Pipeline:
        if self._dice.random() < 0.6:
            self._listed = ["public.t0"]
            del self._options["signal.data.collection"]
        return TypedPipeline(self._dice, self.outcome.statements, self._witness)

    def _lists(self) -> dict[str, str]:
        if not self._listed:
            return super()._lists()
        return {"table.include.list": expressions({*self._listed} - self._excluded or {"public.none"})}

    def _noted(self, connection: psycopg.Connection[Any]) -> None:
        self._witness.note(connection)

    def _ended(self, connection: psycopg.Connection[Any], is_committed: bool) -> None:
        self._witness.end(connection, is_committed)

    def _mend(self, connection: psycopg.Connection[Any], text: str, warnings: list[str]) -> None:
        renamed = re.search(r"(\S+) is called (\S+) now, which the lists leave out", text)
        other = re.search(r"A change of (\S+) arrived, but the rows have the types of", text)
        unheld = re.search(r"has values of the type .*? in (\S+), in the changes", text)
        if renamed:
            self.outcome.statements.append(f"-- {text}")
            if renamed[2] in self._excluded:
                self._excluded.add(renamed[1])
            else:
                self._listed.append(renamed[2])
            self._configure()
        elif keyed := _FORMER_KEY.search(text):
            self.outcome.statements.append(f"-- {text}")
            self.pipeline.name_key({*keyed[1].split(", "), *(keyed[2] or "").split(", ")} - {""})
        elif unheld:
            self.outcome.statements.append(f"-- {text}")
            self.pipeline.name_text(unheld[1])
        elif "Set publish.via.partition.root=true, and" in text:
            self.outcome.statements.append(f"-- {text}")
            self._do(connection, ["alter publication dbz_publication set (publish_via_partition_root = true)"])
            self._options["publish.via.partition.root"] = "true"
            self._configure()
        elif self._listed and (rooted := _OF_A_PARTITION.search(text)):
            self.outcome.statements.append(f"-- {text}")
            self._listed.append(rooted[1])
            self._configure()
        elif "The include lists match no table of the database" in text and self._listed:
            # the table was dropped, or got another name, before the checkpoint was deleted
            self.outcome.statements.append(f"-- {text}")
            self._listed = []
            self._configure()
        elif (other or " had another column " in text) and "Start the query again" not in text:
            self.outcome.statements.append(f"-- {text}")
            self.pipeline.name_schema()
        elif other or "Start the query again with the same checkpoint" in text:
            self.outcome.statements.append(f"-- {text}")
        else:
            super()._mend(connection, text, warnings)

    def _apply(self, connection: psycopg.Connection[Any], different: Mapping[str, str], told: list[str]) -> None:
        # a new checkpoint reads all tables by a snapshot
        self._mend(connection, "begin anew", [])

    def _different(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        found = dict(self.pipeline.reader.faults)
        self.pipeline.reader.faults.clear()
        present = self._witness.present()
        expected = self._expected(connection)
        if self._listed:
            expected = {name: query for name, query in expected.items() if name in self._listed}
        for name, query in expected.items():
            why = self._unlike(connection, present.forms[name], query)
            if why:
                found.setdefault(name, why)
        oids = {form.oid for name, form in present.forms.items() if name in expected}
        names = {form.oid: name for name, form in present.forms.items()}
        for oid, rows in self.pipeline.reader.rows.items():
            if rows and oid not in oids and oid in names:
                found.setdefault(names[oid], "rows of a table that is captured no more")
        if not found:
            found = self._misread(connection, expected)
        return found

    def _unlike(self, connection: psycopg.Connection[Any], form: Form, query: str) -> str:
        """Return how the reader's rows differ from a table; "" if they do not."""
        source = [form.cells(row) for row in self._selected(connection, query)]
        left = list(source)
        for row in self.pipeline.reader.rows.get(form.oid, ()):
            place = next((place for place, one in enumerate(left) if _same(row, one)), None)
            if place is None:
                return f"a reader's row is not there: {row}; the table has {left[:3]}"
            del left[place]
        return f"rows are missing: {left[:3]}" if left else ""

    def _misread(self, connection: psycopg.Connection[Any], expected: Mapping[str, str]) -> dict[str, str]:
        """Return how the rows of `spark.read` differ, by table; nothing if it ended with an error."""
        try:
            read = self.pipeline.held()
        except TailraceError as error:
            self.outcome.stops.append(f"spark.read: {type(error).__name__}: {error}")
            return {}
        shown: dict[str, list[dict[str, str]]] = {}
        for row in read:
            values = {name: _text(value) for name, value in _opened(row["after"]).items()}
            shown.setdefault(f"{row['schema']}.{row['table']}", []).append(values)
        found = {}
        for name, query in expected.items():
            source = [
                {column: _text(value) for column, value in row.items()} for row in self._selected(connection, query)
            ]
            if sorted(map(_sortable, shown.pop(name, []))) != sorted(map(_sortable, source)):
                found[name] = f"spark.read shows other rows than {source[:3]}"
        shown.pop(SIGNALS, None)
        return found | dict.fromkeys(shown, "spark.read shows a table that is not captured")

    def _selected(self, connection: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(query.encode()).fetchall()


def _sortable(row: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(row.items())


_NUMBERS = re.compile(r"smallint|integer|bigint|numeric")


def _same(row: Cells, source: Cells) -> bool:
    """Return True if a reader's row is a row of the table; columns it lacks, or that got a type of another kind since,
    are its own matter."""
    for number, (value, kind) in source.items():
        if number not in row or row[number][0] == value:
            continue
        was = row[number][1]
        if was == kind or (_NUMBERS.match(was) and _NUMBERS.match(kind)):
            return False
    return True
