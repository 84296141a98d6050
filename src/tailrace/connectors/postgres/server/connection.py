"""Connections to PostgreSQL: libpq's parameters from a configuration, and failures as errors with remedies.

Driver (checks) and planner. No message ever holds the password.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from weakref import WeakKeyDictionary

from tailrace.config.credentials import Credential, without_secrets
from tailrace.config.rows import keeps_copies
from tailrace.connectors.postgres.server.causes import CAUSES, TLS, deliberate, known
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    import psycopg


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# The text of values, defaults and names depends on these settings of the session, also in a walsender.
_OUTPUT = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "xmloption": "content",
    "quote_all_identifiers": "off",
}
# A role, a database or the server may set these limits, which would end this package's long sessions. Statements of
# database.initial.statements may set them again.
_LIMITS = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
# For copies: the server refuses a query instead of answering with a part of the rows.
_WHOLE = {"row_security": "off"}
# Limits that older servers do not have, and would refuse in the start-up packet, each with its first version.
_IDLE_LIMIT, _TRANSACTION_LIMIT = ("idle_session_timeout", 140000), ("transaction_timeout", 170000)
# With this path, names in our statements refer to the server's own functions, operators and types. With any other path,
# an overload in a schema where others may create objects could match better, and would run as the connector's role.
_PATH = "pg_catalog, pg_temp"
# The setting that keeps the session's own path, as role, database, server or initial statements set it.
_OWN_PATH = "tailrace.search_path"
PINNED = f"select pg_catalog.set_config('search_path', '{_PATH}', false)"
"""SQL that sets the search_path back to the server's own objects."""
OWN = f"select pg_catalog.set_config('search_path', pg_catalog.current_setting('{_OWN_PATH}', true), false)"
"""SQL that sets the role's own search_path, for SQL that users wrote. A transaction that fails undoes it."""
OWN_HERE = OWN.replace(", false)", ", true)") + ", pg_catalog.set_config('row_security', 'on', true)"
"""SQL that does the same until the transaction's end, for writes, and lets row-level security apply as usual."""
# One statement, evaluated from left to right: walsenders of older servers take only one at a time.
_PIN = f"select pg_catalog.set_config('{_OWN_PATH}', pg_catalog.current_setting('search_path'), false), " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in (_OUTPUT | {"search_path": _PATH}).items()
)
NO_ENCODING = "SQL_ASCII"
"""The server's name for the encoding of databases that neither check nor convert texts."""


