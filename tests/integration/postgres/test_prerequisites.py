"""`check` finds missing prerequisites, gives remedies, and never shows the password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.config import Config
from tailrace.connectors.postgres.server.connection import Address, connect
from tailrace.connectors.postgres.setup.advice import is_open_to_others
from tailrace.connectors.postgres.setup.prerequisites import Finding, check, demand
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError
from tests.fix_postgres import Database


def config(database: Database, **changes: str) -> Config:
    options = database.options(topic_prefix="p") | {"slot.name": f"s_{database.name}".lower()}
    return parse("postgres", options | {name.replace("__", "."): text for name, text in changes.items()})


def found(findings: list[Finding], subject: str) -> list[tuple[str, str]]:
    return [(f.level, f.text) for f in findings if f.subject == subject]


def test_a_ready_server_has_no_errors(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    findings = demand(config(database))
    assert {finding.level for finding in findings} == {"ok"}
    assert found(findings, "tables") == [("ok", "1 table is captured: public.t.")]


def test_a_weak_user_is_told_each_thing_that_he_lacks(database: Database) -> None:
    user = f"weak_{database.name}".lower()
    database.execute("create table t (id int primary key)", f"create role {user} login password 'pw'")
    try:
        weak = config(database, database__user=user, database__password="pw")
        findings = check(weak)
        assert found(findings, "replication") == [("error", f"The user {user} may not read the log.")]
        assert found(findings, "select")[0][0] == "error"
        assert "Only a superuser" in found(findings, "publication")[0][1]
        filtered = check(
            config(database, database__user=user, database__password="pw", publication__autocreate__mode="filtered")
        )
        assert "may not create the publication" in found(filtered, "publication")[0][1]
        with pytest.raises(PrerequisiteError, match="The server is not ready:"):
            demand(weak)
        database.execute(f"alter role {user} replication", f"grant select on t to {user}")
        database.execute(f"grant create on database {database.name} to {user}")
        findings = check(
            config(database, database__user=user, database__password="pw", publication__autocreate__mode="filtered")
        )
        assert found(findings, "publication") == [("error", f"The user {user} does not own public.t.")]
        assert found(findings, "replication")[0][0] == found(findings, "select")[0][0] == "ok"
    finally:
        database.execute(f"drop owned by {user} cascade", f"drop role {user}")


def test_tables_without_identity_and_names_that_collide_are_warnings(database: Database) -> None:
    database.execute("create table n (a int)", "create table f (a int)", "alter table f replica identity full")
    database.execute('create table "a b" (id int primary key)', 'create table "a?b" (id int primary key)')
    findings = check(config(database))
    level, text = found(findings, "coverage")[0]
    assert level == "warning"
    assert text.startswith("public.n: the server refuses its updates and deletes while it is published")
    level, text = found(findings, "names")[0]
    assert level == "warning"
    assert "public.a b and public.a?b (p.public.a_b)" in text


def test_lists_that_match_no_table_are_an_error_with_the_nearest_names(database: Database, tmp_path: Path) -> None:
    database.execute("create table orders (id int primary key)", "create table customers (id int primary key)")
    missed = config(database, table__include__list="public.order,shop.x", checkpoint__location=str(tmp_path))
    ((level, text),) = found(check(missed), "tables")
    assert level == "error"
    assert text == "The include lists match no table of the database. The nearest: public.orders, public.customers."
    with pytest.raises(PrerequisiteError, match=r"or set no\.table\.handling\.mode=warn if a table is made later"):
        demand(missed)
    later = config(database, table__include__list="public.order", no__table__handling__mode="warn")
    assert found(check(later), "tables")[0][0] == "warning"
    # The log may have changes of a table that is gone.
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"log": {}}\n')
    assert found(check(missed), "tables")[0][0] == "warning"
    none = config(database, table__exclude__list=".*", publication__autocreate__mode="filtered")
    assert found(check(none), "tables") == [("warning", "None of the tables is captured.")]
    assert found(check(none), "publication") == [("error", "The publication dbz_publication would have no table.")]


def test_a_publication_is_compared_with_what_is_captured(database: Database) -> None:
    database.execute("create table a (id int primary key)", "create table b (id int primary key)")
    database.execute("create publication dbz_publication for table a with (publish = 'insert, update')")
    texts = [text for _, text in found(check(config(database)), "publication")]
    assert texts == [
        "The publication dbz_publication exists.",
        "The publication dbz_publication does not publish delete.",
    ]
    lacking = found(check(config(database)), "coverage")
    assert lacking == [("warning", "public.b: the publication does not have it, and no change of it arrives.")]
    truncates = found(check(config(database, skipped__operations="none")), "publication")
    assert truncates[1][1].endswith("does not publish delete, truncate.")


def test_a_missing_publication_that_may_not_be_made_is_an_error(database: Database) -> None:
    with pytest.raises(PrerequisiteError, match="There is no publication dbz_publication"):
        demand(config(database, publication__autocreate__mode="disabled"))


def test_a_slot_of_another_database_or_kind_is_told(database: Database) -> None:
    settings = config(database)
    slot = settings["slot.name"]
    with database.server.connect() as elsewhere:
        elsewhere.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        try:
            assert "belongs to the database" in found(check(settings), "slot")[0][1]
        finally:
            elsewhere.execute("select pg_drop_replication_slot(%s)", [slot])
    database.execute(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    level, text = found(check(settings), "slot")[0]
    assert level == "ok"
    assert "exists and keeps" in text
    database.execute(f"select pg_drop_replication_slot('{slot}')")
    database.execute(f"select pg_create_physical_replication_slot('{slot}')")
    try:
        assert found(check(settings), "slot") == [
            ("error", f"The slot {slot} is a physical slot; a logical slot is needed.")
        ]
    finally:
        database.execute(f"select pg_drop_replication_slot('{slot}')")


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"database.hostname": "no-such-host.invalid"}, ConnectionFailed, "no-such-host.invalid is not known"),
        ({"database.port": "1"}, ConnectionFailed, "Nothing listens"),
        ({"database.dbname": "absent"}, PrerequisiteError, "There is no database absent"),
        ({"database.user": "nobody_here"}, ConnectionFailed, "nobody_here"),
        ({"database.sslmode": "verify-full"}, ConnectionFailed, "TLS"),
    ],
)
def test_a_login_that_fails_is_explained(
    database: Database, change: dict[str, str], kind: type[TailraceError], said: str
) -> None:
    # a user who may not log in learns nothing about databases
    secret = database.server.password if "database.dbname" in change else "hunter2"
    options = database.options() | {"database.password": secret} | change
    with pytest.raises(kind) as caught:
        connect(parse("postgres", options))
    assert said in caught.value.message
    assert caught.value.remedy
    assert secret not in str(caught.value)


def test_initial_statements_run_and_their_failure_is_told(database: Database) -> None:
    with connect(config(database, database__initial__statements="set search_path = x; set a.b = 'c;;d'")) as connection:
        assert connection.execute("select current_setting('a.b')").fetchone() == ("c;d",)
    with pytest.raises(PrerequisiteError, match=r"database\.initial\.statements"):
        connect(config(database, database__initial__statements="selec 1"))


def test_the_address_for_other_drivers_is_the_same(database: Database) -> None:
    with connect(config(database)) as known, psycopg.connect(Address.of(config(database), known).login()) as connection:
        assert connection.info.dbname == database.name


def test_more_rights_than_needed_are_a_warning_with_the_statements_for_the_least_ones(database: Database) -> None:
    role = f"tailrace_{database.name}".lower()
    database.execute(
        "create table t (id int primary key)",
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data text)",
    )
    named = {"signal__data__collection": "public.signals", "publication__autocreate__mode": "disabled"}
    advised = {finding.subject: finding for finding in check(config(database, **named))}
    assert advised["wal_keep"].level == advised["rights"].level == "warning"
    assert "more rights than capture needs: superuser, createrole, createdb, bypassrls." in advised["rights"].text
    remedy = advised["rights"].remedy.replace("'…'", "'pw'").replace(" tailrace", f" {role}")
    statements = [part.strip() for part in remedy.partition(": ")[2].split(";")]
    try:
        database.execute(*statements[:-1])
        least = config(database, database__user=role, database__password="pw", **named)
        findings = check(least)
        assert [(found.subject, found.text) for found in findings if found.level == "error"] == []
        assert found(findings, "rights") == []
        assert found(findings, "replication")[0][0] == found(findings, "signals")[0][0] == "ok"
        # advice belongs to `tailrace check`, not to each start
        assert {finding.level for finding in demand(least)} == {"ok"}
    finally:
        database.execute(f"drop owned by {role} cascade", f"drop role if exists {role}")


@pytest.mark.parametrize(
    ("client", "server", "encrypted", "said"),
    [
        (None, None, False, False),
        ("10.0.0.1", "10.0.0.1", False, False),
        ("10.0.0.1", "10.0.0.2", False, True),
        ("10.0.0.1", "10.0.0.2", True, False),
    ],
)
def test_a_session_across_a_network_is_encrypted(
    client: str | None, server: str | None, encrypted: bool, said: bool
) -> None:
    assert is_open_to_others(client, server, encrypted) is said


KINDS = {
    "generated": "create table generated (id int primary key, a int, g int generated always as (a) stored)",
    "unlogged": "create unlogged table unlogged (id int primary key)",
    "keyless": "create table keyless (a int)",
    "deferred": "create table deferred (id int primary key deferrable initially deferred)",
    "nothing": "create table nothing (id int primary key); alter table nothing replica identity nothing",
    "parent": "create table parent (id int primary key); create table child () inherits (parent)",
    "root": "create table root (id int primary key) partition by range (id); "
    "create table leaf partition of root for values from (0) to (9)",
    "view": "create view view as select 1 as id",
    "foreign_table": "create foreign data wrapper f; create server s foreign data wrapper f; "
    "create foreign table foreign_table (id int) server s",
    "bits": "create table bits (id int primary key, b bit varying(9), z time with time zone, i interval)",
    "boxes": "create table boxes (id int primary key, b box)",
    "merged": "create table merged (id bit varying(9) primary key)",
    'Dotted": "': 'create schema "a.b"; create table "a.b".c (id int primary key); create schema a; '
    'create table a."b.c" (id int primary key)',
}


def test_one_table_of_each_kind_is_named_and_none_twice(database: Database) -> None:
    database.execute(*(statement for of in KINDS.values() for statement in of.split("; ")))
    lists = r"public\..*,a.*"
    findings = check(config(database, row__blocks="last", table__include__list=lists))
    told = [one.text for one in findings if one.subject in ("coverage", "values") and one.level != "ok"]
    assert len(set(told)) == len(told)
    for name in KINDS:
        named = [text for text in told if f"public.{name}" in text or (name.startswith("D") and "a.b.c" in text)]
        # the partitions of a root are named in its finding, and views beside foreign tables
        assert len(named) == 1, (name, told)


def test_the_findings_of_a_thousand_tables_take_a_few_statements(database: Database) -> None:
    """Their number does not grow with the tables, so that a distant server is asked in a moment."""

    def asked() -> int:
        seen: list[bytes] = []
        real = psycopg.Connection.execute

        def execute(self: psycopg.Connection[Any], query: Any, *given: Any, **more: Any) -> Any:
            seen.append(query)
            return real(self, query, *given, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(psycopg.Connection, "execute", execute)
            check(config(database, row__blocks="last"))
        return len(seen)

    database.execute("create table t_0 (id int primary key)")
    before = asked()
    database.execute(*(f"create table t_{number} (id int primary key, v bit varying(9))" for number in range(1, 60)))
    assert asked() == before
