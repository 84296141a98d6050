"""The publication and the tables' replica identities, prepared at the start of a query. Planner."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.config.expressions import compile_expression
from tailrace.connectors.postgres.schema.catalog import CapturedTable
from tailrace.connectors.postgres.snapshot.session import qualified, quoted
from tailrace.errors import ConfigError, PrerequisiteError

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")


def prepare_publication(connection: psycopg.Connection[Any], config: Config, captured: Sequence[CapturedTable]) -> None:
    """Create the publication, or update its tables, as `publication.autocreate.mode` says.

    Raises PrerequisiteError when the publication is missing and may not or cannot be created.
    """
    import psycopg

    name, mode = config["publication.name"], config["publication.autocreate.mode"]
    row = connection.execute(_SETTINGS, (name,)).fetchone()
    # with ONLY a child that is not captured, perhaps unlogged, is not added with its parent
    listed = ", ".join(f"only {qualified(table)}" for _, table, _ in captured)
    try:
        if row is None:
            if mode == "disabled":
                raise PrerequisiteError(
                    f"The publication {name} does not exist, and publication.autocreate.mode is disabled.",
                    f"create publication {quoted(name)} for table …;",
                )
            if mode == "filtered" and not captured:
                raise ConfigError(
                    "publication.autocreate.mode=filtered, but the include and exclude lists leave no table.",
                    "Correct the lists.",
                )
            tables = {"all_tables": " for all tables", "filtered": f" for table {listed}", "no_tables": ""}[mode]
            settings = [f"publish = '{_operations(_published(config))}'"] if _narrows(config) else []
            if config["publish.via.partition.root"]:
                settings.append(_VIA_ROOT)
            behind = f" with ({', '.join(settings)})" if settings else ""
            connection.execute(f"create publication {quoted(name)}{tables}{behind}".encode())
            return
        if mode == "filtered" and not row[0] and captured and not _lists(connection, name, captured):
            _set_tables(connection, name, captured, listed)
        if mode == "filtered":
            for _, statement in _lacking(config, row):
                connection.execute(statement.encode())
        else:
            _warn(config, row)
    except psycopg.errors.InsufficientPrivilege as error:
        raise PrerequisiteError(
            f"The user {config['database.user']} may not create or change the publication {name}: "
            f"{error.diag.message_primary}.",
            "Create it as a superuser and set publication.autocreate.mode=disabled, or own the tables and use "
            "filtered.",
        ) from None


def _set_tables(connection: psycopg.Connection[Any], name: str, captured: Sequence[CapturedTable], listed: str) -> None:
    """Let the publication have exactly the tables `captured`.

    If the role may not alter it and it has them all, log a warning: changes of other tables are left out anyway.
    """
    import psycopg

    try:
        connection.execute(f"alter publication {quoted(name)} set table {listed}".encode())
    except psycopg.errors.InsufficientPrivilege:
        if not {(oid, None, None) for oid, _, _ in captured} <= set(_entries(connection, name)):
            raise
        log.warning(
            "the publication %s keeps tables that are not captured, for this role may not alter it; remedy: alter "
            "publication %s set table %s, or publication.autocreate.mode=disabled", name, quoted(name), listed,
        )  # fmt: skip


def add_table(connection: psycopg.Connection[Any], config: Config, table: TableId) -> str:
    """Add a table to the publication; return the reason if that fails, else ""."""
    import psycopg

    name = config["publication.name"]
    if is_for_all_tables(connection, name):
        return ""
    try:
        connection.execute(f"alter publication {quoted(name)} add table only {qualified(table)}".encode())
    except psycopg.errors.DuplicateObject:
        return ""
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
            # the session has ended, which says nothing about the table
            raise
        return f"{error.diag.message_primary or type(error).__name__}."
    return ""


def warn_of_settings(connection: psycopg.Connection[Any], config: Config) -> None:
    """Warn if the publication does not fit the options."""
    row = connection.execute(_SETTINGS, (config["publication.name"],)).fetchone()
    if row is not None:
        _warn(config, row)


def _warn(config: Config, row: Sequence[Any]) -> None:
    for text, statement in _lacking(config, row):
        log.warning(
            "the publication %s %s; remedy: %s, and read copies of its tables again by a snapshot (signal "
            "execute-snapshot)",
            config["publication.name"], text, statement,
        )  # fmt: skip


def _lacking(config: Config, row: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield each fault of the publication, as the rest of a sentence, and the statement that corrects it."""
    name = quoted(config["publication.name"])
    wanted, present = _published(config), {letter for letter, on in zip("cudt", row[1:5], strict=True) if on}
    if absent := wanted - present:
        # a copy that gets no deletes keeps deleted rows
        text = f"does not publish {_operations(absent)}, so that no such change arrives, and copies go wrong"
        yield text, f"alter publication {name} set (publish = '{_operations(wanted | present)}')"
    if config["publish.via.partition.root"] and not row[5]:
        text = "publishes changes of partitions under their own names"
        yield text, f"alter publication {name} set ({_VIA_ROOT})"


_SETTINGS = """
select puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from pg_catalog.pg_publication
where pubname = %s
"""
FOR_ALL_TABLES = "select puballtables from pg_catalog.pg_publication where pubname = %s"


def is_for_all_tables(connection: psycopg.Connection[Any], publication: str) -> bool:
    """Return True if the publication has every table, also tables created later."""
    row = connection.execute(FOR_ALL_TABLES, (publication,)).fetchone()
    return row is not None and bool(row[0])


