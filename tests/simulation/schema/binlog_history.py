"""A history of MySQL or MariaDB: a pipeline over tables that are altered and written at random, and the comparison."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

import pymysql
from pymysql.connections import Connection

from tailrace.sinks.base import Sink
from tests.fix_mysql import MySqlDatabase
from tests.simulation.schema.binlog_author import Author
from tests.simulation.schema.copies import Copies, MemoryCopies
from tests.simulation.schema.pipeline import TABLES, Outcome, Pipeline, Unlisted, counted, heard

SIGNALS = "signals"
_CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}
# The columns of each captured table, by a query that the product does not use.
_EXPECTED = """
select c.table_schema, c.table_name, c.column_name, c.data_type
from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
where c.table_schema in (%s, %s) and t.table_type in ('BASE TABLE', 'SYSTEM VERSIONED')
order by 1, 2, c.ordinal_position
"""
_KEYED = """
select index_name from information_schema.statistics where table_schema = %s and table_name = %s and non_unique = 0
group by index_name having sum(nullable = 'YES') = 0 and sum(column_name is null) = 0
"""
_LEFT_OUT = re.compile(
    r"The table \w+\.(\w+\.\S+) has no key|The log does not carry the key of a row of (\S+) that"
    r"|A row of (\S+) has null in"
)


class BinlogHistory:
    """A history of `seed` on a fresh database, and a second one beside it; `copies` and `options` as in `History`."""

    def __init__(
        self,
        database: MySqlDatabase,
        seed: int,
        rounds: int = 4,
        copies: Callable[[Sink], Copies] = MemoryCopies,
        options: Mapping[str, str] = TABLES,
    ) -> None:
        self._database, self._rounds = database, rounds
        self._second = f"{database.name}_b"
        self._dice = random.Random(seed)
        self.outcome = Outcome(seed)
        self._metadata = self._dice.choice(("FULL", "FULL", "MINIMAL"))
        self._rereads = "reread" in options.values()
        self.pipeline = Pipeline(self._dice, self.outcome.statements, copies, options)
        self._excluded: set[str] = set()
        self._more: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        """Start with a new checkpoint and new tables."""
        self._configure()
        self.pipeline.begin()

    def _configure(self) -> None:
        database = self._database
        source = database.options(topic_prefix="p", poll_interval_ms="5")
        source |= {
            "connector.class": _CLASSES[database.server.dialect],
            "database.include.list": f"{database.name},{self._second}",
            "signal.data.collection": f"{database.name}.{SIGNALS}",
            "database.ssl.mode": "disabled" if database.server.dialect == "mysql" else "disable",
        }
        source |= self._more
        if self._excluded:
            source["table.exclude.list"] = ",".join(name.replace(".", "\\.") for name in sorted(self._excluded))
        self.pipeline.configure(source)

    @property
    def copies(self) -> Copies:
        """The tables that the pipeline writes."""
        return self.pipeline.copies

    def run(self) -> Outcome:
        """Run the history to its end, apply the remedies that were named, and compare."""
        outcome, database = self.outcome, self._database
        with heard() as warnings, closing(database.connect(ssl_disabled=True)) as session:
            self._do(session, [f"create database {self._second} character set utf8mb4"])
            if self._metadata == "MINIMAL":
                self._do(session, ["set global binlog_row_metadata = MINIMAL"])
            try:
                author = Author(self._dice, session, database, self._second)
                for statement in [*author.opening(), *author.writes(0)]:
                    self._do(session, [statement])
                for _ in range(8):
                    self._do(session, author.writes(1))
                self._go_on(session, warnings)
                for _ in range(self._rounds):
                    for _ in range(self._dice.choice((1, 2, 4))):
                        self._do(session, author.transaction())
                    if self._dice.random() < 0.6:
                        self._go_on(session, warnings)
                for write in [*author.writes(3), *author.touches()]:
                    self._do(session, [write])
                for _ in range(4 if self._rereads else 2):
                    self._go_on(session, warnings)
                self._judge(session, warnings)
            except Unlisted as error:
                outcome.verdict, outcome.found = "unlisted", [str(error)]
            finally:
                self._do(session, [f"drop database {self._second}", "set global binlog_row_metadata = FULL"])
        return outcome

    # --- remedies ----------------------------------------------------------------------------------------------------

    def _go_on(self, session: Connection[Any], warnings: list[str]) -> None:
        """Write up to the present, applying the remedies that errors name. Raises Unlisted."""
        self.pipeline.go_on(self.outcome.stops, lambda text: self._mend(text, warnings))

    def _mend(self, text: str, warnings: list[str]) -> None:
        self.outcome.statements.append(f"-- {text}")
        if "added.default" in text:
            # until the snapshot that must follow, the table may differ
            table = re.search(r"The table (\S+) cannot follow", text)
            assert table is not None
            self.pipeline.set("added.default", "null")
            warnings.append(f"{table[1]}: added.default; remedy: a snapshot (signal execute-snapshot)")
        elif "unknown.values" in text:
            # that holds for all tables
            self.pipeline.set("unknown.values", "null")
            warnings.append("unknown.values; remedy: a snapshot (signal execute-snapshot)")
        elif "event.converting.failure.handling.mode to warn" in text:
            # a date of zeros, which the comparison takes for null
            self._more["event.converting.failure.handling.mode"] = "warn"
            self._configure()
        elif _LEFT_OUT.search(text):
            names = {next(one for one in found.groups() if one) for found in _LEFT_OUT.finditer(text)}
            if names <= self._excluded:
                raise Unlisted(text)
            self._excluded |= names
            self._configure()
        elif "egin anew" in text or "elete the checkpoint" in text:
            warnings.clear()
            self._begin()
        else:
            raise Unlisted(text)

    def _judge(self, session: Connection[Any], warnings: list[str]) -> None:
        outcome = self.outcome
        different = self._different(session)
        outcome.found = [f"{name}: {why}" for name, why in different.items()]
        told = [text for text in warnings if " remedy: " in text]
        outcome.found += [f"warning: {text}" for text in told]
        if any(not any(_names(name, text) for text in told) for name in different):
            outcome.verdict = "silent"
            return
        if different:
            self._apply(session, different)
            self._go_on(session, warnings)
            left = self._different(session)
            if left:
                outcome.verdict = "unmended"
                outcome.found += [f"after the remedy {name}: {why}" for name, why in left.items()]
                return
        outcome.verdict = "mended" if outcome.stops or different else "equal"

    def _apply(self, session: Connection[Any], different: Mapping[str, str]) -> None:
        """Apply the remedies of warnings: remove copies of tables that are gone, snapshot the others."""
        there = self._expected(session)
        for name in different:
            if name not in there:
                self.copies.remove(name)
                continue
            # rows deleted at the source are removed by hand, as a snapshot does not show deletes
            self.copies.empty(name)
            data = json.dumps({"data-collections": [name.replace(".", "\\.")], "type": "incremental"})
            given = (name[-40:], "execute-snapshot", data)
            with session.cursor() as cursor:
                cursor.execute(f"insert into `{self._database.name}`.{SIGNALS} values (%s, %s, %s)", given)
        for _ in range(3):
            self._go_on(session, [])

    def _do(self, session: Connection[Any], statements: list[str]) -> None:
        """Run the statements one after another, some in a transaction, without those that fail."""
        done = []
        together = len(statements) > 1 and self._dice.random() < 0.5
        undone = together and self._dice.random() < 0.15
        wrapped = ["begin", *statements, "rollback" if undone else "commit"] if together else statements
        with session.cursor() as cursor:
            for statement in wrapped:
                try:
                    cursor.execute(statement)
                    done.append(statement)
                except pymysql.err.Error:
                    continue
        if done:
            self.outcome.statements.append("; ".join(done))

    # --- the comparison ----------------------------------------------------------------------------------------------

    def _expected(self, session: Connection[Any]) -> dict[str, str]:
        """Return for each captured table a query of all its columns."""
        found: dict[str, list[str]] = {}
        with session.cursor() as cursor:
            cursor.execute(_EXPECTED, (self._database.name, self._second))
            for schema, table, column, kind in cursor.fetchall():
                quoted = f"`{column}`"
                # the bytes of a BIT come in the other order
                forms = {"json": "cast({0} as char) as {0}", "bit": "reverse(cast({0} as binary)) as {0}"}
                shown = forms.get(kind, "{0}").format(quoted)
                found.setdefault(f"{schema}.{table}", []).append(shown)
        own = f"{self._database.name}.{SIGNALS}"
        queries = {}
        for name, columns in found.items():
            if name not in self._excluded and name != own:
                quoted = ".".join(f"`{part}`" for part in name.split("."))
                queries[name] = f"select {', '.join(columns)} from {quoted}"
        return queries

    def _different(self, session: Connection[Any]) -> dict[str, str]:
        """Return the reasons of copies that differ, by table."""
        own = f"{self._database.name}.{SIGNALS}"
        with (
            closing(self._database.connect(ssl_disabled=True)) as plain,
            plain.cursor(pymysql.cursors.DictCursor) as cursor,
        ):
            cursor.execute("set time_zone = '+00:00'")
            expected = self._expected(session)
            names = sorted(expected.keys() | self.copies.names() - self._excluded - {own})
            found = {name: self._difference(cursor, name, expected.get(name)) for name in names}
        return {name: why for name, why in found.items() if why}

    def _difference(self, cursor: Any, name: str, query: str | None) -> str:
        rows = self.copies.rows(name)
        if query is None:
            return "a copy of what is there no more" if rows else ""
        cursor.execute(query)
        source = list(cursor.fetchall())
        named = [column[0] for column in cursor.description]
        if rows is None:
            # a table without a key has no copy: its first change ends the run
            cursor.execute(_KEYED, tuple(name.split(".")))
            return f"no copy, {len(source)} rows" if source and cursor.fetchall() else ""
        if set(named) != set(self.copies.columns(name)) and source:
            return f"columns {self.copies.columns(name)}, not {named}"
        left = counted([{column: _shown(value) for column, value in row.items()} for row in rows])
        right = counted([{column: _shown(value) for column, value in row.items()} for row in source])
        if left == right:
            return ""
        return f"copy alone {list((left - right).elements())[:3]}; source alone {list((right - left).elements())[:3]}"


def _shown(value: Any) -> Any:
    """Return a value as both sides show it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith("0000-00-00"):
        return None
    if isinstance(value, str) and value.startswith(("{", "[")):
        return json.dumps(json.loads(value), sort_keys=True)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return str(value.replace(tzinfo=None))
    return value


def _names(table: str, text: str) -> bool:
    """Return True if a warning names a table, or is about all of them."""
    if text.startswith("unknown.values"):
        return True
    return re.search(rf"(?<![\w.]){re.escape(table)}(?![\w])", text) is not None
