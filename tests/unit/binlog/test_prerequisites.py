"""Findings of `tailrace check` about settings of a server that answers as these tests say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql
import pytest

from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.setup import prerequisites
from tailrace.connectors.binlog.setup.prerequisites import check, demand
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError

Rows = Sequence[tuple[Any, ...]]
ORDERS = ("shop", "orders", "InnoDB", "BASE TABLE", 5)
READY = {
    "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
    "server_id": "7", "gtid_mode": "ON", "binlog_expire_logs_seconds": "2592000",
}  # fmt: skip
ANSWERS: dict[str, Rows | Exception] = {
    "SELECT VERSION()": [("8.0.36",)],
    "SHOW SESSION STATUS LIKE 'Ssl_cipher'": [("Ssl_cipher", "")],
    "SHOW MASTER STATUS": [("binlog.000009", 4, "", "", "")],
    "SHOW GRANTS": [("GRANT REPLICATION SLAVE ON *.* TO `u`@`%`",)],
    "SELECT CURRENT_ROLE()": [("NONE",)],
    "SELECT TABLE_SCHEMA": [ORDERS],
    "SHOW CREATE TABLE `shop`.`orders`": [("orders", b"CREATE TABLE `orders` (`id` int NOT NULL, PRIMARY KEY (`id`))")],
    "SHOW BINARY LOGS": [("binlog.000008", 1), ("binlog.000009", 1)],
}
DENIED = pymysql.err.OperationalError(1227, "Access denied; you need (at least one of) the privilege(s)")
UNKNOWN = pymysql.err.ProgrammingError(1064, "You have an error in your SQL syntax")


class Server:
    """A session: answers statements by their beginnings, the longest first, and others with no rows."""

    def __init__(self, answers: Mapping[str, Rows | Exception]) -> None:
        self.answers = sorted(answers.items(), key=lambda one: -len(one[0]))
        self.use_unicode = True
        self.found: Rows = ()
        self.description: tuple[tuple[str], ...] = ()

    def cursor(self) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: str, values: object = None) -> None:
        found = next((rows for begin, rows in self.answers if statement.startswith(begin)), ())
        if isinstance(found, Exception):
            raise found
        self.found = found
        if statement.startswith(("SHOW REPLICA", "SHOW ALL SLAVES", "SHOW SLAVE")) and found:
            *self.found, names = found
            self.description = tuple((name,) for name in names)

    def fetchall(self) -> Rows:
        return self.found

    def close(self) -> None:
        pass


class Checked:
    """Findings about a server, by the variables and answers in which it differs from one that is ready."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.connector = "mysql"
        self.stored: dict[str, Any] | None = None

    def connected(
        self, variables: Mapping[str, str | None] | None = None, answers: Mapping[str, Rows | Exception] | None = None
    ) -> None:
        given = {name: value for name, value in (READY | dict(variables or {})).items() if value is not None}
        server = Server({"SHOW GLOBAL VARIABLES": list(given.items())} | ANSWERS | dict(answers or {}))
        self.patch.setattr(prerequisites, "connect", lambda config: server)
        self.patch.setattr(prerequisites, "stored_offset", lambda path: self.stored)

    def config(self, **more: str) -> Any:
        named = {name.replace("_", "."): value for name, value in more.items()}
        options = {"database.hostname": "127.0.0.1", "database.user": "u", "topic.prefix": "t"}
        return parse(self.connector, options | named)

    def texts(self, level: str, **more: str) -> list[str]:
        return [f"{one.subject}: {one.text} {one.remedy}" for one in check(self.config(**more)) if one.level == level]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    return Checked(monkeypatch)


def test_a_server_that_is_ready_has_no_warnings(checked: Checked) -> None:
    checked.connected()
    assert checked.texts("error") == checked.texts("warning") == []
    assert [one.partition(":")[0] for one in checked.texts("ok")] == [
        "server", "log", "definitions", "retention", "tables",
    ]  # fmt: skip
    assert len(demand(checked.config())) == 5


