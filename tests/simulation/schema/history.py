"""A history: a pipeline over tables that are altered and written at random, and the comparison at its end."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg

from tailrace.errors import SinkError
from tailrace.sinks.base import Sink
from tests.fix_postgres import Database
from tests.simulation.schema.author import ALTERATIONS, Alterations, Author
from tests.simulation.schema.copies import Copies, MemoryCopies
from tests.simulation.schema.pipeline import TABLES, Outcome, Pipeline, Unlisted, counted, heard

# The columns and rows of each published table that the log carries, by a query that the product does not use. Before
# PostgreSQL 18 the view lists generated columns, which no change carries.
_EXPECTED = """
select p.schemaname, p.tablename, (
    select jsonb_agg(a.attname order by a.attnum) from pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and to_jsonb(p) -> 'attnames' ? a.attname::text
      and (a.attgenerated = '' or current_setting('server_version_num')::int >= 180000)
  ), to_jsonb(p) ->> 'rowfilter', c.relkind::text
from pg_publication_tables p join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relname = p.tablename and c.relnamespace = n.oid
where p.pubname = 'dbz_publication' and p.schemaname in ('public', 'other')
order by 1, 2
"""


_KEYED = """
select from pg_index i where i.indrelid = pg_catalog.to_regclass(%s) and i.indisunique and i.indpred is null
  and i.indexprs is null
