"""Warnings about sessions and users of Db2: unencrypted, or with excessive rights. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.config import Config
from tailrace.connectors import advice
from tailrace.connectors.db2.dialect import Db2Session
from tailrace.connectors.db2.server.catalog import quoted
from tailrace.connectors.db2.server.driver import driver_properties
from tailrace.connectors.db2.server.register import Registered
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, TailraceError

_BROAD = ("SYSADM", "SYSCTRL", "SYSMAINT", "SECADM", "DBADM", "ACCESSCTRL", "DATAACCESS", "SQLADM", "WLMADM", "LOAD",
          "CREATE_EXTERNAL_ROUTINE", "CREATE_NOT_FENCED_ROUTINE")  # fmt: skip
_AUTHORITIES = (
    "SELECT AUTHORITY FROM TABLE (SYSPROC.AUTH_LIST_AUTHORITIES_FOR_AUTHID (SESSION_USER, 'U')) AS A "
    "WHERE 'Y' IN (D_USER, D_GROUP, ROLE_USER, ROLE_GROUP)"
)
"""The authorities of the user, its groups and its roles, without those of PUBLIC. "Db2 for Linux, UNIX and Windows:
AUTH_LIST_AUTHORITIES_FOR_AUTHID"; z/OS has no such function."""


def encryption(config: Config) -> Iterator[Finding]:
    """Yield a warning if the session with another host has no TLS."""
    host = config["database.hostname"]
    if driver_properties(config).get("Security") != "SSL" and advice.is_elsewhere(host):
        yield advice.in_the_clear(
            host,
            "Set driver.Security=SSL and driver.SSLServerCertificate, and switch TLS on in the server: SSL_SVCENAME.",
        )


def rights(config: Config, session: Db2Session, registered: Sequence[Registered]) -> Iterator[Finding]:
    """Yield a warning if the user administers the instance or the database; nothing if this is unknown.

    Raises ConnectionFailed.
    """
    try:
        held = {str(row[0]).strip() for row in session.connection.rows(_AUTHORITIES)}
    except ConnectionFailed:
        raise
    except TailraceError:
        return
    more = [word for word in _BROAD if word in held]
    if more:
        yield advice.excessive(config["database.user"], more, least(config, session, registered))


def least(config: Config, session: Db2Session, registered: Sequence[Registered]) -> list[str]:
    """Return the statements that give a user of the operating system only the rights that the configuration needs."""
    user = advice.ROLE.upper()
    control = config["cdc.control.schema"]
    signals = session.signal_table()
    written = (signals.schema, signals.table) if signals is not None else None
    sources = [quoted(row.schema, row.table) for row in registered if (row.schema, row.table) != written]
    found = [
        f"grant connect on database to user {user};",
        *(f"grant select on {quoted(control, name)} to user {user};" for name in ("IBMSNAP_REGISTER", "IBMSNAP_UOW")),
        *(
            f"grant select on {quoted(control, name)} to user {user};"
            for name in ("IBMSNAP_CAPPARMS", "IBMSNAP_CAPMON", "IBMSNAP_IGNTRAN")
        ),
        *advice.some(
            [quoted(row.change_schema, row.change_table) for row in registered], f"grant select on {{}} to user {user};"
        ),
        *advice.some(sources, f"grant select on {{}} to user {user};"),
    ]
    if written is not None:
        deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        found.append(f"grant insert{', select, delete' if deletes else ''} on {quoted(*written)} to user {user};")
    return found
