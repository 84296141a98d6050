"""The sink `tables` without Spark: reductions, statements, options."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import sinks
from tailrace.columns.blocks import BlockForm, Head, read, written
from tailrace.columns.reduction import NONE, before, flagged, groups, lasts, listed, roots, sources
from tailrace.columns.typed import VARIANT
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, SinkError
from tailrace.events.event_settings import EventSettings
from tailrace.sinks.tables import versions
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.evolution import Policies
from tailrace.sinks.tables.rows import BlockOpening, RowReduction, SeparateOpening, gathered, place_text, row_schema
from tailrace.sinks.tables.sink import TablesSink
from tailrace.sinks.tables.statements import ReducedBatch, folder, moved, quoted
from tailrace.sinks.tables.target import metadata

FORM = BlockForm(("id", "v", "big"), (pa.int64(), pa.string(), pa.string()), (0,))
AT = datetime.datetime(2024, 2, 3, tzinfo=datetime.UTC)


def change(place: int, key: int, op: str = "u", **more: Any) -> dict[str, Any]:
    """Return one row of a block, without `big` unless it is given."""
    big = more.pop("big", None)
    misses = [2] if op in "cu" and big is None else None
    told = {"position": f"{place:016X}", "ordinal": 0, "part": 0, "at": AT, "missing": misses, "origin": None}
    return {"op": op, **told, "c0": key, "c1": None if op == "d" else f"v{place}", "c2": big} | more


def block(*changes: dict[str, Any]) -> dict[str, bytes]:
    rows = pa.RecordBatch.from_pylist(list(changes), FORM.schema)
    places = [(row["position"], row["ordinal"]) for row in changes]
    moved = any(row["origin"] is not None for row in changes)
    head = Head("d", "s", "t", FORM, len(changes), places[0], places[-1], "", None, True, moved)
    return {"key": head.text(), "value": written(rows)}


def reduced(*blocks: dict[str, bytes]) -> list[dict[str, Any]]:
    opened = BlockOpening(FORM)(iter([pa.RecordBatch.from_pylist(list(blocks))]))
    return [row for part in RowReduction(FORM)(opened) for row in part.to_pylist()]


def test_a_head_is_read_as_it_was_written() -> None:
    head = Head("d", "s", "t", FORM, 3, ("0A", 1), ("0B", 2), "0A@1", ("0A", 2), True, True, True)
    assert Head.of(head.text()) == head


def test_blocks_keep_their_rows() -> None:
    rows = pa.RecordBatch.from_pylist([change(1, 7, big="b")], FORM.schema)
    assert read(written(rows)).to_pylist() == rows.to_pylist()


def test_values_are_carried_from_block_to_block() -> None:
    (row,) = reduced(block(change(1, 7, "c", big="B")), block(change(2, 7)), block(change(3, 7)))
    assert (row["c1"], row["c2"], row["missing"]) == ("v3", "B", None)


@pytest.mark.parametrize("count", [1, 3])
def test_blocks_of_one_partition_are_reduced_where_they_are(count: int) -> None:
    blocks = [block(change(place, 7, big=f"B{place}"), change(place + 10, 8)) for place in range(count)]
    found = SeparateOpening(FORM)(iter([pa.RecordBatch.from_pylist(blocks)]))
    rows = [row for part in found for row in part.to_pylist()]
    assert rows == reduced(*blocks)
    assert [row["c2"] for row in rows] == [f"B{count - 1}", None]


def test_rows_of_other_keys_are_not_reduced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block(change(2, 7, big="B"), change(3, 8, "d")), block(change(1, 9, "c", big="C"))]
    wanted = reduced(*blocks)
    monkeypatch.setattr("tailrace.sinks.tables.rows.reduced", None)
    found = SeparateOpening(FORM)(iter([pa.RecordBatch.from_pylist(blocks)]))
    rows = [row for part in found for row in part.to_pylist()]
    assert sorted(rows, key=lambda row: row["c0"]) == sorted(wanted, key=lambda row: row["c0"])


@pytest.mark.parametrize("key", [7, 9])
def test_rows_that_miss_values_are_reduced(key: int) -> None:
    blocks = [block(change(1, 7, "c", big="B")), block(change(2, key))]
    found = SeparateOpening(FORM)(iter([pa.RecordBatch.from_pylist(blocks)]))
    assert [row for part in found for row in part.to_pylist()] == reduced(*blocks)


@pytest.mark.parametrize("keeps_deletes", [False, True])
def test_a_merge_reads_no_other_columns_than_it_names(keeps_deletes: bool) -> None:
    columns = ReducedBatch(FORM, "rows", keeps_deletes=keeps_deletes).columns
    text = ReducedBatch(FORM, "rows", keeps_deletes=keeps_deletes).merge().statement("t")
    assert set(columns) == set(re.findall(r"s\.(\w+)", text))
    one = block(change(1, 7, big="B"))
    found = SeparateOpening(FORM, keeps_deletes, columns)(iter([pa.RecordBatch.from_pylist([one])]))
    (row,) = reduced(one)
    assert [part.to_pylist() for part in found] == [[{name: row[name] for name in columns}]]
    # The values known of a row decide its result.
    assert not ReducedBatch(FORM, "rows", missing=True).columns
    assert not ReducedBatch(FORM, "rows", emptied=True).columns


def test_what_no_block_has_stays_missing() -> None:
    (row,) = reduced(block(change(1, 7)), block(change(2, 7)))
    assert (row["c2"], row["missing"], row["origin"]) == (None, [2], None)


def test_a_row_that_moved_takes_its_values_along() -> None:
    key = {"k0": 7}
    rows = reduced(
        block(change(1, 7, "c", big="B")),
        block(change(2, 7, "d"), change(2, 8, "c", part=1, origin=key)),
    )
    found = {row["c0"]: (row["op"], row["missing"]) for row in rows}
    assert found == {7: ("d", None), 8: ("c", None)}
    assert {row["c2"] for row in rows if row["op"] != "d"} == {"B"}


def test_a_row_that_moved_names_the_key_that_the_table_knows() -> None:
    rows = reduced(
        block(change(1, 7, "d"), change(1, 8, "c", part=1, origin={"k0": 7})),
        block(change(2, 8, "d"), change(2, 9, "c", part=1, origin={"k0": 8})),
    )
    found = {row["c0"]: (row["op"], row["missing"], row["origin"]) for row in rows}
    assert found == {7: ("d", None, None), 8: ("d", None, None), 9: ("c", [2], {"k0": 7})}


def test_a_key_that_is_taken_again_is_not_the_row_that_moved() -> None:
    rows = reduced(
        block(change(1, 7, "c", big="old")),
        block(change(2, 7, "d"), change(2, 8, "c", part=1, origin={"k0": 7}), change(3, 7, "c", big="new")),
    )
    assert {row["c0"]: row["c2"] for row in rows} == {8: "old", 7: "new"}


def test_columns_that_came_later_are_null_in_older_blocks() -> None:
    newer = BlockForm((*FORM.names, "extra"), (*FORM.types, pa.int64()), (0,))
    opened = BlockOpening(newer)(iter([pa.RecordBatch.from_pylist([block(change(1, 7))])]))
    assert [(row["c0"], row["c3"], row["missing"]) for part in opened for row in part.to_pylist()] == [(7, None, [2])]


@pytest.mark.parametrize(
    ("kind", "shown"), [(pa.string(), "v1"), (pa.timestamp("us", "UTC"), None), (pa.date32(), None), (pa.int32(), None)]
)
def test_values_of_an_earlier_type_are_null_where_the_column_was_made_again(kind: pa.DataType, shown: Any) -> None:
    """With `schema.narrow=reread` a snapshot reads the table, also where a value could be read as one of the type."""
    newer = BlockForm(FORM.names, (pa.int64(), kind, pa.string()), (0,))
    opened = BlockOpening(newer)(iter([pa.RecordBatch.from_pylist([block(change(1, 7))])]))
    assert [row["c1"] for part in opened for row in part.to_pylist()] == [shown]
    digits = BlockOpening(newer)(iter([pa.RecordBatch.from_pylist([block(change(1, 7, c1="5"))])]))
    assert [row["c1"] for part in digits for row in part.to_pylist()] == [shown and "5"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_sources_are_the_nearest_before(rows: Sequence[tuple[int, bool]]) -> None:
    group = np.array([key for key, _ in rows], np.int64)
    has = np.array([known for _, known in rows], np.bool_)
    previous = before(group)
    wanted, first = [], []
    for row, (key, _) in enumerate(rows):
        own = [other for other in range(row + 1) if rows[other][0] == key]
        wanted.append(max((other for other in own if rows[other][1]), default=NONE))
        first.append(own[0])
    assert sources(previous, has).tolist() == wanted
    assert roots(previous).tolist() == first
    newest = {key: row for row, (key, _) in enumerate(rows)}
    assert lasts(group).tolist() == sorted(newest.values())


def test_equal_keys_are_one_group() -> None:
    found = groups([pa.array([0.0, -0.0, 1.0]), pa.array(["a", "a", None])])
    assert found[0] == found[1]
    assert found[2] != found[0]


def test_nested_keys_are_compared_by_what_is_in_them() -> None:
    lists = pa.array([[1, 2], [], None, [1, 2], [12], [None], []], pa.list_(pa.int64()))
    structs = pa.array([{"x": 1}, {"x": None}, None, {"x": 1}, {"x": 2}, {"x": None}, {"x": 1}])
    maps = pa.array([[("a", "b")], [], None, [("a", None)], [("a", "b")], []], pa.map_(pa.string(), pa.string()))
    for values in (lists, structs, maps, maps.slice(1), pa.array([[one] for one in structs.to_pylist()])):
        found = groups([values]).tolist()
        shown = [repr(value) for value in values.to_pylist()]
        assert [found.index(one) for one in found] == [shown.index(one) for one in shown]


@given(st.lists(st.sets(st.integers(0, 4)), max_size=20))
def test_lists_of_columns_are_flags_and_back(rows: Sequence[set[int]]) -> None:
    lists = pa.array([sorted(row) or None for row in rows], pa.list_(pa.field("element", pa.int32())))
    flags = flagged(lists, 5)
    assert flags.T.tolist() == [[place in row for place in range(5)] for row in rows]
    assert listed(flags).equals(lists)


def test_a_row_that_moved_was_the_last_of_its_key_before_its_block() -> None:
    found = reduced(
        block(change(1, 7, "c", big="first"), change(2, 7, "d"), change(3, 7, "c", big="second")),
        block(change(4, 9, "c", big="other")),
        block(change(5, 7, "d"), change(5, 8, "c", part=1, origin={"k0": 7}), change(6, 7, "c", big="third")),
        block(change(7, 9, "d"), change(7, 6, "c", part=1, origin={"k0": 9})),
    )
    assert {row["c0"]: row["c2"] for row in found if row["op"] != "d"} == {8: "second", 7: "third", 6: "other"}


def test_few_rows_go_to_each_task_and_the_table_is_not_shuffled() -> None:
    merge = ReducedBatch(FORM, "rows").merge()
    assert "broadcast" not in merge.statement("t")
    small = replace(merge, small=True).statement("t")
    assert small.startswith("merge into t t using (select /*+ broadcast(v) */ * from rows v) s on ")
    assert small.endswith(merge.statement("t").partition(" s on ")[2])


@pytest.mark.parametrize(
    ("rows", "size", "small"), [(50_000, 16 << 20, True), (50_001, 100, False), (10, (16 << 20) + 1, False)]
)
def test_a_batch_is_small_by_rows_and_bytes(rows: int, size: int, small: bool) -> None:
    heads = [Head("d", "s", "t", FORM, count, ("0A", 1), ("0B", 1)) for count in (rows - 1, 1)]
    assert TableBatch(1, ("d", "s", "t"), heads, None, size).small is small  # type: ignore[arg-type]


def test_the_merge_keeps_what_is_missing() -> None:
    text = ReducedBatch(FORM, "rows", missing=True).merge().statement("delta.`/lake/s.t`")
    assert "on t.`id` = s.c0" in text
    assert "if(array_contains(s.missing, 2), t.`big`, s.c2)" in text
    assert "raise_error" in text
    assert "when matched and s.op = 'd' then delete" in text
    assert "raise_error" not in ReducedBatch(FORM, "rows", missing=True, unknown="null").merge().statement("t")


def test_deletes_that_stay_are_marked() -> None:
    text = ReducedBatch(FORM, "rows", keeps_deletes=True, emptied=True).merge().statement("t")
    assert "delete" not in text.replace("__deleted", "")
    assert "when not matched by source then update set t.`__deleted` = 'true'" in text


def test_a_moved_row_is_filled_from_its_old_key() -> None:
    assert "left join delta.`/lake/t` o on o.`id` = s.origin.k0" in moved("delta.`/lake/t`", FORM, "rows")


def test_versions_end_where_the_next_begins() -> None:
    text = versions.merge(FORM, "changes", None).statement("delta.`/lake/t`")
    assert "on s.kind = 'end' and t.__valid_to is null and t.`id` = s.c0" in text
    assert "not matched by source" not in text
    assert "timestamp_micros(7)" in versions.merge(FORM, "changes", ("0A", 1, 7)).statement("t")
    assert "raise_error" in versions.changes("t", FORM, "rows", "stop")
    # Every read of the view runs its tasks.
    assert versions.changes("t", FORM, "rows", "stop").count("rows") == 1
    assert "raise_error" not in versions.changes("t", FORM, "rows", "null")
    assert "s.op = 'r'" in versions.news("t", FORM, "rows")


def test_versions_are_told_apart_beyond_milliseconds() -> None:
    form = BlockForm(("id", "at", "m"), (pa.int32(), pa.timestamp("us"), VARIANT), (0,))
    text = versions.news("t", form, "rows")
    assert "if(to_json(struct(p.`at` as v)) <=> to_json(struct(s.c1 as v)) and p.`at` <=> s.c1, 1, null)" in text
    assert "xxhash64(to_json(struct(s.c1 as v)), s.c1)" in text
    assert "schema_of_variant(p.`m`) <=> schema_of_variant(s.c2)" in text
    moments = pa.array([[1_000_001], None, [2**60]], pa.list_(pa.timestamp("us")))
    others = pa.array([[1_000_002], None, [2**60]], pa.list_(pa.timestamp("us")))
    assert versions._alike(moments, others).tolist() == [False, True, True]


def test_what_follows_an_alteration() -> None:
    given = {"path": "/x", "schema.drop": "STOP", "schema.narrow": "ignore", "added.default": "null"}
    sink = sinks.open("tables", given)
    assert isinstance(sink, TablesSink)
    assert sink.policies == Policies(drop="stop", narrow="ignore", added_default="null")


def test_rows_are_opened_into_the_columns_that_the_table_holds() -> None:
    """Names, wider types, the order, and a left-out column differ, also for previous keys."""
    form = BlockForm(
        ("id", "old", "left", "big"), (pa.int32(), pa.int32(), pa.string(), pa.string()), (0,), (), (1, 2, 3, 4)
    )
    target = BlockForm(
        ("big", "new", "key", "later"), (pa.string(), pa.int64(), pa.int64(), pa.date32()), (2,), (), (4, 2, 1, 5)
    )
    told = {"op": "c", "position": "0A", "ordinal": 0, "part": 1, "at": AT, "missing": [2, 3], "origin": {"k0": 6}}
    rows = pa.RecordBatch.from_pylist([told | {"c0": 7, "c1": 8, "c2": None, "c3": None}], form.schema)
    head = Head("d", "s", "t", form, 1, ("0A", 0), ("0A", 0), "", None, True, True)
    (part,) = BlockOpening(target)(iter([pa.RecordBatch.from_pylist([{"key": head.text(), "value": written(rows)}])]))
    (row,) = part.to_pylist()
    assert [row[f"c{place}"] for place in range(4)] == [None, 8, 7, None]
    assert (row["missing"], row["origin"]) == ([0], {"k0": 6})


@pytest.mark.parametrize("key", [(1,), ()])
def test_a_log_goes_on_where_the_key_is_made_of_other_columns(key: tuple[int, ...]) -> None:
    """A row whose key has changed, in a block from before the key's columns changed, has a key of those columns."""
    given = block(change(1, 7, "d"), change(1, 8, "c", part=1, origin={"k0": 7}))
    (part,) = BlockOpening(replace(FORM, key=key))(iter([pa.RecordBatch.from_pylist([given])]))
    assert [(row["op"], row["c0"], row["missing"], row["origin"]) for row in part.to_pylist()] == [
        ("d", 7, None, None), ("c", 8, [2], None),
    ]  # fmt: skip


