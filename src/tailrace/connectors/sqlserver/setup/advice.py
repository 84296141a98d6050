"""Warnings about sessions and logins of SQL Server: unencrypted, or with excessive rights. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.columns import TableId
from tailrace.config import Config
from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.connectors.sqlserver.dialect import SqlServerSession
from tailrace.connectors.sqlserver.options import signal_tables
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.server.driver import keywords
from tailrace.connectors.sqlserver.values.texts import quoted


def encryption(config: Config) -> Iterator[Finding]:
    """Yield a warning unless the driver demands encryption. The server's own demand is not checked."""
    host = config["database.hostname"]
    if keywords(config)["Encrypt"] == "no" and advice.is_elsewhere(host):
        yield advice.in_the_clear(
            host,
            "Set driver.encrypt=true; for a server certificate without a trusted authority, name the certificate in "
            "driver.serverCertificate.",
        )


def rights(config: Config, session: SqlServerSession, captured: Sequence[TableId]) -> Iterator[Finding]:
    """Yield a warning if the login owns the server or the database, or may change data or rights in it."""
    found = session.all(statements.BROAD)[0]
    more = [word for word, held in zip(statements.BROAD_WORDS, found, strict=True) if held == 1]
    # the widest right includes all others
    whole = next((word for word in more if word in statements.BROAD_OWNERS), None)
    if more:
        user = f"{config['database.user'] or 'of this process'} in {session.database}"
        yield advice.excessive(user, [whole] if whole else more, least(config, session, captured))


def least(config: Config, session: SqlServerSession, captured: Sequence[TableId]) -> list[str]:
    """Return the statements that create a login with only the rights that the configuration needs in the session's
    database."""
    named = signal_tables(config["signal.data.collection"], tuple(config["database.names"]))
    signals = [table for name, table in named.items() if name.lower() == session.database.lower()]
    tables = [(one.schema, one.table) for one in captured if (one.schema, one.table) not in signals]
    roles = {row[-1] for row in session.all(statements.CAPTURES) if row[5:7] in (*tables, *signals)}
    found = [
        f"create login {advice.ROLE} with password = '…';",
        f"use {quoted(session.database)};",
        f"create user {advice.ROLE} for login {advice.ROLE};",
        f"grant select on schema::cdc to {advice.ROLE};",
        *advice.some([quoted(*table) for table in tables], f"grant select on {{}} to {advice.ROLE};"),
        *(f"alter role {quoted(role)} add member {advice.ROLE};" for role in sorted(filter(None, roles))),
    ]
    deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
    for table in signals:
        found.append(f"grant select, insert{', delete' if deletes else ''} on {quoted(*table)} to {advice.ROLE};")
    return found
