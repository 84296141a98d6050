"""Transaction metadata: BEGIN and END of transactions, and each event's place in its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.columns import Boundary, Column, Counts
from tailrace.events.control_records import boundary_rows, numbered_name
from tests.unit.events.changes import Change, batch, plain_settings, read, table
from tests.unit.events.recorded import line_of, lines_of, recorded, settings_of, steady

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CASES = [
    "postgres/transaction_metadata_forms",
    "postgres/prepared_transactions",
    "postgres/topic_delimiter",
    "postgres-1.7/transaction_metadata_forms",
    "postgres-1.7/prepared_transactions",
    "sqlserver-3/transaction_metadata",
]


def boundary_of(payload: dict[str, Any], is_numbered: bool) -> Boundary:
    """Return the boundary in a BEGIN or END."""
    xid, _, lsn = payload["id"].partition(":")
    counts = None
    if payload["status"] == "END":
        tables = tuple((one["data_collection"], one["event_count"]) for one in payload["data_collections"])
        counts = Counts(payload["event_count"], tables)
    commit_us = payload.get("ts_ms", 0) * 1000 + 999
    if is_numbered:
        return Boundary(int(xid), int(lsn or 0), 5005, commit_us, 0, counts)
    return Boundary(payload["id"], 0, "00", commit_us, 0, counts)


@pytest.mark.parametrize("case", CASES)
def test_begin_and_end_are_as_recorded(case: str) -> None:
    settings = settings_of(case)
    found = [line for line in lines_of(case) if "TransactionMetadataKey" in line]
    boundaries = [boundary_of(json.loads(line)["value"]["payload"], case.startswith("postgres")) for line in found]
    assert {boundary.counts is None for boundary in boundaries} == {True, False}
    assert list(map(line_of, boundary_rows(boundaries, settings).to_pylist())) == [steady(line) for line in found]


@pytest.mark.seed("000-31")
@pytest.mark.parametrize("case", [*CASES, "sqlserver-1.0/transaction_tables", "sqlserver-3/transaction_tables"])
def test_events_tell_their_places_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


COUNTS = Counts(3, (("public.t", 2), ("public.u", 1)))
BOUNDARIES = [
    Boundary(700, 4990, 5005, 1_795_222_827_639_575, -1, None),
    Boundary(700, 5010, 5005, 1_795_222_827_639_575, 3, COUNTS),
]


def test_rows_of_boundaries_stand_beside_their_transaction_and_have_no_table() -> None:
    begin, end = boundary_rows(BOUNDARIES, plain_settings()).to_pylist()
    assert (begin["op"], end["op"]) == ("BEGIN", "END")
    for row, ordinal in ((begin, -1), (end, 3)):
        assert (row["database"], row["schema"], row["table"]) == ("golden", None, None)
        assert (row["position"], row["ordinal"], row["transaction"]) == (f"{5005:016X}", ordinal, "700")
        assert (row["snapshot"], row["headers"], row["topic"]) == ("false", None, "server.transaction")
        assert str(row["source_ts"]) == "2026-11-21 01:00:27.639575+00:00"
    # Their transaction id has the LSN of each one's own time.
    assert (begin["key"], end["key"]) == (b'{"id":"700:4990"}', b'{"id":"700:5010"}')


def test_values_of_boundaries_by_form() -> None:
    today, document = (boundary_rows(BOUNDARIES, plain_settings(event_format=form)) for form in ("3", "1.7"))
    assert today["value"].to_pylist() == [
        b'{"status":"BEGIN","id":"700:4990","event_count":null,"data_collections":null,"ts_ms":1795222827639}',
        b'{"status":"END","id":"700:5010","event_count":3,"data_collections":[{"data_collection":"public.t",'
        b'"event_count":2},{"data_collection":"public.u","event_count":1}],"ts_ms":1795222827639}',
    ]
    assert document["value"].to_pylist() == [
        b'{"status":"BEGIN","id":"700","event_count":null,"data_collections":null}',
        b'{"status":"END","id":"700","event_count":3,"data_collections":[{"data_collection":"public.t",'
        b'"event_count":2},{"data_collection":"public.u","event_count":1}]}',
    ]


def test_a_transaction_without_events_ends_with_zero_of_them() -> None:
    (row,) = boundary_rows([Boundary(1, 2, 3, 4000, 0, Counts(0, ()))], plain_settings()).to_pylist()
    assert row["value"] == b'{"status":"END","id":"1:2","event_count":0,"data_collections":[],"ts_ms":4}'


def test_no_boundaries_are_no_rows() -> None:
    assert boundary_rows([], plain_settings()).num_rows == 0


@pytest.mark.parametrize(("form", "name"), [("3", "700:5000"), ("1.7", "700")])
def test_a_numbered_transaction_is_called_by_its_number_and_today_by_the_lsn_too(form: str, name: str) -> None:
    settings = plain_settings(event_format=form)
    assert numbered_name(700, 5000, settings) == name
    part = batch(TABLE, [("c", None, ("1", "a"))], orders=[(4, 2)])
    (row,) = read(part, settings)
    assert row["value"]["transaction"] == {"id": name, "total_order": 4, "data_collection_order": 2}


CHANGES: list[Change] = [
    ("c", None, ("1", "a")),
    ("u", ("1", None), ("2", "a")),
    ("d", ("2", None), None),
]
# A key change has two events in its transaction, so the delete after it is the fourth.
ORDERS = [(1, 1), (2, 2), (4, 4)]


def orders(skipped: str = "", given: list[tuple[int, int]] = ORDERS) -> list[tuple[str, int, int] | None]:
    settings = plain_settings(skipped_operations=frozenset(skipped))
    found = read(batch(TABLE, CHANGES, together=True, orders=given), settings)
    values = [row["value"] for row in found]
    blocks = [None if value is None else (value["op"], value["transaction"]) for value in values]
    return [
        None if block is None else (block[0], block[1]["total_order"], block[1]["data_collection_order"])
        for block in blocks
    ]


def test_the_two_events_of_a_key_change_have_numbers_of_their_own() -> None:
    assert orders() == [("c", 1, 1), ("d", 2, 2), None, ("c", 3, 3), ("d", 4, 4), None]


def test_what_is_skipped_takes_no_number() -> None:
    assert orders("d", [(1, 1), (2, 2), (3, 3)]) == [("c", 1, 1), ("c", 2, 2)]
    assert orders("c", [(1, 1), (1, 1), (2, 2)]) == [("d", 1, 1), None, ("d", 2, 2), None]


def test_without_places_the_block_is_null() -> None:
    (row,) = read(batch(TABLE, CHANGES[:1]), plain_settings(provide_transaction_metadata=True))
    assert row["value"]["transaction"] is None
