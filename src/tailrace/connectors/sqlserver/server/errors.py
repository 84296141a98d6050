"""The meaning of the errors of SQL Server and of Microsoft's driver. No I/O.

The driver's exceptions carry the meaning of the SQLSTATE in words and the server's message, but not its number. Since
sessions ask for English (`connection.connect`), the messages of "Database engine events and errors" are matched; their
numbers are in the comments. Every error that is raised has a remedy and contains no row's data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.config.credentials import Credential, without_secrets
from tailrace.errors import (
    ConfigError,
    ConnectionFailed,
    PositionLost,
    PrerequisiteError,
    StatementCutOff,
    TailraceError,
)

LOST = (
    "Client unable to establish connection",
    "Connection not open",
    "Server rejected the connection",
    "Connection failure during transaction",
    "Communication link failure",
    "Connection timeout expired",
    "Disconnect error",
)
"""The meanings of the SQLSTATEs 08…, HYT01 and 01002, in the driver's words."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A message: an expression that matches it, and its meaning. `{place}`, `{user}`, `{database}` and groups fill both
    texts."""

    expression: re.Pattern[str]
    kind: type[TailraceError]
    message: str
    remedy: str


def _cause(expression: str, kind: type[TailraceError], message: str, remedy: str) -> Cause:
    return Cause(re.compile(expression, re.IGNORECASE | re.DOTALL), kind, message, remedy)


_CAUSES = (
    # 18456, 18452, 18470, 18486-18488
    _cause(
        r"login failed for user|account is disabled|password of the account|login is from an untrusted domain",
        ConnectionFailed,
        "{place} refuses the login {user}.",
        "Check database.user and {source}, and that the server allows SQL logins (mixed mode).",
    ),
    # 4060, 911, 916
    _cause(
        r"cannot open database|database '.*' does not exist|is not able to access the database",
        PrerequisiteError,
        "The login {user} cannot open the database {database} at {place}.",
        "Check database.names; the database needs a user for the login: create user … for login ….",
    ),
    # 17142, 18401, 983, 927, 942, 922
    _cause(
        r"is paused|only administrators can connect|script upgrade mode|in the middle of a restore|is offline"
        r"|is being recovered|server is not ready|unable to access availability database",
        ConnectionFailed,
        "{place} is not ready for connections to the database {database}.",
        "Wait until the server has started the database.",
    ),
    # 978
    _cause(
        r"application intent is set to read only",
        PrerequisiteError,
        "{place} is a readable secondary.",
        "Set driver.applicationIntent=ReadOnly, or name the primary in database.hostname.",
    ),
    _cause(
        r"failed to lookup address|name or service not known|nodename nor servname|no such host|not found in DNS",
        ConnectionFailed,
        "The host of {place} is not known.",
        "Check database.hostname.",
    ),
    _cause(
        r"browser did not respond|locating server/instance",
        ConnectionFailed,
        "The instance {place} is not found: the server's Browser service does not name its port.",
        "Check database.instance, start the service SQL Server Browser, or give the port in database.port.",
    ),
    _cause(
        r"does not support encryption|encryption not supported",
        ConnectionFailed,
        "TLS with {place} fails: the server does not offer it.",
        "Switch encryption on in the server, or set driver.encrypt=false.",
    ),
    _cause(
        r"certificate mismatch",
        ConnectionFailed,
        "TLS with {place} fails: the server has another certificate than driver.serverCertificate.",
        "Name the server's own certificate there, not its authority's; the operating system must trust the authority.",
    ),
    _cause(
        r"(?:hostname|ip address) mismatch|name mismatch|does not match (?:the )?(?:host|server)",
        ConnectionFailed,
        "TLS with {place} fails: the server's certificate is for another name.",
        "Name the server in database.hostname as its certificate does, or that name in driver.hostNameInCertificate.",
    ),
    _cause(
        r"certificate verify failed|self-?signed|local issuer|unknown ca\b|not trusted|untrusted root",
        ConnectionFailed,
        "TLS with {place} fails: no authority that this host trusts has signed the server's certificate.",
        "Let the operating system of each host trust the authority (or name its file in SSL_CERT_FILE), name the "
        "server's certificate in driver.serverCertificate, or set driver.trustServerCertificate=true to take any.",
    ),
    _cause(
        r"certificate|\btls\b|\bssl\b|handshake|encryption",
        ConnectionFailed,
        "TLS with {place} fails: {text}.",
        "Name the server's certificate in driver.serverCertificate, or set driver.trustServerCertificate=true to take "
        "any; a server without TLS needs driver.encrypt=false.",
    ),
    _cause(
        r"connection refused|no route to host|network is unreachable|host is unreachable",
        ConnectionFailed,
        "Nothing listens at {place}.",
        "Check database.hostname and database.port, and that TCP/IP is enabled for the instance.",
    ),
    _cause(
        r"failed to load the driver|libltdl|cannot open shared object",
        PrerequisiteError,
        "Microsoft's driver cannot be loaded here.",
        "Install mssql-python-rs, and unset MSSQL_PYTHON_NATIVE_PROVIDER or set it to mssql-odbc.",
    ),
    _cause(
        r"timeout while connecting|login timeout expired",
        ConnectionFailed,
        "{place} does not answer in time.",
        "Check database.hostname, database.port and the firewalls in between.",
    ),
    # 1205
    _cause(
        r"deadlock victim",
        ConnectionFailed,
        "The server chose a statement as the victim of a deadlock.",
        "Start again with the same checkpoint; snapshot.isolation.mode=snapshot reads rows without locks.",
    ),
    # 1222
    _cause(
        r"lock request time ?out",
        ConnectionFailed,
        "A chunk of a snapshot waited for locks longer than snapshot.lock.timeout.ms.",
        "Raise snapshot.lock.timeout.ms, or set snapshot.isolation.mode=snapshot, which takes no locks.",
    ),
    # 3952
    _cause(
        r"snapshot isolation is not allowed",
        PrerequisiteError,
        "The database {database} does not allow snapshot isolation.",
        "alter database … set allow_snapshot_isolation on; or choose another snapshot.isolation.mode.",
    ),
    # 3960, 3961, 3957, 3958, 3966
    _cause(
        r"snapshot isolation transaction (?:aborted|failed)|tempdb is full",
        ConnectionFailed,
        "A transaction under snapshot isolation was aborted: a table was altered, or its row versions were gone.",
        "Start again with the same checkpoint.",
    ),
    # 313, from the functions of change data capture: the range is outside of the instance's changes
    _cause(
        r"insufficient number of arguments .*fn_cdc_get_(?:all|net)_changes",
        PositionLost,
        "A capture instance no longer has the changes that come next.",
        "The clean-up job has removed them, or the instance was created again: start with a new checkpoint, or with "
        "snapshot.mode=when_needed; and raise the job's retention: sys.sp_cdc_change_job.",
    ),
    # 22901, 22985
    _cause(
        r"not enabled for change data capture|change data capture .*not.*enabled",
        PrerequisiteError,
        "Change data capture is not enabled.",
        "exec sys.sp_cdc_enable_db; and for each table: exec sys.sp_cdc_enable_table ….",
    ),
    # 229, 230, 262, 297, 300, 371, 22981
    _cause(
        r"permission (?:was )?denied|does not have permission|not have the required permission|access is denied",
        PrerequisiteError,
        "The login {user} lacks a right: {text}.",
        "tailrace check names the rights that it needs; a capture instance with a gating role needs membership of it.",
    ),
    # 208, 4902
    _cause(
        r"invalid object name '(?P<object>[^']*)'",
        PrerequisiteError,
        "There is no {object}, or the login {user} may not see it.",
        "tailrace check shows whether change data capture is enabled for it.",
    ),
    # 207
    _cause(
        r"invalid column name '(?P<object>[^']*)'",
        PrerequisiteError,
        "A table has no column {object} any more.",
        "Check whether it was altered: a new capture instance shows its present columns.",
    ),
    # 3906
    _cause(
        r"database is read-only|failed to update database",
        PrerequisiteError,
        "The database {database} cannot be written to.",
        "Leave out signal.data.collection and heartbeat.action.query, or name the primary.",
    ),
)
"""Tried in this order; the first that matches decides."""

_TIMEOUT = "Timeout expired"
_DEAD = re.compile(
    r"connection (?:is )?(?:closed|dead|broken|reset)|broken pipe|unexpected eof|end of file|shutdown is in progress"
    r"|network-related|connection was (?:closed|forcibly)|session (?:was|has been) (?:killed|terminated)|is closed",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"(?:\[[^\]]*\])+")


def text_of(error: BaseException) -> str:
    """Return the server's or driver's message on one line, without the driver's name. It may contain a secret."""
    text = str(getattr(error, "ddbc_error", "") or error)
    return " ".join(_PREFIX.sub("", text).split()).rstrip(".")


