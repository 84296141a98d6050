"""Connections to PostgreSQL: libpq's parameters from a configuration, and its failures in words that help.

Used by the driver (checks) and the planner. No message ever holds the password.
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

from tailrace.config.rows import keeps_copies
from tailrace.connectors.postgres.server.causes import CAUSES, TLS, deliberate, known
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.process.runtime import THREADS, Runtime

if TYPE_CHECKING:
    import psycopg


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# The text of values depends on these settings of the session, also of a walsender's.
_OUTPUT = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "xmloption": "content",
}
# What a role, a database or the server may set to end sessions that work for long, as those here do. Statements of
# database.initial.statements may set them again.
_LIMITS = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
# For copies: the server refuses what it would answer with a part of the rows.
_WHOLE = {"row_security": "off"}
_TRANSACTION_LIMIT, _LIMITS_TRANSACTIONS = "transaction_timeout", 170000
# Names of our own statements mean the server's own functions, operators and types. With any other path an overload
# whose argument types fit better, in a schema that others may create in, would run as the connector's role.
_PATH = "pg_catalog, pg_temp"
# Where a session keeps the path that it would have had: of the role, the database, the server or initial statements.
_OWN_PATH = "tailrace.search_path"
PINNED = f"select pg_catalog.set_config('search_path', '{_PATH}', false)"
"""Names are those of the server again."""
OWN = f"select pg_catalog.set_config('search_path', pg_catalog.current_setting('{_OWN_PATH}', true), false)"
"""Names are looked for where the role's own search_path says: for SQL that users wrote. In a transaction, until its
end if that fails."""
OWN_HERE = OWN.replace(", false)", ", true)") + ", pg_catalog.set_config('row_security', 'on', true)"
"""The same until the transaction's end, whatever comes of it, for what is written: policies are the table's own."""
# One statement, evaluated from left to right: the walsenders of older servers take no more.
_PIN = f"select pg_catalog.set_config('{_OWN_PATH}', pg_catalog.current_setting('search_path'), false), " + ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in (_OUTPUT | {"search_path": _PATH}).items()
)
NO_ENCODING = "SQL_ASCII"
"""The server's name for the encoding of databases that check and convert nothing."""