@pytest.mark.parametrize(
    ("level", "variables", "expected"),
    [
        ("error", {"log_bin": "OFF"}, "log: The server writes no binary log. Set log_bin"),
        ("error", {"binlog_format": "statement"}, "log: binlog_format is statement: the log has statements"),
        ("error", {"binlog_storage_engine": "InnoDB"}, "log: The server keeps its binary log in InnoDB"),
        ("error", {"server_id": "0"}, "log: server_id is 0, so nobody may read the log."),
        ("error", {"server_id": "99"}, "replica: database.server.id = 99 is the server's own number."),
        ("warning", {"binlog_row_image": "noblob"}, "log: binlog_row_image is NOBLOB"),
        ("warning", {"binlog_row_metadata": None}, "definitions: The server cannot write columns' names into its log"),
        ("warning", {"binlog_row_metadata": "MINIMAL"}, "definitions: binlog_row_metadata is MINIMAL"),
        ("warning", {"gtid_mode": "OFF"}, "transactions: Transactions have no ids (gtid_mode)"),
        ("warning", {"wsrep_on": "ON", "wsrep_gtid_mode": "OFF"}, "transactions: The nodes of this Galera cluster"),
        ("warning", {"binlog_expire_logs_seconds": "5400"}, "retention: The server purges its log after 1.5 hours"),
        (
            "ok",
            {"binlog_expire_logs_seconds": "0", "expire_logs_days": "10"},
            "retention: The log is kept for 10 days.",
        ),
        ("ok", {"binlog_expire_logs_seconds": "0"}, "retention: The log is kept until it is purged by hand."),
        (
            "warning",
            {"binlog_rows_query_log_events": "OFF"},
            "statements: include.query is true, and binlog_rows_query",
        ),
        ("warning", {"log_replica_updates": "OFF"}, "log: log_replica_updates is OFF: on a replica, the log lacks"),
    ],
)
def test_a_setting_that_capture_cannot_do_with_is_named(
    level: str, variables: dict[str, str | None], expected: str, checked: Checked
) -> None:
    checked.connected(variables)
    found = checked.texts(level, database_server_id="99", include_query="true")
    assert [one for one in found if one.startswith(expected)], found
    if level == "error":
        with pytest.raises(PrerequisiteError):
            demand(checked.config(database_server_id="99"))


def test_without_streaming_the_log_does_not_matter(checked: Checked) -> None:
    checked.connected({"log_bin": "OFF"}, {"SHOW GRANTS": [("GRANT USAGE ON *.* TO `u`@`%`",)]})
    assert checked.texts("error", snapshot_mode="initial_only") == []


@pytest.mark.parametrize(
    ("connector", "version", "expected"),
    [
        ("mysql", "5.5.62-log", "server: MySQL 5.5.62-log is older than all versions that were tried. Use MySQL 5.6"),
        ("mariadb", "10.2.44-MariaDB", "server: MariaDB 10.2.44-MariaDB is older than all"),
    ],
)
def test_a_server_before_the_oldest_that_was_tried_is_named(
    connector: str, version: str, expected: str, checked: Checked
) -> None:
    checked.connector = connector
    checked.connected(answers={"SELECT VERSION()": [(version,)]})
    assert checked.texts("warning")[0].startswith(expected)


@pytest.mark.parametrize(
    ("row", "level", "expected"),
    [
        ((3,), "ok", "log: The server is a replica and is 3 s behind its source: changes come"),
        ((None,), "warning", "log: The server is a replica and does not apply its source's log"),
    ],
)
@pytest.mark.parametrize(
    ("statement", "name"),
    [("SHOW REPLICA STATUS", "Seconds_Behind_Source"), ("SHOW SLAVE STATUS", "Seconds_Behind_Master")],
)
def test_a_replica_says_how_far_it_is_behind(
    statement: str, name: str, row: tuple[int | None], level: str, expected: str, checked: Checked
) -> None:
    unknown = dict.fromkeys(("SHOW REPLICA STATUS", "SHOW ALL SLAVES STATUS"), UNKNOWN)
    checked.connected(answers=unknown | {statement: [row, (name,)]})
    assert [one for one in checked.texts(level) if one.startswith(expected)]


