"""Rights of the user: granted rights, and tests of single rights. Driver; only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.connectors.binlog.dialect import MYSQL, Dialect
from tailrace.connectors.binlog.server.connection import rows
from tailrace.connectors.binlog.server.errors import number_of

if TYPE_CHECKING:
    from pymysql.connections import Connection

DENIED = (1142, 1143, 1044, 1227)
"""The server's error codes for a missing right."""
# error codes for a statement or function that the server does not know
_UNKNOWN = (1064, 1047, 1305, 1046)


def is_allowed(session: Connection[Any], statement: str) -> bool:
    """Return True if the server runs the statement for this user; False if it is denied, or unknown to the server."""
    import pymysql

    try:
        rows(session, statement)
    except pymysql.err.Error as error:
        if number_of(error) in (*DENIED, *_UNKNOWN):
            return False
        raise
    return True


def granted(session: Connection[Any], dialect: Dialect) -> str:
    """Return all rights of the user and its roles, as one text in capitals."""
    import pymysql

    texts = [str(row[0]) for row in rows(session, "SHOW GRANTS")]
    asks = "SELECT CURRENT_ROLE()"
    for role in [row[0] for row in rows(session, asks)] if is_allowed(session, asks) else []:
        if not role or role == "NONE":
            continue
        using = f"SHOW GRANTS FOR CURRENT_USER() USING {role}"
        try:
            texts += [str(row[0]) for row in rows(session, using if dialect is MYSQL else "SHOW GRANTS")]
        except pymysql.err.Error:
            continue
    return "\n".join(texts).upper().replace("REPLICATION REPLICA", "REPLICATION SLAVE")


def log_rights(session: Connection[Any], dialect: Dialect) -> list[str]:
    """Return the rights to read the log that the user lacks, by their names in GRANT."""
    lacking = []
    if not is_allowed(session, "SHOW MASTER STATUS") and not is_allowed(session, "SHOW BINARY LOG STATUS"):
        lacking.append(dialect.log_right)
    if "REPLICATION SLAVE" not in (text := granted(session, dialect)) and "ALL PRIVILEGES" not in text:
        lacking.append("REPLICATION SLAVE")
    return lacking
