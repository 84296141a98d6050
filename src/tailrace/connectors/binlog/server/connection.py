"""Sessions with a server of MySQL or MariaDB: opening, TLS, and session variables. Planner and worker."""

from __future__ import annotations

import random
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.config.credentials import Credential
from tailrace.connectors import stores
from tailrace.connectors.binlog.dialect import DIALECTS, MARIADB, MYSQL, Dialect
from tailrace.connectors.binlog.server.errors import explain, number_of, text_of
from tailrace.errors import PrerequisiteError

if TYPE_CHECKING:
    from pymysql.connections import Connection

_JKS = b"\xfe\xed\xfe\xed"

# The server, its init_connect or a user's initial statements may set these differently, and results would be wrong.
_SETTINGS: tuple[tuple[str, str], ...] = (
    ("sql_mode", "''"),
    ("time_zone", "'+00:00'"),
    ("autocommit", "1"),
    ("sql_select_limit", "DEFAULT"),
    ("sql_big_selects", "1"),
    ("sql_quote_show_create", "1"),
    ("sql_auto_is_null", "0"),
    ("net_write_timeout", "3600"),
    ("net_read_timeout", "3600"),
    ("wait_timeout", "2147483"),
    # some failures are recognised by the English text of the message
    ("lc_messages", "'en_US'"),
)
_UNKNOWN_VARIABLE = 1193
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def dialect_of(config: Mapping[str, Any]) -> Dialect:
    """Return the dialect of a configuration."""
    return DIALECTS[config.traits.connector]  # type: ignore[attr-defined]


def settings(dialect: Dialect, limit_ms: int = 0) -> list[str]:
    """Return the statements at the beginning of a session. `limit_ms` is the longest time of a statement; 0: no
    limit."""
    name, units = dialect.statement_timeout
    limit = limit_ms * units
    fixed = ", ".join(f"SESSION {variable} = {value}" for variable, value in _SETTINGS)
    number = f"{limit:.3f}" if units < 1 else str(int(limit))
    return ["SET NAMES utf8mb4", f"SET {fixed}", _ISOLATION, f"SET SESSION {name} = {number}"]


def shows_keys(dialect: Dialect, version: str) -> str:
    """Return the statement after which definitions show the keys that MySQL has generated; "" for servers without them.

    The log has these columns in each row, wherever they are shown.
    """
    number = tuple(map(int, re.findall(r"\d+", version)[:3]))
    has_keys = dialect is MYSQL and number >= (8, 0, 30)
    return "SET SESSION show_gipk_in_create_table_and_information_schema = ON" if has_keys else ""


