"""Conversion of errors of the server and of PyMySQL to TailraceErrors. No I/O.

The server's messages may contain values of rows, so they are shown only for errors whose messages cannot.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from tailrace.config.credentials import Credential, without_secrets
from tailrace.errors import (
    ConfigError,
    ConnectionFailed,
    PositionLost,
    PrerequisiteError,
    StatementCutOff,
    TailraceError,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Kind = type[TailraceError]
_AGAIN = "Start again with the same checkpoint when it is back."
_RIGHTS = "tailrace check says which rights the user lacks."

_LOGIN: Mapping[int, tuple[_Kind, str, str]] = {
    1040: (ConnectionFailed, "{place} has no connection left.", "Raise max_connections or close idle connections."),
    1044: (PrerequisiteError, "The user {user} may not use a database at {place}.", _RIGHTS),
    1045: (
        ConnectionFailed, "{place} refuses user or password of {user}, from this client's address.",
        "Check database.user and {source}, and for which hosts the user exists.",
    ),
    1129: (
        ConnectionFailed, "{place} blocks this client after too many failed connections.",
        "Run FLUSH HOSTS there, or raise max_connect_errors.",
    ),
    1130: (
        ConnectionFailed, "{place} lets no user log in from this client's address.",
        "Create the user for this client's host or for '%'.",
    ),
    1203: (ConnectionFailed, "The user {user} has no connection left at {place}.", "Raise max_user_connections."),
    1226: (ConnectionFailed, "The user {user} has used up a limit at {place}.", "Raise the limits of the user."),
    1251: (
        PrerequisiteError, "{place} logs {user} in by a plug-in that this client does not have.",
        "Let the user log in by caching_sha2_password or mysql_native_password.",
    ),
    1698: (
        ConnectionFailed, "{place} refuses the login of {user}.",
        "Check database.user, {source} and the user's way to log in: a password.",
    ),
    1820: (PrerequisiteError, "The password of {user} has expired.", "ALTER USER … IDENTIFIED BY …"),
    1862: (PrerequisiteError, "The password of {user} has expired.", "ALTER USER … IDENTIFIED BY …"),
    2059: (
        PrerequisiteError, "{place} logs {user} in by a plug-in that this client does not have.",
        "Let the user log in by caching_sha2_password or mysql_native_password.",
    ),
    3118: (PrerequisiteError, "The user {user} is locked.", "ALTER USER … ACCOUNT UNLOCK"),
    3159: (
        ConnectionFailed, "{place} takes connections with TLS alone.", "Set database.ssl.mode to {require}.",
    ),
    4151: (PrerequisiteError, "The user {user} is locked.", "ALTER USER … ACCOUNT UNLOCK"),
}  # fmt: skip
"""Errors of a login, by the server's error code."""

_REACHING: tuple[tuple[str, str, str], ...] = (
    (
        r"name or service not known|getaddrinfo|nodename nor servname|no address associated|name resolution",
        "The host {host} is not known.", "Check database.hostname.",
    ),
    (
        r"certificate verify failed.*(hostname|ip address) mismatch",
        "TLS with {place} fails: its certificate is made out to another name.",
        "Name the server in database.hostname as its certificate does, or let database.ssl.mode be {authority}, which "
        "checks the authority alone.",
    ),
    (
        r"certificate verify failed|self.signed certificate",
        "TLS with {place} fails: no authority of database.ssl.truststore has signed its certificate, or the "
        "certificate has expired.",
        "Name the file of the server's authority in database.ssl.truststore.",
    ),
    (
        r"doesn't support ssl|not support(ed)? (ssl|tls)|ssl is required",
        "{place} does not offer TLS, which database.ssl.mode demands.",
        "Set database.ssl.mode to another word, or switch TLS on in the server.",
    ),
    (
        r"\bssl\b|\btls\b|handshake",
        "TLS with {place} fails.",
        "Check database.ssl.mode and the stores that database.ssl.* name. Servers before MySQL 5.7.28 may know no TLS "
        "that is still in use.",
    ),
    (
        r"refused|unreachable|no route",
        "Nothing listens at {place}.",
        "Check database.hostname and database.port, and that the server runs and listens on that address.",
    ),
    (
        r"timed? ?out",
        "{place} does not answer in time.",
        "Check database.hostname, database.port and the firewalls in between, or raise connect.timeout.ms.",
    ),
)  # fmt: skip
"""Errors of connecting, by expressions for their messages."""

_LOST = {2006, 2013, 2014, 2055, 1053, 1077, 1079, 1080, 1152, 1153, 1154, 1158, 1159, 1160, 1161, 1927, 4031}
"""Codes of errors that end a session."""
_CUT_OFF = {1317, 1969, 3024}
_LOCKED = {1205, 1213, 3058, 3572}
_RIGHT = {1044, 1142, 1143, 1227, 1370, 1419, 3619}
_GONE = {1049, 1051, 1054, 1109, 1146, 1412}

