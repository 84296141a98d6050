"""The comparison accepts what varies from run to run, and nothing else."""

import base64
import datetime
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extent import sized
from tests.golden import wire
from tests.golden.compare import Terms, difference
from tests.golden.record import AnyReader, Record, produced, recorded
from tests.golden.runner import SHIPPED

TUTORIAL = SHIPPED / "postgres" / "tutorial" / "expected.jsonl.gz"
SHIPPED_RECORDINGS = [
    path
    for path in sorted(SHIPPED.glob("*/*/expected.jsonl.gz"))
    if "#@ format=connect" not in path.with_name("config.properties").read_text("utf-8")
]
"""The cases whose recordings are only JSON."""


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[Callable[[list[str]], list[str]]], list[Record]]:
    """Return the tutorial's recording after an edit of its lines."""

    def edit(change: Callable[[list[str]], list[str]]) -> list[Record]:
        with gzip.open(TUTORIAL, "rt", encoding="utf-8", newline="\n") as text:
            lines = text.read().splitlines(keepends=True)
        path = tmp_path / "edited.jsonl.gz"
        with gzip.open(path, "wt", encoding="utf-8", newline="\n") as out:
            out.writelines(change(lines))
        return recorded(path)

    return edit


Edited = Callable[[Callable[[list[str]], list[str]]], list[Record]]


def swap(old: str, new: str, at: int = 1) -> Callable[[list[str]], list[str]]:
    """Return an edit of the `at`-th line that holds `old`, which must exist."""

    def change(lines: list[str]) -> list[str]:
        holding = [index for index, line in enumerate(lines) if re.search(old, line)]
        lines[holding[at - 1]] = re.sub(old, new, lines[holding[at - 1]])
        return lines

    return change


READ_BACK = sized(SHIPPED_RECORDINGS[datetime.date.today().toordinal() % 6 :: 6], SHIPPED_RECORDINGS)
"""Recordings that are written again: a sixth, another one each day; all in a full run."""


