"""Definitions: the tables at each position of the log. Planner; the reader's thread adds, the planner's thread reads.

A table map has the types of a row's columns, and with `binlog_row_metadata=FULL` their names. The rest comes from the
definitions: the catalog's at the query's start, changed since by the log's statements. They are kept in the offset, so
that a restart and a replay find the same definitions as the first reading. If the log names columns, it takes
precedence; if not, table maps are used to check the definitions.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import compress, decompress

from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.dialect import Dialect
from tailrace.connectors.binlog.schema.changes import TableChange, record
from tailrace.connectors.binlog.schema.charsets import charset_of
from tailrace.connectors.binlog.schema.ddl.evolution import (
    altered,
    numbered,
    renumbered,
    resolved_table,
    rewritten,
    succeeding,
    with_unique,
    without_index,
)
from tailrace.connectors.binlog.schema.ddl.parser import parse
from tailrace.connectors.binlog.schema.ddl.statements import (
    AlterTable,
    CreateTable,
    DatabaseChange,
    DropTables,
    IndexChange,
    OtherStatement,
    Parsed,
    RenameTables,
    TruncateTable,
)
from tailrace.connectors.binlog.schema.ddl.tokens import NAME, WORD, SqlSettings, Unparsable, single_quoted, tokens
from tailrace.connectors.binlog.schema.definition import NOTHING, UNKNOWN, Name, TableDefinition
from tailrace.connectors.binlog.schema.fit import SEQUENCE, described, is_sequence, misfit
from tailrace.connectors.binlog.schema.statement import (
    NO_OUTCOME,
    UNCAPTURED,
    Place,
    SessionSettings,
    Statement,
    StatementEffects,
    settings_of,
)
from tailrace.connectors.binlog.schema.table_map import TableMap
from tailrace.connectors.binlog.schema.tables import schema_of
from tailrace.connectors.binlog.schema.texts import readable
from tailrace.errors import PrerequisiteError

_log = logging.getLogger("tailrace")
_COMPRESS_FROM = 400
_FORMER = 100
# the names that gh-ost and pt-online-schema-change give to the table that replaces another
_COPY = re.compile(r"_+(.+)_(?:gho|new)")
_SNAPSHOT = "remedy: read %s.%s by a snapshot (signal execute-snapshot)"
_BY_FORMAT = "Set binlog_format=ROW, globally and in every session"
_BY_IDS = (
    "MariaDB logs statements for tables whose row versions are marked by transaction ids: give its period columns of "
    "the type TIMESTAMP(6), or leave it out with table.exclude.list"
)
_DML = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL")


@dataclass(frozen=True, slots=True)
class State:
    """The definitions at one position: tables and the character sets of databases, by name.

    `doubtful` are the tables that an unparsable statement has changed, each with the reason. `former` are captured
    tables that are gone: copies may have them, and another table may get the name. `numbers` is the number of tables
    that have been numbered.
    """

    tables: Mapping[Name, TableDefinition] = field(default_factory=dict)
    databases: Mapping[str, str] = field(default_factory=dict)
    doubtful: Mapping[Name, str] = field(default_factory=dict)
    former: Mapping[Name, TableDefinition] = field(default_factory=dict)
    numbers: int = 0

    @classmethod
    def of(cls, tables: Iterable[TableDefinition], databases: Mapping[str, str], doubtful: Mapping[Name, str]) -> State:
        """Return the state of tables from the catalog."""
        found = sorted(tables, key=lambda table: table.id)
        numbers = {table.id: numbered(table, number) for number, table in enumerate(found, 1)}
        return cls(numbers, databases, doubtful, numbers=len(numbers))

    def after(self, before: State) -> State:
        """Return this state from the catalog as the successor of `before`: tables and columns of the same name count as
        the same."""
        numbers = before.numbers
        tables = {}
        for name, table in self.tables.items():
            was = before.tables.get(name) or before.former.get(name)
            numbers += was is None
            tables[name] = numbered(table, numbers) if was is None else succeeding(table, was)
        former = {**before.former, **before.tables}
        return replace(
            self,
            tables=tables,
            former={name: table for name, table in former.items() if name not in tables},
            numbers=numbers,
        )

    def to_text(self) -> str:
        """Return a deterministic text: JSON, or if it is long `z:` and its compressed form in base 64."""
        return _to_text(_Key(self))

    @classmethod
    def from_text(cls, text: str) -> State:
        return _from_text(text)

    def with_table(self, table: TableDefinition) -> State:
        doubtful = {name: why for name, why in self.doubtful.items() if name != table.id}
        former = {name: one for name, one in self.former.items() if name != table.id}
        return replace(self, tables={**self.tables, table.id: table}, doubtful=doubtful, former=former)

    def with_altered(self, table: TableDefinition) -> State:
        """Return the state with a table after another statement. A doubtful table remains doubtful."""
        why, state = self.doubtful.get(table.id), self.with_table(table)
        return state if why is None else state.in_doubt(table.id, why)

    def with_new_table(self, table: TableDefinition) -> State:
        """Return the state with a new table, which succeeds no other."""
        return replace(self.with_table(numbered(table, self.numbers + 1)), numbers=self.numbers + 1)

    def with_learned(self, table: TableDefinition) -> State:
        """Return the state with a definition that does not come from a statement of the log."""
        if table.number:
            return replace(self.with_table(table), numbers=max(self.numbers, table.number))
        before = self.tables.get(table.id) or self.former.get(table.id)
        return self.with_new_table(table) if before is None else self.with_table(succeeding(table, before))

    def with_former(self, tables: Iterable[TableDefinition]) -> State:
        former = {**self.former, **{table.id: table for table in tables if table.id not in self.tables}}
        # names that are used only once, such as names with a date, must not fill the checkpoint
        return replace(self, former=dict(list(former.items())[-_FORMER:]))

    def without(self, gone: Iterable[Name]) -> State:
        names = set(gone)
        return replace(
            self,
            tables={name: table for name, table in self.tables.items() if name not in names},
            doubtful={name: why for name, why in self.doubtful.items() if name not in names},
        )

    def in_doubt(self, name: Name, why: str) -> State:
        return replace(self, doubtful={**self.doubtful, name: why})


class _Key:
    """A state as a key of a cache: by identity, since states are never changed."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state

    def __hash__(self) -> int:
        return id(self.state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.state is self.state


@functools.lru_cache(maxsize=16)
def _to_text(key: _Key) -> str:
    state = key.state
    fields = {
        "databases": dict(sorted(state.databases.items())),
        "doubtful": [[*name, why] for name, why in sorted(state.doubtful.items())],
        "tables": [table.to_json() for _, table in sorted(state.tables.items())],
        "former": [table.to_json() for table in state.former.values()],
        "numbers": state.numbers,
    }
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    if len(text) < _COMPRESS_FROM:
        return text
    return "z:" + b64encode(compress(text.encode(), 6)).decode()


@functools.lru_cache(maxsize=16)
def _from_text(text: str) -> State:
    if text.startswith("z:"):
        text = decompress(b64decode(text[2:])).decode()
    fields = json.loads(text)
    tables, former = (
        {table.id: table for table in map(TableDefinition.from_json, fields[name])} for name in ("tables", "former")
    )
    doubtful = {(database, table): why for database, table, why in fields["doubtful"]}
    return State(tables, fields["databases"], doubtful, former, fields["numbers"])


Catalog = Callable[[Name], TableDefinition | None]
"""Returns a table's current definition in the catalog; None if it is gone, or not understood."""


def _every(database: str, table: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FollowRules:
    """Rules by which Definitions follow the log.

    - `rereads` (on.unknown.ddl): the catalog is also read for a doubtful table if the log names no columns.
    - `empties`: a copy is emptied when the table is dropped.
    - `by_name`: copies identify columns only by their names.
    - `folds`: the server keeps names in lower case.
    - `removed`: tables that were captured before a command removed them: copies may have them.
    - `unknown_rows` (inconsistent.schema.handling.mode): rows of an unknown form stop the query (`fail`), or are left
      out, with a warning (`warn`) or without (`skip`).
    """

    rereads: bool = False
    empties: bool = False
    by_name: bool = False
    folds: bool = False
    removed: Container[Name] = ()
    unknown_rows: str = "fail"


FOLLOWING = FollowRules()


class Definitions:
    """The definitions of one query while its log is read.

    - `captured` returns True for a database and a table whose rows are captured; `told` for one whose schema changes
      get records (None: no records are wanted).
    - `start` is the state at the position from which the log is read.
    - `later` is the state at the end of a batch that has been planned already: its definitions take precedence over the
      catalog's, so that a replay finds the same as the first reading.
    - `catalog` returns definitions that neither the log nor the states have.
    - `versions` are the tables of rows. It only grows, as rows refer to its places. `keyed` returns a TableSchema with
      the key of message.key.columns.
    """

    def __init__(
        self,
        dialect: Dialect,
        captured: Callable[[str, str], bool],
        catalog: Catalog,
        *,
        start: State,
        later: State | None = None,
        told: Callable[[str, str], bool] | None = _every,
        keyed: Callable[[TableSchema], TableSchema] | None = None,
        following: FollowRules = FOLLOWING,
    ) -> None:
        self.dialect, self.versions = dialect, list[TableSchema]()
        self._captured, self._catalog, self._later = captured, catalog, later
        self._told = told
        self._keyed = keyed or (lambda table: table)
        self._rereads, self._empties, self._folds = following.rereads, following.empties, following.folds
        self._by_name, self._unknown_rows = following.by_name, following.unknown_rows
        self._removed = following.removed
        self._lock = threading.Lock()
        self._states: list[tuple[Place | None, State]] = [(None, start)]
        self._kept = 1
        self._known: dict[tuple[int, bytes], int] = {}

    # --- states -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Discard the states since `keep`: a run that failed is read again."""
        with self._lock:
            del self._states[self._kept :]

    def keep(self) -> None:
        """Keep the states since `begin`: the messages are in the spool."""
        with self._lock:
            self._kept = len(self._states)

    @property
    def now(self) -> State:
        """Return the state after everything that was read."""
        return self._states[-1][1]

    def upto(self, end: Place) -> State:
        """Return the state after everything at or before the place `end`."""
        with self._lock:
            found = self._states[0][1]
            for place, state in self._states[1:]:
                if place is not None and place[:4] <= end[:4]:
                    found = state
            return found

    def forget(self, position: Place) -> None:
        """Discard the states before a committed position, which are not needed again."""
        with self._lock:
            reached = [place for place, _ in self._states[1 : self._kept] if place is not None]
            gone = sum(1 for place in reached if place[:4] <= position[:4])
            if gone:
                self._states[: gone + 1] = [(None, self._states[gone][1])]
                self._kept -= gone

    def _change(self, at: Place, state: State) -> None:
        with self._lock:
            self._states.append((at, state))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def captures(self, database: str, table: str) -> bool:
        return self._captured(database, table)

    def fits(self, given: TableMap) -> bool:
        """Return False for the map of a captured table that does not fit the table's definition after what was read."""
        name = (given.database, given.table)
        known = self.now.tables.get(name)
        return known is None or not self._captured(*name) or not misfit(known, given)

    def version(self, given: TableMap, at: Place) -> int:
        """Return the place in `versions` of the table of a map; UNCAPTURED if it is not captured.

        Raises PrerequisiteError if the form of the rows is unknown.
        """
        name = (given.database, given.table)
        if not self._captured(*name) or self._keeps_sequence(given):
            return UNCAPTURED
        try:
            table = self._fitting(name, given, at)
        except PrerequisiteError as error:
            if self._unknown_rows == "fail":
                raise
            log = _log.warning if self._unknown_rows == "warn" else _log.debug
            log("Rows are left out (inconsistent.schema.handling.mode). %s", error.message)
            return UNCAPTURED
        found = self._known.get((id(table), given.raw))
        # an id may be that of another definition that has been freed
        if found is not None and self._definitions[found] is table:
            return found
        number = sum(1 for one in self.versions if (one.id.database, one.id.table) == name) + 1
        schema = replace(self._keyed(schema_of(table, given)), version=number)
        self.versions.append(schema)
        self._definitions[len(self.versions) - 1] = table
        self._known[id(table), given.raw] = len(self.versions) - 1
        return len(self.versions) - 1

    @functools.cached_property
    def _definitions(self) -> dict[int, TableDefinition]:
        """The definition from which each version was made."""
        return {}

    def _keeps_sequence(self, given: TableMap) -> bool:
        """Return True for the rows of a sequence, which MariaDB keeps as a table."""
        if self.dialect.name != "mariadb" or not is_sequence(given):
            return False
        name = (given.database, given.table)
        if given.names is not None:
            return True
        known = self.now.tables.get(name)
        if known is not None:
            return tuple(one.name for one in known.columns) == SEQUENCE
        # a table of the same types that is not known may be in the catalog
        return name not in self.now.doubtful and self._catalog(name) is None

    def _fitting(self, name: Name, given: TableMap, at: Place) -> TableDefinition:
        state = self.now
        known, doubt = state.tables.get(name), state.doubtful.get(name)
        reason = "its definition is not known" if known is None else misfit(known, given)
        if known is not None and not reason and (doubt is None or given.names is not None):
            if doubt is not None:
                # the log has named the columns: the definition is certain from here on
                self._change(at, state.with_table(known))
            return known
        planned = None if self._later is None else self._later.tables.get(name)
        if planned is not None and not misfit(planned, given):
            return self._learned(planned, at)
        if given.names is not None:
            fresh = self._catalog(name)
            if fresh is not None and not misfit(fresh, given):
                return self._learned(fresh, at)
            _log.warning(
                "%s.%s: %s. The log names the columns, so its rows are shown by what the log says; defaults and "
                "comments of columns may be missing.", *name, doubt or reason,
            )  # fmt: skip
            others = tuple(one for one in (known, fresh) if one is not None)
            return self._learned(described(given, others), at)
        if self._rereads or (known is None and doubt is None):
            fresh = self._catalog(name)
            if fresh is not None and not misfit(fresh, given):
                _log.warning("%s.%s: %s. Its definition was read from the catalog.", *name, doubt or reason)
                return self._learned(fresh, at)
        raise PrerequisiteError(
            f"{name[0]}.{name[1]}: the form of its rows at {at.file}:{at.pos} is not known: {doubt or reason}.",
            "Set binlog_row_metadata=FULL on the server, so that the log names columns. For rows that are in the log "
            "already set on.unknown.ddl=reread, if the table was not altered since, or begin anew with a snapshot.",
        )

    def _learned(self, table: TableDefinition, at: Place) -> TableDefinition:
        """Add a definition that does not come from a statement of the log, and return it with its numbers."""
        self._change(at, self.now.with_learned(table))
        return self.now.tables[table.id]

    # --- statements ---------------------------------------------------------------------------------------------------

    def statement(self, statement: Statement, at: Place) -> StatementEffects:
        """Apply a statement to the definitions, and return its effects on the reader.

        Raises PrerequisiteError for a statement that changes rows of captured tables: the log lacks these rows.
        """
        if statement.alters in ("start", "rollback"):
            # the definition changes only when the statement is committed
            return NO_OUTCOME
        status = settings_of(statement.status)
        sql, reading = _text(statement, status, self.dialect)
        try:
            if self._is_data(sql, reading):
                return self._data(sql, statement.database, reading, at)
            parsed = parse(sql, statement.database, reading)
        except Unparsable as fault:
            return self._not_understood(sql, statement, reading, fault, at)
        truncated: list[int] = []
        changes: list[bytes] = []
        names = _names_of(parsed)
        for one, source in parsed:
            text = single_quoted(source, reading) if self.dialect.has_single_quotes else source
            try:
                found = self._followed(one, text, statement.database, status, at, names)
            except Unparsable as fault:
                found = self._doubted(one, text, fault, at)
            truncated += found.truncated
            changes += found.changes
        return StatementEffects(tuple(truncated), tuple(changes))

    def _followed(
        self, one: Parsed, text: str, database: str, status: SessionSettings, at: Place, names: tuple[Name, ...]
    ) -> StatementEffects:
        follow: dict[type, Callable[..., list[TableChange] | None]] = {
            CreateTable: self._create, DropTables: self._drop, RenameTables: self._rename, IndexChange: self._index,
        }  # fmt: skip
        if isinstance(one, TruncateTable):
            return self._truncated(one.name, at)
        if isinstance(one, (CreateTable, DropTables)) and one.temporary:
            return NO_OUTCOME
        truncated = self._emptied(one)
        if isinstance(one, DatabaseChange):
            return replace(self._database(one, text, status, at), truncated=truncated)
        if isinstance(one, OtherStatement):
            return self._recorded(text, database, (), []) if one.is_recorded else NO_OUTCOME
        made = follow[type(one)](one, at) if not isinstance(one, AlterTable) else self._alter(one, at, status)
        if made is None:
            # no known definition changes
            return self._recorded(text, _place_of(one, database), (), [])
        if isinstance(one, DropTables):
            outcomes = [self._step(_drop_text(one, change.name), change, names) for change in made]
        elif isinstance(one, RenameTables):
            steps = zip(made, _rename_texts(text), strict=False)
            outcomes = [self._step(step, change, names) for change, step in steps]
        else:
            outcomes = [self._recorded(text, made[0].name[0], names, made)] if made else []
        return StatementEffects(truncated, [bytes_ for outcome in outcomes for bytes_ in outcome.changes])

    def _step(self, text: str, change: TableChange, names: Iterable[Name]) -> StatementEffects:
        """Return the record of one of several tables of a statement; it lists those of the table's database."""
        database = change.name[0]
        return self._recorded(text, database, tuple(name for name in names if name[0] == database), [change])

    def _emptied(self, one: Parsed) -> list[int]:
        """Return the versions of the captured tables that a statement drops or creates again, so that copies are
        emptied."""
        if not self._empties:
            return []
        names: Iterable[Name] = ()
        if isinstance(one, DropTables):
            names = map(self._name, one.names)
        elif isinstance(one, CreateTable) and not (one.unless_there and self._name(one.name) in self.now.tables):
            names = (self._name(one.name),)
        elif isinstance(one, DatabaseChange) and one.verb == "drop":
            database = one.name.lower() if self._folds else one.name
            names = [name for name in self.now.tables if name[0] == database]
        found = (self.now.tables.get(name) or self.now.former.get(name) for name in names if self._captured(*name))
        return [self._version_of(table) for table in found if table is not None]

    def _version_of(self, table: TableDefinition) -> int:
        """Return the place in `versions` of a definition without a table map."""
        for place, known in self._definitions.items():
            if known is table:
                return place
        number = sum(1 for one in self.versions if (one.id.database, one.id.table) == table.id) + 1
        self.versions.append(replace(self._keyed(schema_of(table)), version=number))
        self._definitions[len(self.versions) - 1] = table
        return len(self.versions) - 1

    def _recorded(
        self, text: str, database: str, names: tuple[Name, ...], changes: list[TableChange]
    ) -> StatementEffects:
        """Return the record of a statement, if records are wanted."""
        if self._told is None or (names and not any(self._told(*name) for name in names)):
            return NO_OUTCOME
        if not names and not self._told(database, ""):
            return NO_OUTCOME
        return StatementEffects((), [record(text, database, names, changes)])

    def _charset(self, database: str) -> str | None:
        return self.now.databases.get(database)

    def _name(self, name: Name) -> Name:
        """Return a name in the server's form: in lower case if lower_case_table_names is set."""
        return (name[0].lower(), name[1].lower()) if self._folds else name

    def _create(self, one: CreateTable, at: Place) -> list[TableChange] | None:
        name = self._name(one.name)
        if one.unless_there and name in self.now.tables:
            return None
        if one.like is not None:
            model = self.now.tables.get(self._name(one.like))
            if model is None:
                raise Unparsable(f"the table {one.like[1]}, which it is made like, is not known")
            table = replace(model.renamed(name), comment=None)
        elif one.table is None:
            raise Unparsable("its columns are those of a query")
        else:
            table = resolved_table(one.table.renamed(name), self._charset(name[0]), has_json=self.dialect.has_json)
        doubt = None if one.like is None else self.now.doubtful.get(self._name(one.like))
        state = self._with_created(table, one.like)
        self._change(at, state if doubt is None else state.in_doubt(name, doubt))
        return [TableChange("CREATE", name, state.tables[name])]

    def _with_created(self, table: TableDefinition, like: Name | None) -> State:
        """Return the state with a newly created, empty table."""
        state, name = self.now, table.id
        before = state.tables.get(name) or state.former.get(name)
        if before is not None:
            return state.with_table(succeeding(table, before, NOTHING))
        found = _COPY.fullmatch(name[1])
        original = state.tables.get((name[0], found[1])) if found else None
        if original is not None:
            # a tool will copy the rows of the original into this table, and then replace the original by it
            is_like = like is not None and self._name(like) == original.id
            return state.with_table(table if is_like else succeeding(table, original))
        columns = tuple(replace(column, number=0, older=UNKNOWN) for column in table.columns)
        return state.with_new_table(replace(table, columns=columns, number=0, highest=0))

    def _alter(self, one: AlterTable, at: Place, status: SessionSettings) -> list[TableChange] | None:
        name = self._name(one.name)
        for moved in map(self._name, one.moved):
            if self._captured(*moved) and not (one.drops and self._has_history(moved)):
                _log.warning(
                    "%s.%s: rows have come or gone with partitions at %s:%d, and the log has no event of them; "
                    "remedy: tailrace verify --repair, or read %s.%s by a snapshot (signal execute-snapshot), which "
                    "leaves rows that are gone", *moved, at.file, at.pos, *moved,
                )  # fmt: skip
        table = self.now.tables.get(name)
        if table is None:
            raise Unparsable(f"the table {name[1]} is not known")
        before = table
        table = altered(table, one.actions, self._charset(name[0]), has_json=self.dialect.has_json)
        changed = rewritten(before, table, strict=status.strict and not one.ignores)
        if changed and self._captured(*name):
            _log.warning(
                "%s.%s: a statement at %s:%d may have changed the values of %s in existing rows, and the log has no "
                f"event of that; {_SNAPSHOT}", *name, at.file, at.pos, ", ".join(changed), *name,
            )  # fmt: skip
        table = self._with_names(name, before, table, at)
        if one.ignores and any(action.keys for action in one.actions) and self._captured(*name):
            _log.warning(
                "%s.%s: ALTER IGNORE at %s:%d may have deleted rows, and the log has no event of that; remedy: "
                "tailrace verify --repair", *name, at.file, at.pos,
            )  # fmt: skip
        if one.renamed is None:
            self._change(at, self.now.with_altered(table))
            return [TableChange("ALTER", name, table)]
        target = self._name(one.renamed)
        self._change(at, self._moved(self.now.with_altered(table), [(name, target)], at))
        return [TableChange("ALTER", target, self.now.tables[target])]

    def _has_history(self, name: Name) -> bool:
        """Return True for a table with system versioning: only partitions of historical rows can be dropped."""
        table = self.now.tables.get(name)
        return table is not None and table.versioned

    def _with_names(self, name: Name, before: TableDefinition, after: TableDefinition, at: Place) -> TableDefinition:
        """Return the altered table. If copies identify columns by name, logs a warning for names that are now other
        columns."""
        if not self._by_name or not self._captured(*name):
            return after
        after, other = renumbered(before, after)
        if other:
            _log.warning(
                "%s.%s has other columns by the names %s since %s:%d: swapped, or dropped and made again. Rows that "
                f"are not written since keep the values of the earlier ones in copies; {_SNAPSHOT}",
                *name, ", ".join(other), at.file, at.pos, *name,
            )  # fmt: skip
        return after

    def _drop(self, one: DropTables, at: Place) -> list[TableChange]:
        names = [self._name(name) for name in one.names]
        self._change(at, self._without(names))
        return [TableChange("DROP", name, None) for name in names]

    def _without(self, names: Iterable[Name]) -> State:
        """Return the state without tables that are dropped."""
        state = self.now
        gone = [state.tables[name] for name in names if name in state.tables and self._is_copied(name)]
        return state.without(names).with_former(gone)

    def _is_copied(self, name: Name) -> bool:
        """Return True if copies may have a table of this name."""
        return self._captured(*name) or name in self._removed

    def _rename(self, one: RenameTables, at: Place) -> list[TableChange]:
        pairs = [(self._name(old), self._name(new)) for old, new in one.pairs]
        tables = dict(self.now.tables)
        for old, new in pairs:
            table = tables.pop(old, None)
            if table is not None:
                tables[new] = table.renamed(new)
        self._change(at, self._moved(self.now, pairs, at))
        # as in Debezium: a name that a later step takes away shows no table
        return [TableChange("ALTER", new, tables.get(new)) for _, new in pairs]

    def _moved(self, state: State, pairs: Sequence[tuple[Name, Name]], at: Place) -> State:
        """Return the state after tables were renamed, one after another."""
        came: dict[Name, Name] = {}
        for old, new in pairs:
            came[new] = came.pop(old, old)
        before, doubtful = state.tables, state.doubtful
        held = {**state.former, **before}
        gone = [name for name in came.values() if name not in came]
        state = state.without([*came.values(), *came])
        for name, origin in came.items():
            table = before.get(origin)
            taken, is_copy = held.get(name), _is_copy(origin, name)
            if table is not None and name != origin:
                table = table.renamed(name)
                if taken is not None and not (is_copy and table.number == taken.number):
                    table = succeeding(table, taken, NOTHING)
            if table is not None:
                state = state.with_table(table)
            if origin in doubtful:
                state = state.in_doubt(name, doubtful[origin])
            if not self._captured(*name) or (name == origin and table is not None):
                continue
            if is_copy:
                changed = [] if table is None or taken is None else rewritten(taken, table, strict=True)
                if table is None or taken is None or changed:
                    why = f"may differ in {', '.join(changed)}" if changed else "is not known"
                    _log.warning(
                        f"%s.%s: the table %s took its place at %s:%d, and what it has of the former rows %s; "
                        f"{_SNAPSHOT}", *name, origin[1], at.file, at.pos, why, *name,
                    )  # fmt: skip
                elif taken is not None and table is not None:
                    state = state.with_table(self._with_names(name, taken, table, at))
            else:
                _log.warning(
                    "%s.%s: the table %s.%s was renamed to it at %s:%d, and the log has no event of its rows; remedy: "
                    "tailrace verify --repair, or read %s.%s by a snapshot (signal execute-snapshot), which leaves "
                    "rows that are gone", *name, *origin, at.file, at.pos, *name,
                )  # fmt: skip
        left = [before[name] for name in gone if name in before and self._is_copied(name)]
        for table in (one for one in left if self._captured(*one.id)):
            target = next((name for name, origin in came.items() if origin == table.id), table.id)
            _log.warning(
                "%s.%s is called %s.%s now: the copy of the old name gets no further changes; remedy: remove that copy",
                *table.id, *target,
            )  # fmt: skip
        return state.with_former(left)

    def _index(self, one: IndexChange, at: Place) -> list[TableChange] | None:
        table = self.now.tables.get(self._name(one.name))
        if table is not None:
            changed = table
            if one.added is not None:
                changed = with_unique(table, one.added)
            elif one.dropped is not None:
                changed = without_index(table, one.dropped)
            if changed != table:
                self._change(at, self.now.with_altered(changed))
        return None

    def _database(self, one: DatabaseChange, text: str, status: SessionSettings, at: Place) -> StatementEffects:
        state = self.now
        databases = dict(state.databases)
        name = one.name.lower() if self._folds else one.name
        if one.verb == "drop":
            databases.pop(name, None)
            state = self._without([known for known in state.tables if known[0] == name])
        elif not (one.unless_there and name in databases):
            default = charset_of(status.server_collation) if status.server_collation else None
            databases[name] = one.charset or (databases.get(name) if one.verb == "alter" else None) or default or ""
        self._change(at, replace(state, databases=databases))
        # as in Debezium: no tables for CREATE and DROP DATABASE, an empty list for ALTER DATABASE
        if self._told is None or not self._told(name, ""):
            return NO_OUTCOME
        return StatementEffects((), [record(text, name, () if one.verb == "alter" else None, [])])

    def _truncated(self, name: Name, at: Place) -> StatementEffects:
        name = self._name(name)
        if not self._captured(*name):
            return NO_OUTCOME
        table = self.now.tables.get(name)
        if table is None:
            table = self._catalog(name)
            if table is None:
                return NO_OUTCOME
            table = self._learned(table, at)
        return StatementEffects((self._version_of(table),))

    # --- what cannot be followed --------------------------------------------------------------------------------------

    def _doubted(self, one: Parsed, text: str, fault: Unparsable, at: Place) -> StatementEffects:
        name = getattr(one, "name", None)
        if name is None:
            return self._recorded(text, "", (), [])
        name = self._name(name)
        self._doubt(name, fault.what, text, at)
        return self._recorded(text, name[0], (), [])

    def _doubt(self, name: Name, why: str, text: str, at: Place) -> None:
        state = self.now
        if name not in state.tables and not self._captured(*name):
            return
        self._change(at, state.in_doubt(name, f"a statement at {at.file}:{at.pos} was not followed: {why}"))
        if self._captured(*name):
            _log.warning(
                f"%s.%s: a statement at %s:%d was not followed: %s; copies may differ; {_SNAPSHOT}",
                *name, at.file, at.pos, why, *name,
            )  # fmt: skip

    def _not_understood(
        self, sql: str, statement: Statement, reading: SqlSettings, fault: Unparsable, at: Place
    ) -> StatementEffects:
        """Mark all tables that an unparsable statement mentions as doubtful."""
        for name in self._mentioned(sql, statement.database, reading):
            self._doubt(name, fault.what, sql, at)
        first = sql.lstrip()[:12].upper()
        if not first.startswith(("CREATE TABLE", "ALTER TABLE", "DROP TABLE", "RENAME TABLE")):
            return NO_OUTCOME
        return self._recorded(sql.strip(), statement.database, (), [])

    def _mentioned(self, sql: str, database: str, reading: SqlSettings) -> list[Name]:
        """Return the known tables whose names occur in a text."""
        try:
            found = [one for one in tokens(sql, reading) if one.kind in (NAME, WORD)]
        except Unparsable:
            # the text cannot be split into words: it may concern any table of the database
            return [name for name in self.now.tables if name[0] == database]
        words = {one.text if one.kind == NAME else one.raw for one in found}
        if self._folds:
            words = {word.lower() for word in words}
        return [name for name in self.now.tables if name[1] in words and (name[0] == database or name[0] in words)]

    @staticmethod
    def _is_data(sql: str, reading: SqlSettings) -> bool:
        first = tokens(sql, reading)[0]
        return first.kind == WORD and first.text in _DML

    def _data(self, sql: str, database: str, reading: SqlSettings, at: Place) -> StatementEffects:
        """Return the effects of a statement that changes rows: DELETE without WHERE counts as a truncate."""
        found = tokens(sql, reading)
        words = [one.text for one in found]
        if words[:2] == ["DELETE", "FROM"] and len(found) in (4, 6):
            names = [one.text if one.kind == NAME else one.raw for one in found[2:-1:2]]
            return self._truncated((names[0], names[1]) if len(names) == 2 else (database, names[0]), at)
        for name in self._mentioned(sql, database, reading):
            if self._captured(*name):
                table = self.now.tables[name]
                by_ids = any(one.period == "end" and one.base == "BIGINT" for one in table.columns)
                raise PrerequisiteError(
                    f"{name[0]}.{name[1]}: a statement at {at.file}:{at.pos} has changed its rows, and the log has the "
                    "statement instead of the rows.",
                    f"{_BY_IDS if by_ids else _BY_FORMAT}; then begin anew with another checkpoint and a snapshot, "
                    "since these changes are in no row of the log.",
                )
        return NO_OUTCOME


def may_alter(statement: Statement, dialect: Dialect, keeps: Callable[[str, str], bool]) -> bool:
    """Return True if a statement alters, or may alter, one of the tables whose definitions are kept."""
    if statement.alters in ("start", "rollback"):
        return False
    sql, reading = _text(statement, settings_of(statement.status), dialect)
    try:
        parsed = parse(sql, statement.database, reading)
    except Unparsable:
        return True
    return any(_may_touch(one, keeps) for one, _ in parsed)


def effect_on(name: Name, statement: Statement, dialect: Dialect) -> str:
    """Return the effect of a statement on a table: `made` if it creates the table with columns, `altered` if it changes
    it otherwise or may do so, else ""."""
    if statement.alters in ("start", "rollback"):
        return ""
    sql, reading = _text(statement, settings_of(statement.status), dialect)
    try:
        parsed = parse(sql, statement.database, reading)
    except Unparsable:
        return "altered"
    for one, _ in parsed:
        if isinstance(one, DatabaseChange):
            if one.verb == "drop" and name[0] in (one.name, one.name.lower()):
                return "altered"
        elif _may_touch(one, lambda *named: named == name):
            is_new = isinstance(one, CreateTable) and not (one.table is None or one.unless_there or one.replaces)
            return "made" if is_new else "altered"
    return ""


def _may_touch(one: Parsed, keeps: Callable[[str, str], bool]) -> bool:
    if isinstance(one, (OtherStatement, TruncateTable)):
        return False
    if isinstance(one, DatabaseChange):
        return True
    if isinstance(one, (CreateTable, DropTables)) and one.temporary:
        return False
    if isinstance(one, RenameTables):
        names = [name for pair in one.pairs for name in pair]
    elif isinstance(one, DropTables):
        names = [*one.names]
    else:
        names = [one.name, *([one.renamed] if isinstance(one, AlterTable) and one.renamed else [])]
    # the server may keep names in lower case
    return any(keeps(*name) or keeps(name[0].lower(), name[1].lower()) for name in names)


def _text(statement: Statement, status: SessionSettings, dialect: Dialect) -> tuple[str, SqlSettings]:
    """Return a statement's text, and the settings to parse it."""
    is_mariadb = dialect.name == "mariadb"
    reading = SqlSettings(status.ansi_quotes, status.no_backslashes, is_mariadb, is_mariadb and status.oracle)
    charset = charset_of(status.client_collation) if status.client_collation else None
    return readable(statement.sql, charset or "utf8mb4"), reading


def _is_copy(origin: Name, name: Name) -> bool:
    """Return True if `origin` has the name of an online alteration tool's copy of the table `name`."""
    found = _COPY.fullmatch(origin[1])
    return found is not None and (origin[0], found[1]) == name


def _names_of(parsed: list[tuple[Parsed, str]]) -> tuple[Name, ...]:
    """Return the names of the tables that statements create, alter or drop, as listed in records."""
    names: list[Name] = []
    for one, _ in parsed:
        if isinstance(one, CreateTable):
            names.append(one.name)
        elif isinstance(one, AlterTable):
            names.append(one.renamed or one.name)
        elif isinstance(one, DropTables):
            names += one.names
        elif isinstance(one, RenameTables):
            names += [new for _, new in one.pairs]
    return tuple(dict.fromkeys(names))


def _place_of(one: Parsed, database: str) -> str:
    """Return the database of a statement on a table."""
    name = getattr(one, "name", None)
    return name[0] if isinstance(name, tuple) else database


def _drop_text(one: DropTables, name: Name) -> str:
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in name)
    return f"DROP TABLE {'IF EXISTS ' if one.if_there else ''}{quoted}"


def _rename_texts(text: str) -> list[str]:
    """Return the text of each step of RENAME TABLE, with the words before the first one."""
    found = tokens(text, SqlSettings())
    first = 4 if found[2].text == "IF" else 2
    steps, begin = [], found[first].start
    words = text[found[0].start : begin]
    for token, following in itertools.pairwise(found[first:]):
        if token.text == "," or following.kind == "end":
            end = token.start if token.text == "," else token.end
            steps.append(words + text[begin:end].strip())
            begin = token.end
    return steps