def test_names() -> None:
    assert quoted("a`b") == "`a``b`"
    assert folder("s.a/b") == "s.a%2Fb"
    assert folder("_s.t") == "%5Fs.t"
    assert place_text(("0A", 2)) < place_text(("0A", 10)) < place_text(("0B", 0))
    assert '"batch": 3' in metadata(3, "")
    assert row_schema(FORM).names[-3:] == ["c0", "c1", "c2"]


POSTGRES = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.dbname": "d"}
ASIDE = {"event.processing.failure.handling.mode": "warn"}
UNWRAP = {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}


def test_what_the_source_cannot_give_is_refused() -> None:
    for more, said in (
        (UNWRAP, "supports no transforms"),
        ({"skipped.operations": "d"}, "skips changes that the sink tables needs"),
        (ASIDE, "leave changes out"),
        ({"snapshot.mode": "always"}, "always may take a second snapshot"),
        ({"on.data.loss": "resnapshot"}, "on.data.loss=resnapshot reads tables again"),
        ({"snapshot.mode": "when_needed"}, "rows that were deleted before it"),
        (
            {"snapshot.mode": "configuration_based", "snapshot.mode.configuration.based.snapshot.data": "true"},
            "configuration_based may take",
        ),
    ):
        with pytest.raises(SinkError, match=said):
            sinks.open("tables", {"path": "/x"}, parse("postgres", POSTGRES | more))
    mongo = {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"}
    sinks.open("tables", {"path": "/x"}, parse("mongodb", mongo))
    reselects = {"path": "/x", "unknown.values": "reselect"}
    with pytest.raises(SinkError, match="reselect is not supported for the connector mongodb"):
        sinks.open("tables", reselects, parse("mongodb", mongo))
    for more, said in (
        ({"mode": "history"}, "only in the mode latest"),
        ({"route.regex": "a", "route.replacement": "b"}, "if tables are routed into one"),
    ):
        with pytest.raises(SinkError, match=said):
            sinks.open("tables", reselects | more, parse("postgres", POSTGRES))
    plain = parse("postgres", POSTGRES | {"row.blocks": "last"})
    plain = replace(plain, traits=replace(plain.traits, gives_blocks=False))
    with pytest.raises(SinkError, match="gives no rows for tables"):
        sinks.open("tables", {"path": "/x"}, plain)
    with pytest.raises(ConfigError, match=r"row\.blocks is not supported"):
        EventSettings.from_options(plain)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, ""),
        ({"snapshot.mode": "initial_only"}, ""),
        ({"snapshot.mode": "no_data"}, "snapshot.mode=no_data"),
        ({"snapshot.include.collection.list": "public.t"}, "snapshot.include.collection.list"),
        (
            {
                "snapshot.select.statement.overrides": "public.t",
                "snapshot.select.statement.overrides.public.t": "select * from public.t where id > 1",
            },
            "snapshot.select.statement.overrides",
        ),
    ],
)
@pytest.mark.parametrize("sink", ["tables", "jdbc", "parquet"])
def test_snapshots_that_leave_rows_out_of_a_copy_are_told(
    more: dict[str, str], named: str, sink: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"connection.url": "jdbc:postgresql://h/d"} if sink == "jdbc" else {"path": "/x"}
    sinks.open(sink, options, parse("postgres", POSTGRES | more))
    told = [one.getMessage() for one in caplog.records if "copies lack rows" in one.getMessage()]
    assert len(told) == (bool(named) and sink != "parquet")
    assert all(f"with {named} copies" in text and "signal execute-snapshot" in text for text in told)


