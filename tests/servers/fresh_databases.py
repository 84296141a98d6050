"""Fresh databases of one PostgreSQL, used again: to empty one costs much less than to make one.

The catalogs tell whether a database is as new: each holds as many rows as the template's, and none that was written
since. A database that cannot be made so is to be dropped.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

_TEMPLATE = "template_of_tests"
_MOST_USES = 25
"""The number of uses of a database: what its catalogs have forgotten still lies in their files."""

_CATALOGS = (
    "select relname from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' "
    "and not relisshared and relname <> 'pg_statistic' order by 1"
)
_SCHEMAS = (
    "select nspname from pg_namespace where nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'public')"
)
_OTHERS = (
    "select nspowner::regrole::text, nspacl::text, obj_description(oid, 'pg_namespace') from pg_namespace "
    "where nspname = 'public'",
    "select datdba, datacl::text, datconnlimit, dattablespace, "
    "(select count(*) from pg_db_role_setting where setdatabase = d.oid), "
    "(select count(*) from pg_subscription where subdbid = d.oid) "
    "from pg_database d where datname = current_database()",
)
_REMADE = {
    "pg_namespace": "and nspname <> 'public'",
    "pg_description": "and classoid <> 'pg_namespace'::regclass",
}
"""The schema public is made anew: its row and its description may be young."""


class FreshDatabases:
    """Makes and renews databases over `connection`, a superuser's; `dsn` ends with the name of a database."""

    def __init__(self, connection: psycopg.Connection[Any], dsn: str) -> None:
        self.connection = connection
        self._dsn = dsn
        self._idle: list[tuple[str, int]] = []
        self._uses: dict[str, int] = {}
        self._make_template()

    def create(self, name: str) -> None:
        """Make a fresh database, by a copy of the template's files."""
        statement = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(_TEMPLATE))
        if self.connection.info.server_version >= 150000:
            statement += sql.SQL(" strategy file_copy")
        self.connection.execute(statement)

    def take(self, name: str) -> None:
        """Give the name to a database that was given back, or make one."""
        if not self._idle:
            self.create(name)
            self._uses[name] = 1
            return
        known, uses = self._idle.pop()
        if known != name:
            self.connection.execute(
                sql.SQL("alter database {} rename to {}").format(sql.Identifier(known), sql.Identifier(name))
            )
        self._uses[name] = uses + 1

    def give_back(self, name: str) -> bool:
        """Empty a database that nobody uses any longer; False when it is not as new thereafter."""
        uses = self._uses.pop(name, _MOST_USES)
        if uses >= _MOST_USES:
            return False
        try:
            with psycopg.connect(f"{self._dsn}{name}", autocommit=True) as own:
                if not self._renew(own):
                    return False
        except psycopg.Error:
            return False
        self._idle.append((name, uses))
        return True

    def _make_template(self) -> None:
        name = sql.Identifier(_TEMPLATE)
        self.connection.execute(
            sql.SQL(
                "create database {} template template0 encoding 'UTF8' lc_collate 'C.UTF-8' lc_ctype 'C.UTF-8'"
            ).format(name)
        )
        with psycopg.connect(f"{self._dsn}{_TEMPLATE}", autocommit=True) as own:
            own.execute(_public(own.info.server_version))
            # the texts are much of what there is to copy, and nobody reads them
            own.execute("delete from pg_description where classoid <> 'pg_namespace'::regclass")
            own.execute("vacuum (full, freeze)")
            self._counts = self._count(own)
            self._new = self._state(own)
        self.connection.execute(sql.SQL("alter database {} with is_template true allow_connections false").format(name))

    def _count(self, own: psycopg.Connection[Any]) -> bytes:
        """A statement that counts the rows of each catalog, and those that were written from now on."""
        row = own.execute("select pg_current_xact_id()::xid::text").fetchone()
        assert row is not None
        parts = [
            f"(select row(count(*), count(*) filter (where age(xmin) <= age(xid '{row[0]}') {_REMADE.get(name, '')})) "
            f"from pg_catalog.{name})::text"
            for (name,) in own.execute(_CATALOGS).fetchall()
        ]
        return f"select concat_ws(' ', {', '.join(parts)})".encode()

    def _state(self, own: psycopg.Connection[Any]) -> list[Any]:
        return [own.execute(text).fetchall() for text in (self._counts, *_OTHERS)]

    def _renew(self, own: psycopg.Connection[Any]) -> bool:
        database = sql.Identifier(own.info.dbname)
        statements: list[sql.Composable] = [sql.SQL("alter database {} reset all").format(database)]
        for (name,) in own.execute("select pubname from pg_publication").fetchall():
            statements.append(sql.SQL("drop publication {}").format(sql.Identifier(name)))
        for (name,) in own.execute(_SCHEMAS).fetchall():
            statements.append(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))
        statements.append(sql.SQL(_public(own.info.server_version)))
        own.execute(sql.SQL("; ").join(statements))
        return self._state(own) == self._new


def _public(version: int) -> LiteralString:
    """The statements that make the schema public anew, as it is in a new database."""
    own: LiteralString = "authorization pg_database_owner; grant usage on schema public to public"
    if version < 150000:
        own = "; grant all on schema public to public"
    return (
        "drop schema if exists public cascade; create schema public "
        + own
        + "; comment on schema public is 'standard public schema'"
    )
