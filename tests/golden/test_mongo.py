"""MongoDB's recordings are compared correctly, and the steps of a case do what they say."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fix_mongodb import Mongo
from tests.golden import case as cases
from tests.golden.compare import Terms, difference
from tests.golden.mongo_accept import unwanted, without
from tests.golden.mongo_normalise import MongoNormaliser, by_window
from tests.golden.mongo_runner import empty
from tests.golden.mongo_steps import Writer, filled, load
from tests.golden.record import Record, recorded
from tests.golden.runner import SHIPPED, recorder

CASES = [case for case in cases.find(SHIPPED) if case.database == "mongodb"]
TERMS = Terms(
    normaliser=MongoNormaliser,
    value_reason=lambda place, wanted, got: None,
    schema_reason=lambda wanted, got: None,
)
TUTORIAL = {name: SHIPPED / name / "tutorial" / "expected.jsonl.gz" for name in ("mongodb-1.1", "mongodb-3")}


def edited(path: Path, folder: Path, old: str, new: str, at: int = 1) -> list[Record]:
    """Return the recording with one text replaced in the `at`-th line that holds it."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as text:
        lines = text.read().splitlines(keepends=True)
    which = [number for number, line in enumerate(lines) if old in line][at - 1]
    lines[which] = lines[which].replace(old, new, 1)
    target = folder / "edited.jsonl.gz"
    with gzip.open(target, "wt", encoding="utf-8", newline="\n") as out:
        out.writelines(lines)
    return recorded(target)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_recording_equals_itself_and_says_its_version(case: cases.Case) -> None:
    assert difference(case.expected(), case.expected(), TERMS) is None
    flat = "transforms" in case.properties
    wanted = {"mongodb-1.1": "1.1.2.Final", "mongodb-3": "3.6.1.Final"}[case.path.parent.name]
    assert flat or recorder(case)["event.version.string"] == wanted
    assert load(case.path / "run.json")


@pytest.mark.parametrize(
    ("folder", "old", "new"),
    [
        ("mongodb-1.1", r"\"_id\": {\"$numberLong\": \"1001\"}", r"\"_id\": 1001"),
        ("mongodb-1.1", '"snapshot":"last"', '"snapshot":"true"'),
        ("mongodb-1.1", '000,"snapshot":"false"', '001,"snapshot":"false"'),
        ("mongodb-1.1", '"rs":"secantus"', '"rs":"rs0"'),
        ("mongodb-3", r"\"first_name\": \"Sally\",\"last_name\": \"Thomas\"",
         r"\"last_name\": \"Thomas\",\"first_name\": \"Sally\""),
        ("mongodb-3", '"ord":-1', '"ord":1'),
        ("mongodb-3", '"wallTime":null', '"wallTime":1795227297031'),
        ("mongodb-3", '"updateDescription":null', '"updateDescription":{}'),
    ],
)  # fmt: skip
def test_a_difference_is_seen(folder: str, old: str, new: str, tmp_path: Path) -> None:
    assert difference(recorded(TUTORIAL[folder]), edited(TUTORIAL[folder], tmp_path, old, new), TERMS)


def test_what_varies_is_not_a_difference(tmp_path: Path) -> None:
    path = TUTORIAL["mongodb-1.1"]
    assert difference(recorded(path), edited(path, tmp_path, '"ord":3', '"ord":17'), TERMS) is None


def test_the_order_within_a_window_is_free_and_no_other() -> None:
    path = Path(SHIPPED / "mongodb-3" / "incremental_snapshot" / "expected.jsonl.gz")
    records = recorded(path)
    at = next(
        index
        for index, (one, two) in enumerate(pairwise(records))
        if '"incremental"' in str(one.value) and '"incremental"' in str(two.value) and one.topic == two.topic
    )
    swapped = [*records[:at], records[at + 1], records[at], *records[at + 2 :]]
    assert difference(by_window(recorded(path), 4), by_window(swapped, 4), TERMS) is None
    records = recorded(path)
    moved = [*records[: at - 2], *records[at - 1 : at + 1], records[at - 2], *records[at + 1 :]]
    assert difference(by_window(recorded(path), 4), by_window(moved, 4), TERMS) is not None


def test_what_debezium_should_not_have_written_is_left_out() -> None:
    records = recorded(TUTORIAL["mongodb-1.1"])
    ops = {"c": 2, "u": 2, "d": 2, "r": 7}
    assert without(records, unwanted({"skipped.operations": "u"}, "1.1")) == [True] * len(records)
    left = without(records, unwanted({"skipped.operations": "u,d"}, "1.1"))
    assert left.count(False) == ops["u"] + 2 * ops["d"]
    records = recorded(TUTORIAL["mongodb-3"])
    assert all(without(records, unwanted({"database.include.list": "INVENTORY"}, "3")))
    assert not any(without(records, unwanted({"database.include.list": "invent"}, "3")))
    assert not any(without(records, unwanted({"database.exclude.list": "inven.*"}, "3")))


def test_a_template_is_filled() -> None:
    assert filled({"_id": "$i", "a": ["n$i", {"b": 1}]}, 7) == {"_id": 7, "a": ["n7", {"b": 1}]}


def test_steps_write_what_they_say(mongodb: Mongo) -> None:
    with mongodb.client() as client:
        empty(client)
        writer = Writer(client)
        writer.do({"op": "insertRange", "ns": "golden.c", "from": 1, "to": 3, "template": {"_id": "$i"}})
        writer.do({"op": "insertLarge", "ns": "golden.c", "document": {"_id": 4}, "field": "t", "size": 12})
        writer.do({"op": "insertCharacters", "ns": "golden.c", "document": {"_id": 5}, "blocks": [0, 216, 32]})
        writer.do({"op": "update", "ns": "golden.c", "filter": {"_id": 1}, "update": {"$set": {"a": 1}}})
        writer.do({"op": "transaction", "abort": True,
                   "steps": [{"op": "delete", "ns": "golden.c", "filter": {}, "many": True}]})  # fmt: skip
        bulk = [{"op": "delete", "filter": {"_id": 2}}, {"op": "insert", "document": {"_id": 6}}]
        writer.do({"op": "bulk", "ns": "golden.c", "requests": bulk})
        writer.do({"op": "insert", "ns": "golden.c", "documents": [{"_id": 6}], "fails": True})
        found = {document["_id"]: document for document in client["golden"]["c"].find()}
        assert sorted(found) == [1, 3, 4, 5, 6]
        assert (found[1]["a"], found[4]["t"]) == (1, "012345678901")
        assert sorted(found[5]) == ["_id", "u00", "u20"]
        empty(client)
        assert "golden" not in client.list_database_names()
