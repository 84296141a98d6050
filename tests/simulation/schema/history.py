"""One history: a pipeline over tables that are altered and written at random, and the comparison at its end."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tailrace import sinks
from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tailrace.sinks.tables.sink import TablesSink
from tailrace.spark.source import ChangeStreamReader, new_run_id
from tests.fix_postgres import Database
from tests.simulation.schema.author import ALTERATIONS, Alterations, Author
from tests.simulation.schema.copies import Copies, Row

# What the log can keep up of each published table, by a query that the product does not have.
_EXPECTED = """
select p.schemaname, p.tablename, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter', c.relkind::text
from pg_publication_tables p join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relname = p.tablename and c.relnamespace = n.oid
where p.pubname = 'dbz_publication' and p.schemaname in ('public', 'other')
order by 1, 2
"""


@dataclass
class Outcome:
    """How a history has ended: `equal`, `stopped` by an error, `told` by a warning, or `silent`ly different."""

    seed: int
    verdict: str = "equal"
    found: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the history as it can be read."""
        return "\n".join([f"seed {self.seed}: {self.verdict}", *self.found, *self.statements])


class _Warnings(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    handler, log = _Warnings(), logging.getLogger("tailrace")
    was = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield handler.texts
    finally:
        log.removeHandler(handler)
        log.propagate = was


class History:
    """A history of `seed` on a fresh database."""

    def __init__(self, database: Database, seed: int, rounds: int = 6, alterations: Alterations = ALTERATIONS) -> None:
        self._database, self._rounds, self._alterations = database, rounds, alterations
        self._dice = random.Random(seed)
        self.outcome = Outcome(seed)
        source = database.options(topic_prefix="p", slot_name=f"slot_{database.name}", poll_interval_ms="5")
        source["publication.autocreate.mode"] = self._dice.choice(("all_tables", "all_tables", "filtered"))
        source["publish.via.partition.root"] = self._dice.choice(("true", "false"))
        entries = {f"debezium.source.{name}": text for name, text in source.items()}
        entries |= {"debezium.sink.type": "tables", "debezium.sink.tables.path": "/lake"}
        run = registry.from_entries(entries, {})
        sink = sinks.open(run.sink.name, run.sink.options, run.source)
        assert isinstance(sink, TablesSink)
        defaults = {"event.order": "key", **sink.source_defaults()}
        texts = run.source.texts | {name: text for name, text in defaults.items() if not run.source.is_set(name)}
        texts |= sink.source_options() | {"row.columns": ",".join(sink.columns)}
        self._config = registry.parse(run.source.connector, texts)
        self.copies = Copies(sink.policies)
        self._run_id = new_run_id()
        self._committed: dict[str, Any] | None = None
        self._batch = 0

    def run(self) -> Outcome:
        """Run the history to its end, and compare."""
        outcome = self.outcome
        with _heard() as warnings, self._database.connect() as connection:
            author = Author(self._dice, connection, self._alterations)
            self._do(connection, author.opening())
            for write in author.writes(8):
                self._do(connection, [write])
            try:
                self.drain()
                for _ in range(self._rounds):
                    for _ in range(self._dice.choice((1, 2, 4))):
                        self._do(connection, author.transaction())
                    if self._dice.random() < 0.6:
                        self.drain()
                for write in [*author.writes(3), *author.touches()]:
                    self._do(connection, [write])
                self.drain()
            except TailraceError as error:
                outcome.verdict = "stopped"
                outcome.found = [f"{type(error).__name__}: {error}"]
                return outcome
            self._compare(connection, warnings)
        return outcome

    def _do(self, connection: psycopg.Connection[Any], statements: list[str]) -> None:
        """Run the statements as one transaction; each that fails is left out of it."""
        done = []
        with connection.transaction():
            for statement in statements:
                try:
                    with connection.transaction():
                        connection.execute(statement.encode())
                    done.append(statement)
                except psycopg.Error:
                    continue
        if done:
            self.outcome.statements.append("; ".join(done))

    def drain(self) -> None:
        """Write up to the present, as a run with --once does."""
        self.outcome.statements.append("▸")
        reader = ChangeStreamReader(self._config, self._run_id)
        try:
            start = self._committed
            if start is None:
                start = _sent(reader.initialOffset())
            reader.prepareForTriggerAvailableNow()
            while True:
                end = _sent(reader.latestOffset(start, reader.getDefaultReadLimit()))
                if end == start:
                    return
                parts = reader.partitions(start, end)
                rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
                self.copies.write(self._batch, rows)
                if self._dice.random() < 0.1:
                    # Spark's own commit is missing: the batch comes once more
                    parts = reader.partitions(start, end)
                    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
                    self.copies.write(self._batch, rows)
                self._committed = start = end
                self._batch += 1
        finally:
            reader.stop()

    # --- the comparison ----------------------------------------------------------------------------------------------

    def _compare(self, connection: psycopg.Connection[Any], warnings: list[str]) -> None:
        outcome = self.outcome
        expected: dict[str, str] = {}
        for schema, table, columns, condition, kind in connection.execute(_EXPECTED).fetchall():
            listed = ", ".join(f'"{name}"' for name in columns or ())
            where = f" where {condition}" if condition else ""
            own = "" if kind == "p" else "only "
            expected[f"{schema}.{table}"] = f'select {listed or "*"} from {own}"{schema}"."{table}"{where}'
        different = []
        for name in sorted(expected.keys() | self.copies.format.tables.keys()):
            why = self._difference(connection, name, expected.get(name))
            if why:
                different.append((name, why))
        if not different:
            return
        told = [text for text in warnings if " the mend is " in text]
        outcome.found = [f"{name}: {why}" for name, why in different]
        silent = [name for name, _ in different if not any(name in text for text in told)]
        outcome.verdict = "silent" if silent else "told"
        outcome.found += [f"warning: {text}" for text in warnings]

    def _difference(self, connection: psycopg.Connection[Any], name: str, query: str | None) -> str:
        rows = self.copies.rows(name)
        if query is None:
            return "a copy of what is there no more" if rows else ""
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            source = cursor.execute(query.encode()).fetchall()
            named = [column.name for column in cursor.description or ()]
        if rows is None:
            return f"no copy, {len(source)} rows" if source else ""
        if set(named) != set(self.copies.columns(name)) and source:
            return f"columns {self.copies.columns(name)}, not {named}"
        left, right = _counted(rows), _counted(source)
        if left == right:
            return ""
        return f"copy alone {list((left - right).elements())[:3]}; source alone {list((right - left).elements())[:3]}"


def _counted(rows: list[Row]) -> Counter[Any]:
    """The rows, as values that compare: a text is shortened."""
    return Counter(tuple(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> str:
    if isinstance(value, str) and len(value) > 40:
        return f"{value[:3]}…{len(value)}"
    if hasattr(value, "normalize"):
        return str(value.normalize())
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return str(value.timestamp())
    return str(value)


def _sent(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
