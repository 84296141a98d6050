"""A pipeline that goes on behind an offset that Debezium has stored delivers exactly the events that followed it.

Recordings of MySQL and MariaDB have the offset of each record. The log of a case is written again on an empty server,
so that places are the recorded ones. A short run has half of the cases, by the day.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.extent import by_day, is_full
from tests.golden import case as cases
from tests.golden import mysql_runner, mysql_script, runner
from tests.golden.record import Record
from tests.golden.script import Statement
from tests.golden.stream import opened
from tests.golden.wire import write
from tests.servers.mysql import PASSWORD, USER, MySqlServer, Version

CASES = {
    "mysql-3/tutorial", "mysql-3/restart", "mysql-3/ddl_alter", "mysql-3/without_gtids", "mysql-3/gtid_sources",
    "mariadb-3/tutorial", "mariadb-3/transactions", "mariadb-3/gtid_domains",
}  # fmt: skip
_SERVER = "f2989ddc-e9fa-11f1-9c10-02fc00000001"


def written(case: cases.Case, server: MySqlServer) -> None:
    """Let an emptied server write the log of a case."""
    mysql_runner.empty(server)
    sessions = {}
    try:
        now = "set-up"
        setup, work = (mysql_script.split(case.read(name)) for name in ("setup.sql", "run.sql"))
        for item in [*setup, *mysql_script.split("--@ session main\n"), *work]:
            if not isinstance(item, Statement):
                now = item.argument if item.name == "session" else now
                continue
            if now not in sessions:
                sessions[now] = server.connect(mysql_runner.DATABASE)
            with sessions[now].cursor() as cursor:
                cursor.execute(item.text)
    finally:
        for session in sessions.values():
            session.close()


def changes(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    """Return the changes among records: the topic, both rows, and their place in the log."""
    found = []
    for record in records:
        value = json.loads(write(record.value))
        value = value.get("payload", value) if isinstance(value, dict) else None
        if value is None or "op" not in value or value["source"].get("snapshot") not in ("false", False, None):
            continue
        source = value["source"]
        place = source["file"], source["pos"], source["row"]
        found.append((record.topic, value["op"], value["before"], value["after"], place))
    # the order counts within a topic
    return sorted(found, key=lambda one: one[0])


def delivered(case: cases.Case, server: MySqlServer, offset: dict[str, Any], folder: Path) -> list[tuple[Any, ...]]:
    """Return the changes that a pipeline delivers behind an offset."""
    variables = {
        "DBHOST": "127.0.0.1", "DBPORT": str(server.port), "DBUSER": USER, "DBPASSWORD": PASSWORD,
        "OFFSETS": "", "HISTORY": "", "SIGNALS": "",
    }  # fmt: skip
    options = case.options(variables) | {"snapshot.mode": "no_data", "capture.start.offset": json.dumps(offset)}
    options = {name: value for name, value in options.items() if value}
    stream = opened(None, case.database, options, folder, lambda: mysql_runner.head(server))
    try:
        stream.start()
        stream.catch_up()
        return changes(stream.records())
    finally:
        stream.stop()


def test_it_delivers_what_followed(
    mysql_servers: Callable[[Version], MySqlServer], tmp_path: Path, case: cases.Case
) -> None:
    server = mysql_servers(mysql_runner.VERSIONS[case.database])
    written(case, server)
    own = str(server.execute("select @@server_uuid")[0][0]) if case.database == "mysql" else ""
    expected = case.expected()
    lines = gzip.decompress((case.path / "expected-offsets.jsonl.gz").read_bytes()).decode().splitlines()
    assert len(lines) == len(expected)
    offsets = [json.loads(line)["offset"] for line in lines]
    # the last record of each offset; after a restart the recorded connector has stored one that it had passed before
    last: dict[tuple[Any, ...], int] = {}
    for place, one in enumerate(offsets):
        reached = one["file"], one["pos"], one.get("event", 0), one.get("row", 0)
        if "snapshot" not in one and reached >= max(last, default=reached):
            last[reached] = place
    places = sorted(last.values())
    for place in places if is_full() else places[:: max(1, len(places) // 4)]:
        offset = offsets[place]
        if own and "gtids" in offset:
            offset["gtids"] = offset["gtids"].replace(_SERVER, own)
        found = delivered(case, server, offset, tmp_path / str(place))
        assert found == changes(expected[place + 1 :]), f"behind {offset}"
    assert changes(expected[places[0] + 1 :])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    found = by_day([case for case in runner.all_cases() if case.name in CASES], 2)
    metafunc.parametrize("case", found, ids=[case.name for case in found])
