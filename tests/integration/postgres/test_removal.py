"""`tailrace init` and `tailrace remove` against a PostgreSQL server: what is written, and what may be removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.command import cli
from tailrace.connectors.postgres.log.identity import identify
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.removal import REMOVAL
from tailrace.connectors.postgres.schema.inventory import Inventory
from tailrace.connectors.postgres.server.connection import connect
from tailrace.connectors.registry import parse
from tests.fix_postgres import Database


def config(database: Database, **changes: str) -> Any:
    name = database.name.lower()
    own = {"slot.name": f"s_{name}", "publication.name": f"p_{name}", "publication.autocreate.mode": "filtered"}
    changed = {option.replace("__", "."): text for option, text in changes.items()}
    return parse("postgres", database.options(topic_prefix="p") | own | changed)


def offset_of(database: Database, of: Any, **changes: Any) -> dict[str, Any]:
    """Return the offset of a checkpoint that has read all of the server's log by the present publication."""
    with connect(of, replication=True) as replication:
        server = identify(replication)
    with database.connect() as connection:
        query = "select oid::int8, pg_current_wal_lsn()::text from pg_publication where pubname = %s"
        found = connection.execute(query, (of["publication.name"],)).fetchone()
        assert found is not None
    log = LogPosition.from_json({"commit": "0/0", "end": "0/0", "idle": found[1]})
    made = PostgresOffset(log, server=server, inventory=Inventory(publication=found[0]))
    return made.to_json() | changes


def test_slot_publication_and_signal_table_are_found_and_removed(database: Database) -> None:
    name = database.name.lower()
    database.execute(
        "create table t (id int primary key)",
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data text)",
        f"create publication p_{name} for table t, signals",
    )
    of = config(database, signal__data__collection="public.signals")
    database.execute(f"select pg_create_logical_replication_slot('s_{name}', 'pgoutput')")
    try:
        # Debezium's slot and publication have such names too.
        assert all(one.kept.startswith("There is no checkpoint") for one in REMOVAL.found(of, None))
        stored = offset_of(database, of)
        other = stored | {"server": {"system": "1", "timeline": 1}}
        assert {one.kept for one in REMOVAL.found(of, other)} == {"The checkpoint is of another server."}
        behind = stored | {"log": {"commit": "0/0", "end": "0/0"}}
        assert "another program has read it" in REMOVAL.found(of, behind)[0].kept
        stranger = config(database, publication__autocreate__mode="disabled")
        assert "somebody else has made it" in REMOVAL.found(stranger, stored)[1].kept

        database.execute(f"select pg_create_logical_replication_slot('o_{name}', 'pgoutput')")
        assert REMOVAL.found(of, stored)[1].kept == f"Other slots of this database may be read by it: o_{name}."
        database.execute(f"select pg_drop_replication_slot('o_{name}')")

        parts = REMOVAL.found(of, stored)
        assert [(one.name, one.kept) for one in parts] == [
            (f"the replication slot s_{name}", ""),
            (f"the publication p_{name}", ""),
            ("the signal table public.signals", ""),
        ]
        for part in parts:
            REMOVAL.remove(of, part)
        assert REMOVAL.found(of, stored) == []
    finally:
        database.execute(
            f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name ~ '{name}'"
        )


def test_a_table_with_other_columns_is_no_signal_table(database: Database) -> None:
    name = database.name.lower()
    database.execute("create table t (id int, a text, b text)", f"create publication p_{name} for table t")
    of = config(database, signal__data__collection="public.t")
    (kept,) = [one.kept for one in REMOVAL.found(of, offset_of(database, of)) if "signal" in one.name]
    assert kept == "It has other columns than a signal table."


def test_init_writes_a_file_that_check_accepts(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table orders (id int primary key)", 'create table "odd.one" (id int primary key)')
    monkeypatch.setenv("SHOP_PASSWORD", database.server.password)
    path = tmp_path / "first.properties"
    server = database.options(topic_prefix="shop")
    given = [f"{name}={server[name]}" for name in ("database.hostname", "database.port", "database.dbname")]
    words = [word for one in (*given, f"database.user={server['database.user']}") for word in ("--set", one)]
    words += ["--set", "topic.prefix=shop", "--set", f"slot.name=s_{database.name.lower()}"]
    first = ["init", str(path), "--connector", "postgres", "--sink", "file", "--password-env", "SHOP_PASSWORD", *words]
    assert cli.main(first) == 0
    text = path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert "debezium.source.table.include.list=public.odd\\\\.one,public.orders\n" in text
    assert "debezium.source.publication.autocreate.mode=filtered\n" in text
    assert "database.password=${env:SHOP_PASSWORD}\n" in text
    assert database.server.password not in text
    said = capsys.readouterr().out
    assert "2 tables are captured: public.odd.one, public.orders." in said
    assert "0 errors" in said
    assert cli.main(first) == 2
    assert "already exists" in capsys.readouterr().err


def test_init_names_what_an_administrator_has_to_run(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"weak_{database.name}".lower()
    database.execute("create table orders (id int primary key)", f"create role {user} login password 'pw'")
    try:
        monkeypatch.setenv("TAILRACE_PASSWORD", "pw")
        path = tmp_path / "first.properties"
        server = database.options(topic_prefix="shop") | {"database.user": user}
        named = ("database.hostname", "database.port", "database.dbname", "database.user")
        words = [word for name in named for word in ("--set", f"{name}={server[name]}")]
        words += ["--set", f"slot.name=s_{database.name.lower()}"]
        assert cli.main(["init", str(path), "--connector", "postgres", "--sink", "file", *words]) == 4
        statements = (
            f'alter role "{user}" with replication;',
            f'grant select on "public"."orders" to "{user}";',
            'create publication "dbz_publication" for table "public"."orders";',
        )
        said = capsys.readouterr().out
        for statement in statements:
            assert f"\n  {statement}\n" in said
            assert f"#   {statement}\n" in path.read_text()
    finally:
        database.execute(f"drop role {user}")


def test_init_without_a_terminal_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["init", str(tmp_path / "f"), "--connector", "postgres", "--sink", "file"]
    assert cli.main(first) == 2
    assert "database.dbname is not given, and there is no terminal to ask." in capsys.readouterr().err
    assert cli.main([*first, "--sink", "floppy", "--set", "database.dbname=d", "--set", "database.user=u"]) == 2