def connect(config: Mapping[str, Any], *, dump: bool = False, limited: bool = True) -> Connection[Any]:
    """Return a session in autocommit mode, whose texts are UTF-8 and whose time zone is UTC.

    The session has run `database.initial.statements` and then the statements of `settings`. With `limited` a statement
    may take `database.query.timeout.ms`. With `dump` the session is for reading the log: it has no initial statements
    and no limit. Raises ConnectionFailed if the server cannot be reached or refuses the login; PrerequisiteError if the
    user may not log in this way, a store cannot be read, or an initial statement fails; and the errors of
    Credential.password.
    """
    import pymysql

    password = Credential.of(config).password()

    dialect = dialect_of(config)
    limit_ms = config["database.query.timeout.ms"] if limited and not dump else 0
    # A server that answers later than its limit counts as gone. A dump measures time itself after its first statements.
    longest_ms = config["database.query.timeout.ms"] if dump else limit_ms
    patience = longest_ms / 1000 + 30 if longest_ms else None
    login = max(1, -(-config["connection.validation.timeout.ms"] // 1000))
    try:
        session: Connection[Any] = pymysql.connect(
            host=config["database.hostname"],
            port=config["database.port"],
            user=config["database.user"],
            password=password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=login,
            # another service may accept the connection and never answer
            read_timeout=login,
            write_timeout=login,
            program_name="tailrace",
            **_tls(config, dialect),
        )
    except (pymysql.err.Error, OSError, EOFError) as error:
        raise explain(error, config, dialect.tls_modes, password) from None
    session._read_timeout = session._write_timeout = patience
    try:
        _demand_dialect(session, dialect)
        with session.cursor() as cursor:
            for statement in () if dump else config["database.initial.statements"]:
                try:
                    cursor.execute(statement)
                except pymysql.err.Error as error:
                    raise PrerequisiteError(
                        f"A statement of database.initial.statements fails: {text_of(error)}.",
                        "Correct the statement: every session runs it.",
                    ) from None
            for statement in settings(dialect, limit_ms):
                try:
                    cursor.execute(statement)
                except pymysql.err.OperationalError as error:
                    # MySQL 5.6 has no limit for statements
                    if number_of(error) != _UNKNOWN_VARIABLE or statement != settings(dialect, limit_ms)[-1]:
                        raise
            if statement := shows_keys(dialect, session.get_server_info()):
                # a compatible server may lack the variable, and has no such keys then
                with suppress(pymysql.err.OperationalError):
                    cursor.execute(statement)
            for name in ("write", "read") if dump else ():
                if seconds := config[f"binlog.net.{name}.timeout"]:
                    cursor.execute(f"SET SESSION net_{name}_timeout = {seconds}")
    except (pymysql.err.Error, OSError, EOFError) as error:
        session.close()
        raise explain(error, config, dialect.tls_modes, password) from None
    except BaseException:
        session.close()
        raise
    return session


def _demand_dialect(session: Connection[Any], dialect: Dialect) -> None:
    """Raise PrerequisiteError if the server has the other dialect."""
    version = session.get_server_info()
    actual = MARIADB if "mariadb" in version.lower() else MYSQL
    if actual is not dialect:
        raise PrerequisiteError(
            f"The server is {actual.title} ({version}), and the connector that of {dialect.title}.",
            f"Name the connector of {actual.title}: connector.class={actual.class_name}.",
        )


def rows(session: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. `values` replace its placeholders `%s`."""
    with session.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())


def variables(session: Connection[Any], *names: str) -> dict[str, str]:
    """Return the values of global variables as text, without variables that the server does not have."""
    listed = ", ".join(f"'{name}'" for name in names)
    return {name.lower(): str(value) for name, value in rows(
        session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")}  # fmt: skip


def is_gone(error: Exception) -> bool:
    """Return True if an error of PyMySQL means that the session has ended."""
    return number_of(error) in (0, 2006, 2013, 2014)


@cache
def _random_id() -> int:
    return random.SystemRandom().randrange(1 << 16, 1 << 31)


def server_id(config: Mapping[str, Any]) -> int:
    """Return the server id of this replica: database.server.id, or a random number of this process."""
    given: int | None = config["database.server.id"]
    return _random_id() if given is None else given


# --- TLS --------------------------------------------------------------------------------------------------------------


def _tls(config: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Return PyMySQL's arguments for `database.ssl.mode`. Raises PrerequisiteError for a store that cannot be used."""
    use = dialect.tls_modes[config["database.ssl.mode"]]
    if use == "off":
        return {"ssl_disabled": True}
    keys = config["database.ssl.keystore"]
    if use == "prefer" and not keys:
        return {}
    return {"ssl": _context(config, use)}


def _context(config: Mapping[str, Any], use: str) -> ssl.SSLContext:
    trusted, keys = config["database.ssl.truststore"], config["database.ssl.keystore"]
    secret, key_secret = (config[f"database.ssl.{name}.password"] or "" for name in ("truststore", "keystore"))
    found = ssl.create_default_context()
    found.check_hostname = use == "name"
    found.verify_mode = ssl.CERT_REQUIRED if use in ("authority", "name") else ssl.CERT_NONE
    # certificates that MySQL creates do not pass strict checks
    found.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        if trusted:
            found.load_verify_locations(trusted if _is_pem(trusted) else stores.authorities(trusted, secret))
        if keys and _is_pem(keys):
            found.load_cert_chain(keys, password=key_secret or None)
        elif keys:
            found.load_cert_chain(stores.client_certificate(keys, key_secret))
    except (OSError, ssl.SSLError) as error:
        raise PrerequisiteError(
            f"A store of database.ssl.* cannot be used: {error.strerror or type(error).__name__}.",
            "Check the paths, passwords and contents of database.ssl.keystore and database.ssl.truststore.",
        ) from None
    return found


def _is_pem(path: str) -> bool:
    """Return True for a PEM file, False for a file that may be of PKCS12. Raises PrerequisiteError for a JKS store."""
    try:
        begin = Path(path).read_bytes()[:64]
    except OSError as error:
        raise PrerequisiteError(
            f"The store {path} cannot be read: {error.strerror}.", "Check its path and who may read it."
        ) from None
    if begin.startswith(_JKS):
        raise PrerequisiteError(
            f"The store {path} has the type JKS, which Java alone reads.",
            "Convert it: keytool -importkeystore -deststoretype PKCS12.",
        )
    return begin.lstrip().startswith(b"-----BEGIN")
