"""Changes become records with rows for Spark and headers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tailrace.columns import Column, Marker
from tailrace.errors import ConversionError
from tests.unit.events.changes import batch, plain_settings, rows, table

PLAIN = plain_settings()
TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES = batch(
    TABLE,
    [
        ("c", None, ("1", "a")),
        ("u", None, ("1", "b")),
        ("u", ("1", None), ("2", "b")),
        ("t", None, None),
        ("d", ("2", None), None),
    ],
)


@pytest.mark.seed("000-35", "000-36", "000-40")
def test_a_delete_and_a_key_change_are_followed_by_tombstones() -> None:
    found = rows(CHANGES, PLAIN)
    assert [row["op"] for row in found] == ["c", "u", "d", "tombstone", "c", "d", "tombstone"]
    assert [row["key"] for row in found] == [b'{"id":%d}' % number for number in (1, 1, 1, 1, 2, 2, 2)]
    assert [row["value"] is None for row in found] == [False, False, False, True, False, False, True]


def test_tombstones_can_be_switched_off() -> None:
    found = rows(CHANGES, replace(PLAIN, tombstones_on_delete=False))
    assert [row["op"] for row in found] == ["c", "u", "d", "c", "d"]


def test_skipped_operations_leave_no_record() -> None:
    found = rows(CHANGES, replace(PLAIN, skipped_operations=frozenset("ud")))
    assert [row["op"] for row in found] == ["c", "c", "t"]
    assert found[2]["key"] is None


@pytest.mark.parametrize(
    ("skipped", "ops"),
    [("u", ["d", "tombstone", "c"]), ("d", ["c"]), ("c", ["d", "tombstone"]), ("cd", []), ("ud", ["c"])],
)
def test_a_key_change_is_skipped_by_the_letters_of_its_records(skipped: str, ops: list[str]) -> None:
    change = batch(TABLE, [("u", ("1", None), ("2", "b"))])
    assert [row["op"] for row in rows(change, replace(PLAIN, skipped_operations=frozenset(skipped)))] == ops


def test_headers_have_a_converter_of_their_own() -> None:
    found = rows(batch(TABLE, [("u", ("1", None), ("2", "b"))]), replace(PLAIN, header_schemas_enable=True))
    assert found[0]["key"] == b'{"id":1}'
    assert all(pair["value"].startswith(b'{"schema":{') for pair in found[0]["headers"])


@pytest.mark.seed("000-41")
def test_truncates_follow_their_own_option_in_the_legacy_form() -> None:
    legacy = replace(PLAIN, event_format="1.7", skipped_operations=frozenset())
    assert "t" not in [row["op"] for row in rows(CHANGES, legacy)]
    assert "t" in [row["op"] for row in rows(CHANGES, replace(legacy, truncate_handling_mode="include"))]


@pytest.mark.seed("000-37")
def test_key_changes_name_the_other_key_before_the_context() -> None:
    found = rows(CHANGES, PLAIN)
    heads = [[(pair["key"], pair["value"]) for pair in row["headers"]][:2] for row in found]
    context = ("__debezium.context.connectorLogicalName", b'"server"')
    assert heads[2] == [("__debezium.newkey", b'{"id":2}'), context]
    assert heads[3] == heads[2]
    assert heads[4] == [("__debezium.oldkey", b'{"id":1}'), context]
    assert heads[5][0] == context


def test_without_context_headers_most_records_have_none() -> None:
    found = rows(CHANGES, replace(PLAIN, extended_headers_enabled=False))
    assert [row["headers"] is None for row in found] == [True, True, False, False, False, True, True]


@pytest.mark.seed("000-31")
def test_rows_carry_position_transaction_and_time() -> None:
    row = rows(CHANGES, PLAIN)[0]
    assert (row["topic"], row["database"], row["schema"], row["table"]) == ("server.public.t", "golden", "public", "t")
    assert (row["position"], row["ordinal"], row["transaction"]) == (f"{5005:016X}", 0, "700")
    assert (str(row["source_ts"]), row["snapshot"]) == ("2026-11-21 01:00:27.639575+00:00", "false")


@pytest.mark.seed("000-30", "000-32")
def test_snapshot_rows_show_their_marker_and_no_transaction() -> None:
    reads = batch(TABLE, [("r", None, ("1", "a")), ("r", None, ("2", "b"))], marker=[Marker.FIRST, Marker.LAST])
    # No commit was seen before an initial snapshot.
    reads.transactions.previous_end[:] = -1
    found = rows(reads, PLAIN)
    assert [(row["snapshot"], row["transaction"]) for row in found] == [("first", None), ("last", None)]
    source = json.loads(found[0]["value"])["source"]
    assert (source["snapshot"], source["sequence"], source["txId"]) == ("first", '[null,"5000"]', 700)


def test_incremental_reads_hide_transaction_and_lsn() -> None:
    reads = batch(TABLE, [("r", None, ("1", "a"))], marker=[Marker.INCREMENTAL])
    source = json.loads(rows(reads, PLAIN)[0]["value"])["source"]
    assert (source["txId"], source["lsn"], source["sequence"]) == (None, None, '["4999","5000"]')


def test_unchanged_toast_values_show_the_placeholder() -> None:
    update = batch(TABLE, [("u", None, ("1", None)), ("u", None, ("2", "b"))])
    assert update.after is not None
    update.after.unavailable[1] = np.array([True, False])
    values = [json.loads(row["value"]) for row in rows(update, PLAIN)]
    assert [value["after"]["v"] for value in values] == ["__debezium_unavailable_value", "b"]


def test_a_value_that_does_not_fit_is_null_with_a_warning_or_an_error() -> None:
    schema = table("late", [Column("id", "int4", 23, nullable=False), Column("at", "timestamp", 1114)], "id")
    late = batch(
        schema, [("c", None, ("1", "294276-12-31 23:59:59.999999")), ("c", None, ("2", "2020-01-01 00:00:00"))]
    )
    values = [json.loads(row["value"])["after"]["at"] for row in rows(late, PLAIN)]
    assert values == [None, 1_577_836_800_000_000]
    (warning,) = late.warnings
    assert warning.startswith("1 values of column at of public.late do not fit its type in events and are null there. ")
    with pytest.raises(ConversionError, match="column at of public"):
        rows(late, replace(PLAIN, converting_failure_mode="fail"))


@pytest.mark.parametrize(
    ("kind", "modifier", "text"),
    [("numeric", 655366, "NaN"), ("numeric", -1, "-Infinity"), ("_numeric", 655366, "{1.50,NaN}")],
)
def test_numbers_that_are_not_finite_do_not_fit_decimals(kind: str, modifier: int, text: str) -> None:
    element = Column("n", "numeric", 1700, modifier) if kind == "_numeric" else None
    column = Column("n", kind, 0, modifier, kind="array" if element else "base", element=element, nullable=False)
    schema = table("odd", [Column("id", "int4", 23, nullable=False), column], "id")
    odd = batch(schema, [("c", None, ("1", text))])
    rows(odd, PLAIN)
    (warning,) = odd.warnings
    assert warning.startswith("1 values of column n of public.odd do not fit its type in events and are its default or")
    with pytest.raises(ConversionError, match=r"column n of public\.odd") as failed:
        rows(odd, replace(PLAIN, converting_failure_mode="fail"))
    assert ("decimal.handling.mode" in str(failed.value)) is (element is None)


def test_unknown_types_are_left_out_with_a_warning_or_included_as_bytes() -> None:
    schema = table("shapes", [Column("id", "int4", 23, nullable=False), Column("b", "box", 603)], "id")
    one = batch(schema, [("c", None, ("1", "(2,2),(0,0)"))])
    assert json.loads(rows(one, PLAIN)[0]["value"])["after"] == {"id": 1}
    (warning,) = one.warnings
    assert warning.startswith(
        "Column b of public.shapes has the unknown type box and is left out of the events. Set in"
    )
    included = rows(one, replace(PLAIN, include_unknown_datatypes=True))
    value = json.loads(included[0]["value"])
    assert value["after"]["b"] == "KDIuMCwyLjApLCgwLjAsMC4wKQ=="