def _shown(text: str, config: Mapping[str, Any], password: str = "") -> str:
    """Return a message without `password` and the secret of the configuration."""
    named = [config["database.user"], config["database.hostname"], *(config.get("database.names") or ())]
    return without_secrets(text, (config["database.password"], password), named)


def refused(
    error: BaseException, config: Mapping[str, Any], database: str, *, connecting: bool = False, password: str = ""
) -> TailraceError:
    """Return the TailraceError for an exception of the driver.

    A statement's message without a known cause may quote a row's value, so only the meaning of its SQLSTATE is shown;
    the message of a failed login (`connecting`) with `password` is shown.
    """
    meaning = str(getattr(error, "driver_error", "") or "")
    text = text_of(error)
    shown = _shown(text, config, password)
    names = {"place": place(config), "user": config["database.user"] or "of this process", "database": database}
    names["source"] = Credential.of(config).option
    if not connecting and (meaning in LOST or _DEAD.search(text)) and "login failed" not in text.lower():
        return ConnectionFailed(
            f"The connection to {names['place']} was lost: {shown}.",
            "Start again with the same checkpoint when the server is back.",
        )
    for cause in _CAUSES:
        found = cause.expression.search(text)
        if found:
            groups = {name: _shown(value, config, password) for name, value in found.groupdict().items() if value}
            filled = names | {"text": shown} | groups
            return cause.kind(cause.message.format(**filled), cause.remedy.format(**filled))
    if connecting:
        return ConnectionFailed(
            f"No connection to {names['place']}: {shown}.", "Check the database.* options and the server's log."
        )
    if meaning in (_TIMEOUT, "Operation canceled"):
        return StatementCutOff(
            "A statement was cancelled: it took longer than database.query.timeout.ms.",
            "Find what blocks it (sys.dm_exec_requests), or raise database.query.timeout.ms; 0: no limit.",
        )
    return TailraceError(
        f"SQL Server refuses a statement in {database}: {meaning or type(error).__name__}.",
        "Check the server's log, or an Extended Events session with the event error_reported.",
    )


def user_fault(error: BaseException, config: Mapping[str, Any], database: str, option: str) -> TailraceError:
    """Return the error of the user's statement in `option`."""
    known = refused(error, config, database)
    if isinstance(known, ConnectionFailed):
        return known
    text = _shown(text_of(error), config)
    return ConfigError(f"The statement of {option} fails in {database}: {text}.", "Correct the statement.")


def place(config: Mapping[str, Any]) -> str:
    """Return the server's name for messages."""
    host, instance, port = config["database.hostname"], config["database.instance"], config["database.port"]
    return f"{host}:{port}" if port else f"{host}\\{instance}"