def _lists(connection: psycopg.Connection[Any], publication: str, captured: Sequence[CapturedTable]) -> bool:
    """Return True if the publication lists exactly the tables `captured`, without row filters and column lists."""
    if connection.info.server_version >= 150000:
        schemas = connection.execute(
            "select from pg_catalog.pg_publication_namespace n join pg_catalog.pg_publication p on p.oid = n.pnpubid "
            "where p.pubname = %s",
            (publication,),
        ).fetchone()
        if schemas is not None:
            return False
    return sorted(_entries(connection, publication)) == sorted((oid, None, None) for oid, _, _ in captured)


def _entries(connection: psycopg.Connection[Any], publication: str) -> list[tuple[Any, ...]]:
    """Return the tables of a publication's own list by oid, each with its row filter and its column list."""
    return connection.execute(
        "select r.prrelid::int8, to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs' "
        "from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid "
        "where p.pubname = %s",
        (publication,),
    ).fetchall()


_VIA_ROOT = "publish_via_partition_root = true"
_PUBLISH = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}


def _narrows(config: Config) -> bool:
    """Return True if a new publication publishes fewer than all operations.

    As in Debezium, this is so only if the configuration sets skipped.operations; neither its default nor Debezium 1.7
    restricts the publication. Events show it: a transaction of which nothing is published has neither BEGIN nor END,
    and is missing in `sequence`.
    """
    named = config["event.format"] != "1.7" and config.is_set("skipped.operations")
    return named and _published(config) != set(_PUBLISH)


def _published(config: Mapping[str, Any]) -> set[str]:
    """Return the operations that the publication must publish: those that give events, and inserts for signals."""
    signals = {"c"} if config["signal.data.collection"] else set()
    return {letter for letter in _PUBLISH if letter not in config["skipped.operations"]} | signals


def _operations(letters: set[str]) -> str:
    return ", ".join(word for letter, word in _PUBLISH.items() if letter in letters)


_IDENTITY = re.compile(
    r"(?P<table>.+):(?P<kind>FULL|DEFAULT|NOTHING|INDEX\s+(?:\"(?P<quoted>.+)\"|(?P<index>\S+)))", re.IGNORECASE
)
_PRESENT = """
select case c.relreplident when 'f' then 'full' when 'n' then 'nothing' when 'd' then 'default'
       else 'using index ' || quote_ident(i.relname) end
from pg_catalog.pg_class c
left join pg_catalog.pg_index x on x.indrelid = c.oid and x.indisreplident
left join pg_catalog.pg_class i on i.oid = x.indexrelid
where c.oid = %s
"""


def set_replica_identities(
    connection: psycopg.Connection[Any], values: Sequence[str], captured: Sequence[CapturedTable]
) -> list[str]:
    """Set replica identities by `replica.identity.autoset.values`, `expression:FULL|DEFAULT|NOTHING|INDEX name`.

    Index names are case-sensitive; those with blanks stand in double quotes. Logs and returns a warning for an identity
    that the role may not set, and for an expression that matches no table. Raises ConfigError for a value of another
    form, and for a table that matches contradicting values; PrerequisiteError for an index that cannot be used.
    """
    warnings: list[str] = []
    wanted: dict[str, tuple[CapturedTable, str]] = {}
    for value in values:
        match = _IDENTITY.fullmatch(value.strip())
        if match is None:
            raise ConfigError(
                f"replica.identity.autoset.values: {value!r} is not understood.",
                "Write schema.table:FULL, DEFAULT, NOTHING or INDEX name.",
            )
        index = match["quoted"] or match["index"]
        identity = f"using index {quoted(index)}" if index else match["kind"].lower()
        expression = compile_expression(match["table"])
        found = [entry for entry in captured if expression.fullmatch(str(entry[1]))]
        if not found:
            warnings.append(f"replica.identity.autoset.values: {match['table']} matches no captured table")
        for entry in found:
            name = str(entry[1])
            if wanted.setdefault(name, (entry, identity))[1] != identity:
                raise ConfigError(
                    f"replica.identity.autoset.values wants {name} to be {wanted[name][1]} and {identity}.",
                    "Let one expression match it.",
                )
    warnings += [text for entry, identity in wanted.values() if (text := _identify(connection, entry, identity))]
    for warning in warnings:
        log.warning("%s", warning)
    return warnings


def set_replica_identity(connection: psycopg.Connection[Any], values: Sequence[str], table: CapturedTable) -> None:
    """Set the replica identity of one table if an expression of `values` matches it. Raises as
    `set_replica_identities`."""
    named = [(value, _IDENTITY.fullmatch(value.strip())) for value in values]
    of_it = [value for value, match in named if match and compile_expression(match["table"]).fullmatch(str(table[1]))]
    set_replica_identities(connection, of_it, [table])


def _identify(connection: psycopg.Connection[Any], entry: CapturedTable, identity: str) -> str:
    """Give a table its replica identity unless it has it; return a warning if the role may not, else ""."""
    import psycopg

    oid, table, _ = entry
    row = connection.execute(_PRESENT, (oid,)).fetchone()
    if row is not None and row[0] in (identity, identity.replace('"', "")):
        return ""
    try:
        connection.execute(f"alter table {qualified(table)} replica identity {identity}".encode())
    except psycopg.errors.InsufficientPrivilege as error:
        return f"the replica identity of {table} stays as it is: {error.diag.message_primary}"
    except psycopg.errors.QueryCanceled:
        raise
    except psycopg.Error as error:
        raise PrerequisiteError(
            f"The replica identity of {table} cannot be {identity}: {error.diag.message_primary}.",
            "Name a unique index over NOT NULL columns in replica.identity.autoset.values.",
        ) from None
    log.info("set the replica identity of %s to %s", table, identity)
    return ""
