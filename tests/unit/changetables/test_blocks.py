"""Blocks of change tables: key changes, values that were left out, and updates without old rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns.batch import Int64s
from tailrace.columns.blocks import Head, read
from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import AFTER, BEFORE, DELETE, INSERT, ChangeRows, CommitTimes
from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition
from tailrace.connectors.changetables.log.tasks import changed
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.values.conversions import FORM
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.events.table_routing import Routing
from tests.unit.changetables.test_rows import TABLE, rows

SOURCE = {
    "database.hostname": "h", "database.user": "u", "database.password": "p", "database.names": "db",
    "topic.prefix": "p", "row.blocks": "last",
}  # fmt: skip
TIMES: Int64s = np.zeros(1, np.int64)


def blocks(given: ChangeRows, table: TableSchema = TABLE, **options: str) -> tuple[Head, list[dict[str, Any]]]:
    """Return the only block of the changes."""
    times = TimesByPosition.of(CommitTimes(given.commit.slice(0, 1), TIMES), 0)
    batch = RowAssembly(table, times, False, (), frozenset(("text",)), exact=True).batch(given)
    assert batch is not None
    config = parse("sqlserver", {**SOURCE, **options})
    (block,) = to_rows(batch, EventSettings.from_options(config, "run"), FORM)
    return Head.of(block["key"][0].as_py()), read(block["value"][0].as_py()).to_pylist()


def keyed(given: ChangeRows, *keys: bytes) -> ChangeRows:
    """Return the same rows with these keys."""
    return replace(given, columns=[pa.array(keys, pa.binary()), *given.columns[1:]])


def test_a_value_that_was_left_out_is_missing_and_a_null_is_null() -> None:
    given = rows((BEFORE, None, b"a"), (AFTER, None, b"b"))
    head, (row,) = blocks(given)
    assert (row["op"], row["c0"], row["c1"], row["c2"], row["missing"]) == ("u", 1, None, "b", [1])
    assert head.missing
    _, (row,) = blocks(replace(given, touched={1: given.operation == AFTER}))
    assert (row["c1"], row["c2"], row["missing"]) == (None, "b", None)


def test_a_change_of_the_key_takes_along_what_the_log_has_of_the_old_row() -> None:
    given = keyed(rows((BEFORE, b"text", b"a"), (AFTER, None, b"b")), b"1", b"2")
    _, (old, new) = blocks(given)
    assert (old["op"], old["c0"]) == ("d", 1)
    assert (new["op"], new["c0"], new["c1"], new["missing"], new["part"]) == ("c", 2, "text", None, 1)


def test_a_deleted_row_has_its_values() -> None:
    _, (row,) = blocks(rows((DELETE, b"text", b"a")))
    assert (row["op"], row["c0"], row["c1"], row["c2"]) == ("d", 1, "text", "a")


def test_a_row_is_known_when_it_goes_though_the_log_lacks_a_large_value_of_it() -> None:
    """A null in place of the value does not make it another row that another row has overtaken."""
    gone = rows((INSERT, b"text", b"a"), (DELETE, None, b"a"), (BEFORE, None, b"b"), (AFTER, None, b"b"))
    _, found = blocks(keyed(gone, b"1", b"1", b"2", b"3"))
    assert [(row["op"], row["c0"]) for row in found] == [("d", 1), ("d", 2), ("c", 3)]
    moved = rows((BEFORE, b"x", None), (AFTER, b"x", b"a"), (BEFORE, b"x", None), (AFTER, b"x", b"a"))
    untouched = replace(moved, touched={2: np.zeros(4, np.bool_)})
    _, found = blocks(keyed(untouched, b"1", b"2", b"2", b"3"))
    assert [(row["op"], row["c0"]) for row in found] == [("d", 1), ("c", 3)]


def test_a_row_that_stays_as_deleted_keeps_the_value_that_its_delete_lacks() -> None:
    _, (row,) = blocks(rows((DELETE, None, None)), **{"row.blocks": "kept"})
    assert (row["op"], row["c1"], row["missing"]) == ("d", None, [1])


def test_an_update_that_sets_a_large_value_to_null_is_a_change() -> None:
    """Its old value is null in the log, whatever it was."""
    given = rows((BEFORE, None, b"a"), (AFTER, None, b"a"), (BEFORE, None, b"a"), (AFTER, None, b"a"))
    given = replace(given, touched={1: np.array([True, True, False, False])})
    settings = EventSettings.from_options(parse("sqlserver", SOURCE), "run")
    for exact, count in ((True, 1), (False, 0)):
        batch = RowAssembly(TABLE, TimesByPosition.none(), False, (), frozenset(("text",)), exact).batch(given)
        assert batch is not None
        found = changed(batch, settings)
        assert (0 if found is None else len(found)) == count


def test_a_column_may_be_captured_later_than_it_was_made() -> None:
    head, _ = blocks(rows((INSERT, b"x", b"y")))
    assert head.form.added == (0, 1, 2)
    assert head.first[0] == "01" + "01"


@pytest.mark.parametrize("mode", ["fail", "warn", "skip"])
def test_a_key_that_cannot_be_converted_is_never_that_of_another_row(mode: str) -> None:
    given = keyed(rows((INSERT, b"x", b"y")), b"none")
    with pytest.raises(ConversionError, match=r"column id of dbo\.a") as caught:
        blocks(given, **{"event.converting.failure.handling.mode": mode})
    assert "none" not in str(caught.value)


def test_a_value_that_cannot_be_converted_is_null_where_the_options_say_so() -> None:
    table = replace(TABLE, columns=(*TABLE.columns[:2], replace(TABLE.columns[0], name="v")))
    given = rows((INSERT, b"x", b"none"), (INSERT, b"x", b"7"))
    _, found = blocks(keyed(given, b"1", b"2"), table, **{"event.converting.failure.handling.mode": "warn"})
    assert [(row["c0"], row["c2"]) for row in found] == [(1, None), (2, 7)]


def test_an_update_without_its_old_row_ends_the_query() -> None:
    with pytest.raises(ConversionError, match=r"does not carry the old row of an update of dbo\.a"):
        blocks(rows((AFTER, b"x", b"y")))


@pytest.mark.parametrize("replacement", ["$1.a", "$1.b"])
def test_a_table_that_is_routed_is_told_apart_from_others_even_under_its_own_name(replacement: str) -> None:
    given = rows((INSERT, b"x", b"y"))
    head, (row,) = blocks(given, **{"row.route": Routing(r"(.*)\.[ab]", replacement, "shard").text()})
    assert (head.table, head.routed) == (replacement[-1], True)
    assert (head.form.names[-1], row["c3"]) == ("shard", "db.dbo.a")
    assert not blocks(given)[0].routed
