"""ExtractNewDocumentState, against what Debezium's own gave for the same events.

`unwrap.jsonl.gz` was recorded with Debezium 1.1.2 (format 1.1) and 3.6.1 (format 3): what is put into the event of its
operation in `unwrap_events.json`, the transform's options, and the record that came out; null where none came,
"error" where Debezium ended.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import ROW_SCHEMA
from tailrace.connectors.descriptor import Schemas
from tailrace.connectors.mongodb.documents.options import CLASS, unwrap
from tailrace.connectors.mongodb.documents.unwrap import Unwrapping
from tailrace.errors import ConversionError

HERE = Path(__file__).parent
EVENTS = json.loads((HERE / "unwrap_events.json").read_text("utf-8"))
with gzip.open(HERE / "unwrap.jsonl.gz", "rt", encoding="utf-8") as lines:
    VECTORS = [json.loads(line) for line in lines]


def transform(options: dict[str, str], form: str, schemas: Schemas = Schemas()) -> Unwrapping:  # noqa: B008
    given = {f"transforms.u.{name}": text for name, text in options.items()} | {"transforms.u.type": CLASS}
    settings, faults = unwrap(["u"], given, form)
    assert settings is not None, faults
    return Unwrapping(settings, schemas)


def event(vector: dict[str, Any], schemas: bool = True) -> tuple[bytes, bytes | None]:
    """The key and the value of the event that a vector describes."""
    form, operation = vector["format"], vector["op"]
    key, value = (json.loads(json.dumps(part)) for part in EVENTS[form][operation if operation in "cud" else "c"])
    key["payload"]["id"] = vector["key"]
    payload = value["payload"]
    payload |= {"op": operation, "after": vector.get("after")}
    if form == "1.1":
        payload |= {"patch": vector.get("patch")}
    else:
        payload |= {"before": vector.get("before"), "updateDescription": None}
        if "updated" in vector:
            removed = vector.get("removed")
            told = {"removedFields": removed, "updatedFields": vector["updated"], "truncatedArrays": None}
            payload["updateDescription"] = told
    parts = (key, value) if schemas else (key["payload"], payload)
    texts = [json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode() for part in parts]
    return texts[0], None if operation == "tombstone" else texts[1]


def test_records_are_those_of_debezium() -> None:
    for vector in VECTORS:
        unwrapping = transform(vector["options"], vector["format"])
        try:
            record = unwrapping.record(*event(vector), [])
        except ConversionError:
            assert vector["result"] == "error", vector
            continue
        if record is None:
            assert vector["result"] is None, vector
            continue
        headers = [{"key": name, "value": value.decode()} for name, value in record.headers if value is not None]
        assert record.key is not None
        got = {"key": record.key.decode(), "value": record.value and record.value.decode(), "headers": headers}
        assert got == vector["result"], vector


def test_records_without_schemas_have_the_same_payload() -> None:
    for vector in VECTORS:
        if not isinstance(vector["result"], dict) or vector["op"] == "tombstone":
            continue
        record = transform(vector["options"], vector["format"], Schemas(False, False, False)).record(
            *event(vector, schemas=False), []
        )
        assert record is not None
        wanted = vector["result"]
        assert json.loads(record.key or b"null") == json.loads(wanted["key"])["payload"]
        value = wanted["value"]
        assert json.loads(record.value or b"null") == (value and json.loads(value)["payload"]), vector


def rows(*given: tuple[str, bytes | None, bytes | None]) -> pa.RecordBatch:
    """Rows of op, key and value; the other columns say which row it was."""
    columns: dict[str, list[Any]] = {field.name: [None] * len(given) for field in ROW_SCHEMA}
    columns |= {"op": [row[0] for row in given], "key": [row[1] for row in given], "value": [row[2] for row in given]}
    columns["ordinal"] = list(range(len(given)))
    columns["headers"] = [[{"key": "k", "value": b"v"}], *[None] * (len(given) - 1)]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA
    )


def test_a_batch_loses_dropped_rows_and_keeps_the_others_and_what_is_no_change() -> None:
    made = event({"format": "3", "op": "c", "key": "1", "after": '{"_id": 1,"a": "x"}'})
    gone = event({"format": "3", "op": "d", "key": "1"})
    batch = rows(("c", *made), ("d", *gone), ("tombstone", gone[0], None), ("heartbeat", b"{}", b"beat"))
    (result,) = transform({"delete.tombstone.handling.mode": "drop", "add.headers": "op"}, "3")([batch])
    result.validate(full=True)
    assert result.schema == ROW_SCHEMA
    assert result.column("ordinal").to_pylist() == [0, 3]
    assert json.loads(result.column("value")[0].as_py())["payload"] == {"_id": 1, "a": "x"}
    assert [pair["key"] for pair in result.column("headers")[0].as_py()] == ["k", "__op"]
    assert result.column("value")[1].as_py() == b"beat"
    assert result.column("headers")[1].as_py() is None


def test_a_batch_of_dropped_rows_is_no_batch() -> None:
    key, _ = event({"format": "3", "op": "d", "key": "1"})
    assert list(transform({}, "3")([rows(("tombstone", key, None))])) == []


@pytest.mark.parametrize("text", ['{"a": }', '{"$date": 5}', "5"])
def test_a_text_that_is_no_document_is_an_error_without_its_content(text: str) -> None:
    key, value = event({"format": "3", "op": "c", "key": "1", "after": text})
    with pytest.raises(ConversionError) as caught:
        transform({}, "3").record(key, value, [])
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "options", "form", "said"),
    [
        (["u", "v"], {}, "3", "several transforms"),
        ([], {"transforms.u.type": CLASS}, "3", "transforms is not"),
        (["u"], {}, "3", "type = nothing is not supported"),
        (["u"], {"transforms.u.type": CLASS, "transforms.v.x": "1"}, "3", "belongs to no transform"),
        (["u"], {"transforms.u.type": CLASS, "transforms.u.predicate": "p"}, "3", "predicates are not available"),
        (["u"], {"transforms.u.type": CLASS, "transforms.u.array.encoding": "map"}, "3", "must be one of"),
        (["u"], {"transforms.u.type": CLASS, "transforms.u.colour": "red"}, "3", "has no such option"),
    ],
)
def test_what_there_is_not_is_refused_by_name(names: list[str], options: dict[str, str], form: str, said: str) -> None:
    settings, faults = unwrap(names, options, form)
    assert settings is None
    assert any(said in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}, "ExtractNewDocumentState"),
        ({"transforms.u.type": CLASS, "transforms.u.route.by.field": "a"}, "does nothing with it"),
        ({"transforms.u.type": CLASS, "transforms.u.sanitize.field.names": "true"}, "does nothing with it"),
        ({"transforms.u.type": CLASS, "transforms.u.drop.tombstones": "true"}, "delete.tombstone.handling.mode"),
    ],
)
def test_what_is_taken_otherwise_or_has_no_effect_is_a_notice(options: dict[str, str], said: str) -> None:
    settings, faults = unwrap(["u"], options, "3")
    assert faults == []
    assert settings is not None
    (notice,) = settings.notices
    assert said in notice
