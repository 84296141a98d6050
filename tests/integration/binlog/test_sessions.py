"""Sessions with MySQL and MariaDB: what they set, and what a failed login says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.config import Config, parse
from tailrace.connectors.binlog.descriptor import MARIADB_CONNECTOR, MYSQL_CONNECTOR
from tailrace.connectors.binlog.server.connection import connect, rows
from tailrace.connectors.binlog.server.errors import explained
from tailrace.errors import ConnectionFailed, PrerequisiteError, StatementCutOff
from tests.fix_mysql import MySqlDatabase
from tests.servers.mysql import MYSQL_57

_SET = (
    "select @@sql_mode, @@time_zone, @@autocommit, @@sql_auto_is_null, @@sql_big_selects, @@sql_quote_show_create, "
    "@@character_set_results, @@{isolation}, @@{limit}"
)


def configured(database: MySqlDatabase, **more: str) -> Config:
    connector = MYSQL_CONNECTOR if database.server.dialect == "mysql" else MARIADB_CONNECTOR
    return parse(connector.traits, connector.load_options(), database.options(**more), lambda name: "")


@pytest.fixture
def strange_globals(any_binlog_database: MySqlDatabase) -> Iterator[MySqlDatabase]:
    """Yield a database of a server whose globals and init_connect would change every result."""
    server = any_binlog_database.server
    known = server.execute("select @@global.sql_mode, @@global.time_zone")[0]
    server.execute(
        "set global sql_mode='ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH'"
        if server.dialect == "mariadb" or server.version is MYSQL_57
        else "set global sql_mode='ANSI_QUOTES'",
        "set global time_zone='+05:30'",
        "set global init_connect='set sql_select_limit=1'",
    )
    yield any_binlog_database
    server.execute(
        f"set global sql_mode='{known[0]}'", f"set global time_zone='{known[1]}'", "set global init_connect=''"
    )


def test_a_session_is_the_same_whatever_the_server_is_set_to(strange_globals: MySqlDatabase) -> None:
    mariadb = strange_globals.server.dialect == "mariadb"
    names = {
        "isolation": "tx_isolation" if mariadb else "transaction_isolation",
        "limit": "max_statement_time" if mariadb else "max_execution_time",
    }
    session = connect(configured(strange_globals))
    try:
        found = rows(session, _SET.format(**names))[0]
        assert found[:8] == ("", "+00:00", 1, 0, 1, 1, "utf8mb4", "REPEATABLE-READ")
        assert float(found[8]) == (600 if mariadb else 600_000)
        assert len(rows(session, "select 1 union select 2")) == 2
        strange_globals.execute("create table t (a int)")
        assert "`t`" in rows(session, f"show create table {strange_globals.name}.t")[0][1]
    finally:
        session.close()


def test_a_session_that_reads_the_log_has_no_limits(binlog_database: MySqlDatabase) -> None:
    config = configured(
        binlog_database, database_initial_statements="select no_such_column", binlog_net_write_timeout="77"
    )
    session = connect(config, dump=True)
    try:
        assert rows(session, "select @@net_write_timeout, @@net_read_timeout")[0] == (77, 3600)
        limit = "max_statement_time" if binlog_database.server.dialect == "mariadb" else "max_execution_time"
        assert float(rows(session, f"select @@{limit}")[0][0]) == 0
    finally:
        session.close()
    with pytest.raises(PrerequisiteError, match=r"A statement of database.initial.statements fails: Unknown column"):
        connect(config)


def test_a_statement_that_takes_too_long_is_told(binlog_database: MySqlDatabase) -> None:
    session = connect(configured(binlog_database, database_query_timeout_ms="100"))
    try:
        binlog_database.execute("create table t (a int primary key)", "insert into t values (1), (2), (3), (4), (5)")
        slow = f"select sum(t0.a * t13.a) from {', '.join(f'{binlog_database.name}.t t{n}' for n in range(14))}"
        with pytest.raises(StatementCutOff, match="A statement was cancelled"):
            explained(rows)(session, slow)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"database_password": "wrong-one"}, "refuses user or password of tailrace"),
        ({"database_port": "1"}, "Nothing listens at 127.0.0.1:1"),
        ({"database_hostname": "no-such-host.invalid"}, "The host no-such-host.invalid is not known"),
    ],
)
def test_a_login_that_fails_says_why(mysql: MySqlDatabase, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConnectionFailed, match=message) as raised:
        connect(configured(mysql, **options))
    assert "wrong-one" not in str(raised.value)


_WORDS = {"mysql": ("required", "verify_ca", "verify_identity"), "mariadb": ("trust", "verify-ca", "verify-full")}


def test_tls_is_checked_as_far_as_its_mode_says(binlog_database: MySqlDatabase, tmp_path: Path) -> None:
    server = binlog_database.server
    encrypts, checks, names = _WORDS[server.dialect]
    assert cipher(configured(binlog_database, database_ssl_mode=encrypts))
    with pytest.raises(ConnectionFailed, match=r"no authority of database.ssl.truststore has signed"):
        connect(configured(binlog_database, database_ssl_mode=checks))
    trusting = {"database_ssl_truststore": str(server.authority)}
    assert cipher(configured(binlog_database, database_ssl_mode=checks, **trusting))
    with pytest.raises(ConnectionFailed, match="made out to another name"):
        connect(configured(binlog_database, database_ssl_mode=names, **trusting))
    assert cipher(configured(binlog_database, database_ssl_mode=names, database_hostname="localhost", **trusting))
    off = "disabled" if server.dialect == "mysql" else "disable"
    assert not cipher(configured(binlog_database, database_ssl_mode=off))
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    with pytest.raises(PrerequisiteError, match="has the type JKS"):
        connect(configured(binlog_database, database_ssl_mode=checks, database_ssl_truststore=str(store)))


def cipher(config: Config) -> str:
    """Return the cipher of a session; "" without TLS."""
    session = connect(config)
    try:
        return str(rows(session, "show status like 'Ssl_cipher'")[0][1])
    finally:
        session.close()


def test_a_missing_right_is_told(mysql: MySqlDatabase) -> None:
    mysql.server.execute("drop user if exists 'poor'@'%'", "create user 'poor'@'%' identified by 'poor'")
    session = connect(configured(mysql, database_user="poor", database_password="poor"))
    try:
        with pytest.raises(PrerequisiteError, match="Access denied; you need"):
            explained(rows)(session, "show master status")
    finally:
        session.close()
        mysql.server.execute("drop user 'poor'@'%'")


def test_the_password_of_a_program_is_that_of_the_moment(binlog_database: MySqlDatabase, tmp_path: Path) -> None:
    options = binlog_database.options()
    file = tmp_path / "password"
    config = configured(binlog_database, database_password="", database_password_command=f"cat {file}")
    file.write_text("wrong-one\n")
    with pytest.raises(ConnectionFailed) as caught:
        connect(config)
    assert "database.password.command" in caught.value.remedy
    assert "wrong-one" not in str(caught.value)
    file.write_text(options["database.password"] + "\n")
    connect(config).close()