"""
SIGNALS = "public.signals"


_LEFT_OUT = re.compile(
    r"The table \w+\.(\S+) has no key|The log does not carry the key of a row of (\S+) that|A row of (\S+) has null in"
    r"|  - (\S+): |^PrerequisiteError: (\S+): "
    r"|^SinkError: The sink jdbc refuses a record of the topic p\.(\S+) at .* (?:it has no key|of its key is null)"
)
"""Errors whose remedy is to leave a table out."""

_REMADE = re.compile(
    r"^SinkError: The table (\S+) has no unique index over the key of its records"
    r"|^SinkError: The sink jdbc refuses .* drop (\S+) and read it by a snapshot"
)
"""Errors whose remedy is to drop a table that the sink has made, and to fill it by a snapshot."""


_UNKEYED = "which the replica identity lacks"
"""In the warning of a key that the log lacks of old rows, whose remedy is a sentence of its own."""

_UNPUBLISHED = re.compile(r"^the publication \S+ does not publish .* remedy: (alter publication .*?\)), and read")
"""A warning about the changes of all tables, with the statement that mends the publication."""


_WITHOUT_INDEX = re.compile(r"^(\S+): the unique index of its key .* or leave it out of copies")
"""A warning about a table that may have no key any more."""


_FORMER = re.compile(r"^(\S+) (?:was dropped: copies of it stay|is called \S+ now: the copy of the old name)")
"""A warning about a table that had the name before."""


def expressions(names: Iterable[str]) -> str:
    """Return a list of tables as an option has it."""
    return ",".join(name.replace(".", "\\.") for name in sorted(names))


def _is_former(table: str, text: str) -> bool:
    found = _FORMER.search(text)
    return found is not None and found[1] == table


def _names(table: str, text: str) -> bool:
    """Return True if a warning names a table, or is about all of them."""
    if _UNPUBLISHED.search(text):
        return True
    return re.search(rf"(?<![\\w.]){re.escape(table)}(?![\\w])", text) is not None


class History:
    """A history of `seed` on a fresh database.

    `copies` makes the copies, each time that the pipeline begins anew. `options` are those of its sink, after
    `debezium.sink.`.
    """

    def __init__(
        self,
        database: Database,
        seed: int,
        rounds: int = 4,
        alterations: Alterations = ALTERATIONS,
        copies: Callable[[Sink], Copies] = MemoryCopies,
        options: Mapping[str, str] = TABLES,
    ) -> None:
        self._database, self._rounds, self._alterations = database, rounds, alterations
        self._dice = random.Random(seed)
        self.outcome = Outcome(seed)
        self._options = {
            "publication.autocreate.mode": self._dice.choice(("all_tables", "all_tables", "filtered")),
            "publish.via.partition.root": self._dice.choice(("true", "false")),
            "signal.data.collection": SIGNALS,
        }
        self._rereads = "reread" in options.values()
        self._excluded: set[str] = set()
        self.pipeline = self._make(copies, options)
        self._begin()

    def _make(self, copies: Callable[[Sink], Copies], options: Mapping[str, str]) -> Pipeline:
        return Pipeline(self._dice, self.outcome.statements, copies, options)

    def _begin(self) -> None:
        """Start with a new checkpoint and new tables."""
        self._configure()
        self.pipeline.begin()

    def _configure(self) -> None:
        database = self._database
        source = database.options(topic_prefix="p", slot_name=f"slot_{database.name}", poll_interval_ms="5")
        self.pipeline.configure(source | self._options | self._lists())

    def _lists(self) -> dict[str, str]:
        """Return the options that say which tables are captured."""
        return {"table.exclude.list": expressions(self._excluded)} if self._excluded else {}

    @property
    def copies(self) -> Copies:
        """The copies that the pipeline writes."""
        return self.pipeline.copies

    def run(self) -> Outcome:
        """Run the history to its end, apply the remedies that were named, and compare."""
        outcome = self.outcome
        with heard() as warnings, self._database.connect() as connection:
            author = Author(self._dice, connection, self._alterations)
            self._do(connection, author.opening())
            for write in author.writes(8):
                self._do(connection, [write])
            try:
                self._go_on(connection, warnings)
                for _ in range(self._rounds):
                    for _ in range(self._dice.choice((1, 2, 4))):
                        self._do(connection, author.transaction())
                    if self._dice.random() < 0.6:
                        self._go_on(connection, warnings)
                for write in [*author.writes(3), *author.touches()]:
                    self._do(connection, [write])
                # the next start warns of changes of the publication between two starts
                for _ in range(4 if self._rereads else 2):
                    self._go_on(connection, warnings)
                self._judge(connection, warnings)
            except Unlisted as error:
                outcome.verdict, outcome.found = "unlisted", [str(error)]
        return outcome

    # --- remedies ----------------------------------------------------------------------------------------------------

    def _go_on(self, connection: psycopg.Connection[Any], warnings: list[str]) -> None:
        """Write up to the present, applying the remedies that errors name. Raises Unlisted."""
        self.pipeline.go_on(self.outcome.stops, lambda text: self._mend(connection, text, warnings))

    def _mend(self, connection: psycopg.Connection[Any], text: str, warnings: list[str]) -> None:
        self.outcome.statements.append(f"-- {text}")
        if "Begin anew" in text or "begin anew" in text or "new checkpoint" in text or "delete the checkpoint" in text:
            self._do(
                connection,
                [f"select pg_drop_replication_slot('slot_{self._database.name}') from pg_replication_slots "
                 f"where slot_name = 'slot_{self._database.name}'"],
            )  # fmt: skip
            warnings.clear()
            self._begin()
        elif "added.default" in text:
            # until the snapshot that must follow, the table may differ
            table = re.search(r"The table (\S+) cannot follow", text)
            assert table is not None
            self.pipeline.set("added.default", "null")
            warnings.append(f"{table[1]}: added.default; remedy: a snapshot (signal execute-snapshot)")
        elif "unknown.values" in text:
            table = re.search(r"nor the table (\S+) has", text)
            assert table is not None
            self.pipeline.set("unknown.values", "null")
            warnings.append(f"{table[1]}: unknown.values; remedy: a snapshot (signal execute-snapshot)")
        elif "they are unlogged" in text:
            told = re.search(r"(?:Error: |  - )(\S+): .*?changes of its partitions ([^;]*?) do not arrive", text)
            assert told is not None
            leaves = told[2].rpartition("changes of its partitions ")[2].split(", ")
            self._do(connection, [f"alter table {leaf} set logged" for leaf in leaves])
            warnings.append(f"{told[1]}: unlogged; remedy: a snapshot (signal execute-snapshot)")
        elif found := _REMADE.search(text):
            remade = next(name for name in found.groups() if name)
            self.copies.remove(remade)
            warnings.append(f"{remade}: its copy was dropped; remedy: a snapshot (signal execute-snapshot)")
        elif _LEFT_OUT.search(text):
            names = {next(one for one in found.groups() if one) for found in _LEFT_OUT.finditer(text)}
            if names <= self._excluded:
                raise Unlisted(text)
            self._excluded |= names
            self._configure()
        else:
            raise Unlisted(text)

    def _judge(self, connection: psycopg.Connection[Any], warnings: list[str]) -> None:
        outcome = self.outcome
        different = self._different(connection)
        outcome.found = [f"{name}: {why}" for name, why in different.items()]
        told = [text for text in warnings if " remedy: " in text or _UNKEYED in text]
        outcome.found += [f"warning: {text}" for text in told]
        # The pipeline reads a table again that came under the name of another one, with the first change of its rows.
        published = self._expected(connection) if self._rereads else {}
        filled = {name for name in different if name in published and self._has_rows(connection, published[name])}
        excused = {
            name
            for name in different
            for text in told
            if _names(name, text) and not (name in filled and _is_former(name, text))
        }
        if different.keys() - excused:
            outcome.verdict = "silent"
            return
        if different:
            self._apply(connection, different, told)
            self._go_on(connection, warnings)
            left = self._different(connection)
            if left:
                outcome.verdict = "unmended"
                outcome.found += [f"after the remedy {name}: {why}" for name, why in left.items()]
                return
        outcome.verdict = "mended" if outcome.stops or different else "equal"

    def _apply(self, connection: psycopg.Connection[Any], different: Mapping[str, str], told: list[str]) -> None:
        """Apply the remedies of warnings: remove copies of tables that are renamed, no longer published, or without a
        key, and snapshot the others."""
        published = self._expected(connection)
        self._do(connection, [found[1] for text in told if (found := _UNPUBLISHED.search(text))][-1:])
        unkeyed = {found[1] for text in told if (found := _WITHOUT_INDEX.search(text))}
        unkeyed = {name for name in unkeyed if connection.execute(_KEYED, (name,)).fetchone() is None}
        if unkeyed:
            self._excluded |= unkeyed
            self._configure()
        for name in different:
            if name in unkeyed:
                self.copies.remove(name)
                continue
            is_renamed = any(text.startswith(f"{name} is called ") and "remove that copy" in text for text in told)
            if name not in published or is_renamed:
                self.copies.remove(name)
            if name in published:
                # rows deleted at the source are removed by hand, as a snapshot does not show deletes
                self.copies.empty(name)
                data = json.dumps({"data-collections": [name.replace(".", "\\.")], "type": "incremental"})
                connection.execute(
                    f"insert into {SIGNALS} values (%s, 'execute-snapshot', %s)".encode(), (name[:40], data)
                )
        for _ in range(3):
            self._go_on(connection, told)

    def _do(self, connection: psycopg.Connection[Any], statements: list[str]) -> None:
        """Run the statements as one transaction, without those that fail; none of them if the commit fails."""
        done = []
        try:
            with connection.transaction():
                for statement in statements:
                    try:
                        with connection.transaction():
                            connection.execute(statement.encode())
                        done.append(statement)
                        self._noted(connection)
                    except psycopg.Error:
                        continue
        except psycopg.errors.IntegrityError:
            # a deferred constraint
            self._ended(connection, is_committed=False)
            return
        self._ended(connection, is_committed=True)
        if done:
            self.outcome.statements.append("; ".join(done))

    def _noted(self, connection: psycopg.Connection[Any]) -> None:
        """Do something behind each statement, in its transaction."""

    def _ended(self, connection: psycopg.Connection[Any], is_committed: bool) -> None:
        """Do something behind each transaction."""

    # --- the comparison ----------------------------------------------------------------------------------------------

    def _expected(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        """Return for each published table a query for the data that the log carries."""
        expected: dict[str, str] = {}
        for schema, table, columns, condition, kind in connection.execute(_EXPECTED).fetchall():
            listed = ", ".join(f'"{name}"' for name in columns or ())
            where = f" where {condition}" if condition else ""
            own = "" if kind == "p" else "only "
            expected[f"{schema}.{table}"] = f'select {listed or "*"} from {own}"{schema}"."{table}"{where}'
        return {name: query for name, query in expected.items() if name not in self._excluded and name != SIGNALS}

    def _has_rows(self, connection: psycopg.Connection[Any], query: str) -> bool:
        return connection.execute(f"select from ({query}) found limit 1".encode()).fetchone() is not None

    def _different(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        """Return the reasons of copies that differ, by table."""
        expected = self._expected(connection)
        names = sorted(expected.keys() | self.copies.names() - self._excluded - {SIGNALS})
        found = {name: self._difference(connection, name, expected.get(name)) for name in names}
        return {name: why for name, why in found.items() if why}

    def _difference(self, connection: psycopg.Connection[Any], name: str, query: str | None) -> str:
        try:
            rows = self.copies.rows(name)
        except SinkError:
            self.outcome.refused += 1
            return ""
        self.outcome.compared += 1
        if query is None:
            return "a copy of what is there no more" if rows else ""
        with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            source = cursor.execute(query.encode()).fetchall()
            named = [column.name for column in cursor.description or ()]
        if rows is None:
            # a table without a key has no copy: its first change ends the run
            keyed = connection.execute(_KEYED, (name,)).fetchone()
            return f"no copy, {len(source)} rows" if source and keyed else ""
        if set(named) != set(self.copies.columns(name)) and source:
            return f"columns {self.copies.columns(name)}, not {named}"
        left, right = counted(rows), counted(source)
        if left == right:
            return ""
        return f"copy alone {list((left - right).elements())[:3]}; source alone {list((right - left).elements())[:3]}"