_DUMP: tuple[tuple[str, _Kind, str, str], ...] = (
    (
        r"same server_?(uu)?id|server_id as this (slave|replica)",
        ConfigError,
        "Another replica of the server has the number of database.server.id, and takes the log away from this one.",
        "Give each replica and each pipeline a number of its own, or leave database.server.id out.",
    ),
    (
        r"max_allowed_packet",
        PrerequisiteError,
        "The log has an event that is larger than the server sends.",
        "Raise max_allowed_packet, or on MySQL replica_max_allowed_packet (slave_max_allowed_packet), on the server.",
    ),
    (
        r"could not find first log|purged|too old|could not find next log|not in the (master|source)'s bin"
        r"|could not find gtid state",
        PositionLost,
        "The server no longer has the log from the checkpoint on: it was purged.",
        "See binlog_expire_logs_seconds. Changes are lost: begin anew with another checkpoint and a snapshot, or set "
        "snapshot.mode=when_needed.",
    ),
    (
        r"more gtids than|diverged|requested to start from gtid|position > file size|impossible position",
        PositionLost,
        "The checkpoint lies behind what the server's log has: it is another server, or its log has begun anew.",
        "Connect to the server that the checkpoint belongs to, or begin anew with another checkpoint and a snapshot.",
    ),
    (
        r"gtid_mode|auto_position",
        PrerequisiteError,
        "The server refuses to send its log by the ids of transactions.",
        "Set gtid_mode=ON on the server, or gtid.ignore.on.recovery=true to go on by file and position.",
    ),
    (
        r"crc|checksum|bogus|truncated|corrupt",
        PositionLost,
        "The server cannot read its own log: an event in it is damaged.",
        "See the server's error log. What is behind the event is lost: begin anew with another checkpoint and a "
        "snapshot.",
    ),
    (
        r"binary log is not open|not open",
        PrerequisiteError,
        "The server writes no binary log.",
        "Set log_bin, binlog_format=ROW and server_id in the server's configuration, and restart it.",
    ),
)  # fmt: skip
"""Errors 1236 and 1381 of a session that reads the log, by expressions for their messages."""


def number_of(error: Exception) -> int:
    """Return the number of an error of PyMySQL; 0 without one."""
    found = error.args[0] if error.args else 0
    return found if isinstance(found, int) else 0


def text_of(error: Exception) -> str:
    """Return the text of an error of PyMySQL on one line."""
    text = error.args[1] if len(error.args) > 1 else error.args[0] if error.args else ""
    return " ".join(str(text).split()).rstrip(".")


def explain(error: Exception, config: Mapping[str, Any], modes: Mapping[str, str], password: str = "") -> TailraceError:
    """Return the error for a failed login, without `password`. `modes` is the `tls_modes` of the dialect."""
    host, place = config["database.hostname"], f"{config['database.hostname']}:{config['database.port']}"
    words = {meaning: word for word, meaning in modes.items()}
    source = Credential.of(config).option
    names = {"place": place, "host": host, "user": config["database.user"], "source": source} | words
    known = _LOGIN.get(number_of(error))
    if known is not None:
        kind, message, remedy = known
        return kind(message.format(**names), remedy.format(**names))
    text = text_of(error)
    for expression, message, remedy in _REACHING:
        if re.search(expression, text, re.IGNORECASE):
            return ConnectionFailed(message.format(**names), remedy.format(**names))
    shown = without_secrets(text, (password,), (host, config["database.user"]))
    return ConnectionFailed(f"No connection to {place}: {shown}.", "Check the database.* options and the server's log.")


def refused(error: Exception) -> TailraceError:
    """Return the error for a statement that failed, or for a session that ended."""
    number = number_of(error)
    if number in (1236, 1381):
        return dump_error(text_of(error))
    # the error code of an OSError is the operating system's
    is_socket = isinstance(error, OSError)
    if is_socket or number in _LOST or (number == 0 and not isinstance(error, ValueError)):
        return ConnectionFailed(f"The session with the server failed: {_words(error)}.", _AGAIN)
    if number in _CUT_OFF:
        return StatementCutOff(
            f"A statement was cancelled (error {number}).",
            "See what holds it up (SHOW PROCESSLIST), or raise database.query.timeout.ms; 0: no limit.",
            is_lasting=number != 1317,
        )
    if number in _LOCKED:
        return ConnectionFailed(
            f"A statement has waited for locks for too long (error {number}).",
            "See which session holds them: SHOW PROCESSLIST.",
        )
    if number in _RIGHT:
        return PrerequisiteError(f"The server refuses a statement: {text_of(error)}.", _RIGHTS)
    if number in _GONE:
        return PrerequisiteError(
            f"The server refuses a statement: {text_of(error)}.",
            "See whether a table or column was altered or dropped.",
        )
    return TailraceError(f"A statement failed: error {number} of the server.", "The server's log says more.")


def _words(error: Exception) -> str:
    number = 0 if isinstance(error, OSError) else number_of(error)
    return f"error {number}" if number else type(error).__name__


def dump_error(text: str) -> TailraceError:
    """Return the error for the server's refusal to send its log, from the message of error 1236 or 1381."""
    for expression, kind, message, remedy in _DUMP:
        if re.search(expression, text, re.IGNORECASE):
            return kind(message, remedy)
    return PrerequisiteError(f"The server does not send its log: {text}.", "See the server's error log.")


def lasting(error: Exception) -> TailraceError | None:
    """Return the error of a session that reads the log if a new session would fail as well, else None."""
    found = error if isinstance(error, TailraceError) else refused(error)
    if isinstance(found, ConnectionFailed) and not found.is_lasting:
        return None
    return found


def explained(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that calls `call` and raises errors of PyMySQL and its sockets as TailraceErrors."""

    @functools.wraps(call)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        import pymysql

        try:
            return call(*args, **kwargs)
        except (pymysql.err.Error, OSError, EOFError) as error:
            raise refused(error) from None

    return guarded
