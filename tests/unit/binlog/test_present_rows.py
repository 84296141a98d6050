"""Current rows of tables are read by texts of their keys, once the server shows what its log has."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.binlog import row_lookup
from tailrace.connectors.binlog.row_lookup import BinlogPresent, BinlogPresentTable, owned_gtids
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PrerequisiteError, SinkError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.events.reselection import UnreadableRows

LOGIN = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class Rows:
    """The rows of a table, by the texts of their keys; remembers the keys that are asked for."""

    def __init__(self, found: dict[tuple[str, ...], str] | None = None, fails: bool = False) -> None:
        self.found, self.fails = found or {}, fails
        self.asked: list[list[tuple[str, ...]]] = []

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[tuple[str, ...]], columns: Sequence[str]
    ) -> Iterator[tuple[list[int], list[pa.Array]]]:
        if self.fails:
            raise UnreadableRows("cannot read d.t again")
        self.asked.append(list(keys))
        places = [place for place, one in enumerate(keys) if one in self.found]
        texts = [self.found[keys[place]].encode() for place in places]
        yield places, [pa.array(texts, pa.binary()) for _ in columns]


def present(kind: str, rows: Rows) -> BinlogPresentTable:
    config = parse("mysql", LOGIN)
    schema = TableSchema(TableId("", "d", "t"), (Column("k", kind, 0), Column("v", "int", 0)), ("k",))
    return BinlogPresentTable(cast(Any, rows), schema, EventSettings.from_options(config, "run"), config)


MOMENT = datetime.datetime(2024, 2, 29, 3, 4, 5, 678900)


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        ("bigint", pa.array([-5, 7]), ["-5", "7"]),
        ("varchar(9)", pa.array(["a'b", "ü"]), ["a'b", "ü"]),
        ("varbinary(2)", pa.array([b"\x00\xff"]), ["\\x00ff"]),
        ("decimal(9,2)", pa.array([Decimal("-1.50")]), ["-1.50"]),
        ("decimal(9,2)", pa.array(["-1.50"]), ["-1.50"]),
        ("date", pa.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        ("datetime(6)", pa.array([MOMENT], pa.timestamp("us")), ["2024-02-29 03:04:05.678900"]),
        ("datetime(4)", pa.array([MOMENT], pa.timestamp("us")), ["2024-02-29 03:04:05.6789"]),
        ("datetime", pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("us")), ["2024-02-29 03:04:05"]),
        ("timestamp(3)", pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("us", "UTC")),
         ["2024-02-29 03:04:05.000"]),
        ("uuid", pa.array(["123e4567-e89b-12d3-a456-426614174000"]), ["123e4567-e89b-12d3-a456-426614174000"]),
    ],
)  # fmt: skip
def test_a_key_is_looked_up_by_its_text_in_the_log(kind: str, values: pa.Array, texts: list[str]) -> None:
    rows = Rows({(texts[-1],): "42"})
    ((places, found),) = present(kind, rows).values(["k"], [values], ["v"])
    assert rows.asked == [[(text,) for text in texts]]
    assert (places, len(found)) == ([len(texts) - 1], 1)


def test_many_keys_are_asked_for_a_part_at_a_time() -> None:
    rows = Rows({(str(number),): str(number) for number in range(0, 150, 50)})
    found = list(present("int", rows).values(["k"], [pa.array(range(150))], ["v"]))
    assert [len(one) for one in rows.asked] == [64, 64, 22]
    assert [place for places, _ in found for place in places] == [0, 50, 100]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        # several texts stand for one value
        ("double", pa.array([0.5])),
        ("float", pa.array([0.5])),
        ("time", pa.array([1])),
        ("decimal(9,2)", pa.array([1.5])),
        ("datetime(6)", pa.array([MOMENT], pa.timestamp("ms"))),
        ("varchar(3)", pa.array([b"x"])),
    ],
)
def test_a_key_without_one_certain_text_is_not_looked_up(kind: str, values: pa.Array) -> None:
    with pytest.raises(SinkError, match=r"Rows of d\.t cannot be read again by the column k, of the type"):
        list(present(kind, Rows()).values(["k"], [values], ["v"]))


def test_a_column_that_is_gone_and_rows_that_cannot_be_read_name_the_remedy() -> None:
    for table, columns, words in (
        (present("int", Rows()), ["gone"], r"d\.t has no column gone any more"),
        (present("int", Rows(fails=True)), ["v"], r"tailrace cannot read d\.t again"),
    ):
        with pytest.raises(SinkError, match=words) as caught:
            list(table.values(["k"], [pa.array([1])], columns))
        assert "unknown.values = null" in caught.value.remedy
    assert present("int", Rows()).called([("v", 3), ("k", 1)]) == ["v", "k"]
    assert repr(present("int", Rows())) == "BinlogPresentTable(d.t)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        (f"{UUID}:5#12", {(UUID, "5")}),
        (f"{UUID}:5#12:7#13", {(UUID, "5"), (UUID, "7")}),
        (f"{UUID}:5#12,\n{UUID[::-1]}:1#9", {(UUID, "5"), (UUID[::-1], "1")}),
        # an id with a tag, of MySQL 8.3
        (f"{UUID}:tag:5#12", {(f"{UUID}:tag", "5")}),
    ],
)
def test_ids_of_unfinished_transactions_are_without_their_sessions(text: str, expected: set[tuple[str, str]]) -> None:
    assert owned_gtids(text) == expected


class Server:
    """A session whose answers to statements come one after another, the last one again and again."""

    def __init__(self, patch: pytest.MonkeyPatch, **answers: list[Any]) -> None:
        self.answers, self.ran = answers, []
        self.clock = 0.0
        schema = TableSchema(TableId("", "d", "t"), (Column("k", "int", 0, nullable=False),), ("k",))
        self.schemas: dict[tuple[str, str], TableSchema] | Exception = {("d", "t"): schema}
        patch.setattr(row_lookup.catalog, "schemas", lambda *_: self.defined())
        patch.setattr(row_lookup, "rows", lambda session, statement: self.next("owned"))
        patch.setattr(row_lookup, "run", lambda session, statement: self.ran.append(statement))
        patch.setattr(row_lookup, "end_of_log", lambda session: ("binlog.000009", 500, ""))
        patch.setattr(row_lookup, "own_place", lambda session: self.next("places"))
        patch.setattr(row_lookup.time, "sleep", self.sleep)
        patch.setattr(row_lookup.time, "monotonic", lambda: self.clock)

    ran: list[str]

    def defined(self) -> dict[tuple[str, str], TableSchema]:
        if isinstance(self.schemas, Exception):
            raise self.schemas
        return self.schemas

    def next(self, name: str) -> Any:
        given = self.answers[name]
        return given.pop(0) if len(given) > 1 else given[0]

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def close(self) -> None:
        self.ran.append("close")


def opened(connector: str, server: Server) -> BinlogPresent:
    config = parse(connector, LOGIN)
    return BinlogPresent(config, EventSettings.from_options(config, "run"), cast(Any, server))


NAME = ("", "d", "t")


@pytest.mark.parametrize(
    ("owned", "waits"),
    [
        ([[("ON", "")]], 0),
        ([[("ON", f"{UUID}:5#12")], [(f"{UUID}:5#12",)], [(f"{UUID}:6#13",)]], 1),
        ([[("ON", f"{UUID}:5#12")], [("",)]], 0),
    ],
)
def test_rows_of_mysql_are_read_when_transactions_of_then_are_over(
    owned: list[Any], waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, owned=owned)
    assert opened("mysql", server).table(NAME).schema.key == ("k",)
    assert round(server.clock / 0.02) == waits


@pytest.mark.parametrize(
    ("places", "waits"),
    [
        ([None], 0),
        ([("binlog.000009", 499), ("binlog.000009", 500)], 1),
        ([("binlog.000008", 900), ("binlog.000009", 400), ("binlog.000010", 4)], 2),
    ],
)
def test_rows_of_mariadb_are_read_when_a_session_sees_the_end_of_the_log(
    places: list[Any], waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, places=places)
    opened("mariadb", server).table(NAME)
    assert round(server.clock / 0.02) == waits
    assert server.ran == ["start transaction with consistent snapshot, read only", "rollback"] * (waits + 1)


@pytest.mark.parametrize(
    ("owned", "schemas", "kind", "words"),
    [
        ([[("OFF", "")]], None, PrerequisiteError, r"Rows of d\.t cannot be read again: without GTIDs"),
        ([[("ON_PERMISSIVE", "")]], None, PrerequisiteError, "without GTIDs"),
        ([[("ON", f"{UUID}:5#1")], [(f"{UUID}:5#1",)]], None, ConnectionFailed, "not been visible for more than 10 s"),
        ([[("ON", "")]], {}, SinkError, r"d\.t no longer exists"),
        ([[("ON", "")]], Unparsable("d.t: a type is not known"), TailraceError, "a type is not known"),
    ],
)
def test_rows_that_may_be_older_than_the_log_are_not_read(
    owned: list[Any], schemas: Any, kind: type[TailraceError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, owned=owned)
    server.schemas = server.schemas if schemas is None else schemas
    with pytest.raises(kind, match=words):
        opened("mysql", server).table(NAME)


def test_the_position_is_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    one = opened("mysql", server)
    assert one.position() == "0000000000090000000001F4"
    one.close()
    assert server.ran == ["close"]
