"""Transforms work on columns whose values Python cannot represent, or that are not texts: dates in lists, maps."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.columns.batch import LogicalMessage
from tailrace.columns.row import COLUMNS
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.control_records import message_rows
from tests.servers.registry import Registry
from tests.unit.events.changes import Change, table
from tests.unit.transforms.chains import CONNECT, chain, rows, settings

DATA = table(
    "t",
    [
        Column("id", "int4", 23, nullable=False),
        Column("days", "_date", 1182, kind="array", element=Column("days", "date", 1082)),
        Column("numbers", "_int4", 1007, kind="array", element=Column("numbers", "int4", 23)),
        Column("v", "sparsevec", 0),
        Column("long", "text", 25),
    ],
    "id",
)
CHANGES: tuple[Change, ...] = (
    ("c", None, ["1", "{2024-01-01,infinity,-infinity,NULL}", "{19723,2147483647,-2147483648,NULL}", "{1:1.5,3:2}/5",
                 "a" * 500]),
    ("c", None, ["2", None, None, None, None]),
)  # fmt: skip
UNWRAP = {"type": "ExtractNewRecordState"}


def made(*steps: dict[str, str], **more: Any) -> list[Any]:
    return rows(*steps, schema=DATA, changes=CHANGES, **more)


def test_records_with_infinite_dates_in_lists_are_cut() -> None:
    step = {"type": "io.debezium.transforms.EnforceRecordSize", "max.bytes": "300", "min.field.size": "10"}
    first, second = (row["value"]["after"] for row in made(step))
    assert (first["long"], first["days"][1:3]) == ("", [2**31 - 1, -(2**31)])
    assert second["long"] is None


@pytest.mark.parametrize("function", ["java", "murmur"])
def test_partitions_by_lists_of_dates_are_those_of_their_days(function: str) -> None:
    def partitions(field: str) -> list[int | None]:
        step = {
            "type": "io.debezium.transforms.partitions.PartitionRouting", "partition.topic.num": "1000",
            "partition.payload.fields": f"change.{field}", "partition.hash.function": function,
        }  # fmt: skip
        return [row["partition"] for row in made(step, columns=(*COLUMNS, "partition"))]

    found = partitions("days")
    assert found == partitions("numbers")
    assert found[1] is None


def test_a_map_with_numbers_for_keys_is_shown_as_pairs() -> None:
    step = {"type": f"{CONNECT}ExtractField$Value", "field": "v.vector", "field.syntax.version": "V2"}
    assert [row["value"] for row in made(UNWRAP, step)] == [[[1, 1.5], [3, 2.0]], None]


def test_a_constant_float_has_no_more_digits_than_it_needs() -> None:
    insert = {"type": f"{CONNECT}InsertField$Value", "static.field": "s", "static.value": "1.1"}
    cast = {"type": f"{CONNECT}Cast$Value", "spec": "s:float32"}
    assert [row["value"]["s"] for row in made(UNWRAP, insert, cast)] == [1.1, 1.1]


def test_a_decoded_message_is_an_event_in_avro() -> None:
    pytest.importorskip("fastavro")
    decode = {"type": "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"}
    message = LogicalMessage("app", b'{"id": 1}', 4990, 700, 5005, 1_795_222_827_639_575, 4980, 2, 3)
    with Registry() as registry:
        options = {
            "serializer.type": "avro", "data.serializer.type": "avro", "avro.schema.registry.url": registry.address,
        }  # fmt: skip
        chosen = settings(chain(decode), value_format=Format("cloudevents", "value", tuple(sorted(options.items()))))
        (row,) = message_rows([message], chosen, FORM).to_pylist()
    assert b'name:s;lsn:4990;txId:700;sequence:["4980","4990"]' in row["value"]