@pytest.mark.parametrize("path", READ_BACK, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_a_recording_is_read_back_to_the_byte(path: Path) -> None:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as text:
        for line, record in zip(text, recorded(path), strict=True):
            headers = ",".join(f'{{"key":{wire.quote(k)},"value":{wire.write(v)}}}' for k, v in record.headers)
            written = (
                f'{{"topic":{wire.quote(record.topic)},"key":{wire.write(record.key)},'
                f'"value":{wire.write(record.value)},"headers":[{headers}]}}\n'
            )
            assert written == line


def test_text_is_read_alike_wherever_it_stands() -> None:
    reader = AnyReader(dict)
    run = b"Struct{id=7,source=Struct{ts_ms=5,lsn=17,sequence=[null,1]},note=lsn}"
    other = b"Struct{id=7,source=Struct{ts_ms=6,lsn=18,sequence=[2,3]},note=lsn}"
    one, two = (produced("t", None, value, [], reader).value for value in (run, other))
    assert one == two
    assert one == wire.quote("Struct{id=7,source=Struct{ts_ms=<number>,lsn=<number>,sequence=<sequence>},note=lsn}")
    assert produced("t", None, run.replace(b"id=7", b"id=8"), [], reader).value != one
    assert produced("t", None, b"\xff", [], reader).value == {"bytes": '"/w=="'}


def test_bytes_of_a_recording_are_read_as_those_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "expected.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as out:
        for data in (b"2020-01-02", b"Struct{lsn=5}", b"\xff"):
            text = base64.b64encode(data).decode()
            out.write(f'{{"topic":"t","key":null,"value":{{"bytes":"{text}"}},"headers":[]}}\n')
    reader = AnyReader(dict)
    runs = [produced("t", None, data, [], reader) for data in (b"2020-01-02", b"Struct{lsn=6}", b"\xff")]
    assert [record.value for record in recorded(path)] == [record.value for record in runs]


def test_topics_may_interleave_in_any_way() -> None:
    records = recorded(TUTORIAL)
    topics = sorted({record.topic for record in records})
    random.shuffle(topics)
    by_topic = [record for topic in topics for record in records if record.topic == topic]
    assert difference(recorded(TUTORIAL), by_topic) is None


def test_another_run_has_other_positions_transactions_times_and_ids(edited: Edited) -> None:
    def change(lines: list[str]) -> list[str]:
        text = "".join(lines)
        numbers = {*re.findall(r'"lsn":(\d+)', text), *re.findall(r'\\"(\d+)\\"', text)}
        for number in numbers:
            text = re.sub(rf"\b{number}\b", str(int(number) + 4096), text)
        text = re.sub(r'"txId":(\d+)', lambda match: f'"txId":{int(match[1]) + 100}', text)
        text = re.sub(r'"ts_ms":\d{7}', '"ts_ms":1800000', text)
        text = re.sub(r'"ts_us":\d{7}', '"ts_us":1800000', text)
        text = re.sub(r'"ts_ns":\d{7}', '"ts_ns":1800000', text)
        return re.sub(r'"payload":"01[0-9a-f-]{34}"', '"payload":"02"', text).splitlines(keepends=True)

    run = edited(change)
    assert wire.write(run[0].value) != wire.write(recorded(TUTORIAL)[0].value)
    assert difference(recorded(TUTORIAL), run) is None


@pytest.mark.parametrize(
    ("old", "new", "at", "told"),
    [
        ('"Sally"', '"Sal"', 1, r'customers\[0\]\.value\.payload\.after\.first_name: expected "Sally", got "Sal"'),
        ('"weight":3.14', '"weight":3.140', 1, r"products\[0\]\.value\.payload\.after\.weight: expected 3.14, got 3.1"),
        ('"weight":3.14', '"weight":"3.14"', 1, r'weight: expected 3.14, got "3.14"'),
        ('"Sally"', r'"\\u0053ally"', 1, r"first_name"),
        ('"op":"c","ts_ms"', '"op":"c","tsms"', 1, r"expected the keys"),
        ('"op":"c"', '"op":"r"', 1, r"\.op: expected"),
        ('"optional":true,"name":"event.block"', '"optional":false,"name":"event.block"', 1, r"value\.schema\.fields"),
        ('"payload":"postgresql"', '"payload":"postgres"', 1, r"headers.__debezium.context.connectorName"),
        (r'"ts_us":(\d{13})\d{3}', r'"ts_us":\g<1>', 1, r"ts_.s: expected"),
        (r'"ts_us":\d', '"ts_us":2', 1, r"not the moment"),
        (r'"sequence":"\[null,\\"\d+', r'"sequence":"[null,\\"17', 1, r"does not end in the LSN"),
        (r'"payload":"01[0-9a-f-]{34}"', '"payload":""', 1, r"runId"),
        (r'"txId":\d+', '"txId":null', 1, r"txId: expected <tx>, got null"),
    ],
)
def test_every_other_change_is_a_difference(edited: Edited, old: str, new: str, at: int, told: str) -> None:
    answer = difference(recorded(TUTORIAL), edited(swap(old, new, at)))
    assert answer is not None
    assert re.search(told, answer), answer


def test_two_transactions_are_not_one(edited: Edited) -> None:
    def change(lines: list[str]) -> list[str]:
        found = [match[1] for line in lines if (match := re.search(r'"txId":(\d+)', line))]
        text = "".join(lines)
        return text.replace(f'"txId":{found[-1]}', f'"txId":{found[-2]}').splitlines(keepends=True)

    answer = difference(recorded(TUTORIAL), edited(change))
    assert answer is not None
    assert "txId: expected <tx " in answer


def test_order_within_a_topic_counts(edited: Edited) -> None:
    answer = difference(recorded(TUTORIAL), edited(lambda lines: [lines[1], lines[0], *lines[2:]]))
    assert answer is not None
    assert answer.startswith("dbserver1.inventory.customers[0]")


def test_a_missing_record_is_told_as_missing(edited: Edited) -> None:
    def change(lines: list[str]) -> list[str]:
        last = max(index for index, line in enumerate(lines) if '"topic":"dbserver1.inventory.orders"' in line)
        return lines[:last] + lines[last + 1 :]

    answer = difference(recorded(TUTORIAL), edited(change))
    assert answer is not None
    assert re.match(r"dbserver1.inventory.orders: \d records expected, got \d; missing: ", answer)


@pytest.mark.parametrize(("missing", "told"), [(True, "expected, got none"), (False, "no records expected, got")])
def test_topics_are_the_same(missing: bool, told: str) -> None:
    less = [record for record in recorded(TUTORIAL) if not record.topic.endswith("orders")]
    sides = (recorded(TUTORIAL), less) if missing else (less, recorded(TUTORIAL))
    answer = difference(*sides)
    assert answer is not None
    assert told in answer


def snapshot(order: list[int]) -> list[Record]:
    """Return snapshot rows of one topic with the given ids; the first and the last are marked by place."""
    reader = wire.Reader()
    marks = ["first", *["true"] * (len(order) - 2), "last"]
    return [
        Record("t", reader.read(f'{{"id":{i}}}'), reader.read(f'{{"source":{{"snapshot":"{m}"}},"op":"r"}}'), [])
        for i, m in zip(order, marks, strict=True)
    ]


def test_only_a_table_of_several_chunks_may_change_its_order() -> None:
    ordered, chunked = [1, 2, 3, 4, 5], [1, 4, 5, 2, 3]
    assert difference(snapshot(ordered), snapshot(chunked), Terms(chunk_rows=4)) is None
    assert difference(snapshot(ordered), snapshot(chunked), Terms(chunk_rows=5)) is not None
    assert difference(snapshot(ordered), snapshot([1, 4, 4, 2, 3]), Terms(chunk_rows=4)) is not None


def hstore(name: str, text: str) -> list[Record]:
    """Return one record whose value has one field of the semantic type `name`."""
    value = f'{{"schema":{{"fields":[{{"type":"string","name":"{name}","field":"h"}}]}},"payload":{{"h":{text}}}}}'
    return [Record("t", wire.NULL, wire.Reader().read(value), [])]


def test_only_an_hstore_may_change_the_order_of_its_keys() -> None:
    one, other, third = r'"{\"a\":\"1\",\"b\":null}"', r'"{\"b\":null,\"a\":\"1\"}"', r'"{\"b\":\"\",\"a\":\"1\"}"'
    json = "io.debezium.data.Json"
    assert difference(hstore(json, one), hstore(json, other)) is None
    assert difference(hstore(json, one), hstore(json, third)) is not None
    assert difference(hstore("io.debezium.data.Xml", one), hstore("io.debezium.data.Xml", other)) is not None


def test_the_number_of_heartbeats_does_not_count_but_their_form_does() -> None:
    def beats(*texts: str) -> list[Record]:
        return [Record("__debezium-heartbeat.x", wire.NULL, wire.Reader().read(text), []) for text in texts]

    one, two = '{"ts_ms":1795221898879}', '{"ts_ms":1795221899519}'
    assert difference(beats(one), beats(one, two)) is None
    assert difference(beats(one), beats('{"ts_us":1795221898879000}')) is not None
    assert difference(beats(one), []) is not None


def compact(value: object) -> object:
    """Return `value` as a Reader reads its compact JSON text."""
    return wire.Reader().read(json.dumps(value, separators=(",", ":")))


def told(aggregate: str, tables: str) -> list[Record]:
    """Return a notification of `aggregate` about `tables`."""
    data = {"connector_name": "c", "data_collections": tables}
    value = {"id": "1", "aggregate_type": aggregate, "type": "STARTED", "additional_data": data, "timestamp": 1}
    return [Record("notifications", compact({"id": "1"}), compact(value), [])]


def test_the_tables_of_an_initial_snapshot_are_told_in_any_order_and_no_others() -> None:
    initial, incremental = "Initial Snapshot", "Incremental Snapshot"
    assert difference(told(initial, "s.a,s.b"), told(initial, "s.b,s.a")) is None
    assert difference(told(initial, "s.a,s.b"), told(initial, "s.a")) is not None
    assert difference(told(incremental, "s.a,s.b"), told(incremental, "s.b,s.a")) is not None


def watermark(column: str, run: int) -> list[Record]:
    """Return a row of a signal table, whose first column is `column`, as the run number `run` writes it."""
    row = {column: f"00000000-0000-0000-0000-00000000000{run}-open", "body": f"2026-01-01T00:00:0{run}.5Z"}
    return [Record("s.signals", compact({column: row[column]}), compact({"before": None, "after": row}), [])]


@pytest.mark.parametrize("column", ["id", "Code"])
def test_watermarks_are_known_whatever_the_columns_of_the_signal_table_are_called(column: str) -> None:
    assert difference(watermark(column, 1), watermark(column, 2)) is None
    assert difference(watermark(column, 1), watermark("other", 1)) is not None
