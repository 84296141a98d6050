"""Parser of statements in the log and of SHOW CREATE TABLE. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tailrace.connectors.binlog.schema.charsets import charset_of_collation
from tailrace.connectors.binlog.schema.ddl.statements import (
    Action,
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
from tailrace.connectors.binlog.schema.ddl.tokens import (
    BITS,
    END,
    HEX,
    NAME,
    NUMBER,
    SYMBOL,
    TEXT,
    WORD,
    SqlSettings,
    Token,
    Unparsable,
    tokens,
)
from tailrace.connectors.binlog.schema.definition import (
    NOTHING,
    ColumnDefinition,
    Default,
    Index,
    Name,
    TableDefinition,
)

PRIMARY = "PRIMARY"
PERIOD = "\0"
"""Stands in an index for the columns of the application's period (WITHOUT OVERLAPS)."""
_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_SIGNS = ("UNSIGNED", "SIGNED", "ZEROFILL")
_TYPE_WORDS = (
    "BIT BOOL BOOLEAN TINYINT SMALLINT MEDIUMINT MIDDLEINT INT INTEGER BIGINT INT1 INT2 INT3 INT4 INT8 SERIAL "
    "FLOAT FLOAT4 FLOAT8 DOUBLE REAL DECIMAL DEC NUMERIC FIXED NUMBER CHAR CHARACTER VARCHAR VARCHARACTER "
    "VARCHAR2 NCHAR NVARCHAR NATIONAL TINYTEXT TEXT MEDIUMTEXT LONGTEXT CLOB LONG BINARY VARBINARY RAW TINYBLOB "
    "BLOB MEDIUMBLOB LONGBLOB ENUM SET JSON YEAR DATE TIME DATETIME TIMESTAMP GEOMETRY POINT LINESTRING POLYGON "
    "MULTIPOINT MULTILINESTRING MULTIPOLYGON GEOMETRYCOLLECTION GEOMCOLLECTION UUID INET4 INET6 VECTOR XMLTYPE"
)
_TYPES = frozenset(_TYPE_WORDS.split())
_SECOND = {
    "DOUBLE": ("PRECISION",), "CHARACTER": ("VARYING",), "CHAR": ("VARYING",), "NCHAR": ("VARYING", "VARCHAR"),
    "NATIONAL": ("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER"), "LONG": ("VARBINARY", "VARCHAR", "CHAR", "CHARACTER"),
}  # fmt: skip
# MariaDB's types for those of Oracle, in the mode ORACLE
_OF_ORACLE = {"DATE": "DATETIME", "BLOB": "LONGBLOB"}
# Options of tables that change no column; each may have a value after an optional equals sign.
_OPTION_WORDS = (
    "ENGINE TYPE ALGORITHM LOCK AUTO_INCREMENT AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMPRESSION CONNECTION "
    "DATA INDEX DELAY_KEY_WRITE ENCRYPTION ENCRYPTED ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE "
    "SECONDARY_ENGINE_ATTRIBUTE SECONDARY_ENGINE SECONDARY_LOAD SECONDARY_UNLOAD IETF_QUOTES INSERT_METHOD "
    "KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD "
    "ROW_FORMAT SEQUENCE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES STORAGE TABLESPACE TRANSACTIONAL "
    "UNION AUTOEXTEND_SIZE START FORCE ENABLE DISABLE DISCARD IMPORT WITHOUT WAIT NOWAIT ONLINE IGNORE"
)
_OPTIONS = frozenset(_OPTION_WORDS.split())
_PARTITION_WORDS = "TRUNCATE REORGANIZE COALESCE EXCHANGE ANALYZE CHECK OPTIMIZE REBUILD REPAIR REMOVE PARTITION"
_PARTITION_VERBS = frozenset(_PARTITION_WORDS.split())


def parse(sql: str, database: str, reading: SqlSettings) -> list[tuple[Parsed, str]]:
    """Return the statements of a text, each with its text. `database` is the current database. Raises Unparsable."""
    found = []
    for part in split(tokens(sql, reading)):
        text = sql[part[0].start : part[-2].end]
        found.append((_Parser(part, sql, database, reading).statement(), text))
    return found


