"""The played capture program leaves in its tables what IBM's guide says that the real one does."""

from __future__ import annotations

import pytest

from tests.fix_db2 import Db2Database
from tests.servers.asn import Session

CUSTOMERS = "CREATE TABLE INVENTORY.CUSTOMERS (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20))"
CHANGES = "SELECT IBMSNAP_OPERATION, ID, NAME FROM ASNCDC.CDC_INVENTORY_CUSTOMERS ORDER BY IBMSNAP_COMMITSEQ, "
CHANGES += "IBMSNAP_INTENTSEQ"


@pytest.fixture
def customers(db2: Db2Database) -> Db2Database:
    db2.execute(CUSTOMERS)
    db2.capture.register("INVENTORY", "CUSTOMERS")
    return db2


def test_an_update_is_a_delete_and_an_insert(customers: Db2Database, db2_session: Session) -> None:
    customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a'), (2, 'b')")
    customers.capture.run("UPDATE INVENTORY.CUSTOMERS SET NAME = 'c', ID = ID + 10 WHERE ID = 2")
    customers.capture.run("DELETE FROM INVENTORY.CUSTOMERS")
    found = db2_session.rows(CHANGES)
    assert found == [("I", 1, "a"), ("I", 2, "b"), ("D", 2, "b"), ("I", 12, "c"), ("D", 1, "a"), ("D", 12, "c")]


def test_an_update_may_be_one_row_with_before_images(db2: Db2Database, db2_session: Session) -> None:
    db2.execute(CUSTOMERS)
    db2.capture.register("INVENTORY", "CUSTOMERS", pairs=False, before="X")
    db2.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a')", "UPDATE INVENTORY.CUSTOMERS SET NAME = 'b'")
    found = db2_session.rows(
        'SELECT IBMSNAP_OPERATION, "XID", "XNAME", ID, NAME FROM ASNCDC.CDC_INVENTORY_CUSTOMERS '
        "ORDER BY IBMSNAP_INTENTSEQ"
    )
    assert found == [("I", None, None, 1, "a"), ("U", 1, "a", 1, "b")]


def test_units_of_work_come_in_the_order_of_their_commits(customers: Db2Database, db2_session: Session) -> None:
    first = customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a')")
    customers.capture.execute("UPDATE INVENTORY.CUSTOMERS SET NAME = 'b'")
    with pytest.raises(Exception, match="23505"):
        customers.capture.execute(
            "DELETE FROM INVENTORY.CUSTOMERS", *["INSERT INTO INVENTORY.CUSTOMERS (ID) VALUES 1"] * 2
        )
    customers.capture.execute("DELETE FROM INVENTORY.CUSTOMERS")
    assert len(db2_session.rows(CHANGES)) == 1
    last = customers.capture.capture()
    assert first < last
    assert db2_session.rows(CHANGES)[1:] == [("D", 1, "a"), ("I", 1, "b"), ("D", 1, "b")]
    units = db2_session.rows("SELECT IBMSNAP_COMMITSEQ FROM ASNCDC.IBMSNAP_UOW ORDER BY IBMSNAP_COMMITSEQ")
    commits = db2_session.rows("SELECT DISTINCT IBMSNAP_COMMITSEQ FROM ASNCDC.CDC_INVENTORY_CUSTOMERS ORDER BY 1")
    assert units == commits
    assert len(units) == 3


def test_the_register_tells_how_far_the_log_is_read(customers: Db2Database, db2_session: Session) -> None:
    head = customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a')")
    assert customers.capture.capture() > head
    rows = db2_session.rows(
        "SELECT GLOBAL_RECORD, CD_OLD_SYNCHPOINT, CD_NEW_SYNCHPOINT, SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER "
        "ORDER BY GLOBAL_RECORD"
    )
    ((_, old, new, none), (_, _, _, head)) = rows
    assert old < new < head
    assert none is None


def test_pruning_removes_old_changes_and_says_so(customers: Db2Database, db2_session: Session) -> None:
    customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a')")
    through = customers.capture.capture()
    customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (2, 'b')")
    customers.capture.prune(through)
    assert db2_session.rows(CHANGES) == [("I", 2, "b")]
    assert db2_session.rows("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW") == [(1,)]
    old = "SELECT CD_OLD_SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'CUSTOMERS'"
    assert db2_session.rows(old) == [(through,)]


def test_a_table_leaves_capture_mode(customers: Db2Database, db2_session: Session) -> None:
    customers.capture.unregister("INVENTORY", "CUSTOMERS")
    customers.capture.run("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'a')")
    assert db2_session.rows("SELECT SOURCE_TABLE FROM ASNCDC.IBMSNAP_REGISTER") == [(" ",)]
    assert db2_session.rows("SELECT COUNT(*) FROM PLAYED.CLOCK") == [(0,)]
