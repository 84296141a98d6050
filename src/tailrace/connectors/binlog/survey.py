"""Survey of a server of MySQL or MariaDB: its tables, and the statements that enable capture. Driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import quoted
from tailrace.connectors.binlog.server.connection import connect, dialect_of, rows, variables
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.setup.rights import is_allowed, log_rights
from tailrace.connectors.survey import ServerSurvey, lists

if TYPE_CHECKING:
    from pymysql.connections import Connection

_WANTED = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
"""Variables of the log, with the values that are required or best for capture. Older servers lack the last."""


def _look(config: Config) -> ServerSurvey:
    with closing(connect(config)) as session:
        includes = TableFilter(config).includes
        there = [one.id for one in catalog.names(session) if catalog.holds_rows(one) and includes(*one.id)]
        statements = (*_log(config, session), *_rights(config, session, there))
        return ServerSurvey(lists(there, "database"), statements)


def _log(config: Config, session: Connection[Any]) -> Iterator[str]:
    """Yield the statements that set up the server's log. For variables that need a restart they are comments."""
    of: Mapping[str, str] = variables(session, "log_bin", "server_id", *_WANTED)
    if of.get("log_bin") != "ON":
        yield "-- in the server's configuration, with a restart: log_bin=binlog, server_id=1, binlog_format=ROW"
        return
    # SET PERSIST came with MySQL 8.0
    is_lasting = dialect_of(config) is MYSQL and int(session.get_server_info().partition(".")[0]) >= 8
    wanted = {"server_id": "1", **_WANTED} if of.get("server_id") == "0" else _WANTED
    for name, value in wanted.items():
        if name in of and of[name].upper() != value:
            if is_lasting:
                yield f"SET PERSIST {name} = {value};"
            else:
                yield f"SET GLOBAL {name} = {value}; -- and in the server's configuration"


def _rights(config: Config, session: Connection[Any], there: list[tuple[str, str]]) -> Iterator[str]:
    user, _, host = str(rows(session, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    account = "@".join("'" + part.replace("'", "''") + "'" for part in (user, host))
    lacking = log_rights(session, dialect_of(config))
    if lacking:
        yield f"GRANT {', '.join(lacking)} ON *.* TO {account};"
    closed = [name for name in there if not is_allowed(session, f"SELECT 1 FROM {quoted(*name)} LIMIT 0")]
    yield from (f"GRANT SELECT ON {quoted(*name)} TO {account};" for name in closed)
    if not there:
        # a user without a right to a table does not see it
        named = [one for one in config["database.include.list"] if re.fullmatch(r"\w+", one)]
        yield from (f"GRANT SELECT ON {quoted(name)}.* TO {account};" for name in named)


SURVEY = explained(_look)