def parameters(config: Mapping[str, Any], *, any_bytes: bool = False) -> dict[str, str]:
    """Return libpq's connection parameters, without the password and without parameters that are not configured.

    With `any_bytes`, for databases without an encoding, texts arrive as they are stored. Otherwise the server refuses
    to send a text that is not UTF-8, and the session cannot read past it.
    """
    settings = _OUTPUT | _LIMITS | (_WHOLE if keeps_copies(config) else {})
    timeout_s = -(-config["connection.validation.timeout.ms"] // 1000)
    named = {
        "host": config["database.hostname"],
        "port": config["database.port"],
        "user": config["database.user"],
        "dbname": config["database.dbname"],
        "sslmode": config["database.sslmode"],
        "sslcert": config["database.sslcert"],
        "sslkey": config["database.sslkey"],
        "sslpassword": config["database.sslpassword"],
        "sslrootcert": config["database.sslrootcert"],
        "keepalives": 1 if config["database.tcpKeepAlive"] else 0,
        "connect_timeout": timeout_s,
        "application_name": "tailrace",
        # Events are UTF-8, independently of the database's encoding.
        "client_encoding": NO_ENCODING if any_bytes else "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
    }
    return {name: str(value) for name, value in named.items() if value not in (None, "")}


def has_no_encoding(connection: psycopg.Connection[Any]) -> bool:
    """Return True if the database's encoding is SQL_ASCII: its texts are whatever bytes clients have stored."""
    return connection.info.parameter_status("server_encoding") == NO_ENCODING


_OPEN = Credential("database.password")


@dataclass(frozen=True, slots=True)
class Address:
    """A login for drivers that take a libpq address: `uri` without the password, and a session's initial statements.

    Its repr is only the class name, because the statements may have secrets. Planner and worker.
    """

    uri: str
    initial: tuple[str, ...] = ()
    credential: Credential = _OPEN

    def __repr__(self) -> str:
        return "Address()"

    @classmethod
    def of(cls, config: Mapping[str, Any], connection: psycopg.Connection[Any]) -> Address:
        """Return the login of `connection`, which `connect` returned; its own search_path is queried once."""
        if connection in _addresses:
            return _addresses[connection]
        row = connection.execute(f"select pg_catalog.current_setting('{_OWN_PATH}', true)".encode()).fetchone()
        named = parameters(config, any_bytes=has_no_encoding(connection))
        # in the start-up packet, because the driver runs queries of its own as soon as it is connected
        settings = [("search_path", _PATH), (_OWN_PATH, (row and row[0]) or "")]
        settings += [(name, "0") for name in _later_limits(connection)]
        for name, value in settings:
            named["options"] += f" -c {name}={_escaped(value)}"
        database = quote(named.pop("dbname"), safe="")
        address = f"postgresql:///{database}?{urlencode(named, quote_via=quote)}"
        found = cls(address, tuple(config["database.initial.statements"]), Credential.of(config))
        _addresses[connection] = found
        return found

    def login(self) -> str:
        """Return the address with the present password. Raises the errors of Credential.password."""
        password = self.credential.password()
        return f"{self.uri}&{urlencode({'password': password}, quote_via=quote)}" if password else self.uri

    def opening(self) -> tuple[str, ...]:
        """Return the statements that a session has to run before anything else."""
        return (OWN, *self.initial, _PIN) if self.initial else ()


_addresses: WeakKeyDictionary[psycopg.Connection[Any], Address] = WeakKeyDictionary()


def _escaped(value: str) -> str:
    """Return `value` as a part of libpq's `options`, in which blanks separate."""
    return re.sub(r"([\\\s])", r"\\\1", value)


def initial_statement_failed(reason: str) -> PrerequisiteError:
    """Return the error for a statement of `database.initial.statements` that fails with `reason`."""
    return PrerequisiteError(
        f"A statement of database.initial.statements fails: {reason}.",
        "Correct the statement: every session runs it, the session that reads the log as well.",
    )


class Connect(Protocol):
    """The signature of `connect`."""

    def __call__(
        self,
        config: Mapping[str, Any],
        /,
        *,
        replication: bool = False,
        any_bytes: bool = False,
        limited: bool = True,
    ) -> psycopg.Connection[Any]: ...


def connect(
    config: Mapping[str, Any], *, replication: bool = False, any_bytes: bool = False, limited: bool = True
) -> psycopg.Connection[Any]:
    """Return a connection in autocommit mode; with `replication` one that speaks the replication protocol.

    The connection has run `database.initial.statements`. After that its search_path is `pg_catalog`; `own_path` sets
    the role's own. With `limited` a statement may take `database.query.timeout.ms`, except for replication. With
    `any_bytes` psycopg returns texts as bytes.

    Raises ConnectionFailed if the server cannot be reached or refuses the login, or if no password can be obtained.
    Raises PrerequisiteError if the database does not exist, or if the server refuses a replication connection or an
    initial statement.
    """
    import psycopg

    named = parameters(config, any_bytes=any_bytes)
    password = Credential.of(config).password()
    if password:
        named["password"] = password
    if replication:
        named["replication"] = "database"
    elif limited and config["database.query.timeout.ms"]:
        named["options"] += f" -c statement_timeout={config['database.query.timeout.ms']}"
    try:
        connection = psycopg.connect(**named, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise explain(error, config, password) from None
    try:
        if limits := _later_limits(connection):
            unset = ", ".join(f"pg_catalog.set_config('{name}', '0', false)" for name in limits)
            connection.execute(f"select {unset}".encode())
        for statement in config["database.initial.statements"]:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise initial_statement_failed(_shown(error, config)) from None
        # the settings of the start-up packet once more: initial statements may have changed them
        connection.execute(_PIN.encode())
    except psycopg.Error as error:
        connection.close()
        raise explain(error, config) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _later_limits(connection: psycopg.Connection[Any]) -> list[str]:
    """Return the limits that the server has and older servers do not have."""
    version = connection.info.server_version
    return [name for name, since in (_IDLE_LIMIT, _TRANSACTION_LIMIT) if version >= since]


@contextmanager
def own_path(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Use the role's own search_path inside the block; only for SQL that users wrote.

    The rest of a statement with such SQL must qualify its names. A transaction that fails inside must be rolled back,
    as a whole or to a savepoint that was set outside.
    """
    from psycopg.pq import TransactionStatus

    connection.execute(OWN.encode())
    try:
        yield
    finally:
        if connection.pgconn.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            connection.execute(PINNED.encode())


@contextmanager
def own_policies(connection: psycopg.Connection[Any], config: Mapping[str, Any]) -> Iterator[None]:
    """Let row-level security apply inside the block as in any session of the role, for users' statements that write."""
    if not keeps_copies(config):
        yield
        return
    connection.execute("set row_security = on")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("set row_security = off")


@contextmanager
def one_moment(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Let all queries inside the block see the state at the first query. The connection is in autocommit mode.

    Otherwise they could see a mixture of the old and the new form of a table that is altered meanwhile.
    """
    connection.execute("begin isolation level repeatable read read only")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("rollback")


def hold_open(connection: psycopg.Connection[Any]) -> None:
    """Allow the session to keep a transaction open without time limit, in spite of initial statements."""
    connection.execute("set idle_in_transaction_session_timeout = 0")
    name, since = _TRANSACTION_LIMIT
    if connection.info.server_version >= since:
        connection.execute(f"set {name} = 0".encode())


def is_lost(connection: psycopg.Connection[Any], runtime: Runtime = THREADS) -> bool:
    """Return True if the server has ended an idle session. This reads the socket, because libpq notices the end only
    then."""
    import psycopg

    if connection.closed:
        return True
    # the server's last message comes first, and then the end of the connection
    while runtime.ready((connection.fileno(),), 0):
        try:
            connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
    return False


def explained(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate `call`: psycopg's errors are raised as TailraceErrors."""

    @functools.wraps(call)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        import psycopg

        try:
            return call(*args, **kwargs)
        except psycopg.Error as error:
            raise refused(error) from None

    return guarded


def refused(error: psycopg.Error) -> TailraceError:
    """Return the TailraceError for a failed statement; it never holds values of rows."""
    import psycopg

    text = error.diag.message_primary or (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = text.rstrip(".")
    if (known_one := deliberate(error)) is not None:
        return known_one
    if isinstance(error, psycopg.errors.QueryCanceled):
        return ConnectionFailed(
            f"A statement was cancelled: {text}.",
            "Find what blocks it (pg_stat_activity, pg_locks), or raise database.query.timeout.ms; 0: no limit.",
            is_lasting=True,
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return PrerequisiteError(
            f"PostgreSQL refuses a statement: {text}.", "tailrace check names the rights that the user lacks."
        )
    if isinstance(error, psycopg.OperationalError):
        return ConnectionFailed(
            f"The session with PostgreSQL failed: {text}.", "Start again with the same checkpoint when it is back."
        )
    if isinstance(error, psycopg.ProgrammingError):
        return PrerequisiteError(
            f"PostgreSQL refuses a statement: {text}.", "Check whether a table or column was altered or dropped."
        )
    # the server's text may hold a value
    name = type(error).__name__
    return TailraceError(f"A statement failed: {name} (SQLSTATE {error.sqlstate}).", "Check the server's log.")


def explain(error: psycopg.Error, config: Mapping[str, Any], password: str = "") -> TailraceError:
    """Return the error for a failed login with `password`, with its remedy.

    libpq reports most of these failures without an SQLSTATE, so the server's English text decides. For servers with
    translated messages the error is a general one with the server's text.
    """
    host, place = config["database.hostname"], f"{config['database.hostname']}:{config['database.port']}"
    names = {"place": place, "user": config["database.user"], "database": config["database.dbname"], "host": host}
    names["source"] = Credential.of(config).option
    return known(CAUSES, _one_line(error), names) or ConnectionFailed(
        f"No connection to {place}: {_shown(error, config, password)}.",
        "Check the database.* options and the server's log.",
    )


def explain_tls(text: str, address: str) -> TailraceError | None:
    """Return the error if a connection to the libpq address `address` failed because of TLS, else None.

    `text` is libpq's text. Host and port come from the address, because a task has no configuration; nothing else of
    the address is in the error.
    """
    named = dict(parse_qsl(urlsplit(address).query))
    names = {"place": f"{named.get('host', '')}:{named.get('port', '')}"}
    return known(TLS, " ".join(text.split()).rstrip("."), names)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _shown(error: Exception, config: Mapping[str, Any], password: str = "") -> str:
    """Return libpq's text on one line, without `password` and every secret of the configuration."""
    secrets = (password, config["database.password"], config["database.sslpassword"])
    return without_secrets(
        _one_line(error), secrets, (config[f"database.{name}"] for name in ("user", "dbname", "hostname"))
    )
