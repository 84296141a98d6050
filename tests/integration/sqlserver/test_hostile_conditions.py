"""Conditions of signals that would do more than select are refused before they are sent, and the stream continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mssql_python
import pytest

from tdsserver.process import TestDatabase
from tests.fix_capture import Event
from tests.integration.sqlserver.capturing import Capture
from tests.integration.sqlserver.test_connector import PLAIN, READY, enabled, inserted, read_of

MARK = "hostile"
HOSTILE = [
    f"1=1)); delete from dbo.t; -- {MARK}",
    f"1=1; delete from dbo.t -- {MARK}\n",
    f"1=1) or (1=1 -- {MARK}",
    f"1=1)) or ((1=1 /* {MARK} */",
    f"((1=1 /* {MARK} */",
    f"v = N'{MARK}",
    f'"v" = "{MARK}',
    f"[v = {MARK}",
    f"1=1 /* {MARK}",
    f"1=1 /* /* {MARK} */",
    f"1=1 -- {MARK}",
    f"1=1 -- {MARK}\r) or 1=1; delete from dbo.t",
    f"exists (select 1 from openquery({MARK}, N'delete from t'))",
    f"id in (select id from (delete from dbo.t output deleted.id) as {MARK})",
    f"id = (exec {MARK})",
    f"id > 0 union select id, v into {MARK} from dbo.t",
    f"1=1 waitfor delay '01:00:00' -- {MARK}\n",
    f"N'{MARK}''' = N''''); drop table dbo.t; --",
]  # fmt: skip


def asked(database: str, condition: str, kind: str, number: int) -> dict[str, Any]:
    sql = condition if kind == "incremental" else f"select * from dbo.t where {condition}"
    table = f"{database}.dbo.t"
    data = {"type": kind, "data-collections": [table], "additional-conditions": [
        {"data-collection": table, "filter": sql}]}  # fmt: skip
    return {"id": f"{kind}-{number}", "type": "execute-snapshot", "data": data}


def until(query: Capture, database: TestDatabase, reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < ends
        database.capture()
        query.step()


@pytest.mark.parametrize("channel", ["source", "file"])
@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_a_condition_cannot_bring_anything_along(
    sqlserver_database: TestDatabase,
    capture: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    channel: str,
) -> None:
    name = sqlserver_database.name
    file = tmp_path / "signals"
    file.touch()
    query = capture(
        *READY,
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)",
        enabled("signals"),
        *inserted(*range(5)),
        signal_data_collection=f"{name}.dbo.signals",
        signal_enabled_channels=channel,
        signal_file=str(file),
        signal_poll_interval_ms="1",
        **PLAIN,
    )
    sent: list[str] = []
    execute = mssql_python.Cursor.execute

    def watched(self: Any, sql: str, *parameters: Any, **more: Any) -> Any:
        sent.append(sql)
        return execute(self, sql, *parameters, **more)

    monkeypatch.setattr(mssql_python.Cursor, "execute", watched)
    signals = [asked(name, condition, kind, number) for number, condition in enumerate(HOSTILE)]
    signals.append(asked(name, "id > 2", kind, len(HOSTILE)))
    if channel == "file":
        file.write_text("".join(json.dumps(signal) + "\n" for signal in signals))
    else:
        for signal in signals:
            data = json.dumps(signal["data"]).replace("'", "''")
            sqlserver_database.execute(f"insert into signals values ('{signal['id']}', '{signal['type']}', N'{data}')")
    sqlserver_database.execute(*inserted(7))
    found: list[Event] = query.events
    until(query, sqlserver_database, lambda: sum(read_of(event, "t") for event in found) >= 2)
    until(query, sqlserver_database, lambda: any(is_insert(event) for event in found))
    assert {event.id["id"] for event in found if read_of(event, "t")} - {7} == {3, 4}
    assert [row[0] for row in sqlserver_database.query("select id from t order by id")] == [0, 1, 2, 3, 4, 7]
    for number in range(len(HOSTILE)):
        assert sum(f"signal {kind}-{number} is ignored: its condition is refused" in line for line in caplog.messages)
    assert MARK not in caplog.text
    assert any("id > 2" in sql for sql in sent)
    assert not any(MARK in sql for sql in sent)


def is_insert(event: Event) -> bool:
    return event.value is not None and event.row["table"] == "t" and event.payload["op"] == "c"


@pytest.mark.parametrize("kind", ["incremental", "blocking"])
def test_a_condition_that_fails_for_a_row_ends_no_query(
    sqlserver_database: TestDatabase, capture: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path, kind: str
) -> None:
    name = sqlserver_database.name
    file = tmp_path / "signals"
    query = capture(
        *READY,
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)",
        enabled("signals"),
        *inserted(*range(5)),
        signal_data_collection=f"{name}.dbo.signals",
        signal_enabled_channels="file",
        signal_file=str(file),
        signal_poll_interval_ms="1",
        **PLAIN,
    )
    failing = asked(name, "1 / (id - 2) > -99", kind, 0)
    file.write_text(json.dumps(failing) + "\n")
    until(query, sqlserver_database, lambda: any("fails" in line and "dbo.t" in line for line in caplog.messages))
    with file.open("a") as opened:
        opened.write(json.dumps(asked(name, "id > 2", kind, 1)) + "\n")
    until(query, sqlserver_database, lambda: {3, 4} <= {e.id["id"] for e in query.events if read_of(e, "t")})
    sqlserver_database.execute(*inserted(7))
    query.restart()
    until(query, sqlserver_database, lambda: any(is_insert(event) for event in query.events))
    assert {event.id["id"] for event in query.events if read_of(event, "t")} - {7} <= {0, 1, 3, 4}
