"""ReselectColumnsPostProcessor reads the right values again, puts them into changes, and counts them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import ChangeBatch, Column, TableSchema
from tailrace.columns.row import COLUMNS
from tailrace.config.processors import RESELECT, processors
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import TransformError
from tailrace.events import reselection
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.events.reselection import Found, Key, Reread, UnreadableRows
from tests.unit.events.changes import Change, batch, table

PLACEHOLDER = "__debezium_unavailable_value"
REQUIRED = {
    "database.hostname": "db", "database.user": "u", "database.dbname": "golden", "topic.prefix": "server",
    "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
    "post.processors": "again", "again.type": RESELECT,
}  # fmt: skip
TABLE = table(
    "t",
    [
        Column("id", "int4", 23, nullable=False),
        Column("name", "text", 25),
        Column("long", "text", 25),
        Column("doc", "jsonb", 3802),
        Column("amount", "numeric", 1700),
    ],
    "id",
)
LONG, DOC, AMOUNT = 2, 3, 4


class Rows:
    """Rows of one table by the text of the key, with a count of requests."""

    def __init__(self, rows: dict[str, tuple[str | None, ...]], fault: str = "") -> None:
        self.rows, self.fault = rows, fault
        self.asked: list[list[Key]] = []
        self.columns: list[str] = []
        self.key: list[str] = []

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[Key], columns: Sequence[str]
    ) -> Iterator[Found]:
        self.asked.append(list(keys))
        self.columns, self.key = list(columns), list(key)
        if self.fault:
            raise UnreadableRows(self.fault)
        # Not in the order of the request, and one at a time.
        for place, one in reversed(list(enumerate(keys))):
            row = self.rows.get(one[0])
            if row is not None:
                texts = [row[table.index(name)] for name in columns]
                yield [place], [pa.array([None if text is None else text.encode()], pa.binary()) for text in texts]


def parsed(options: dict[str, str]) -> tuple[EventSettings, Any]:
    config = parse("postgres", REQUIRED | {f"again.{name}": text for name, text in options.items()})
    settings = EventSettings.from_options(config, "run")
    return replace(settings, columns=(*COLUMNS, "reselected")), processors(config).processors


def changes(schema: TableSchema, *given: Change, missing: dict[int, Sequence[int]]) -> ChangeBatch:
    """Return the changes. `missing` maps column numbers to the changes whose value the log did not carry."""
    found = batch(schema, given)
    assert found.after is not None
    for column, rows in missing.items():
        flags = np.zeros(len(given), np.bool_)
        flags[list(rows)] = True
        found.after.unavailable[column] = flags
    return found


def shown(
    rows: Rows,
    *given: Change,
    missing: dict[int, Sequence[int]],
    options: dict[str, str] | None = None,
    more: dict[str, str] | None = None,
    of: TableSchema = TABLE,
) -> list[tuple[str, Any, int | None]]:
    """Return op, `after` and the count of each record."""
    config = parse("postgres", REQUIRED | {f"again.{k}": v for k, v in (options or {}).items()} | (more or {}))
    settings = replace(EventSettings.from_options(config, "run"), columns=(*COLUMNS, "reselected"))
    again = Reread(processors(config).processors, rows)
    whole = changes(Admission(settings, FORM).admit(of), *given, missing=missing)
    found = []
    for _, part in again.completed(whole, settings, FORM):
        for records in to_rows(part, settings, FORM):
            for row in records.to_pylist():
                after = None if row["value"] is None else json.loads(row["value"])["after"]
                found.append((row["op"], after and tuple(after.values()), row["reselected"]))
    return found


UPDATED: Change = ("u", None, ("1", "b", None, None, None))
NOW = ("1", "newer", "long now", '{"a": 1}', "12.50")


def test_what_the_log_did_not_carry_is_read_again_and_nothing_else() -> None:
    rows = Rows({"1": NOW})
    found = shown(rows, UPDATED, missing={LONG: [0], DOC: [0]}, options={"reselect.null.values": "false"})
    assert found == [("u", (1, "b", "long now", '{"a": 1}', None), 2)]
    assert rows.asked == [[("1",)]]


def test_nulls_are_read_again_where_they_are_asked_for() -> None:
    given: Change = ("c", None, ("1", None, "x", None, None))
    found = shown(Rows({"1": NOW}), given, missing={}, options={"reselect.unavailable.values": "false"})
    assert [(op, after[:4], count) for op, after, count in found] == [("c", (1, "newer", "x", '{"a": 1}'), 3)]


@pytest.mark.parametrize("converted", ["true", "false"])
def test_a_null_that_has_a_default_is_left_alone(converted: str) -> None:
    columns = [replace(column, default="'dd'::text") if column.name == "name" else column for column in TABLE.columns]
    given: Change = ("c", None, ("1", None, "x", "{}", "1"))
    rows = Rows({"1": NOW})
    found = shown(rows, given, missing={}, of=replace(TABLE, columns=tuple(columns)),
                  more={"value.converter.replace.null.with.default": converted})  # fmt: skip
    assert [after[1] for _, after, _ in found] == ["dd" if converted == "true" else None]
    assert rows.asked == []


def test_a_placeholder_is_no_null() -> None:
    found = shown(Rows({"1": NOW}), UPDATED, missing={LONG: [0], DOC: [0]}, options={
        "reselect.unavailable.values": "false", "reselect.columns.include.list": "public.t:(long|name)"})  # fmt: skip
    assert found == [("u", (1, "b", PLACEHOLDER, PLACEHOLDER, None), None)]


def test_a_value_without_a_placeholder_counts_as_one_that_the_log_did_not_carry() -> None:
    found = shown(Rows({"1": NOW}), UPDATED, missing={AMOUNT: [0]}, options={
        "reselect.null.values": "false", "reselect.columns.include.list": "public.t:amount"})  # fmt: skip
    assert found[0][1][AMOUNT] is not None
    assert found[0][2] == 1


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"reselect.columns.include.list": "PUBLIC.T:LONG"}, ["long"]),
        ({"reselect.columns.exclude.list": "public.t:(long|name|amount|id)"}, ["doc"]),
        ({"reselect.columns.include.list": "public.other:long"}, []),
    ],
)
def test_the_lists_say_which_columns(options: dict[str, str], columns: list[str]) -> None:
    rows = Rows({"1": NOW})
    shown(rows, UPDATED, missing={LONG: [0], DOC: [0]}, options=options)
    assert rows.columns == columns


def test_one_query_reads_the_rows_of_many_changes_each_once() -> None:
    many = 2000
    given: list[Change] = [("u", None, (str(row % 100), "b", None, "{}", "1")) for row in range(many)]
    rows = Rows({str(row): (str(row), "x", f"long {row}", "{}", "1") for row in range(100)})
    found = shown(rows, *given, missing={LONG: range(many)})
    assert [after[LONG] for _, after, _ in found] == [f"long {row % 100}" for row in range(many)]
    # The first query is for 256 changes, later ones for up to 4,096.
    assert [len(keys) for keys in rows.asked] == [100] * 4


def test_changes_that_need_nothing_stand_in_their_places() -> None:
    given: list[Change] = [("u", None, (str(row), "b", None, "{}", "1")) for row in range(600)]
    rows = Rows({str(row): (str(row), "x", f"long {row}", "{}", "1") for row in range(600)})
    found = shown(rows, *given, missing={LONG: range(1, 600, 2)}, options={"reselect.null.values": "false"})
    assert [after[0] for _, after, _ in found] == list(range(600))
    assert [after[LONG] for _, after, _ in found] == [f"long {row}" if row % 2 else None for row in range(600)]
    assert [count for _, _, count in found] == [1 if row % 2 else None for row in range(600)]


def test_large_values_are_put_into_events_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reselection, "_MOST_BYTES", 1000)
    monkeypatch.setattr(reselection, "_HELD_BYTES", 5000)
    given: list[Change] = [("u", None, (str(row), "b", None, "{}", "1")) for row in range(40)]
    rows = Rows({str(row): (str(row), "x", f"{row}" * 300, "{}", "1") for row in range(40)})
    found = shown(rows, *given, missing={LONG: range(40)})
    assert [after[LONG] for _, after, _ in found] == [f"{row}" * 300 for row in range(40)]
    assert len(rows.asked) > 2


def test_deletes_snapshots_and_truncates_are_left_alone() -> None:
    rows = Rows({"1": NOW})
    given: list[Change] = [("d", ("1", None, None, None, None), None), ("r", None, ("1", None, None, None, None))]
    assert [count for _, _, count in shown(rows, *given, missing={})] == [None, None, None]
    assert rows.asked == []


def test_operations_that_give_no_events_are_not_read() -> None:
    rows = Rows({"1": NOW})
    assert shown(rows, UPDATED, missing={LONG: [0]}, more={"skipped.operations": "u,t"}) == []
    assert rows.asked == []


def test_of_a_key_change_the_create_has_what_was_read() -> None:
    rows = Rows({"2": ("2", *NOW[1:])})
    given: Change = ("u", ("1", None, None, None, None), ("2", "b", None, "{}", "1"))
    found = shown(rows, given, missing={LONG: [0]}, options={"reselect.null.values": "false"})
    assert [(op, count) for op, _, count in found] == [("d", None), ("tombstone", None), ("c", 1)]
    assert found[2][1][LONG] == "long now"


def test_a_row_that_is_gone_leaves_the_event_as_it_was_and_is_counted() -> None:
    given: list[Change] = [UPDATED, ("u", None, ("2", "b", None, "{}", "1"))]
    found = shown(Rows({"1": NOW}), *given, missing={LONG: [0, 1], DOC: [0]}, options={"reselect.null.values": "false"})
    assert [(after[LONG], count) for _, after, count in found] == [("long now", 2), (PLACEHOLDER, 0)]


def test_a_row_that_is_gone_is_an_error_where_that_is_asked_for() -> None:
    given: list[Change] = [UPDATED, ("u", None, ("2", "b", None, "{}", "1"))]
    with pytest.raises(TransformError) as caught:
        shown(Rows({"1": NOW}), *given, missing={LONG: [0, 1]}, options={"reselect.error.handling.mode": "fail"})
    for words in ("ReselectColumnsPostProcessor", "public.t", "was deleted", "0/1392", "error.handling.mode to warn"):
        assert words in str(caught.value), words


@pytest.mark.parametrize("mode", ["warn", "fail"])
def test_a_query_that_fails_is_an_error_where_that_is_asked_for(mode: str) -> None:
    rows = Rows({"1": NOW}, "cannot read public.t again: its query fails with SQLSTATE 42501")
    options = {"reselect.error.handling.mode": mode}
    if mode == "warn":
        assert shown(rows, UPDATED, missing={LONG: [0]}, options=options) == [
            ("u", (1, "b", PLACEHOLDER, None, None), 0)
        ]
        return
    with pytest.raises(TransformError, match=r"cannot read public\.t again: its query fails with SQLSTATE 42501"):
        shown(rows, UPDATED, missing={LONG: [0]}, options=options)


@pytest.mark.parametrize("by_event_key", ["true", "false"])
def test_rows_are_looked_for_by_the_tables_own_key_or_by_the_events(by_event_key: str) -> None:
    rows = Rows({"1": NOW, "b": NOW})
    options, more = {"reselect.use.event.key": by_event_key}, {"message.key.columns": "public.t:name"}
    shown(rows, UPDATED, missing={LONG: [0]}, options=options, more=more)
    assert rows.key == (["name"] if by_event_key == "true" else ["id"])


def test_masked_and_hashed_columns_are_not_read() -> None:
    rows = Rows({"1": NOW})
    found = shown(rows, UPDATED, missing={LONG: [0]}, options={"reselect.columns.include.list": "public.t:long"},
                  more={"column.mask.with.3.chars": "public.t.long"})  # fmt: skip
    assert (found[0][1][LONG], found[0][2], rows.asked) == ("***", None, [])


def test_cut_columns_are_cut_again() -> None:
    found = shown(Rows({"1": ("1", "b", "x" * 100, "{}", "1")}), UPDATED, missing={LONG: [0]},
                  options={"reselect.columns.include.list": "public.t:long"},
                  more={"column.truncate.to.40.chars": "public.t.long"})  # fmt: skip
    assert found[0][1][LONG] == "x" * 40


def test_the_signal_table_is_left_alone() -> None:
    rows = Rows({"1": NOW})
    shown(rows, UPDATED, missing={LONG: [0]}, more={"signal.data.collection": "public.t"})
    assert rows.asked == []


def test_several_post_processors_work_one_after_another() -> None:
    rows = Rows({"1": NOW})
    more = {
        "post.processors": "again,other", "post.processors.other.type": "ReselectColumnsPostProcessor",
        "post.processors.other.reselect.columns.include.list": "public.t:doc",
    }  # fmt: skip
    found = shown(rows, UPDATED, missing={LONG: [0], DOC: [0]}, more=more, options={
        "reselect.columns.include.list": "public.t:long"})  # fmt: skip
    assert found == [("u", (1, "b", "long now", '{"a": 1}', None), 2)]
