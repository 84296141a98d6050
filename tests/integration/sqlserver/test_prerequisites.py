"""`check` finds what the server lacks, names the remedy, and never shows the password."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.command.cli import main
from tailrace.connectors.findings import Finding
from tailrace.connectors.sqlserver.server.connection import close, connect
from tailrace.connectors.sqlserver.setup.prerequisites import check, demand
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError
from tdsserver.process import TestDatabase, TestServer, certificate
from tests.integration.sqlserver.capturing import Capture
from tests.integration.sqlserver.reading import changed, config, connected


def found(findings: list[Finding], subject: str) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in findings if one.subject == subject]


@pytest.fixture
def weak(sqlserver: TestServer, sqlserver_database: TestDatabase) -> Iterator[dict[str, str]]:
    """Return options of a login that may only open the database."""
    name = f"weak_{secrets.token_hex(3)}"
    sqlserver.execute(f"create login [{name}] with password = 'pw-of-weak'")
    sqlserver_database.execute(f"create user [{name}] for login [{name}]")
    yield {"database.user": name, "database.password": "pw-of-weak"}
    sqlserver_database.execute(f"drop user [{name}]")
    sqlserver.execute(f"drop login [{name}]")


def captured(database: TestDatabase, *tables: str) -> TestDatabase:
    for table in tables or ("t",):
        database.execute(f"create table [{table}] (id int not null primary key)")
    database.enable(*tables or ("t",))
    database.execute(f"insert into [{tables[0] if tables else 't'}] values (1)")
    database.capture()
    return database


def test_a_ready_server_has_no_errors(sqlserver_database: TestDatabase) -> None:
    findings = demand(config(captured(sqlserver_database)))
    assert {finding.level for finding in findings} == {"ok"}
    assert found(findings, "tables") == [("ok", "1 table is captured: dbo.t.")]
    assert found(findings, "retention")[0][1].startswith("Changes are kept for 3 days")


def test_a_database_without_capture_is_an_error(sqlserver_database: TestDatabase) -> None:
    with pytest.raises(PrerequisiteError, match="sp_cdc_enable_db"):
        demand(config(sqlserver_database))


def test_tables_without_a_capture_instance_are_told(sqlserver_database: TestDatabase) -> None:
    captured(sqlserver_database).execute("create table other (id int)")
    level, text = found(check(config(sqlserver_database)), "tables")[1]
    assert level == "warning"
    assert "not seen: dbo.other" in text
    with pytest.raises(PrerequisiteError, match="No table that the lists include is captured"):
        demand(config(sqlserver_database, {"table.include.list": r"dbo\.other"}))
    assert found(check(config(sqlserver_database, {"table.include.list": r"dbo\.t"})), "tables") == [
        ("ok", "1 table is captured: dbo.t.")
    ]


def test_columns_that_came_later_are_told_until_there_is_a_second_instance(sqlserver_database: TestDatabase) -> None:
    captured(sqlserver_database).execute("alter table t add added nvarchar(10)")
    sqlserver_database.capture()
    level, text = found(check(config(sqlserver_database)), "columns")[0]
    assert level == "warning"
    assert text.endswith("lacks columns that dbo.t got later: added.")
    with connected(sqlserver_database) as session:
        assert any("added" in sentence for sentence in session.warnings(session.captures()))
    sqlserver_database.execute(
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null, "
        "@capture_instance = N't_v2'"
    )
    assert found(check(config(sqlserver_database)), "columns") == []


def test_a_stopped_agent_is_a_warning(sqlserver: TestServer, sqlserver_database: TestDatabase) -> None:
    captured(sqlserver_database)
    sqlserver.execute("exec master.dbo.xp_servicecontrol N'stop', N'SQLServerAgent'")
    try:
        level, text = found(demand(config(sqlserver_database)), "agent")[0]
    finally:
        sqlserver.execute("exec master.dbo.xp_servicecontrol N'start', N'SQLServerAgent'")
    assert level == "warning"
    assert "none is lost" in text
    own = {"database.sqlserver.agent.status.query": "select 0"}
    assert found(check(config(sqlserver_database, own)), "agent")[0][0] == "warning"


def test_snapshot_isolation_must_be_allowed_where_it_is_asked_for(sqlserver_database: TestDatabase) -> None:
    options = {"snapshot.isolation.mode": "snapshot"}
    captured(sqlserver_database)
    with pytest.raises(PrerequisiteError, match="set allow_snapshot_isolation on"):
        demand(config(sqlserver_database, options))
    sqlserver_database.execute(f"alter database [{sqlserver_database.name}] set allow_snapshot_isolation on")
    assert found(demand(config(sqlserver_database, options)), "isolation")[0][0] == "ok"


def test_names_that_collide_but_for_their_case_are_a_warning(
    make_sqlserver_database: Callable[..., TestDatabase],
) -> None:
    database = make_sqlserver_database(collation="SQL_Latin1_General_CP1_CS_AS")
    captured(database, "t", "T")
    level, text = found(check(config(database)), "names")[0]
    assert level == "warning"
    assert "dbo.T and dbo.t" in text
    captured(other := make_sqlserver_database(), "a b", "a?b")
    assert "share a topic" in found(check(config(other)), "names")[0][1]


def test_a_weak_login_is_told_each_thing_that_it_lacks(sqlserver_database: TestDatabase, weak: dict[str, str]) -> None:
    captured(sqlserver_database)
    name = weak["database.user"]
    with pytest.raises(PrerequisiteError, match=f"{name} may not read the schema cdc") as caught:
        demand(config(sqlserver_database, weak))
    assert "pw-of-weak" not in str(caught.value)
    sqlserver_database.execute(f"grant select on schema::cdc to [{name}]")
    assert found(check(config(sqlserver_database, weak)), "select")[0] == (
        "error",
        f"The login {name} may not read dbo.t for a snapshot.",
    )
    assert found(check(config(sqlserver_database, weak | {"snapshot.mode": "no_data"})), "select") == []
    sqlserver_database.execute(f"grant select on t to [{name}]")
    assert {finding.level for finding in demand(config(sqlserver_database, weak))} == {"ok"}
    for mode in ("direct", "function"):
        with connected(sqlserver_database, weak | {"data.query.mode": mode}) as session:
            assert changed(session) == [(2, "1")]


def test_a_login_outside_of_the_gating_role_is_told_the_role(
    sqlserver_database: TestDatabase, weak: dict[str, str]
) -> None:
    name = weak["database.user"]
    sqlserver_database.execute(
        "create table t (id int not null primary key)",
        "exec sys.sp_cdc_enable_db",
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = N'readers'",
        f"grant select on schema::cdc to [{name}]",
        f"grant select on t to [{name}]",
        "insert into t values (1)",
    )
    sqlserver_database.capture()
    findings = check(config(sqlserver_database, weak))
    assert ("error", f"The login {name} may not read the changes of dbo.t: it is not a member of readers.") in found(
        findings, "rights"
    )
    with connected(sqlserver_database, weak) as session:
        assert session.captures() == []
    sqlserver_database.execute(f"alter role readers add member [{name}]")
    assert {finding.level for finding in demand(config(sqlserver_database, weak))} == {"ok"}
    with connected(sqlserver_database, weak) as session:
        assert changed(session) == [(2, "1")]
    # The owner needs no membership.
    with connected(sqlserver_database) as session:
        assert changed(session) == [(2, "1")]


def test_the_signal_table_is_looked_at(sqlserver_database: TestDatabase) -> None:
    captured(sqlserver_database)
    options = {"signal.data.collection": f"{sqlserver_database.name}.dbo.signals"}
    with pytest.raises(PrerequisiteError, match=r"There is no signal table dbo\.signals"):
        demand(config(sqlserver_database, options))
    sqlserver_database.execute("create table signals (id int)")
    with pytest.raises(PrerequisiteError, match="three columns of text"):
        demand(config(sqlserver_database, options))
    sqlserver_database.execute(
        "drop table signals", "create table signals (id varchar(42), type varchar(32), data varchar(100))"
    )
    texts = [text for _, text in found(check(config(sqlserver_database, options)), "signals")]
    assert any("holds 100 characters" in text for text in texts)
    assert any("has no capture instance" in text for text in texts)
    sqlserver_database.execute(
        "drop table signals", "create table signals (id varchar(42), type varchar(32), data varchar(2048))"
    )
    sqlserver_database.enable("signals")
    assert found(check(config(sqlserver_database, options)), "signals")[0][0] == "ok"


def test_every_database_is_looked_at(make_sqlserver_database: Callable[..., TestDatabase]) -> None:
    one, two = captured(make_sqlserver_database(), "a"), captured(make_sqlserver_database(), "b")
    findings = demand(config(one, {"database.names": f"{one.name},{two.name}"}))
    assert found(findings, "tables") == [
        ("ok", f"1 table is captured in {one.name}: dbo.a."),
        ("ok", f"1 table is captured in {two.name}: dbo.b."),
    ]
    assert len(found(findings, "server")) == 1


def test_the_command_says_it_too(
    sqlserver_database: TestDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captured(sqlserver_database).execute("create table other (id int)")
    given = config(sqlserver_database).given | {"connector.class": "io.debezium.connector.sqlserver.SqlServerConnector"}
    path = tmp_path / "shop.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "sqlserver to console, format 3, at least once." in printed
    # The table without a capture instance, and the login.
    assert "0 errors, 2 warnings." in printed
    assert given["database.password"] not in printed


def test_the_command_writes_signals(
    sqlserver_database: TestDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sqlserver_database.execute(
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)"
    )
    named = f"{sqlserver_database.name}.dbo.signals"
    given = config(sqlserver_database, {"signal.data.collection": named}).given | {"connector.class": "SqlServer"}
    path = tmp_path / "shop.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    table = f"{sqlserver_database.name}.dbo.t"
    assert main(["signal", "execute-snapshot", str(path), "--table", table, "--id", "one"]) == 0
    assert capsys.readouterr().out == "execute-snapshot one: a row of the signal table dbo.signals.\n"
    ((number, kind, data),) = sqlserver_database.query("select * from signals")
    assert (number, kind) == ("one", "execute-snapshot")
    assert json.loads(data) == {"type": "incremental", "data-collections": [table]}


def test_the_checkpoint_is_compared_with_what_is_still_there(sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    captured(sqlserver_database)
    options = {"checkpoint.location": str(tmp_path)}
    assert found(check(config(sqlserver_database, options)), "checkpoint") == []
    query = Capture([sqlserver_database], {"topic.prefix": "p", **options})
    query.step()
    query.planner.close()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(query.committed)}\n")
    assert found(check(config(sqlserver_database, options)), "checkpoint") == [
        ("ok", "The change tables reach back to the checkpoint.")
    ]
    sqlserver_database.execute("insert into t values (2)", "insert into t values (3)")
    newest = sqlserver_database.capture()
    sqlserver_database.execute(
        "update cdc.lsn_time_mapping set tran_end_time = dateadd(day, -2, dateadd(hour, -20, tran_end_time))"
    )
    level, text = found(check(config(sqlserver_database, options)), "checkpoint")[0]
    assert level == "warning"
    # A minute may end between the change and the check.
    assert re.search("The oldest unread change is 408[0-9] minutes old, and changes are kept for 4320", text)
    sqlserver_database.clean_up("dbo_t", newest)
    level, text = found(check(config(sqlserver_database, options)), "checkpoint")[0]
    assert level == "error"
    assert "cleaned up, or their change tables are gone: dbo.t." in text
    mending = options | {"snapshot.mode": "when_needed"}
    assert found(check(config(sqlserver_database, mending)), "checkpoint")[0][0] == "warning"
    # The start leaves it to the planner, whose error names the loss.
    assert found(demand(config(sqlserver_database, options)), "checkpoint") == []


# --- connections that do not come about ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"database.password": "wrong-secret"}, ConnectionFailed, "refuses the login sa"),
        ({"database.names": "nowhere"}, PrerequisiteError, "cannot open the database nowhere"),
        ({"database.port": "1"}, ConnectionFailed, "Nothing listens at 127.0.0.1:1"),
        ({"database.hostname": "nowhere.invalid"}, ConnectionFailed, "The host of nowhere.invalid:"),
    ],
)
def test_a_failed_login_is_told_with_its_remedy(
    sqlserver_database: TestDatabase, options: dict[str, str], kind: type[TailraceError], message: str
) -> None:
    read = config(sqlserver_database, options)
    with pytest.raises(kind, match=message) as caught:
        connect(read, read["database.names"][0])
    assert caught.value.remedy
    assert "wrong-secret" not in str(caught.value)


def test_tls_is_asked_for_and_the_certificate_is_checked(tmp_path: Path) -> None:
    path = certificate(tmp_path)
    with TestServer("optional", path) as server:
        database = captured(TestDatabase(server, "secured"))
        refusing = config(database, {"driver.encrypt": "true"})
        with pytest.raises(ConnectionFailed, match="TLS with") as caught:
            connect(refusing, "secured")
        assert "driver.trustServerCertificate=true" in caught.value.remedy
        for options in (
            {"driver.trustServerCertificate": "true"},
            {"driver.serverCertificate": str(path)},
        ):
            close(connect(config(database, {"driver.encrypt": "true"} | options), "secured"))


def test_a_server_without_tls_is_refused_unless_told_otherwise(sqlserver_database: TestDatabase) -> None:
    with pytest.raises(ConnectionFailed, match="TLS with") as caught:
        connect(config(sqlserver_database, {"driver.encrypt": "true"}), sqlserver_database.name)
    assert "driver.encrypt=false" in caught.value.remedy


def test_what_changes_do_not_carry_is_told_by_check_and_by_a_run(sqlserver_database: TestDatabase) -> None:
    """These are computed columns, columns that were never captured, dropped columns, and columns dropped and created
    again."""
    sqlserver_database.execute(
        "create table t (id int not null primary key, a int, b as (a * 2), c int, d int, e int)",
        "exec sys.sp_cdc_enable_db",
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null, "
        "@captured_column_list = N'id,a,b,d,e'",
        "alter table t drop column d",
        "alter table t drop column e",
        "alter table t add e int",
    )
    sqlserver_database.capture()
    expected = (
        "dbo.t: changes do not carry b (it is computed, and null in changes; a copy is without it), "
        "c (it is not captured), e (it was dropped and made again, and is null in changes), "
        "d (it was dropped, and is null in changes)."
    )
    assert found(check(config(sqlserver_database)), "coverage") == [("warning", expected)]
    with connected(sqlserver_database) as session:
        said = expected.removeprefix("dbo.t")
        assert any(said in sentence for sentence in session.warnings(session.captures()))
    without = {"column.exclude.list": r"dbo\.t\.[b-e]"}
    assert not found(check(config(sqlserver_database, without)), "coverage")
