"""`tailrace check` reports the state of a Db2 database."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tailrace.connectors.db2.setup.prerequisites import check, demand
from tailrace.connectors.findings import Finding
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tests.fix_db2 import Db2Database
from tests.integration.db2.driving import Query


def found(database: Db2Database, **more: str) -> list[Finding]:
    return check(parse("db2", database.options(**more)))


def of(findings: list[Finding], subject: str) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in findings if one.subject == subject]


def test_a_database_that_is_ready_has_nothing_amiss(customers: Db2Database) -> None:
    findings = found(customers, table_include_list=r"MYSCHEMA\..*")
    assert {one.level for one in findings} == {"ok"}
    assert ("ok", "1 table is captured: MYSCHEMA.CUSTOMERS.") in of(findings, "tables")
    assert of(findings, "retention") == [("ok", "Changes are kept for 168 hours.")]


def test_a_missing_register_is_told(db2: Db2Database) -> None:
    ((level, text),) = of(found(db2, cdc_control_schema="ASN"), "control")
    assert (level, text[:39]) == ("error", "There is no table ASN.IBMSNAP_REGISTER:")
    with pytest.raises(PrerequisiteError, match=r"ASN.IBMSNAP_REGISTER"):
        demand(parse("db2", db2.options(cdc_control_schema="ASN")))


def test_a_program_that_never_ran_or_stopped_is_told(customers: Db2Database) -> None:
    customers.capture.heartbeat(age_s=2 * 3600)
    assert of(found(customers), "capture") == [
        ("warning", "The capture program has not read the log for more than an hour.")
    ]
    customers.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = NULL")
    assert of(found(customers), "control")[0][0] == "error"


def test_positions_of_another_width_are_told(customers: Db2Database) -> None:
    ((level, text),) = of(found(customers, db2_platform="Z"), "control")
    assert (level, "positions of 16 bytes" in text) == ("error", True)


def test_tables_that_are_not_in_capture_mode_are_told(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY)")
    told = of(found(db2, table_include_list=r"INVENTORY\..*"), "tables")
    assert told == [
        ("warning", "No table that the lists include is in capture mode."),
        ("warning", "Not in capture mode: INVENTORY.T."),
    ]


@pytest.mark.parametrize(("state", "words"), [("S", "has stopped capturing them"), ("I", "does not capture them yet")])
def test_the_state_of_a_table_is_told(customers: Db2Database, state: str, words: str) -> None:
    customers.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}' WHERE GLOBAL_RECORD = 'N'")
    assert any(level == "warning" and words in text for level, text in of(found(customers), "tables"))


def test_a_change_table_that_is_gone_is_told(customers: Db2Database) -> None:
    customers.execute("DROP TABLE ASNCDC.CDC_MYSCHEMA_CUSTOMERS")
    assert ("error", "Registered, but gone: ASNCDC.CDC_MYSCHEMA_CUSTOMERS.") in of(found(customers), "tables")


def test_updates_without_the_values_before_are_told(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY)")
    db2.capture.register("INVENTORY", "T", pairs=False)
    ((level, text),) = of(found(db2), "updates")
    assert (level, text.endswith("INVENTORY.T.")) == ("warning", True)


def test_columns_that_are_not_captured_and_missing_keys_are_told(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER)")
    db2.capture.register("INVENTORY", "T")
    db2.execute("ALTER TABLE INVENTORY.T ADD COLUMN NEW INTEGER")
    findings = found(db2)
    assert "INVENTORY.T (NEW)" in of(findings, "columns")[0][1]
    assert "keys are null: INVENTORY.T" in of(findings, "keys")[0][1]


def test_a_short_retention_is_told(customers: Db2Database) -> None:
    customers.execute("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET RETENTION_LIMIT = 60")
    assert of(found(customers), "retention")[0][0] == "warning"
    customers.execute("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET AUTOPRUNE = 'N'")
    assert of(found(customers), "retention")[0][0] == "ok"


def test_changes_that_the_capture_program_leaves_out_are_told(customers: Db2Database) -> None:
    assert of(found(customers), "left_out") == []
    customers.execute("UPDATE ASNCDC.IBMSNAP_CAPMON SET RECAP_ROWS_SKIPPED = 7, TRIGR_ROWS_SKIPPED = 3")
    customers.execute("INSERT INTO ASNCDC.IBMSNAP_IGNTRAN (AUTHID) VALUES ('BATCH')")
    findings = of(found(customers), "left_out")
    assert [level for level, _ in findings] == ["warning"] * 3
    parts = ("(RECAPTURE = N): 7 so far", "CD tables refuse: 3 so far", "IBMSNAP_IGNTRAN (1 rule)")
    assert all(part in text for (_, text), part in zip(findings, parts, strict=True))
    # An old program has no such tables.
    customers.execute("DROP TABLE ASNCDC.IBMSNAP_CAPMON", "DROP TABLE ASNCDC.IBMSNAP_IGNTRAN")
    assert of(found(customers), "left_out") == []


def stored(query: Query, folder: Path) -> None:
    """Write a checkpoint in Spark's form, with the offset that the query has reached."""
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(query.start)}\n")


