"""Faults of the signal table come with a remedy that works, and the command writes signals into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.config import Config
from tailrace.connectors.findings import Finding
from tailrace.connectors.postgres.setup.prerequisites import check
from tailrace.connectors.postgres.snapshot.signal_table import SignalTable
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tailrace.snapshot.signals import Signal
from tests.fix_postgres import Database

TABLE = "create table signals (id varchar(42) primary key, type varchar(32) not null, data text)"


def config(database: Database, **changes: str) -> Config:
    options = database.options(topic_prefix="p") | {"slot.name": f"s_{database.name}".lower()}
    options["signal.data.collection"] = "public.signals"
    return parse("postgres", options | {name.replace("__", "."): text for name, text in changes.items()})


def signals(config: Config) -> list[Finding]:
    return [finding for finding in check(config) if finding.subject == "signals"]


def only(config: Config) -> Finding:
    (found,) = signals(config)
    return found


def test_a_table_that_is_missing_is_told_with_the_statement_that_makes_it(database: Database) -> None:
    found = only(config(database))
    assert (found.level, found.text) == ("error", "There is no signal table public.signals.")
    database.execute(found.remedy)
    assert only(config(database)).text == "The signal table public.signals can be used."


def test_columns_must_be_three_texts(database: Database) -> None:
    database.execute("create table signals (id int primary key, type text, data text)")
    assert "must be texts: id, type and data" in only(config(database)).text
    database.execute("drop table signals", "create table signals (id text primary key, type text)")
    assert only(config(database)).level == "error"


def test_short_columns_are_warnings_and_the_remedy_widens_them(database: Database) -> None:
    database.execute("create table signals (a varchar(36) primary key, b varchar(32), c varchar(255))")
    found = signals(config(database))
    assert [one.level for one in found] == ["warning", "warning"]
    assert "column a of the signal table public.signals holds only 36 characters; id may need 42" in found[0].text
    assert "column c" in found[1].text
    database.execute(*(one.remedy for one in found))
    assert only(config(database)).level == "ok"


def test_a_further_column_must_not_ask_for_a_value_unless_nothing_is_written(database: Database) -> None:
    database.execute(TABLE, "alter table signals add more int not null, add by text default 'me' not null")
    found = only(config(database))
    assert "column more" in found.text
    assert only(config(database, read__only="true")).level == "ok"
    database.execute(found.remedy)
    assert only(config(database)).level == "ok"


def test_rights_are_asked_for_as_far_as_watermarks_need_them(database: Database) -> None:
    user = f"writer_{database.name}".lower()
    database.execute("create schema own", f"create role {user} login password 'pw' replication")
    database.execute(TABLE.replace("signals", "own.signals"))
    try:
        login = {"database__user": user, "database__password": "pw", "signal__data__collection": "own.signals"}
        mode = {"publication__autocreate__mode": "disabled"}
        plain = config(database, **login, **mode)
        found = only(plain)
        assert found.level == "error"
        assert found.remedy == (
            f'grant usage on schema "own" to "{user}"; grant insert on "own"."signals" to "{user}"; '
            "Or set read.only=true."
        )
        assert only(config(database, **login, **mode, read__only="true")).level == "ok"
        database.execute(found.remedy.partition(" Or")[0])
        assert only(plain).level == "ok"
        deleting = config(database, **login, **mode, incremental__snapshot__watermarking__strategy="insert_delete")
        found = only(deleting)
        assert "grant select, delete on" in found.remedy
        database.execute(found.remedy.partition(" Or")[0])
        assert only(deleting).level == "ok"
    finally:
        database.execute(f"drop owned by {user} cascade", f"drop role {user}")


def test_deletions_need_an_identity(database: Database) -> None:
    database.execute(TABLE.replace(" primary key", ""))
    assert only(config(database)).level == "ok"
    found = only(config(database, incremental__snapshot__watermarking__strategy="insert_delete"))
    assert "neither a primary key nor a replica identity" in found.text


def test_the_publication_must_have_the_table_and_its_inserts(database: Database) -> None:
    database.execute(TABLE, "create table t (id int primary key)", "create publication dbz_publication for table t")
    found = only(config(database))
    assert "is not in the publication dbz_publication" in found.text
    # These two need no more: with `filtered` the pipeline adds the table itself, and other channels do not need it.
    assert only(config(database, publication__autocreate__mode="filtered")).level == "ok"
    assert only(config(database, signal__enabled__channels="file")).level == "ok"
    database.execute(found.remedy)
    assert only(config(database)).level == "ok"
    database.execute("alter publication dbz_publication set (publish = 'update')")
    found = only(config(database))
    assert "publishes no inserts" in found.text
    database.execute(found.remedy)
    assert only(config(database)).level == "ok"


def test_the_table_is_captured_whatever_the_lists_say(database: Database) -> None:
    database.execute(TABLE, "create table t (id int primary key)", "create table u (id int primary key)")
    (found,) = [one for one in check(config(database, table__include__list="public.t")) if one.subject == "tables"]
    assert found.text == "2 tables are captured: public.signals, public.t."


def test_the_form_of_1_7_needs_the_table_listed(database: Database) -> None:
    database.execute(TABLE, "create table t (id int primary key)")
    lists = {"event__format": "1.7", "table__include__list": r"public\.t"}
    assert "is not captured" in only(config(database, **lists)).text
    assert only(config(database, **lists, signal__enabled__channels="file")).level == "ok"
    assert only(config(database, event__format="1.7", table__include__list=r"public\..*")).level == "ok"


def test_the_command_writes_a_row(database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database.execute('create schema "Own"', 'create table "Own"."my.signals" (a text primary key, b text, c text)')
    options = database.options(topic_prefix="p", signal_data_collection='"Own"."my.signals"')
    path = tmp_path / "connector.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in options.items()))
    command = ["signal", "execute-snapshot", str(path), "--table", "public.t", "--id", "one"]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == "execute-snapshot one: a row of the signal table Own.my.signals.\n"
    with database.connect() as connection:
        rows = connection.execute('select * from "Own"."my.signals"').fetchall()
    assert rows == [("one", "execute-snapshot", '{"type": "incremental", "data-collections": ["public.t"]}')]
    assert cli.main(command) == 4
    assert "has a signal of this id already" in capsys.readouterr().err


def test_a_row_that_the_server_refuses_is_told_without_its_data(database: Database) -> None:
    database.execute("create table signals (id text primary key, type text, data varchar(5))")
    with pytest.raises(PrerequisiteError, match=r"refuses the signal's row .*\(SQLSTATE 22001\)") as caught:
        SignalTable(config(database)).insert(Signal("1", "log", '{"message": "s3cret"}'))
    assert "s3cret" not in str(caught.value)
    assert 'alter "data" type text' in caught.value.remedy