@pytest.mark.parametrize("form", ["1.7", "3"])
@pytest.mark.parametrize("sink", ["tables", "jdbc"])
def test_truncates_reach_a_copy(sink: str, form: str) -> None:
    """Events leave them out by default, and a copy without them keeps rows that are gone."""
    options = {"connection.url": "jdbc:postgresql://h/d"} if sink == "jdbc" else {"path": "/x"}
    given = POSTGRES | {"event.format": form}
    made = sinks.open(sink, options, parse("postgres", given))
    source = parse("postgres", made.source_defaults() | given | made.source_options())
    assert EventSettings.from_options(source).skipped_operations == frozenset()
    assert EventSettings.from_options(parse("postgres", given)).skipped_operations == {"t"}


def test_what_the_sink_asks_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.sinks.tables.sink.is_here", lambda: False)
    sink = sinks.open("tables", {"path": "/x/", "mode": "history"}, parse("postgres", POSTGRES))
    assert sink.source_options() == {"row.blocks": "every"}
    assert sink.source_defaults()["skipped.operations"] == "none"
    assert "max.batch.size.in.bytes" not in sink.source_defaults()
    latest = sinks.open("tables", {"path": "/x/"}, parse("postgres", POSTGRES))
    assert latest.source_defaults()["max.batch.size.in.bytes"] == str(128 << 20)
    assert sink.folder == "/x"
    text = ('org.apache.spark.SparkRuntimeException: [USER] tailrace: neither the log nor the table has '
            'the value of column "big" SQLSTATE: P0001')  # fmt: skip
    lost = sink.failure(text)
    assert "column big" in str(lost)
    # the remedy names an answer only where the sink takes it
    assert "unknown.values to null" in str(lost)
    assert "unknown.values to reselect or null" in str(latest.failure(text))
    assert "Another process" in str(sink.failure("[DELTA_CONCURRENT_APPEND] …"))
    assert sink.failure("something else") is None