def test_the_checkpoint_is_compared_with_what_is_still_there(
    customers: Db2Database, query: Callable[..., Query], tmp_path: Path
) -> None:
    options = {"checkpoint_location": str(tmp_path)}
    assert of(found(customers, **options), "checkpoint") == []
    running = query()
    running.drain()
    stored(running, tmp_path)
    there = [("ok", "The change tables reach back to the checkpoint.")]
    assert of(found(customers, **options), "checkpoint") == there
    insert = "INSERT INTO MYSCHEMA.CUSTOMERS (FIRST_NAME, LAST_NAME, EMAIL) VALUES ('{0}', '{0}', '{0}')"
    customers.capture.run(insert.format("a"))
    last = customers.capture.run(insert.format("b"))
    assert of(found(customers, **options), "checkpoint") == there
    ((now,),) = customers.capture.session.rows("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")
    old = f"{now - timedelta(days=6):%Y-%m-%d %H:%M:%S}"
    customers.execute(f"UPDATE ASNCDC.IBMSNAP_UOW SET IBMSNAP_LOGMARKER = TIMESTAMP('{old}')")
    ((level, text),) = of(found(customers, **options), "checkpoint")
    assert (level, text.startswith("The oldest unread change is 86")) == ("warning", True)
    customers.execute("UPDATE ASNCDC.IBMSNAP_CAPPARMS SET AUTOPRUNE = 'N'")
    assert of(found(customers, **options), "checkpoint") == there
    # Changes that were read may be pruned.
    assert running.drain()
    stored(running, tmp_path)
    customers.capture.prune(last)
    assert of(found(customers, **options), "checkpoint") == there


def test_a_checkpoint_that_pruning_has_passed_is_told(
    customers: Db2Database, query: Callable[..., Query], tmp_path: Path
) -> None:
    options = {"checkpoint_location": str(tmp_path)}
    insert = "INSERT INTO MYSCHEMA.CUSTOMERS (FIRST_NAME, LAST_NAME, EMAIL) VALUES ('{0}', '{0}', '{0}')"
    customers.capture.run(insert.format("a"))
    running = query()
    running.drain()
    stored(running, tmp_path)
    customers.capture.run(insert.format("b"))
    customers.capture.prune(customers.capture.run(insert.format("c")))
    words = "Changes behind the checkpoint are cleaned up, or their change tables are gone: MYSCHEMA.CUSTOMERS."
    assert of(found(customers, **options), "checkpoint") == [("error", words)]
    assert of(found(customers, **options, snapshot_mode="when_needed"), "checkpoint") == [("warning", words)]
    # The start leaves it to the planner, whose error names the loss.
    assert of(demand(parse("db2", customers.options(**options))), "checkpoint") == []
    customers.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = X'" + "00" * 16 + "', CD_NEW_SYNCHPOINT = NULL")
    ((level, text),) = of(found(customers, **options), "checkpoint")
    assert (level, text.startswith("The newest position is before the checkpoint")) == ("error", True)


def test_the_signal_table_is_looked_at(customers: Db2Database) -> None:
    named = {"signal_data_collection": "MYSCHEMA.SIGNALS"}
    assert "There is no signal table MYSCHEMA.SIGNALS." in of(found(customers, **named), "signals")[0][1]
    customers.execute("CREATE TABLE MYSCHEMA.SIGNALS (ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32))")
    assert "has 2 columns" in of(found(customers, **named), "signals")[0][1]
    customers.execute("ALTER TABLE MYSCHEMA.SIGNALS ADD COLUMN DATA VARCHAR(2048)")
    assert "not in capture mode" in of(found(customers, **named), "signals")[0][1]
    customers.capture.register("MYSCHEMA", "SIGNALS")
    assert of(found(customers, **named), "signals") == [("ok", "The signal table MYSCHEMA.SIGNALS can be used.")]
