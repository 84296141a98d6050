"""Connections to Db2 through IBM's driver: the connection string of a configuration, and explanations of failures.

The driver (`ibm_db` over IBM's CLI) is imported when a connection is made, in any process. No message contains the
password or a row's data: the server's text is shown only for errors about names, logins and connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.config.credentials import Credential, without_secrets
from tailrace.connectors.changetables.dialect import FIRST_FETCH, next_fetch
from tailrace.connectors.db2.server.driver import driver_properties
from tailrace.errors import ConnectionFailed, PrerequisiteError, StatementCutOff, TailraceError
from tailrace.process.installation import pip_install

if TYPE_CHECKING:
    from types import ModuleType

Row = tuple[Any, ...]
FETCH = 4096
"""Rows of a fetch from the driver."""


def connection_string(config: Mapping[str, Any], password: str) -> str:
    """Return the driver's connection string, "Db2 CLI: CLI/ODBC configuration keywords". Holds the password."""
    timeout_s = -(-config["connection.validation.timeout.ms"] // 1000)
    named = {
        "DATABASE": config["database.dbname"],
        "HOSTNAME": config["database.hostname"],
        "PORT": config["database.port"],
        "PROTOCOL": "TCPIP",
        "UID": config["database.user"],
        "PWD": password,
        "ConnectTimeout": timeout_s,
        "ClientApplName": "tailrace",
        # fetch LOBs and XML with their rows: a locator would need one call for each value
        "LOBCacheSize": 1 << 20,
        **driver_properties(config),
    }
    if named.get("Security") == "SSL":
        # the default has changed between versions of the driver
        named.setdefault("SSLClientHostnameValidation", "Basic")
    return "".join(f"{name}={value};" for name, value in named.items() if value not in (None, ""))


def driver() -> ModuleType:
    """Return IBM's driver. Raises PrerequisiteError if it is not installed."""
    try:
        import ibm_db
    except ImportError as error:
        raise PrerequisiteError(
            f"IBM's driver for Db2 cannot be loaded: {error}.", pip_install("tailrace[db2]")
        ) from None
    module: ModuleType = ibm_db
    return module


class RightLacking(PrerequisiteError):
    """The user lacks a right for a statement."""


class Connection:
    """A connection to Db2, used by one thread at a time. Outside of a transaction each statement is committed at once.

    Limited statements may take `database.query.timeout.ms`. All methods raise TailraceError; after ConnectionFailed the
    connection can only be closed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._driver = driver()
        credential = Credential.of(config)
        self._secret, self._source = credential.password(), credential.option
        if not credential.is_fixed and any(sign in self._secret for sign in ";{}"):
            raise ConnectionFailed(
                f"The password of {self._source} holds a semicolon or a brace, which the driver's connection string "
                "cannot carry.",
                "Let it give another one.",
            )
        self._place = f"{config['database.hostname']}:{config['database.port']}"
        self._user, self._database = config["database.user"], config["database.dbname"]
        self._timeout_s = -(-config["database.query.timeout.ms"] // 1000)
        # prepared statements that have not been freed
        self._statements: set[Any] = set()
        try:
            self._handle: Any = self._driver.connect(connection_string(config, self._secret), "", "")
        except Exception as error:
            raise self._login_failure(error) from None

    def close(self) -> None:
        """End the session, in any state. Never raises.

        Its statements are freed first, also those that are still being fetched. Otherwise the driver would free them
        twice, with their connection and when Python collects them, which can wait for ever on a lock.
        """
        for prepared in list(self._statements):
            self._free(prepared)
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                self._driver.close(handle)
            except Exception:
                # a lost connection cannot be closed either
                return

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Return all rows of a statement; none if it returns none."""
        found: list[Row] = []
        for fetch in self.fetches(statement, *values, limited=True):
            found += fetch
        return found

    def fetches(self, statement: str, *values: Any, limited: bool = False, large: bool = False) -> Iterator[list[Row]]:
        """Yield the rows of a statement as they arrive, in lists of up to FETCH rows, or of about 64 MB if values may
        be `large`."""
        prepared = None
        count = FIRST_FETCH if large else FETCH
        try:
            prepared = self._run(statement, values, limited)
            if self._driver.num_fields(prepared):
                while True:
                    fetch = self._driver.fetchmany(prepared, count)
                    if fetch:
                        yield fetch
                    if len(fetch) < count:
                        break
                    if large:
                        count = next_fetch(count, _size(fetch), FETCH)
        except TailraceError:
            raise
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._failure(error) from None
        finally:
            # the garbage collector would free a statement together with the next one
            if prepared is not None:
                self._free(prepared)

    def execute(self, statement: str, *values: Any) -> None:
        """Run a statement whose rows, if any, do not matter."""
        for _ in self.fetches(statement, *values, limited=True):
            pass

    def begin(self) -> None:
        """Begin a transaction. `commit` or `rollback` ends it."""
        self._call(self._driver.autocommit, self._driver.SQL_AUTOCOMMIT_OFF)

    def commit(self) -> None:
        self._call(self._driver.commit)
        self._call(self._driver.autocommit, self._driver.SQL_AUTOCOMMIT_ON)

    def rollback(self) -> None:
        """Roll back the transaction. Never raises: the error that led to the rollback is more important."""
        try:
            self._driver.rollback(self._handle)
            self._driver.autocommit(self._handle, self._driver.SQL_AUTOCOMMIT_ON)
        except Exception:
            self.close()

    @property
    def server(self) -> tuple[str, str]:
        """The product's name and version as the server reports them: `DB2/LINUXX8664`, `11.05.0900`; `DB2` for z/OS."""
        info = self._call(self._driver.server_info)
        return str(info.DBMS_NAME), str(info.DBMS_VER)

    def _run(self, statement: str, values: Sequence[Any], limited: bool) -> Any:
        if self._handle is None:
            raise ConnectionFailed("The connection to Db2 is closed.")
        options = {self._driver.SQL_ATTR_QUERY_TIMEOUT: self._timeout_s} if limited and self._timeout_s else {}
        prepared = self._driver.prepare(self._handle, statement, options)
        self._statements.add(prepared)
        try:
            if values:
                self._driver.execute(prepared, tuple(values))
            else:
                self._driver.execute(prepared)
        except Exception:
            self._free(prepared)
            raise
        return prepared

    def _free(self, prepared: Any) -> None:
        if prepared not in self._statements:
            # it was freed with the connection
            return
        self._statements.discard(prepared)
        try:
            self._driver.free_stmt(prepared)
        except Exception:
            # the statement's own error has been raised
            return

    def _call(self, function: Any, *arguments: Any) -> Any:
        if self._handle is None:
            raise ConnectionFailed("The connection to Db2 is closed.")
        try:
            return function(self._handle, *arguments)
        except Exception as error:
            raise self._failure(error) from None

    def _login_failure(self, error: Exception) -> TailraceError:
        """Return the TailraceError for a failed login, by its SQLCODE ("Db2 messages", SQL30061 and on)."""
        text = _one_line(error)
        names = {"place": self._place, "user": self._user, "database": self._database}
        names["source"] = self._source
        for expression, message, remedy in _TLS:
            if re.search(expression, text):
                return ConnectionFailed(message.format(**names), remedy)
        for codes, kind, message, remedy in _LOGINS:
            if _code(text) in codes:
                return kind(message.format(**names), remedy.format(**names))
        return ConnectionFailed(
            f"No connection to {self._place}: {self._shown(text)}.", "Check the database.* and driver.* options."
        )

    def _failure(self, error: Exception) -> TailraceError:
        """Return the TailraceError for a failed statement, without data of rows."""
        text = _one_line(error)
        state, code = _state(text), _code(text)
        if state in _LOCKED:
            return ConnectionFailed(
                f"A statement waited too long for a lock (SQLSTATE {state}).",
                "Find the session that holds it, or raise the database's LOCKTIMEOUT.",
            )
        if state in _CUT_OFF or code == -952:
            return StatementCutOff(
                f"A statement was cancelled (SQLSTATE {state}).", "Raise database.query.timeout.ms; 0: no limit."
            )
        if code in _LOST or state[:2] in ("08", "58") or state in ("40003", "55032") or not state:
            return ConnectionFailed(
                f"The session with Db2 failed: {self._shown(text)}.", "Start again when it is back."
            )
        if state in ("42501", "42502", "42506", "42508"):
            return RightLacking(
                f"Db2 refuses a statement: {self._shown(text)}.", "Give the user the rights that it lacks."
            )
        if state[:2] == "42":
            return PrerequisiteError(
                f"Db2 refuses a statement: {self._shown(text)}.",
                "Check whether a table or column was altered or dropped.",
            )
        # the server's message may contain a value
        return TailraceError(f"A statement failed (SQLSTATE {state}, SQLCODE {code}).", "Check Db2's log.")

    def _shown(self, text: str) -> str:
        """Return a message without the password."""
        host = self._place.rpartition(":")[0]
        return without_secrets(text, (self._secret,), (self._user, self._database, host))


def _one_line(error: Exception) -> str:
    """Return the driver's message on one line, without the codes of the socket."""
    text = " ".join(str(error).split())
    return re.sub(r"^[A-Z][A-Za-z ]+: |\[IBM\]\[CLI Driver\]\S* ?", "", text).rstrip(". ")


# The texts of SQL20576N contain the host's name and versions, those of SQL30081N the function and the code of IBM's
# GSKit.
_TLS = (
    (
        r'SQL20576N .*reason "1"',
        "TLS with {place} fails: the server's certificate is for another name.",
        "Name the server in database.hostname as its certificate does; driver.SSLClientHostnameValidation=Off compares "
        "no names.",
    ),
    (
        r'SQL30081N .*"sqlccSSL\w*".*"414"',
        "TLS with {place} fails: no known authority has signed the server's certificate.",
        "Name the file of the server's authority, PEM or DER, in driver.SSLServerCertificate; it must also exist where "
        "the tasks run.",
    ),
    (
        r'SQL20576N |SQL30081N .*(?:"sqlccSSL\w*"|protocol being used: "SSL")',
        "TLS with {place} cannot be established.",
        "Check that the server speaks TLS at this port (SSL_SVCENAME), driver.Security, driver.SSLServerCertificate "
        "and driver.TLSVersion.",
    ),
)
"""Expressions that match the driver's words, with their meaning and remedy."""

_LOGINS: tuple[tuple[tuple[int, ...], type[TailraceError], str, str], ...] = (
    (
        (-1336,),
        ConnectionFailed,
        "The host of {place} is not known.",
        "Check database.hostname.",
    ),
    (
        (-30081, -30080, -1224, -1032),
        ConnectionFailed,
        "Nothing answers as Db2 at {place}.",
        "Check database.hostname and database.port, that the instance runs (db2start, DB2COMM=TCPIP, SVCENAME), and "
        "that both sides agree on TLS (driver.Security).",
    ),
    (
        (-30061, -1013, -1001),
        PrerequisiteError,
        "There is no database {database} at {place}.",
        "Check database.dbname: it is the database's alias at the server, on z/OS the location.",
    ),
    (
        (-30082, -1403, -1397),
        ConnectionFailed,
        "{place} refuses the password of user {user}.",
        "Check database.user and {source}, and driver.Authentication: the server may need another kind.",
    ),
    (
        (-1060, -30060, -551, -552),
        PrerequisiteError,
        "The user {user} may not connect to the database {database}.",
        "grant connect on database to user {user}.",
    ),
    (
        (-8001, -8002, -1598),
        PrerequisiteError,
        "IBM's driver has no licence for the server at {place}.",
        "Db2 for z/OS and for i need a Db2 Connect licence: put its file into clidriver/license, or activate it at the "
        "server.",
    ),
    (
        (-20157, -1362),
        PrerequisiteError,
        "The database {database} is quiesced: only its administrators may connect.",
        "unquiesce database.",
    ),
)
_LOCKED = frozenset(("40001", "57033", "40XL1", "40XL2"))
_CUT_OFF = frozenset(("57014", "HYT00", "HYT01", "HY008", "XCL52"))
_LOST = frozenset((-30081, -30108, -30080, -30020, -1224, -1225, -1229, -4498, -4499, -99999))


def _state(text: str) -> str:
    found = re.search(r"SQLSTATE=(\w{5})", text)
    return found.group(1) if found else ""


def _code(text: str) -> int:
    """Return the SQLCODE, 0 if there is none."""
    found = re.search(r"SQLCODE=(-?\d+)", text) or re.search(r"\bSQL(\d+)[NC]\b", text)
    return 0 if found is None else -abs(int(found.group(1)))


def _size(fetch: list[Row]) -> int:
    """Return the length of the rows' texts and bytes."""
    return sum(len(value) for row in fetch for value in row if isinstance(value, str | bytes | bytearray))
