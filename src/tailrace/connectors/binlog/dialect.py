"""Dialect: the differences between MySQL and MariaDB in names and statements. Values only, any process.

Other modules ask a dialect instead of the server's name. Transaction ids of both are in `log.gtids`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names and statements of MySQL or of MariaDB.

    - `name`: the name of the connector in tailrace and in events; `title`: the name of the database in texts.
    - `class_name`: Debezium's class of the connector, in the Java package `package`; `version`: its release, as shown
      in events.
    - `tls_modes`: the values of database.ssl.mode and their meanings: `off`, `prefer` (if the server has TLS),
      `require`, `authority` (the server's certificate is checked), `name` (also the host's name in it). `tls_default`
      is the default value.
    - `has_json`: JSON is a type, and not text with a check.
    - `has_single_quotes`: Debezium records statements with their texts in single quotes.
    - `statement_timeout`: a session's limit for statements, with the number of its units in a millisecond.
    - `log_right`: the privilege for SHOW MASTER STATUS, as GRANT names it.
    - `executed`: an expression for the ids of all transactions that the log has had.
    """

    name: str
    title: str
    class_name: str
    package: str
    version: str
    tls_modes: Mapping[str, str]
    tls_default: str
    has_json: bool
    has_single_quotes: bool
    statement_timeout: tuple[str, float]
    log_right: str
    executed: str


_CLASS = "io.debezium.connector"

MYSQL = Dialect(
    name="mysql",
    title="MySQL",
    class_name=f"{_CLASS}.mysql.MySqlConnector",
    package=f"{_CLASS}.mysql",
    version="3.6.1.Final",
    tls_modes={
        "disabled": "off", "preferred": "prefer", "required": "require", "verify_ca": "authority",
        "verify_identity": "name",
    },
    tls_default="preferred",
    has_json=True,
    has_single_quotes=True,
    statement_timeout=("max_execution_time", 1.0),
    log_right="REPLICATION CLIENT",
    executed="@@global.gtid_executed",
)  # fmt: skip

MARIADB = Dialect(
    name="mariadb",
    title="MariaDB",
    class_name=f"{_CLASS}.mariadb.MariaDbConnector",
    package=f"{_CLASS}.mariadb",
    version="3.5.0.Final",
    tls_modes={
        "disable": "off", "trust": "require", "verify-ca": "authority", "verify-full": "name",
    },
    tls_default="disable",
    has_json=False,
    has_single_quotes=False,
    statement_timeout=("max_statement_time", 0.001),
    log_right="BINLOG MONITOR",
    executed="@@global.gtid_binlog_pos",
)  # fmt: skip

DIALECTS: Mapping[str, Dialect] = {one.name: one for one in (MYSQL, MARIADB)}
