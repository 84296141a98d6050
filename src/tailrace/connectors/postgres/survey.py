"""Survey of a PostgreSQL server: its tables, and statements for missing settings and rights of the user. Driver."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog, captured_tables
from tailrace.connectors.postgres.schema.inventory import publication_of
from tailrace.connectors.postgres.server.connection import connect, explained
from tailrace.connectors.postgres.snapshot.session import qualified, quoted
from tailrace.connectors.survey import ServerSurvey, lists

if TYPE_CHECKING:
    import psycopg

_RIGHTS = """
select current_setting('wal_level') = 'logical', rolsuper or rolreplication or exists (select from pg_roles m
  where m.rolname in ('rds_replication', 'cloudsqlsuperuser') and pg_has_role(r.oid, m.oid, 'member')),
  rolsuper or has_database_privilege(current_database(), 'create')
from pg_roles r where r.rolname = current_user
"""
_UNREADABLE = """
select c.oid::int8, not has_schema_privilege(c.relnamespace, 'usage') from pg_class c where c.oid = any(%s::oid[])
  and not (has_schema_privilege(c.relnamespace, 'usage') and has_table_privilege(c.oid, 'select'))
"""
_NOT_OWNED = "select count(*) from pg_class c where c.oid = any(%s::oid[]) and not pg_has_role(c.relowner, 'usage')"


def _look(config: Config) -> ServerSurvey:
    with closing(connect(config)) as connection:
        tables = captured_tables(Catalog(connection, config["database.dbname"]).tables(), TableFilter(config))
        return _found(config, connection, tables)


def _found(config: Config, connection: psycopg.Connection[Any], tables: list[CapturedTable]) -> ServerSurvey:
    user, oids = quoted(config["database.user"]), [oid for oid, _, _ in tables]
    row = connection.execute(_RIGHTS.encode()).fetchone()
    assert row is not None
    is_logical, may_replicate, may_create = row
    statements = []
    if not is_logical:
        statements.append("alter system set wal_level = logical; -- and restart the server")
    if not may_replicate:
        statements.append(f"alter role {user} with replication;")
    hidden = dict(connection.execute(_UNREADABLE.encode(), (oids,)).fetchall())
    unreadable = [(oid, table) for oid, table, _ in tables if oid in hidden]
    statements += [
        f"grant usage on schema {quoted(schema)} to {user};"
        for schema in dict.fromkeys(table.schema for oid, table in unreadable if hidden[oid])
    ]
    if unreadable:
        statements.append(f"grant select on {', '.join(qualified(table) for _, table in unreadable)} to {user};")
    entries = list(lists([(table.schema, table.table) for _, table, _ in tables], "schema"))
    counted = connection.execute(_NOT_OWNED.encode(), (oids,)).fetchone()
    assert counted is not None
    if may_create and not counted[0]:
        entries.append(("publication.autocreate.mode", "filtered"))
    else:
        entries.append(("publication.autocreate.mode", "disabled"))
        if tables and not publication_of(connection, config):
            listed = ", ".join(qualified(table) for _, table, _ in tables)
            statements.append(f"create publication {quoted(config['publication.name'])} for table {listed};")
    return ServerSurvey(tuple(entries), tuple(statements))


SURVEY = explained(_look)
