"""Hypertables and their chunks, from TimescaleDB's catalog. Planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.connectors.postgres.server import connection as connections
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.process.runtime import THREADS, Runtime
from tailrace.records.hypertables import Catalogue, Hypertable, Hypertables, Table

if TYPE_CHECKING:
    import psycopg

_CHUNKS = """
select c.schema_name::text, c.table_name::text, h.schema_name::text, h.table_name::text,
       a.user_view_schema::text, a.user_view_name::text
from _timescaledb_catalog.chunk c
join _timescaledb_catalog.hypertable h on h.id = c.hypertable_id
left join _timescaledb_catalog.continuous_agg a on a.mat_hypertable_id = h.id
where (c.schema_name::text, c.table_name::text) in (
  select * from rows from (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[]))
)
"""
_WHOSE = "What the transform TimescaleDb asks for"


class HypertableCatalog:
    """Queries hypertables for the transforms of a query; `connect` opens sessions in autocommit mode.

    Raises ConfigError if more than one transform needs them.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        settings: EventSettings,
        connect: Callable[[Mapping[str, Any]], psycopg.Connection[Any]],
        runtime: Runtime = THREADS,
    ) -> None:
        self._config = config
        self._settings = settings
        self._connect = connect
        self._runtime = runtime
        self._connection: psycopg.Connection[Any] | None = None
        self._has_asked = False
        self._given: tuple[Hypertables, EventSettings] | None = None
        asking: list[Catalogue] = [found for one in settings.transforms if (found := getattr(one, "asks", None))]
        if len(asking) > 1:
            raise ConfigError("transforms has TimescaleDb more than once.", "Leave all but one of them out.")
        self._asks = asking[0] if asking else None

    @property
    def is_asked(self) -> bool:
        """True if a transform needs to know hypertables."""
        return self._asks is not None

    def learned(self, known: Hypertables, tables: Iterable[Table]) -> Hypertables:
        """Return the hypertables of a batch's `tables`, and of the tables `known` before.

        The catalog is queried once at the start, and again for tables that are not known yet. Raises TailraceError if
        it does not answer.
        """
        if self._asks is None:
            return known
        wanted = {table for table in tables if table[0] in self._asks.schemas}
        if not wanted or (self._has_asked and wanted <= known.of.keys()):
            return known
        found = known.of | self._asked(sorted(wanted | known.of.keys()))
        self._has_asked = True
        return known if found == known.of else Hypertables(found)

    def settings(self, known: Hypertables) -> EventSettings:
        """Return the settings for the tasks of a batch, whose transforms get `known`."""
        if self._asks is None:
            return self._settings
        if self._given is None or self._given[0] != known:
            transforms = tuple(_knowing(one, known) for one in self._settings.transforms)
            self._given = known, replace(self._settings, transforms=transforms)
        return self._given[1]

    def close(self) -> None:
        """End the session, if there is one. The next call of `learned` opens another, and queries all tables again."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._has_asked = None, False

    def _asked(self, tables: list[Table]) -> dict[Table, Hypertable]:
        import psycopg

        assert self._asks is not None
        login = dict(self._asks.login)
        place = f"{login['database.hostname']}:{login['database.port']}"
        try:
            if self._connection is None or connections.is_lost(self._connection, self._runtime):
                self._connection = self._connect({**self._config, **login, "database.initial.statements": []})
            schemas, names = [schema for schema, _ in tables], [name for _, name in tables]
            rows = self._connection.execute(_CHUNKS, (schemas, names)).fetchall()
        except ConnectionFailed as error:
            raise ConnectionFailed(f"{_WHOSE}: {error.message}", error.remedy, is_lasting=error.is_lasting) from None
        except TailraceError as error:
            raise PrerequisiteError(f"{_WHOSE}: {error.message}", error.remedy) from None
        except psycopg.ProgrammingError as error:
            raise PrerequisiteError(
                f"{_WHOSE}: the catalog of TimescaleDB cannot be read in {login['database.dbname']} at {place}: "
                f"{error.diag.message_primary}.",
                "Name the database that has the extension timescaledb in the transform's database.* options, and grant "
                "usage on the schema _timescaledb_catalog and select on its tables to that user.",
            ) from None
        return {(schema, table): Hypertable(*found) for schema, table, *found in rows}


def _knowing(transform: Any, known: Hypertables) -> Any:
    return transform if getattr(transform, "asks", None) is None else transform.knowing(known)
