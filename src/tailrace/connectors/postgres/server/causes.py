"""Causes of failures, from the texts of PostgreSQL and libpq: errors with remedies. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError


def known(causes: tuple[Cause, ...], text: str, names: Mapping[str, Any]) -> TailraceError | None:
    """Return the error of the first of `causes` that matches a server's or libpq's text, on one line; None if none."""
    for expression, kind, message, remedy in causes:
        if re.search(expression, text, re.IGNORECASE):
            return kind(message.format(**names), remedy.format(**names))
    return None


# The server's hint has the setting's name, which is the same in every language.
_LOCKS = re.compile(r"\bmax_(?:pred_)?locks_per_transaction\b")


def out_of_locks(error: Exception) -> PrerequisiteError | None:
    """Return the error of a statement that failed for lack of locks; None for other failures.

    It is lasting, because a retry would need as many locks.
    """
    hint = getattr(getattr(error, "diag", None), "message_hint", None)
    found = _LOCKS.search(hint or str(error))
    return None if found is None else PrerequisiteError("PostgreSQL has no room for more locks.", more_locks(found[0]))


# The server's text, if it is English: it holds a table's name and no data.
_HIDDEN = re.compile(r'row-level security policy for table "((?:[^"]|"")+)"')


def hidden_rows(error: Exception) -> PrerequisiteError | None:
    """Return the error of a read that is refused because a policy would hide rows from the role; None for other
    failures."""
    found = _HIDDEN.search(str(error))
    return None if found is None else PrerequisiteError(f"{found[1]}: {HIDES}.", SHOW)


HIDES = "row-level security hides rows of it from this role, and the log shows their changes"
SHOW = "alter role … bypassrls; or leave it out."


# The server's texts, if they are English: they hold the bytes of a character. A query that fails half-way has no
# SQLSTATE.
_UNTRANSLATABLE = re.compile(r'has no equivalent in encoding "UTF8"|invalid byte sequence for encoding')
_UNTRANSLATABLE_STATES = ("22P05", "22021")


def untranslatable(error: Exception) -> PrerequisiteError | None:
    """Return the error of a read that is refused because a text cannot be converted to UTF-8; None for other
    failures."""
    if getattr(error, "sqlstate", None) not in _UNTRANSLATABLE_STATES and not _UNTRANSLATABLE.search(str(error)):
        return None
    return PrerequisiteError(
        "PostgreSQL cannot send a text of a captured table or of its log: in the database's encoding its bytes are no "
        "character, so that it has no form in UTF-8.",
        "Correct such texts at the source: convert_to(column, 'UTF8') fails for them. The log keeps what was written "
        "before: if it is in the log, drop the slot and the checkpoint then, for a new snapshot.",
    )


_READ_ONLY = "25006"


def read_only(error: Exception) -> PrerequisiteError | None:
    """Return the error of a statement that writes in a session that may only read; None for other failures."""
    if getattr(error, "sqlstate", None) != _READ_ONLY:
        return None
    return PrerequisiteError(
        "PostgreSQL refuses a statement that writes: the sessions of this role are read-only "
        "(default_transaction_read_only), or the server is a standby.",
        "alter role … reset default_transaction_read_only; or let nothing be written: create the publication with "
        "publication.autocreate.mode=disabled, and set read.only=true for signals.",
    )


def deliberate(error: Exception) -> PrerequisiteError | None:
    """Return the error of a statement that would fail again at each retry; None for other failures."""
    return out_of_locks(error) or hidden_rows(error) or untranslatable(error) or read_only(error)


def more_locks(setting: str = "max_locks_per_transaction") -> str:
    """Return the remedy for a server that has too few locks."""
    return (
        f"alter system set {setting} = …; with a larger number, and restart the server. A snapshot takes one lock for "
        "each of its tables and partitions, and one for each index of a table while it looks for rows: or read fewer "
        "tables in one pipeline."
    )


Cause = tuple[str, type[TailraceError], str, str]
"""An expression for the text, and the error's class, message and remedy."""