def split(whole: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, ending with a token of the kind END."""
    part: list[Token] = []
    for token in whole:
        if token.kind == END or (token.kind == SYMBOL and token.text == ";"):
            if part:
                yield [*part, Token(END, "", token.start, token.start)]
            part = []
        else:
            part.append(token)
            if len(part) == 2 and part[0].text == "CREATE" and _has_body(whole, token):
                # the statements within a routine are not separate statements
                yield whole[whole.index(part[0]) :]
                return


def _has_body(whole: list[Token], second: Token) -> bool:
    """Return True if a statement that begins with CREATE creates a routine, a trigger or an event."""
    place = whole.index(second)
    for token in whole[place : place + 24]:
        if token.kind == WORD and token.text in ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"):
            return True
        if token.kind == WORD and token.text in ("TABLE", "DATABASE", "SCHEMA", "INDEX", "VIEW", "USER", "SEQUENCE"):
            return False
    return False


_OBJECTS = frozenset({
    "EVENT", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW", "USER", "ROLE", "SERVER", "PACKAGE", "SEQUENCE", "TABLESPACE",
    "LOGFILE", "INSTANCE", "RESOURCE",
})  # fmt: skip
"""Words for what CREATE, ALTER and DROP concern besides tables, their indexes, and databases."""


class _Parser:
    """Reads one statement, token by token."""

    def __init__(self, found: list[Token], sql: str, database: str, reading: SqlSettings) -> None:
        self._tokens, self._sql, self._database, self._reading = found, sql, database, reading
        self._at = 0
        # True once a column WITH SYSTEM VERSIONING was read, which makes its table a versioned one
        self._versions = False

    # --- tokens -------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._now
        if token.kind != END:
            self._at += 1
        return token

    def _is(self, *words: str) -> bool:
        return self._now.kind == WORD and self._now.text in words

    def _are(self, *words: str) -> bool:
        return all(self._peek(n).kind == WORD and self._peek(n).text == word for n, word in enumerate(words))

    def _take(self, *words: str) -> bool:
        """Consume these words, if they all come next, and return True; else return False."""
        if not self._are(*words):
            return False
        self._at += len(words)
        return True

    def _take_one(self, *words: str) -> str:
        """Consume one of these words and return it; return "" if none comes next."""
        return self._next().text if self._is(*words) else ""

    def _symbol(self, text: str) -> bool:
        if self._now.kind == SYMBOL and self._now.text == text:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not (self._symbol(text) or self._take(text)):
            raise self._stuck(f"{text} is expected")

    def _stuck(self, what: str) -> Unparsable:
        near = self._sql[self._now.start : self._now.start + 20]
        return Unparsable(f"{what} before {near!r}" if near else f"{what} at the end", self._now.start)

    def _skip_group(self) -> None:
        """Skip the group in parentheses that comes next."""
        self._expect("(")
        depth = 1
        while depth:
            token = self._next()
            if token.kind == END:
                raise self._stuck("a parenthesis is open")
            if token.kind == SYMBOL:
                depth += (token.text == "(") - (token.text == ")")

    def _skip_to_comma(self) -> None:
        """Skip everything up to a comma or closing parenthesis outside of nested parentheses, or to the end."""
        while self._now.kind != END and not (self._now.kind == SYMBOL and self._now.text in ",)"):
            if self._now.kind == SYMBOL and self._now.text == "(":
                self._skip_group()
            else:
                self._next()

    def _name(self) -> str:
        token = self._next()
        if token.kind == NAME:
            return token.text
        if token.kind == WORD:
            return token.raw
        if token.kind == TEXT:
            return token.text
        self._at -= 1
        raise self._stuck("a name is expected")

    def _table(self) -> Name:
        first = self._name()
        if self._symbol("."):
            return first, self._name()
        return self._database, first

    def _if_exists(self) -> bool:
        return self._take("IF", "EXISTS")

    def _equals(self) -> None:
        self._symbol("=")

    def _literal(self, token: Token) -> str:
        """Return a text as a literal in single quotes."""
        raw = token.raw.replace("'", "''") if self._sql[token.end - 1] == '"' else token.raw
        return f"'{raw}'"

    # --- statements ---------------------------------------------------------------------------------------------------

    def statement(self) -> Parsed:
        verbs: dict[str, Callable[[], Parsed]] = {
            "CREATE": self._create, "ALTER": self._alter, "DROP": self._drop, "RENAME": self._rename,
            "TRUNCATE": self._truncate,
        }  # fmt: skip
        read = verbs.get(self._now.text) if self._now.kind == WORD else None
        return self._other() if read is None else read()

    def _other(self) -> OtherStatement:
        words = [token.text for token in self._tokens if token.kind == WORD]
        if words[:1] == ["FLUSH"]:
            return OtherStatement(words[1:3] != ["RELAY", "LOGS"])
        kind = next((word for word in words[1:] if word in _OBJECTS), "")
        is_event = words[:1] in (["CREATE"], ["ALTER"], ["DROP"]) and kind == "EVENT"
        return OtherStatement(is_event or words[:2] == ["RENAME", "USER"])

    def _create(self) -> Parsed:
        self._next()
        replaces = self._take("OR", "REPLACE")
        if self._is("DATABASE", "SCHEMA"):
            self._next()
            unless = self._take("IF", "NOT", "EXISTS")
            name = self._name()
            return DatabaseChange("create", name, self._database_charset(), unless)
        unique = bool(self._take_one("UNIQUE"))
        self._take_one("ONLINE", "OFFLINE", "FULLTEXT", "SPATIAL", "VECTOR")
        if self._take("INDEX"):
            return self._create_index(unique)
        temporary = self._take("TEMPORARY")
        if self._take("TABLE"):
            return self._create_table(replaces, temporary)
        return self._other()

    def _create_index(self, unique: bool) -> IndexChange:
        self._take("IF", "NOT", "EXISTS")
        name = self._name()
        if self._take_one("USING", "TYPE"):
            self._name()
        self._expect("ON")
        table = self._table()
        try:
            index = self._index(name)
        except Unparsable:
            if unique:
                raise
            return IndexChange(table)
        # of other indexes only those over expressions matter, for which the server adds columns
        return IndexChange(table, index if unique or not index.plain else None)

    def _create_table(self, replaces: bool, temporary: bool) -> CreateTable:
        unless = self._take("IF", "NOT", "EXISTS")
        name = self._table()
        made = CreateTable(name, None, unless_there=unless, replaces=replaces, temporary=temporary)
        if self._take("LIKE"):
            return replace(made, like=self._table())
        if self._now.text == "(" and self._peek().text == "LIKE" and self._peek().kind == WORD:
            self._next()
            self._next()
            return replace(made, like=self._table())
        columns: list[ColumnDefinition] = []
        keys: list[Index] = []
        periods: list[tuple[str, str, bool]] = []
        is_query = self._now.text == "(" and self._peek().kind == WORD and self._peek().text in ("SELECT", "WITH")
        if not is_query and self._symbol("("):
            while True:
                found = self._element()
                if isinstance(found, tuple):
                    periods.append(found)
                elif found is not None:
                    columns += [found.column] if found.column is not None else []
                    keys += found.keys
                if not self._symbol(","):
                    break
            self._expect(")")
        table = TableDefinition(*name, tuple(columns), versioned=self._versions)
        table, selects = self._table_options(table)
        for period in periods:
            table = with_period(table, *period)
        for index in keys:
            table = with_index(table, index)
        if selects or not columns:
            return replace(made, selects=True)
        return replace(made, table=table)

    def _table_options(self, table: TableDefinition) -> tuple[TableDefinition, bool]:
        """Return the table with its options, and True if its rows come from a query."""
        while self._now.kind != END:
            if self._is("SELECT", "AS", "WITH", "VALUES", "TABLE") and not self._are("WITH", "SYSTEM"):
                return table, True
            if self._now.text == "(" and self._peek().kind == WORD and self._peek().text in ("SELECT", "WITH"):
                return table, True
            if self._is("PARTITION"):
                self._partitions()
                continue
            found = self._charset_option()
            if found is not None:
                table = replace(table, charset=found or table.charset)
            elif self._take("COMMENT"):
                self._equals()
                table = replace(table, comment=self._next().text)
            elif self._take("WITH", "SYSTEM", "VERSIONING"):
                table = replace(table, versioned=True)
            elif self._is("IGNORE", "REPLACE") and self._peek().text in ("SELECT", "AS"):
                return table, True
            elif self._now.text == "(":
                self._skip_group()
            else:
                self._next()
        return table, False

    def _partitions(self) -> None:
        """Skip PARTITION BY."""
        while self._now.kind != END and not self._is("SELECT", "AS"):
            if self._now.text == "(" and self._now.kind == SYMBOL:
                self._skip_group()
            else:
                self._next()

    def _charset_option(self) -> str | None:
        """Return the character set of an option CHARACTER SET or COLLATE; "" for DEFAULT, None if no such option comes
        next."""
        begin = self._at
        self._take("DEFAULT")
        if self._take("CHARACTER", "SET") or self._take("CHARSET"):
            self._equals()
            if self._take("DEFAULT"):
                return ""
            name = self._name().lower()
            if self._take("COLLATE"):
                self._equals()
                self._name()
            return name
        if self._take("COLLATE"):
            self._equals()
            return "" if self._take("DEFAULT") else charset_of_collation(self._name())
        self._at = begin
        return None

    def _database_charset(self) -> str | None:
        charset = None
        while self._now.kind != END:
            found = self._charset_option()
            if found is None:
                self._next()
            elif found:
                charset = found
        return charset

    def _alter(self) -> Parsed:
        if self._peek().text in ("DATABASE", "SCHEMA"):
            self._at += 2
            # the name may be left out
            is_option = self._is("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "COMMENT")
            altered = self._database if is_option else self._name()
            return DatabaseChange("alter", altered, self._database_charset())
        self._next()
        ignores = False
        while word := self._take_one("ONLINE", "OFFLINE", "IGNORE"):
            ignores = ignores or word == "IGNORE"
        if not self._take("TABLE"):
            return self._other()
        self._if_exists()
        name = self._table()
        if self._take("WAIT"):
            self._next()
        self._take("NOWAIT")
        actions: list[Action] = []
        renamed: Name | None = None
        moved: tuple[Name, ...] = ()
        drops = False
        while self._now.kind != END:
            if self._works_on_partitions():
                drops = self._is("DROP")
                moved = self._moved_with_partitions(name)
                break
            if self._take("ORDER", "BY"):
                break
            target = self._rename_action()
            if target is None:
                actions += self._action()
            else:
                renamed = target
            self._symbol(",")
        return AlterTable(name, tuple(actions), renamed, moved, drops, ignores)

    def _moved_with_partitions(self, table: Name) -> tuple[Name, ...]:
        """Return the tables to which partitions bring rows, or from which they take rows, without events. Consumes all
        tokens."""
        verb = self._next().text
        others: list[Name] = []
        while self._now.kind != END:
            # EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION p
            if self._take("TABLE"):
                others.append(self._table())
            else:
                self._next()
        if verb in ("EXCHANGE", "CONVERT"):
            return (table, *others)
        return (table,) if verb in ("DROP", "TRUNCATE", "DISCARD", "IMPORT") else ()

    def _works_on_partitions(self) -> bool:
        following = self._peek().text
        if self._is("CONVERT") and following == "TABLE":
            return True
        if self._is("DISCARD", "IMPORT") and following == "TABLESPACE":
            return True
        if self._is("ADD", "DROP", "DISCARD", "IMPORT", "CONVERT"):
            return following == "PARTITION"
        if self._is("REMOVE"):
            return following == "PARTITIONING"
        if self._is("PARTITION"):
            return following == "BY"
        return self._is(*_PARTITION_VERBS) and following == "PARTITION"

    def _rename_action(self) -> Name | None:
        """Return the new name of the table if RENAME TO comes next."""
        if not self._is("RENAME") or (self._peek().text in ("COLUMN", "INDEX", "KEY") and self._peek().kind == WORD):
            return None
        self._next()
        if not self._take_one("TO", "AS"):
            self._equals()
        return self._table()

    def _action(self) -> list[Action]:
        if self._take("ADD"):
            return self._add()
        if self._take("CHANGE"):
            self._take("COLUMN")
            there = self._if_exists()
            name = self._name()
            return [replace(self._column(), verb="change", name=name, if_there=there)]
        if self._take("MODIFY"):
            self._take("COLUMN")
            there = self._if_exists()
            found = self._column()
            assert found.column is not None
            return [replace(found, verb="change", name=found.column.name, if_there=there)]
        if self._take("DROP"):
            return self._drop_action()
        if self._take("ALTER"):
            return self._alter_column()
        if self._take("RENAME"):
            verb = "rename" if self._next().text == "COLUMN" else "reindex"
            there = self._if_exists()
            old = self._name()
            self._expect("TO")
            return [Action(verb, old, text=self._name(), if_there=there)]
        if self._take("CONVERT", "TO"):
            charset = self._charset_option()
            if charset is None:
                raise self._stuck("a character set is expected")
            if self._take("COLLATE"):
                self._name()
            return [Action("convert", text=charset)]
        charset = self._charset_option()
        if charset is not None:
            return [Action("charset", text=charset)]
        if self._take("COMMENT"):
            self._equals()
            return [Action("comment", text=self._next().text)]
        if self._take("WITH", "SYSTEM", "VERSIONING"):
            return [Action("version", text="1")]
        if self._is("WITH") or self._is(*_OPTIONS):
            self._next()
            # several options may stand without commas
            while self._now.kind != END and not (self._now.kind == SYMBOL and self._now.text == ","):
                if self._now.kind == WORD and self._is("COMMENT", "CHARACTER", "CHARSET", "COLLATE", "DEFAULT"):
                    break
                if self._now.text == "(" and self._now.kind == SYMBOL:
                    self._skip_group()
                elif self._works_on_partitions():
                    break
                else:
                    self._next()
            return []
        raise self._stuck("a part of ALTER TABLE is not known")

    def _add(self) -> list[Action]:
        if self._take("SYSTEM", "VERSIONING"):
            return [Action("version", text="1")]
        has_word = self._take("COLUMN")
        if self._take("IF", "NOT", "EXISTS"):
            return [replace(self._column(), verb="add", if_there=True)]
        if self._now.kind == SYMBOL and self._symbol("("):
            actions = []
            while True:
                found = self._element()
                if isinstance(found, Action):
                    actions.append(found)
                if not self._symbol(","):
                    break
            self._expect(")")
            return actions
        if has_word:
            return [self._column()]
        found = self._element()
        if isinstance(found, tuple):
            begin, end, is_systems = found
            # columns say by themselves that they belong to the system's period
            return [] if is_systems else [Action("period", begin, text=end)]
        return [found] if isinstance(found, Action) else []

    def _drop_action(self) -> list[Action]:
        if self._take("PRIMARY", "KEY"):
            return [Action("unindex", PRIMARY)]
        if self._take("SYSTEM", "VERSIONING"):
            return [Action("version", text="")]
        if self._take("PERIOD"):
            there = self._if_exists()
            self._expect("FOR")
            is_systems = self._name().upper() == "SYSTEM_TIME"
            return [] if is_systems else [Action("unperiod", if_there=there)]
        if self._now.kind == WORD and self._take_one("INDEX", "KEY", "CONSTRAINT"):
            there = self._if_exists()
            return [Action("unindex", self._name(), if_there=there)]
        if self._take("FOREIGN", "KEY") or self._take("CHECK"):
            self._if_exists()
            self._name()
            return []
        self._take("COLUMN")
        there = self._if_exists()
        name = self._name()
        self._take_one("RESTRICT", "CASCADE")
        return [Action("drop", name, if_there=there)]

    def _alter_column(self) -> list[Action]:
        if self._is("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            self._skip_to_comma()
            return []
        self._take("COLUMN")
        there = self._if_exists()
        name = self._name()
        if self._take("SET", "DEFAULT"):
            return [Action("default", name, default=self._default(), if_there=there)]
        if self._take("DROP", "DEFAULT"):
            return [Action("default", name, if_there=there)]
        if self._take("SET"):
            self._take_one("VISIBLE", "INVISIBLE")
            return []
        raise self._stuck("a part of ALTER COLUMN is not known")

    def _drop(self) -> Parsed:
        self._next()
        if self._is("DATABASE", "SCHEMA"):
            self._next()
            there = self._if_exists()
            return DatabaseChange("drop", self._name(), None, there)
        if self._take("INDEX"):
            self._if_exists()
            name = self._name()
            self._expect("ON")
            return IndexChange(self._table(), dropped=name)
        temporary = self._take("TEMPORARY")
        if not self._take_one("TABLE", "TABLES"):
            return self._other()
        there = self._if_exists()
        names = [self._table()]
        while self._symbol(","):
            names.append(self._table())
        return DropTables(tuple(names), there, temporary)

    def _rename(self) -> Parsed:
        self._next()
        if not self._take_one("TABLE", "TABLES"):
            return self._other()
        self._if_exists()
        pairs = []
        while True:
            old = self._table()
            if self._take("WAIT"):
                self._next()
            self._take("NOWAIT")
            self._expect("TO")
            pairs.append((old, self._table()))
            if not self._symbol(","):
                return RenameTables(tuple(pairs))

    def _truncate(self) -> TruncateTable:
        self._next()
        self._take("TABLE")
        return TruncateTable(self._table())

    # --- elements of a table ------------------------------------------------------------------------------------------

    def _element(self) -> Action | tuple[str, str, bool] | None:
        """Return a column or an index; the columns of a period and True for the system's period; else None."""
        if self._now.kind == WORD:
            if self._take("CONSTRAINT"):
                name = "" if self._is("PRIMARY", "UNIQUE", "FOREIGN", "CHECK") else self._name()
                return self._key(name)
            if self._is("PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "INDEX", "KEY", "FULLTEXT", "SPATIAL"):
                return self._key("")
            if self._are("VECTOR", "INDEX") or self._are("VECTOR", "KEY"):
                self._skip_to_comma()
                return None
            if self._take("PERIOD", "FOR"):
                is_systems = self._name().upper() == "SYSTEM_TIME"
                self._expect("(")
                begin = self._name()
                self._expect(",")
                end = self._name()
                self._expect(")")
                return begin, end, is_systems
        return self._column()

    def _key(self, name: str) -> Action | None:
        if self._take("PRIMARY", "KEY"):
            named = PRIMARY
        elif self._take("UNIQUE"):
            self._take_one("INDEX", "KEY")
            named = name
            self._take("IF", "NOT", "EXISTS")
            if not (self._now.kind == SYMBOL and self._now.text == "(") and not self._is("USING", "TYPE"):
                named = self._name()
        else:
            found = self._functional_index() if self._is("INDEX", "KEY") else None
            self._skip_to_comma()
            return found
        if self._take_one("USING", "TYPE"):
            self._name()
        if named == PRIMARY and not (self._now.kind == SYMBOL and self._now.text == "("):
            self._name()
        index = self._index(named)
        self._skip_to_comma()
        return Action("key", keys=(index,))

    def _functional_index(self) -> Action | None:
        """Return an index that is not unique and has expressions; None for others.

        The server adds a column for each expression.
        """
        begin = self._at
        self._next()
        self._take("IF", "NOT", "EXISTS")
        try:
            is_named = not (self._now.kind == SYMBOL and self._now.text == "(") and not self._is("USING", "TYPE")
            name = self._name() if is_named else ""
            if self._take_one("USING", "TYPE"):
                self._name()
            index = self._index(name)
        except Unparsable:
            self._at = begin
            return None
        return None if index.plain else Action("key", keys=(index,))

    def _index(self, name: str) -> Index:
        """Return the index of the parts that come next."""
        self._expect("(")
        columns, expressions = [], 0
        while True:
            if self._now.kind == SYMBOL and self._now.text == "(":
                self._skip_group()
                expressions += 1
            else:
                columns.append(self._name())
                if self._now.kind == SYMBOL and self._now.text == "(":
                    self._skip_group()
                if self._take("WITHOUT", "OVERLAPS"):
                    columns[-1] = PERIOD
            self._take_one("ASC", "DESC")
            if not self._symbol(","):
                break
        self._expect(")")
        return Index(name, tuple(columns), not expressions, expressions)

    # --- columns ------------------------------------------------------------------------------------------------------

    def _column(self) -> Action:
        column = self._type(self._name())
        keys: list[Index] = []
        place: str | None = None
        if "SERIAL" in column.words:
            keys.append(Index("", (column.name,)))
        while True:
            if self._take("NOT", "NULL"):
                column = replace(column, nullable=False)
            elif self._take("NULL"):
                # a TIMESTAMP without NULL may have an implicit default
                column = replace(column, nullable=True, older=NOTHING)
            elif self._take("SERIAL", "DEFAULT", "VALUE"):
                column = replace(column, nullable=False, automatic=True)
                keys.append(Index("", (column.name,)))
            elif self._take("DEFAULT"):
                column = replace(column, default=self._default())
            elif self._take("ON", "UPDATE"):
                self._default()
                column = replace(column, updated=True)
            elif self._take("AUTO_INCREMENT"):
                column = replace(column, automatic=True)
            elif self._take("PRIMARY"):
                self._take("KEY")
                keys.append(Index(PRIMARY, (column.name,)))
            elif self._take("UNIQUE"):
                self._take("KEY")
                keys.append(Index("", (column.name,)))
            elif self._take("KEY"):
                keys.append(Index(PRIMARY, (column.name,)))
            elif self._take("COMMENT"):
                column = replace(column, comment=self._next().text)
            elif self._take("COMPRESSED"):
                if self._symbol("="):
                    self._name()
                column = replace(column, compressed=True)
            elif self._take("FIRST"):
                place = ""
            elif self._take("AFTER"):
                place = self._name()
            elif (charset := self._column_charset()) is not None:
                column = replace(column, charset=charset or column.charset)
            elif (changed := self._generated(column)) is not None:
                column = changed
            elif not self._passed_over():
                break
        if self._now.kind != END and not (self._now.kind == SYMBOL and self._now.text in ",)"):
            raise self._stuck("a part of a column is not known")
        return Action("add", column=_settled(column), keys=tuple(keys), place=place)

    def _type(self, name: str) -> ColumnDefinition:
        token = self._next()
        if token.kind != WORD or token.text not in _TYPES:
            self._at -= 1
            raise self._stuck("a type is not known")
        words = [token.text]
        while self._is(*_SECOND.get(words[-1], ())) or (len(words) == 2 and self._is("VARYING")):
            words.append(self._next().text)
        column = ColumnDefinition(name, "")
        if words[0] in ("ENUM", "SET"):
            column = self._labels(column)
        elif self._symbol("("):
            numbers = [int(self._next().text)]
            if self._symbol(","):
                numbers.append(int(self._next().text))
            self._take_one("CHAR", "BYTE")
            self._expect(")")
            column = replace(column, length=numbers[0], scale=numbers[1] if len(numbers) > 1 else None)
        while sign := self._take_one(*_SIGNS):
            words.append(sign)
        if self._take("PRECISION"):
            words.append("PRECISION")
        if self._reading.oracle and words == ["NUMBER"] and column.length is None:
            words = ["DOUBLE"]
        elif self._reading.oracle:
            words[0] = _OF_ORACLE.get(words[0], words[0])
        return replace(column, words=" ".join(words))

    def _labels(self, column: ColumnDefinition) -> ColumnDefinition:
        self._expect("(")
        labels, literals = [], []
        while True:
            introducer = self._now.kind == WORD and self._now.text.startswith("_")
            if introducer:
                self._next()
            token = self._next()
            if token.kind == HEX:
                text = bytes.fromhex(token.text).decode("utf-8", "replace")
                token = Token(TEXT, text, token.start, token.end, text)
            if token.kind != TEXT:
                self._at -= 1
                raise self._stuck("a label is expected")
            # the server strips blanks at the end
            labels.append(token.text.rstrip(" "))
            literals.append(self._literal(token))
            if not self._symbol(","):
                break
        self._expect(")")
        return replace(column, labels=tuple(labels), literals=tuple(literals))

    def _column_charset(self) -> str | None:
        """Return the character set that comes next; "" for BINARY, which does not name it, None for other words."""
        if self._take("CHARACTER", "SET") or self._take("CHARSET") or self._take("CHAR", "SET"):
            self._equals()
            return self._name().lower()
        if self._take("COLLATE"):
            self._equals()
            return charset_of_collation(self._name())
        if self._take("ASCII"):
            return "latin1"
        if self._take("UNICODE"):
            return "ucs2"
        if self._take("BYTE"):
            return "binary"
        if self._take("BINARY"):
            return ""
        return None

    def _generated(self, column: ColumnDefinition) -> ColumnDefinition | None:
        always = self._take("GENERATED", "ALWAYS")
        if not self._take("AS"):
            if always:
                raise self._stuck("AS is expected")
            return None
        if self._take("ROW"):
            return replace(column, period=self._next().text.lower())
        begin = self._now.start
        self._skip_group()
        return replace(column, generated=True, expression=self._written(begin))

    def _passed_over(self) -> bool:
        """Skip a part of a column that does not matter here, and return True; else return False."""
        if self._take_one("VIRTUAL", "STORED", "PERSISTENT", "VISIBLE", "INVISIBLE", "SIGNED"):
            return True
        if self._take_one("COLUMN_FORMAT", "STORAGE"):
            self._next()
            return True
        if self._take_one("SRID", "REF_SYSTEM_ID", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
            self._equals()
            self._next()
            return True
        if self._take("CONSTRAINT"):
            if not self._is("CHECK"):
                self._name()
            return True
        if self._take("CHECK"):
            self._skip_group()
            return True
        if self._take("NOT", "ENFORCED") or self._take("ENFORCED"):
            return True
        if self._take("REFERENCES"):
            self._table()
            while self._now.kind != END and not (self._now.kind == SYMBOL and self._now.text in ",)"):
                if self._now.kind == SYMBOL and self._now.text == "(":
                    self._skip_group()
                else:
                    self._next()
            return True
        if self._take("WITH", "SYSTEM", "VERSIONING"):
            self._versions = True
            return True
        return self._take("WITHOUT", "SYSTEM", "VERSIONING")

    def _default(self) -> Default:
        begin = self._now.start
        if self._now.kind == WORD and self._now.text.startswith("_") and self._peek().kind in (TEXT, HEX, BITS):
            self._next()
        sign = ""
        if self._now.kind == SYMBOL and self._now.text in "+-":
            sign = "-" if self._next().text == "-" else ""
        token = self._now
        if token.kind == SYMBOL and token.text == "(":
            self._skip_group()
            return Default("expression", self._written(begin))
        self._next()
        if token.kind == TEXT:
            raw, value = token.raw, token.text
            while self._now.kind == TEXT:
                raw, value = raw + self._now.raw, value + self._next().text
            if not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
                # bytes that are not UTF-8
                digits = value.encode("utf-8", "surrogateescape").hex()
                return Default("hex", digits, digits)
            return Default("text", raw, value)
        if token.kind == NUMBER:
            return Default("number", sign + token.text, sign + token.text)
        if token.kind in (HEX, BITS):
            return Default(token.kind, token.text, token.text)
        if token.kind != WORD:
            self._at -= 1
            raise self._stuck("a default is expected")
        if token.text == "NULL":
            return Default("null", "NULL")
        if token.text in ("TRUE", "FALSE"):
            return Default("word", token.raw, "1" if token.text == "TRUE" else "0")
        if token.text in ("DATE", "TIME", "TIMESTAMP") and self._now.kind == TEXT:
            literal = self._next()
            return Default("text", literal.raw, literal.text)
        if self._now.kind == SYMBOL and self._now.text == "(":
            self._skip_group()
        if token.text in _NOW:
            return Default("now", self._written(begin))
        return Default("expression", self._written(begin))

    def _written(self, begin: int) -> str:
        """Return the text from `begin` to the last token that was read."""
        return self._sql[begin : self._tokens[self._at - 1].end]


def _settled(column: ColumnDefinition) -> ColumnDefinition:
    """Return a column with the properties that its type implies."""
    if column.base == "SERIAL":
        return replace(column, words="BIGINT UNSIGNED", nullable=False, automatic=True)
    return column


def with_index(table: TableDefinition, index: Index) -> TableDefinition:
    """Return the table with a primary key or another unique index. Columns of a primary key become NOT NULL.

    Raises Unparsable for a key over a period whose columns are not known.
    """
    if PERIOD in index.columns:
        # the server has the period's end before its begin
        ends = [column.name for kind in ("until", "from") for column in table.columns if column.period == kind]
        if len(ends) != 2:
            raise Unparsable(f"the index {index.name} is over a period whose columns are not known")
        index = index._replace(columns=(*(name for name in index.columns if name != PERIOD), *ends))
    folded = {name.casefold() for name in index.columns}
    # the spelling of the columns' names
    spelled = {column.name.casefold(): column.name for column in table.columns}
    index = index._replace(columns=tuple(spelled.get(name.casefold(), name) for name in index.columns))
    if index.name.upper() == PRIMARY:
        columns = tuple(
            replace(column, nullable=False) if column.name.casefold() in folded else column for column in table.columns
        )
        return replace(table, columns=columns, primary=index.columns)
    if not index.name:
        index = index._replace(name=_free_name(table, index.columns[0] if index.columns else "functional_index"))
    hidden = (*table.hidden, *[(index.name, len(table.columns))] * index.expressions)
    return replace(table, unique=(*table.unique, index._replace(expressions=0)), hidden=hidden)


def _free_name(table: TableDefinition, first: str) -> str:
    """Return the name that the server gives to an index without one."""
    taken = {index.name.casefold() for index in table.unique}
    name, number = first, 2
    while name.casefold() in taken:
        name, number = f"{first}_{number}", number + 1
    return name


def with_period(table: TableDefinition, begin: str, end: str, is_systems: bool) -> TableDefinition:
    """Return the table with a period of the system or of the application, whose columns allow no null."""
    kinds = ("start", "end") if is_systems else ("from", "until")
    ends = dict(zip((begin.casefold(), end.casefold()), kinds, strict=True))

    def marked(column: ColumnDefinition) -> ColumnDefinition:
        kind = ends.get(column.name.casefold(), "")
        nullable = column.nullable and (is_systems or not kind)
        return replace(column, period=column.period or kind, nullable=nullable)

    return replace(table, columns=tuple(map(marked, table.columns)))