def parameters(config: Mapping[str, Any], *, any_bytes: bool = False) -> dict[str, str]:
    """libpq's connection parameters; those that the configuration leaves open are absent.

    With `any_bytes`, meant for sessions that read values of a database without an encoding, texts come as they are
    stored; else the server refuses to send one that is not UTF-8, and the session cannot read past it.
    """
    settings = _OUTPUT | _LIMITS | (_WHOLE if keeps_copies(config) else {})
    timeout_s = -(-config["connection.validation.timeout.ms"] // 1000)
    named = {
        "host": config["database.hostname"],
        "port": config["database.port"],
        "user": config["database.user"],
        "password": config["database.password"],
        "dbname": config["database.dbname"],
        "sslmode": config["database.sslmode"],
        "sslcert": config["database.sslcert"],
        "sslkey": config["database.sslkey"],
        "sslpassword": config["database.sslpassword"],
        "sslrootcert": config["database.sslrootcert"],
        "keepalives": 1 if config["database.tcpKeepAlive"] else 0,
        "connect_timeout": timeout_s,
        "application_name": "tailrace",
        # A database in another encoding must not leak it into the events.
        "client_encoding": NO_ENCODING if any_bytes else "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
    }
    return {name: str(value) for name, value in named.items() if value not in (None, "")}


def has_no_encoding(connection: psycopg.Connection[Any]) -> bool:
    """Whether the database's encoding is SQL_ASCII: its texts are whatever bytes clients have stored."""
    return connection.info.parameter_status("server_encoding") == NO_ENCODING


@dataclass(frozen=True, slots=True)
class Address:
    """A log-in for drivers that take a libpq address: `uri`, and the statements that each session begins with.

    Holds the password, and what secrets the statements hold: it prints as its name alone. Planner and worker.
    """

    uri: str
    initial: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Address()"

    @classmethod
    def of(cls, config: Mapping[str, Any], connection: psycopg.Connection[Any]) -> Address:
        """The same login as that of `connection`, which `connect` gave; it is asked for once."""
        if connection in _addresses:
            return _addresses[connection]
        row = connection.execute(f"select pg_catalog.current_setting('{_OWN_PATH}', true)".encode()).fetchone()
        named = parameters(config, any_bytes=has_no_encoding(connection))
        # by the start-up packet, because the driver has queries of its own as soon as it is connected
        settings = [("search_path", _PATH), (_OWN_PATH, (row and row[0]) or "")]
        if connection.info.server_version >= _LIMITS_TRANSACTIONS:
            settings.append((_TRANSACTION_LIMIT, "0"))
        for name, value in settings:
            named["options"] += f" -c {name}={_escaped(value)}"
        database = quote(named.pop("dbname"), safe="")
        address = f"postgresql:///{database}?{urlencode(named, quote_via=quote)}"
        _addresses[connection] = found = cls(address, tuple(config["database.initial.statements"]))
        return found

    def opening(self) -> tuple[str, ...]:
        """What a session has to run before anything else."""
        return (OWN, *self.initial, _PIN) if self.initial else ()


_addresses: WeakKeyDictionary[psycopg.Connection[Any], Address] = WeakKeyDictionary()


def _escaped(value: str) -> str:
    """`value` as a part of libpq's `options`, where blanks separate."""
    return re.sub(r"([\\\s])", r"\\\1", value)


def initial_statement_failed(reason: str) -> PrerequisiteError:
    """What is raised for a statement of `database.initial.statements` that fails with `reason`."""
    return PrerequisiteError(
        f"A statement of database.initial.statements fails: {reason}.",
        "Correct the statement: every session runs it, that of the log as well.",
    )


class Connect(Protocol):
    """What `connect` is."""

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
    """A connection in autocommit mode; with `replication` one that speaks the replication protocol.

    The statements of `database.initial.statements` have been run. Then names are those of `pg_catalog`, whatever the
    search_path of the role; `own_path` has that one.
    Statements may take `database.query.timeout.ms`, unless the connection is not `limited` or for replication.
    With `any_bytes` psycopg gives texts as bytes, too. Raises ConnectionFailed when the server cannot be reached or
    refuses the login, PrerequisiteError when it has no such database, refuses a replication connection, or an initial
    statement fails.
    """
    import psycopg

    named = parameters(config, any_bytes=any_bytes)
    if replication:
        named["replication"] = "database"
    elif limited and config["database.query.timeout.ms"]:
        named["options"] += f" -c statement_timeout={config['database.query.timeout.ms']}"
    try:
        connection = psycopg.connect(**named, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise explain(error, config) from None
    try:
        if connection.info.server_version >= _LIMITS_TRANSACTIONS:
            # not by the start-up packet, in which older servers refuse it
            connection.execute(f"set {_TRANSACTION_LIMIT} = 0".encode())
        for statement in config["database.initial.statements"]:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise initial_statement_failed(_first_line(error, config)) from None
        # the settings of the start-up packet once more: initial statements may have changed them
        connection.execute(_PIN.encode())
    except psycopg.Error as error:
        connection.close()
        raise explain(error, config) from None
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def own_path(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Inside, names are looked for where the role's own search_path says: for SQL that users wrote, and only for that.

    What stands around such SQL in the same statement must name its schemas. A transaction that fails inside has to be
    rolled back, to a savepoint that was set outside or as a whole.
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
    """Inside, row-level security is as in any session of the role: for statements of users that write."""
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
    """Inside, all queries of a connection in autocommit mode see what is committed at the first one: a table that is
    altered meanwhile is not half the old one."""
    connection.execute("begin isolation level repeatable read read only")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("rollback")


def hold_open(connection: psycopg.Connection[Any]) -> None:
    """Let the session keep a transaction open for as long as it takes, whatever initial statements say."""
    connection.execute("set idle_in_transaction_session_timeout = 0")
    if connection.info.server_version >= _LIMITS_TRANSACTIONS:
        connection.execute(f"set {_TRANSACTION_LIMIT} = 0".encode())


def is_lost(connection: psycopg.Connection[Any], runtime: Runtime = THREADS) -> bool:
    """Whether an idle session has ended, as far as that has arrived: libpq notices it only when it reads."""
    import psycopg

    if connection.closed:
        return True
    # the server's farewell comes first, and the end of the connection behind it
    while runtime.ready((connection.fileno(),), 0):
        try:
            connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
    return False


def explained(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`call`, with what PostgreSQL refuses in it raised as a TailraceError."""

    @functools.wraps(call)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        import psycopg

        try:
            return call(*args, **kwargs)
        except psycopg.Error as error:
            raise refused(error) from None

    return guarded


def refused(error: psycopg.Error) -> TailraceError:
    """The deliberate error that a failed statement stands for; never with what rows hold."""
    import psycopg

    text = error.diag.message_primary or (str(error).strip().splitlines() or [type(error).__name__])[0]
    text = text.rstrip(".")
    if (known_one := deliberate(error)) is not None:
        return known_one
    if isinstance(error, psycopg.errors.QueryCanceled):
        return ConnectionFailed(
            f"A statement was cut off: {text}.",
            "See what holds it up (pg_stat_activity, pg_locks), or raise database.query.timeout.ms; 0: no limit.",
            is_lasting=True,
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return PrerequisiteError(
            f"PostgreSQL refuses a statement: {text}.", "tailrace check says which rights the user lacks."
        )
    if isinstance(error, psycopg.OperationalError):
        return ConnectionFailed(
            f"The session with PostgreSQL failed: {text}.", "Start again with the same checkpoint when it is back."
        )
    if isinstance(error, psycopg.ProgrammingError):
        return PrerequisiteError(
            f"PostgreSQL refuses a statement: {text}.", "See whether a table or column was altered or dropped."
        )
    # the server's words may hold a value
    name = type(error).__name__
    return TailraceError(f"A statement failed: {name} (SQLSTATE {error.sqlstate}).", "The server's log says more.")


def explain(error: psycopg.Error, config: Mapping[str, Any]) -> TailraceError:
    """The deliberate error that a failed log-in stands for, with its remedy.

    libpq reports most of these without an SQLSTATE, so the server's own wording decides; servers with translated
    messages fall through to the general sentence, which carries the message itself.
    """
    text = _first_line(error, config)
    host, place = config["database.hostname"], f"{config['database.hostname']}:{config['database.port']}"
    names = {"place": place, "user": config["database.user"], "database": config["database.dbname"], "host": host}
    return known(CAUSES, text, names) or ConnectionFailed(
        f"No connection to {place}: {text}.", "Check the database.* options and the server's log."
    )


def explain_tls(text: str, address: str) -> TailraceError | None:
    """The deliberate error, if TLS is what a connection to the libpq address `address` failed with; `text` says what.

    Without what the address holds but host and port: a task has no configuration.
    """
    named = dict(parse_qsl(urlsplit(address).query))
    names = {"place": f"{named.get('host', '')}:{named.get('port', '')}"}
    return known(TLS, " ".join(text.split()).rstrip("."), names)


def _first_line(error: Exception, config: Mapping[str, Any]) -> str:
    """libpq's words on one line, with every secret of the configuration struck out."""
    text = " ".join(str(error).split()).rstrip(".")
    for name in ("database.password", "database.sslpassword"):
        secret = config[name]
        if secret:
            text = text.replace(secret, "***")
    return text