TLS: tuple[Cause, ...] = (
    (
        r"server does not support SSL",
        ConnectionFailed,
        "{place} does not offer TLS, which database.sslmode demands.",
        "Set database.sslmode to prefer or disable, or switch TLS on in the server.",
    ),
    (
        r"server certificate for .* does not match host name|hostname mismatch",
        ConnectionFailed,
        "TLS with {place} fails: its certificate is for another name.",
        "Name the server in database.hostname as its certificate does; database.sslmode=verify-ca checks the authority "
        "alone.",
    ),
    (
        r"root certificate file .* does not exist|could not read root certificate file",
        ConnectionFailed,
        "TLS with {place} fails: there is no file of authorities to check its certificate with.",
        "Name one, PEM, in database.sslrootcert; it has to exist where the tasks run, too. The value system means the "
        "authorities that the operating system trusts.",
    ),
    (
        r"certificate verify failed|self-?signed certificate|unable to get (?:local )?issuer",
        ConnectionFailed,
        "TLS with {place} fails: no authority of database.sslrootcert has signed its certificate, or it has expired.",
        "Name the file of the server's authority, PEM, in database.sslrootcert.",
    ),
    (
        r"alert (?:certificate required|unknown ca|bad certificate|handshake failure)"
        r"|requires a valid client certificate|could not load private key file|certificate file .* does not exist",
        ConnectionFailed,
        "TLS with {place} fails: the server asks for a client certificate and does not get a valid one.",
        "Name certificate and key, PEM, in database.sslcert and database.sslkey, and the key's password in "
        "database.sslpassword; the key may be readable by its owner alone.",
    ),
    (
        r"certificate|SSL error|\bssl\b|SSL SYSCALL",
        ConnectionFailed,
        "TLS with {place} fails.",
        "Check database.sslmode, database.sslrootcert, database.sslcert and database.sslkey.",
    ),
)

CAUSES: tuple[Cause, ...] = (
    (
        r"could not translate host name|name or service not known|could not resolve|nodename nor servname"
        r"|failed to resolve",
        ConnectionFailed,
        "The host {host} is not known.",
        "Check database.hostname.",
    ),
    (
        r"connection refused|^(?!.*(?:certificate|key) file).*no such file or directory|network is unreachable"
        r"|no route to host",
        ConnectionFailed,
        "Nothing listens at {place}.",
        "Check database.hostname and database.port, and that the server runs and listens on that address.",
    ),
    (
        r"timeout expired|timed out",
        ConnectionFailed,
        "{place} does not answer in time.",
        "Check database.hostname, database.port and the firewalls in between.",
    ),
    (
        r"password authentication failed|no password supplied|authentication failed|SCRAM",
        ConnectionFailed,
        "{place} refuses the password of user {user}.",
        "Check database.user and {source}.",
    ),
    (
        r'role ".*" does not exist',
        ConnectionFailed,
        "There is no user {user} at {place}.",
        "Check database.user, or create it: create role {user} with login replication.",
    ),
    (
        r'role ".*" is not permitted to log in',
        ConnectionFailed,
        "The user {user} may not log in at {place}.",
        "alter role {user} with login.",
    ),
    (
        r'database ".*" does not exist',
        PrerequisiteError,
        "There is no database {database} at {place}.",
        "Check database.dbname.",
    ),
    (
        r'permission denied for database ".*"',
        PrerequisiteError,
        "The user {user} may not connect to the database {database}.",
        "grant connect on database {database} to {user}.",
    ),
    (
        r"must be superuser or replication role|permission denied to start WAL sender",
        PrerequisiteError,
        "The user {user} may not read the log.",
        "alter role {user} with replication.",
    ),
    (
        r"unsupported startup parameter|replication connections? (?:are|is) not supported|not supported by pgbouncer",
        PrerequisiteError,
        "At {place} a connection pooler answers, which has no replication connections.",
        "Name the server itself in database.hostname and database.port.",
    ),
    (
        r"no pg_hba.conf entry",
        ConnectionFailed,
        "{place} has no pg_hba.conf entry for user {user}, database {database} and this client's address.",
        "Add an entry to pg_hba.conf (a replication connection with a database matches the database's own), "
        "and check database.sslmode: the entry may ask for TLS.",
    ),
    *TLS,
    (
        r"too many clients|remaining connection slots|too many connections",
        ConnectionFailed,
        "{place} has no connection left.",
        "Raise max_connections or close idle connections.",
    ),
    (
        r"number of requested standby connections exceeds max_wal_senders",
        PrerequisiteError,
        "{place} has no WAL sender left.",
        "Raise max_wal_senders or stop an idle replication client.",
    ),
    (
        r"the database system is (starting up|shutting down|in recovery)",
        ConnectionFailed,
        "{place} is not ready for connections.",
        "Wait until the server has started.",
    ),
)
