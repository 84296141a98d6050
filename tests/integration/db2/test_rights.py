"""A user with the rights that `check` shows, and no others: every part of the pipeline works for it.

Derby grants as Db2 does, but for the word USER and for the right to connect; it has no authorities.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.connectors.changetables.log.sessions import close_idle
from tailrace.connectors.db2.dialect import Db2Session, dialect
from tailrace.connectors.db2.setup.advice import least
from tailrace.connectors.db2.setup.prerequisites import check, demand
from tailrace.connectors.db2.setup.survey import look
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tests.fix_db2 import Db2Database, dsn
from tests.integration.db2.conftest import CUSTOMERS
from tests.integration.db2.driving import Query, Record
from tests.servers.asn import Capture
from tests.servers.derby import Derby

SIGNALS = "MYSCHEMA.SIGNALS"


@pytest.fixture(scope="module")
def guarding(derby_jars: list[Path]) -> Iterator[Derby]:
    """Run a server where everybody except the owner has only granted rights."""
    with Derby(derby_jars, guarded=True) as server:
        yield server


@pytest.fixture
def owned(guarding: Derby) -> Iterator[Db2Database]:
    """Return a database with two customers and a signal table, as its owner."""
    name = f"T{secrets.token_hex(3).upper()}"
    guarding.make(name)
    capture = Capture(dsn(guarding, name))
    capture.install()
    database = Db2Database(guarding, name, capture)
    signals = "(ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32) NOT NULL, DATA VARCHAR(2048))"
    database.execute("CREATE SCHEMA MYSCHEMA", CUSTOMERS, f"CREATE TABLE {SIGNALS} {signals}")
    capture.register("MYSCHEMA", "CUSTOMERS")
    capture.register("MYSCHEMA", "SIGNALS")
    capture.run(added("a"), added("b"))
    yield database
    close_idle()
    capture.close()
    guarding.drop(name)


def added(name: str) -> str:
    return f"INSERT INTO MYSCHEMA.CUSTOMERS (FIRST_NAME, LAST_NAME, EMAIL) VALUES ('{name}', '{name}', '{name}')"


class _Reader:
    """The server as the user TAILRACE."""

    user, password = "tailrace", "pw-of-the-least"

    def __init__(self, server: Derby) -> None:
        self.port = server.port


def seen_by_reader(database: Db2Database) -> Db2Database:
    return replace(database, server=_Reader(database.server))  # type: ignore[arg-type]


def names(records: list[Record], op: str) -> list[str]:
    table = [one for one in records if one.op == op and one.row["table"] == "CUSTOMERS"]
    return sorted(one.payload["after"]["FIRST_NAME"] for one in table)


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
def test_the_user_that_is_shown_runs_every_part(owned: Db2Database, strategy: str) -> None:
    more = {"signal_data_collection": SIGNALS, "incremental_snapshot_watermarking_strategy": strategy}
    config = parse("db2", owned.options(topic_prefix="p", **more))
    session = dialect(config).connect(owned.name)
    assert isinstance(session, Db2Session)
    statements = least(config, session, session.register())
    session.close()
    assert statements[0] == "grant connect on database to user TAILRACE;"
    modest = seen_by_reader(owned)
    with pytest.raises(PrerequisiteError, match="IBMSNAP_REGISTER cannot be read"):
        demand(parse("db2", modest.options(topic_prefix="p", **more)))
    for statement in statements[1:]:
        owned.execute(statement.removesuffix(";").replace(" to user ", " to "))
    found = check(parse("db2", modest.options(topic_prefix="p", **more)))
    assert [(one.level, one.text) for one in found if one.level != "ok"] == []
    query = Query(modest, snapshot_mode="initial", **more)
    try:
        assert names(query.drain(), "r") == ["a", "b"]
        owned.capture.run(added("c"))
        assert names(query.drain(), "c") == ["c"]
        data = json.dumps({"type": "incremental", "data-collections": ["MYSCHEMA.CUSTOMERS"]})
        owned.capture.run(f"INSERT INTO {SIGNALS} VALUES ('one', 'execute-snapshot', '{data}')")
        with owned.capture.working():
            again = query.drain()
        assert names(again, "r") == ["a", "b", "c"]
    finally:
        query.close()


def test_the_grants_of_a_first_look_are_those_that_lack(owned: Db2Database) -> None:
    listed = r"MYSCHEMA\.CUSTOMERS"
    config = parse("db2", seen_by_reader(owned).options(topic_prefix="p", table_include_list=listed))
    first = look(config).statements
    assert 'grant select on "ASNCDC"."IBMSNAP_REGISTER" to user tailrace;' in first
    # the change tables are known when the register can be read
    for statement in first:
        owned.execute(statement.removesuffix(";").replace(" to user ", " to "))
    (last,) = look(config).statements
    assert last == 'grant select on "ASNCDC"."CDC_MYSCHEMA_CUSTOMERS" to user tailrace;'
    owned.execute(last.removesuffix(";").replace(" to user ", " to "))
    assert look(config).statements == ()
