"""`tailrace init` and `tailrace remove` against MySQL and MariaDB: a whole first file, and what may be removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.removal import REMOVAL
from tailrace.connectors.binlog.server.connection import connect
from tailrace.connectors.binlog.survey import SURVEY
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.test_sessions import configured


@pytest.fixture
def weak(binlog_database: MySqlDatabase) -> Iterator[str]:
    """Yield a user that may only read a table of the database."""
    name = f"w_{binlog_database.name}"
    binlog_database.execute(
        "create table orders (id int primary key)",
        f"create user '{name}'@'%' identified by 'pw'",
        f"grant select on {binlog_database.name}.orders to '{name}'@'%'",
    )
    yield name
    binlog_database.execute(f"drop user '{name}'@'%'")


def test_init_writes_a_file_that_check_accepts(
    binlog_database: MySqlDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    binlog_database.execute("create table orders (id int primary key)", "create table `odd.one` (id int primary key)")
    server = binlog_database.options()
    monkeypatch.setenv("SHOP_PASSWORD", server["database.password"])
    named = ("database.hostname", "database.port", "database.user", "database.include.list", "topic.prefix")
    words = [word for name in named for word in ("--set", f"{name}={server[name]}")]
    path = tmp_path / "first.properties"
    connector = binlog_database.server.dialect
    assert cli.main(["init", str(path), "--connector", connector, "--password-env", "SHOP_PASSWORD", *words,
                     "--sink", "file"]) == 0  # fmt: skip
    text = path.read_text()
    name = binlog_database.name
    assert f"debezium.source.table.include.list={name}.odd\\\\.one,{name}.orders\n" in text
    assert "database.password=${env:SHOP_PASSWORD}\n" in text
    said = capsys.readouterr().out
    assert f"2 tables are captured: {name}.odd.one, {name}.orders." in said
    assert "0 errors" in said


def test_a_weak_user_gets_the_statements_of_an_administrator(binlog_database: MySqlDatabase, weak: str) -> None:
    found = SURVEY(configured(binlog_database, database_user=weak, database_password="pw"))
    assert found.entries == (("table.include.list", f"{binlog_database.name}.orders"),)
    right = "BINLOG MONITOR" if binlog_database.server.dialect == "mariadb" else "REPLICATION CLIENT"
    assert found.statements == (f"GRANT {right}, REPLICATION SLAVE ON *.* TO '{weak}'@'%';",)
    binlog_database.execute(found.statements[0], f"revoke select on {binlog_database.name}.orders from '{weak}'@'%'")
    blind = SURVEY(configured(binlog_database, database_user=weak, database_password="pw"))
    assert blind.entries == ()
    assert blind.statements == (f"GRANT SELECT ON `{binlog_database.name}`.* TO '{weak}'@'%';",)


def test_the_signal_table_is_removed_with_its_checkpoint(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table signals (id varchar(42) primary key, type varchar(32), data text)")
    of = configured(binlog_database, signal_data_collection=f"{binlog_database.name}.signals")
    session = connect(of)
    stored = BinlogOffset(identify(session).position()).to_json()
    session.close()
    assert [one.kept for one in REMOVAL.found(of, None)] == [
        "There is no checkpoint that shows whether it is this pipeline's own."
    ]
    other = stored | {"log": stored["log"] | {"server": "another"}}
    assert [one.kept for one in REMOVAL.found(of, other)] == ["The checkpoint is of another server."]
    binlog_database.execute("alter table signals add more int")
    assert [one.kept for one in REMOVAL.found(of, stored)] == ["It has other columns than a signal table."]
    binlog_database.execute("alter table signals drop more")
    (part,) = REMOVAL.found(of, stored)
    assert (part.name, part.kept) == (f"the signal table {binlog_database.name}.signals", "")
    REMOVAL.remove(of, part)
    assert REMOVAL.found(of, stored) == []