@pytest.mark.parametrize(
    ("mode", "options", "size"),
    [
        ("latest", {}, 512 << 20),
        ("log", {}, 512 << 20),
        ("history", {}, 128 << 20),
        ("latest", {"tasks.in.files": "false"}, 128 << 20),
        ("log", {"tasks.in.files": "false"}, None),
    ],
)
def test_batches_are_large_where_they_lie_in_files(
    monkeypatch: pytest.MonkeyPatch, mode: str, options: dict[str, str], size: int | None
) -> None:
    monkeypatch.setattr("tailrace.sinks.tables.sink.is_here", lambda: True)
    monkeypatch.setattr("tailrace.sinks.tables.sink.can_share_files", lambda: True)
    sink = sinks.open("tables", {"path": "/x", "mode": mode}, parse("postgres", {**POSTGRES, **options}))
    assert sink.source_defaults().get("max.batch.size.in.bytes") == (None if size is None else str(size))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs debezium.sink.tables.path"),
        ({"path": "/x", "mode": "newest"}, "mode must be one of latest, history, log"),
        ({"path": "/x", "mode": "log", "upsert-keep-deletes": "true"}, "is only for the mode latest"),
        ({"path": "/x", "table.name.format": "${topic}"}, "has ${topic}"),
        ({"path": "/x", "schema.add": "always"}, "schema.add must be one of evolve, ignore, stop"),
        (
            {"path": "/x", "schema.widen": "ignore"},
            "must be one of evolve, stop: values of the wider type need not fit",
        ),
        (
            {"path": "/x", "schema.narrow": "evolve"},
            "must be one of stop, ignore, reread: a column cannot be",
        ),
        ({"path": "/x", "schema.key": "Ignore"}, "must be one of evolve, stop: deletes have only the new key"),
        ({"path": "/x", "schema.dropp": "stop"}, "The nearest is debezium.sink.tables.schema.drop"),
        ({"path": "/x", "colour": "red"}, "has no option colour"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError) as caught:
        sinks.open("tables", options)
    assert said in str(caught.value)


def test_variants_that_are_null_are_gathered() -> None:
    form = BlockForm(("_id", "document"), (pa.string(), VARIANT), (0,))
    row = {"op": "d", "position": "0A", "ordinal": 0, "part": 0, "since": "0A", "c0": "1", "c1": None}
    batch = pa.RecordBatch.from_pylist([row], row_schema(form))
    # As Spark gives them: without metadata, and null in each part.
    plain = [field.remove_metadata() for field in VARIANT]
    null = pa.StructArray.from_arrays([pa.array([None], pa.binary())] * 2, fields=plain, mask=pa.array([True]))
    shown = pa.RecordBatch.from_arrays([*batch.columns[:-1], null], names=batch.schema.names)
    assert gathered(iter([shown]), form).to_pylist() == batch.to_pylist()
