"""Fuzz targets: stored offsets of checkpoints, and what people write: signals and configuration files."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

from tailrace.columns.table import TableId
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.changetables.offset import SnapshotChunk, TablesOffset, TablesSnapshot
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.values.shell_json import strict_json
from tailrace.connectors.postgres.log.visibility import VisibleTransactions
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.schema.history import Attributes, Change, ColumnFacts, IndexFacts, StoredHistory
from tailrace.connectors.registry import read as read_file
from tailrace.errors import PositionLost
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, requested
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import ExecuteSnapshot, MalformedSignal, StopSnapshot, from_json, read, resolve
from tests.fuzz.machine import Difference, Target

_OFFSETS: tuple[Any, ...] = (PostgresOffset, MongoOffset, TablesOffset, BinlogOffset)


# --- offsets ---------------------------------------------------------------------------------------------------------


def _run_offset(data: bytes) -> object:
    if not data:
        return None
    kind = _OFFSETS[data[0] % len(_OFFSETS)]
    try:
        fields = json.loads(data[1:])
    except (ValueError, RecursionError):
        # Spark reads it first.
        return None
    if not isinstance(fields, dict):
        return None
    written = kind.from_json(fields).to_json()
    again = kind.from_json(json.loads(json.dumps(written))).to_json()
    if again != written:
        raise Difference(f"{kind.__name__}\n{written!r}\n{again!r}")
    return tuple(sorted(written))


def sample_offsets() -> list[tuple[type[Any], dict[str, Any]]]:
    """Return offsets of every connector in many states, each with its class."""
    read = ((one[0], json.loads(one[1:])) for one in _offsets())
    return [(_OFFSETS[kind], fields) for kind, fields in read if _is_read(_OFFSETS[kind], fields)]


def _is_read(kind: type[Any], fields: dict[str, Any]) -> bool:
    try:
        kind.from_json(fields)
    except PositionLost:
        # the fuzzer has wrong ones too
        return False
    return True


def _offsets() -> list[bytes]:
    snapshot = IncrementalSnapshot("id", (Collection("s", "t", "a = 1", None),), Cursor(("1",), ("9",), 3), True)
    progress = Progress(snapshot, None, (Collection("s", "u", None, "k"),), positions=(("file", 7),), windows=2)
    facts = Attributes((ColumnFacts(1, "id", False, "1"),), (IndexFacts(9, True, (1,), False, "t_pkey"),), ())
    history = StoredHistory(((10, facts),), (Change((5, 1), 10, facts),))
    long = StoredHistory(tuple((number, facts) for number in range(30)))
    texts = [
        (0, PostgresOffset(LogPosition(16, 32, 3)).to_json()),
        (0, PostgresOffset(LogPosition(16, 32),
                           visible=VisibleTransactions(1, 9, frozenset([3]), 7), heartbeat_ms=5).to_json()),
        (0, PostgresOffset(progress=progress, schemas=history).to_json()),
        (0, PostgresOffset(schemas=long, xmin=3).to_json()),
        (0, {
            "log": {"commit": "0/1A3B2C8", "end": "0/1A3B2F8", "idle": "0/2000000"},
            "server": {"system": "7412345678901234567", "timeline": 1},
            "snapshot": {"at_us": 1, "done": 1, "lsn": 2, "xid": 7,
                         "plan": {"chunk_pages": 8, "first": True, "tables": [["s", "t", 9]]}},
        }),
        (1, {"log": {"number": 1, "time": [1_700_000_000, 1], "token": "BQAAAAA="}, "server": "00" * 16}),
        (1, {"log": {"number": 1, "time": [1, 1], "hash": 5, "term": 2}, "heartbeat_ms": 5,
             "transaction": {"name": "n", "counts": [["db.c", 2]]}, "progress": progress.to_json()}),
        (2, {"databases": {}}),
        (2, {"databases": {"d": {"commit": "00" * 10, "eras": "[]"}}, "heartbeat_ms": 5}),
        (2, TablesOffset({}, snapshot=TablesSnapshot(
            (TableId("d", "s", "t"),), 5, ("d",), 0, ("1",), (SnapshotChunk(1, 0, None, ("5",)),), 1,
            ((TableId("d", "s", "t"), "select 1"),))).to_json()),
        (3, BinlogOffset(BinlogPosition("binlog.000007", 4, 157, at_us=5, gtids="u:1-9", server="u")).to_json()),
        (3, BinlogOffset(BinlogPosition("binlog.000007", 4, 157, consumed=2, gtid="u:10", epoch=1),
                         heartbeat_ms=5, progress=progress).to_json()),
    ]  # fmt: skip
    return [bytes([kind]) + json.dumps(fields).encode() for kind, fields in texts]


_JSON_WORDS = (
    b"null", b"true", b"-1", b"1e999", b"{}", b"[]", b'""', b'"\\ud800"', b'"z:"', b'"z:AAAA"', b"[[[[", b"9" * 20,
    b'"x"', b"0.5", b"NaN", b'"0/FFFFFFFFFFFFFFFFFF"', b'"commit"', b'"tables"',
)  # fmt: skip
OFFSETS = Target("offsets", _run_offset, _offsets, _JSON_WORDS)


# --- signals ---------------------------------------------------------------------------------------------------------

_TABLES = [("public", "orders"), ("public", "My.Table"), ("inventory", "a" * 60), ("s", "t")]


def _run_signal(data: bytes) -> object:
    """Any signal is carried out or reported as malformed."""
    try:
        action = read(from_json(data, "here-0"))
        if isinstance(action, ExecuteSnapshot):
            found, _ = resolve(action.collections, _TABLES)
            return len(requested(action, found))
        if isinstance(action, StopSnapshot):
            return len(resolve(action.collections, _TABLES)[0])
    except MalformedSignal as fault:
        return str(fault)[-40:]
    return type(action)


def _signals() -> list[bytes]:
    listed: list[dict[str, Any]] = [
        {"type": "execute-snapshot", "id": "1", "data": {"data-collections": ["public.orders", '"public"."My.Table"']}},
        {"type": "execute-snapshot", "data": {"data-collections": ["pub.*", "s\\.t"], "type": "BLOCKING",
         "additional-conditions": [{"data-collection": "public.orders", "filter": "a = 1"}], "surrogate-key": "k"}},
        {"type": "execute-snapshot", "data": {"data-collections": ["s.t"], "additional-condition": "x > 1"}},
        {"type": "stop-snapshot", "id": "é", "data": {"data-collections": ["a.{1,60}", "[a-z]+.(t|u)"]}},
        {"type": "log", "id": 5, "data": {"message": "at {}"}},
        {"type": "pause-snapshot"},
        {"type": "resume-snapshot", "data": "{}"},
        {"type": "snapshot-window-open", "data": '{"x": 1}'},
    ]  # fmt: skip
    return [json.dumps(one).encode() for one in listed]


_SIGNAL_WORDS = (
    *_JSON_WORDS, b'"data-collections"', b'"additional-conditions"', b'"surrogate-key"', b".*", b"(.+)+x", b"{2,9}",
    b"{4294967296}", b"(?", b"[[:alpha:]]", b"\\\\Q", b"(?i)", b"\\\\p{L}", b"\\u0000", b"\\ud800", b"[" * 200,
    b"(" * 200,
)  # fmt: skip
SIGNALS = Target("signals", _run_signal, _signals, _SIGNAL_WORDS)


# --- configuration files ---------------------------------------------------------------------------------------------

_FOLDER = tempfile.TemporaryDirectory(prefix="tailrace-fuzz-config-")
_FILE = Path(_FOLDER.name) / "application.properties"


def _run_file(data: bytes) -> object:
    logging.getLogger("tailrace").setLevel(logging.CRITICAL)
    if data[:1] == b"\x01":
        try:
            json.loads(strict_json(data[1:].decode("utf-8", "replace")))
        except ValueError as error:
            return str(error)[:12]
        return "json"
    _FILE.write_bytes(data[1:])
    found = read_file(_FILE)
    # The options that a run reads.
    return found.name, found.source.connector, str(found.checkpoint_location)[:1], len(found.source.texts)


def _files() -> list[bytes]:
    common = {"topic.prefix": "shop", "signal.data.collection": "s.signals"}
    postgres = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "localhost",
        "database.user": "u", "database.password": "p", "database.dbname": "d", "table.include.list": "s.t,s\\\\.u.*",
        "column.mask.with.5.chars": "s.t.c", "message.key.columns": "s.t:a,b;s.u:c", "slot.stream.params": "a=b",
        "snapshot.select.statement.overrides": "s.t", "snapshot.select.statement.overrides.s.t": "select 1",
        "heartbeat.interval.ms": "1000", "transforms": "unwrap", "name": "n",
    }  # fmt: skip
    sqlserver = {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector", "database.hostname": "h",
        "database.user": "u", "database.password": "p", "database.names": "a,b",
    }  # fmt: skip
    mongodb = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": "mongodb://h/?replicaSet=r", "field.exclude.list": "d.c.a",
        "cursor.pipeline": "[{$match: {'a': /x/i, b: ObjectId(\"0123456789abcdef01234567\")}}]",
        "field.renames": "d.c.a:b", "capture.scope": "database", "capture.target": "d",
    }  # fmt: skip
    db2 = {
        "connector.class": "io.debezium.connector.db2.Db2Connector", "database.hostname": "h", "database.user": "u",
        "database.password": "p", "database.dbname": "D", "driver.securityMechanism": "3",
    }  # fmt: skip
    found = []
    for options in (postgres, sqlserver, mongodb, db2):
        named = options | common
        lines = [f"debezium.source.{name}={value}" for name, value in named.items()]
        lines += ["debezium.sink.type=kafka", "debezium.sink.kafka.producer.bootstrap.servers=h:9092", "# more"]
        found.append(b"\0" + "\n".join(lines).encode())
        found.append(b"\0" + json.dumps({"name": "n", "config": named}).encode())
        found.append(b"\0" + "\r\n".join(f"{name} : {value} \\\n" for name, value in named.items()).encode())
    shell = (
        "[{$match: {'a': /x\\/y/i, b: new ObjectId(\"0123456789abcdef01234567\")}}]",
        "{a: ISODate('2024-01-01'), b: NumberLong(5), c: UUID('x'), d: NumberDecimal(\"1.5\"), 'e\"': true}",
        '{"a": [1, -2.5e3, null], "b": {"$oid": "x"}}',
    )
    return found + [b"\1" + text.encode() for text in shell]


_FILE_WORDS = (
    b"${env:HOME}", b"${env:X:${env:Y}}", b"${file:/nonexistent:k}", b"${", b"$${a}", b"\\u0041", b"\\ud800", b"\\u12",
    b"\\\n", b"=", b"debezium.source.", b"debezium.sink.", b"debezium.format.value=avro", b"%dev.", b"\xff", b".*",
    b"(", b"(?i)", b"[[[[", b"9" * 20, b"-1", b"true", b"1e3", b"[" * 300, b"{" * 300, b"'", b"ObjectId(", b"/a/",
    b"\xc3\xa9", b"a{4294967296}",
    b"column.truncate.to.5.chars=", b"column.mask.hash.SHA-256.with.salt.x=", b"converters=", b"\x00",
)  # fmt: skip
FILES = Target("config", _run_file, _files, _FILE_WORDS)