def test_a_replica_that_does_not_log_what_it_applies_is_refused(checked: Checked) -> None:
    checked.connected({"log_slave_updates": "OFF"}, {"SHOW REPLICA STATUS": [(0,), ("Seconds_Behind_Source",)]})
    (found,) = checked.texts("error")
    assert found.startswith("log: log_replica_updates is OFF: the server is a replica, and its log lacks")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"SHOW MASTER STATUS": DENIED, "SHOW BINARY LOG STATUS": UNKNOWN},
         ["it lacks REPLICATION CLIENT. GRANT REPLICATION CLIENT ON *.* TO 'u'@'…'."]),
        ({"SHOW MASTER STATUS": UNKNOWN, "SHOW BINARY LOG STATUS": [("binlog.1", 4, "", "")]}, []),
        ({"SHOW GRANTS": [("GRANT USAGE ON *.* TO `u`@`%`",)]}, ["it lacks REPLICATION SLAVE. GRANT REPLICATION"]),
        ({"SHOW GRANTS": [("GRANT ALL PRIVILEGES ON *.* TO `u`@`%`",)]}, []),
        ({"SHOW GRANTS": [("GRANT REPLICATION REPLICA ON *.* TO `u`@`%`",)]}, []),
        ({"SHOW GRANTS": [("GRANT `r`@`%` TO `u`@`%`",)], "SELECT CURRENT_ROLE()": [("`r`@`%`",)],
          "SHOW GRANTS FOR CURRENT_USER() USING `r`@`%`": [("GRANT REPLICATION SLAVE ON *.* TO `u`@`%`",)]}, []),
        ({"SHOW GRANTS": [("GRANT `r`@`%` TO `u`@`%`",)], "SELECT CURRENT_ROLE()": [("`r`@`%`",)],
          "SHOW GRANTS FOR CURRENT_USER() USING `r`@`%`": DENIED}, ["it lacks REPLICATION SLAVE"]),
        ({"SELECT 1 FROM `shop`.`orders`": pymysql.err.OperationalError(1142, "SELECT command denied")},
         ["The user u may not read shop.orders. GRANT SELECT ON shop.* TO 'u'@'…'."]),
    ],
)  # fmt: skip
def test_a_right_that_the_user_lacks_is_named_with_its_grant(
    answers: dict[str, Rows | Exception], expected: list[str], checked: Checked
) -> None:
    checked.connected(answers=answers)
    found = checked.texts("error")
    assert len(found) == len(expected)
    assert all(one.startswith("rights: ") and words in one for one, words in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(("answer", "count"), [([(1, 1, 0, "a"), (1, 1, 0, "b")], 2), ([], 0), (DENIED, 0)])
def test_prepared_transactions_are_counted_if_the_user_may_see_them(
    answer: Rows | Exception, count: int, checked: Checked
) -> None:
    checked.connected(answers={"XA RECOVER": answer})
    told = (
        [f"transactions: {count} XA transactions are prepared and neither committed nor rolled back."] if count else []
    )
    assert [one[: len(told[0])] for one in checked.texts("warning")] == told


@pytest.mark.parametrize(
    ("text", "level", "expected"),
    [
        (b"CREATE TABLE `orders` (`id` int)", "warning", "keys: Tables without a key: shop.orders."),
        (b"CREATE TABLE `orders` (`id` quux)", "warning",
         "definitions: Definitions of tables are not understood: shop.orders: a type is not known"),
        (b"CREATE ALGORITHM=UNDEFINED VIEW `orders` AS select 1", "ok", "tables: 1 table is captured: shop.orders."),
    ],
)  # fmt: skip
def test_a_table_is_judged_by_its_definition(text: bytes, level: str, expected: str, checked: Checked) -> None:
    checked.connected(answers={"SHOW CREATE TABLE `shop`.`orders`": [("orders", text)]})
    assert [one for one in checked.texts(level) if one.startswith(expected)]


def test_no_table_at_all_is_told(checked: Checked) -> None:
    checked.connected(answers={"SELECT TABLE_SCHEMA": []})
    assert checked.texts("warning")[0].startswith("tables: No table is captured.")


def test_names_that_the_log_never_has_are_told(checked: Checked) -> None:
    mixed = ("Shop", "orders", "InnoDB", "BASE TABLE", 5)
    gone = pymysql.err.ProgrammingError(1146, "Table 'Shop.orders' doesn't exist")
    answers: dict[str, Rows | Exception] = {
        "SELECT TABLE_SCHEMA": [ORDERS, mixed], "SHOW CREATE TABLE `Shop`": gone,
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('lower_case": [("lower_case_table_names", "1")],
    }  # fmt: skip
    checked.connected(answers=answers)
    first, second, *_ = checked.texts("error", signal_data_collection="Shop.Signals")
    assert "(lower_case_table_names=1), and options name Shop.Signals. Write shop.signals." in first
    assert "(lower_case_table_names=1): Shop.orders. Rename databases and tables to lower case" in second


@pytest.mark.parametrize(
    ("do", "ignore", "told"), [("", "", False), ("shop,x", "", False), ("x", "", True), ("", "x,shop", True)]
)
def test_databases_that_the_server_leaves_out_of_its_log_are_told(
    do: str, ignore: str, told: bool, checked: Checked
) -> None:
    checked.connected(answers={"SHOW MASTER STATUS": UNKNOWN, "SHOW BINARY LOG STATUS": [("binlog.1", 4, do, ignore)]})
    expected = ["log: The server leaves changes of shop out of its log (binlog_do_db, binlog_ignore_db)."]
    assert [one.partition(" Take")[0] for one in checked.texts("error")] == (expected if told else [])


@pytest.mark.parametrize(
    ("columns", "level", "expected"),
    [
        ([], "error", "signals: There is no signal table shop.signals. CREATE TABLE `shop`.`signals` (id VARCHAR(42)"),
        ([("varchar",), ("varchar",)], "error", "signals: The first three columns of the signal table shop.signals"),
        ([("varchar",), ("int",), ("text",)], "error", "signals: The first three columns"),
        ([("varchar",), ("char",), ("longtext",), ("int",)], "ok", "signals: shop.signals is the signal table."),
    ],
)
def test_a_signal_table_needs_three_texts(columns: Rows, level: str, expected: str, checked: Checked) -> None:
    checked.connected(answers={"SELECT DATA_TYPE": columns})
    assert [one for one in checked.texts(level, signal_data_collection="shop.signals") if one.startswith(expected)]


def test_signals_that_write_nothing_need_ids_of_transactions(checked: Checked) -> None:
    checked.connected({"gtid_mode": "OFF"}, {"SELECT DATA_TYPE": [("varchar",)] * 3})
    more = {"signal_data_collection": "shop.signals"}
    assert not [one for one in checked.texts("warning", **more) if one.startswith("signals:")]
    (found,) = [one for one in checked.texts("warning", read_only="true", **more) if one.startswith("signals:")]
    assert "read-only incremental snapshots need GTIDs" in found


AT = BinlogPosition("binlog.000008", 100, 200)
KNOWN = BinlogPosition("binlog.000008", 100, 200, gtids="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")


@pytest.mark.parametrize(
    ("position", "answers", "mode", "level", "expected"),
    [
        (AT, {}, "initial", "ok", "The server has the log from the checkpoint on, binlog.000008:200."),
        (AT, {"SHOW BINARY LOGS": [("binlog.000009", 1)]}, "initial", "error",
         "The server no longer has the log from the checkpoint on: binlog.000008:200. Start with a new checkpoint"),
        (AT, {"SHOW BINARY LOGS": []}, "when_needed", "warning", "The server no longer has the log from the"),
        (KNOWN, {"SELECT GTID_SUBSET": [(1,)], "SHOW BINARY LOGS": []}, "initial", "ok", "The server has the log"),
        (KNOWN, {"SELECT GTID_SUBSET": [(0,)]}, "initial", "error", "The server no longer has the log"),
    ],
)  # fmt: skip
def test_the_log_behind_the_checkpoint_is_looked_for(
    position: BinlogPosition, answers: dict[str, Rows], mode: str, level: str, expected: str, checked: Checked
) -> None:
    checked.stored = BinlogOffset(position).to_json()
    checked.connected(answers=answers)
    assert [one for one in checked.texts(level, snapshot_mode=mode) if one.startswith(f"checkpoint: {expected}")]


def test_a_checkpoint_says_nothing_before_the_log_or_is_refused(checked: Checked) -> None:
    checked.connected()
    checked.stored = BinlogOffset().to_json()
    assert not [one for one in checked.texts("ok") if one.startswith("checkpoint")]
    checked.stored = {"log": 5}
    (found,) = checked.texts("error")
    assert found.startswith("checkpoint: The checkpoint has an offset that is not understood.")


def test_a_session_over_the_network_without_tls_is_told(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites.advice, "is_elsewhere", lambda host: True)
    checked.connected()
    (found,) = checked.texts("warning")
    assert "not encrypted" in found
    assert "Set database.ssl.mode=verify_identity" in found
    checked.connected(answers={"SHOW SESSION STATUS LIKE 'Ssl_cipher'": [("Ssl_cipher", "TLS_AES_256_GCM_SHA384")]})
    assert checked.texts("warning") == []


@pytest.mark.parametrize("statement", ["XA RECOVER", "SELECT TABLE_SCHEMA", "SHOW CREATE TABLE", "SHOW BINARY LOGS"])
def test_a_session_that_ends_within_the_checks_is_one_finding_beside_the_others(
    statement: str, checked: Checked
) -> None:
    checked.stored = BinlogOffset(AT).to_json()
    begins = "SHOW CREATE TABLE `shop`.`orders`" if statement == "SHOW CREATE TABLE" else statement
    checked.connected(answers={begins: pymysql.err.OperationalError(2013, "Lost connection")})
    found = checked.texts("error")
    if statement == "XA RECOVER":
        assert found == []
    else:
        assert found[0].startswith("server: The session with the server failed: error 2013.")
    assert "log: The binary log has rows. " in checked.texts("ok")
