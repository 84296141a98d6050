"""A table of the sink `tables` follows its source: records, policies, steps, and a crash at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.columns.blocks import BlockForm, Head, Place, written
from tailrace.sinks.tables.batch import with_values
from tailrace.sinks.tables.evolution import Alteration, HeldColumn, HeldTable, Phase, Policies, UnfollowedAlteration
from tailrace.sinks.tables.formats.iceberg.schemas import held
from tailrace.sinks.tables.rows import BlockOpening, places_of
from tailrace.sinks.tables.statements import holds, type_of, widens

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()
ALWAYS = Policies()
AT: Place = ("0B", 0)


def form(*columns: tuple[int, str] | tuple[int, str, pa.DataType], key: Sequence[int] = (0,), **more: Any) -> BlockForm:
    """Return a form of columns, each given by number, name and type (`int` if omitted)."""
    types = tuple(column[2] if len(column) > 2 else INT for column in columns)
    numbers = tuple(column[0] for column in columns)
    return BlockForm(tuple(column[1] for column in columns), types, tuple(key), numbers=numbers, **more)


def kinds(found: BlockForm) -> dict[str, str]:
    return {name: type_of(kind) for name, kind in zip(found.names, found.types, strict=True)}


ID, A, B = (1, "id"), (2, "a"), (3, "b")
OLD = form(ID, A, B)
TABLE = HeldTable.first(OLD, ("0A", 0))


def followed(
    new: BlockForm, policies: Policies = ALWAYS, types: dict[str, str] | None = None, old: HeldTable = TABLE
) -> Any:
    """Return the steps and the final record."""
    found = list(Alteration(old, new, AT, types or kinds(OLD), policies, ["__own"]).phases())
    steps = [(step.what, step.name, step.to) for phase in found for step in phase.steps]
    return steps, {held.source: held.name for held in found[-1].record.columns if not held.gone}


def test_a_record_is_read_as_it_was_written() -> None:
    record = HeldTable((HeldColumn(1, "id", "id"), HeldColumn(2, "a", "", True)), ("id",), 7, ("0A", 3))
    assert HeldTable.of(record.text()) == record


def test_a_table_of_iceberg_has_what_it_was_made_with() -> None:
    """Each later run ended because the type of a sparse vector had changed."""
    vector = pa.struct([("dimensions", pa.int16()), ("vector", pa.map_(pa.int16(), pa.float64()))])
    found = form(ID, (2, "v", held(vector)))
    there = {"id": "int", "v": "struct<dimensions:int,vector:map<int,double>>"}
    assert Alteration(HeldTable.first(found, ("0A", 0)), found, AT, there, ALWAYS).is_nothing


def test_nothing_has_changed() -> None:
    assert Alteration(TABLE, OLD, AT, kinds(OLD), ALWAYS).is_nothing
    assert not Alteration(TABLE, form(ID, A), AT, kinds(OLD), ALWAYS).is_nothing


@pytest.mark.parametrize(
    ("new", "steps"),
    [
        (form(ID, A, B, (4, "c", TEXT)), [("add", "c", "string")]),
        (form(ID, B), [("drop", "a", "")]),
        (form(ID, (2, "x"), B), [("rename", "a", "x")]),
        (form((1, "key"), A, B), [("rename", "id", "key")]),
        (form(ID, (2, "a", LONG), B), [("widen", "a", "bigint")]),
        (form(ID, B, (4, "a")), [("drop", "a", ""), ("add", "a", "int")]),
        (form(ID, (3, "a")), [("drop", "a", ""), ("rename", "b", "a")]),
        (form(ID, (2, "A"), B), [("rename", "a", "__tailrace_2"), ("rename", "__tailrace_2", "A")]),
        (form(ID, (2, "c"), B, (4, "a")), [("rename", "a", "c"), ("add", "a", "int")]),
        # A new column of unknown number has the name that another column had before.
        (form(ID, (2, "c"), B, (0, "a")), [("rename", "a", "c"), ("add", "a", "int")]),
        # Without numbers a renamed column is another column.
        (form((0, "id"), (0, "x"), (0, "b")), [("drop", "a", ""), ("add", "x", "int")]),
    ],
)
def test_a_table_follows(new: BlockForm, steps: list[tuple[str, str, str]]) -> None:
    found, held = followed(new)
    assert found == steps
    assert held == {name: name for name in new.names}


@pytest.mark.parametrize(
    ("new", "policies", "held"),
    [
        (form(ID, A, B, (4, "c")), Policies(add="ignore"), {"id": "id", "a": "a", "b": "b", "c": ""}),
        (form(ID, B), Policies(drop="ignore"), {"id": "id", "b": "b"}),
        (form(ID, (2, "x"), B), Policies(rename="ignore"), {"id": "id", "x": "a", "b": "b"}),
        (form(ID, (2, "a", pa.int16()), B), Policies(narrow="ignore"), {"id": "id", "a": "a", "b": "b"}),
    ],
)  # fmt: skip
def test_what_is_ignored_needs_no_step(new: BlockForm, policies: Policies, held: dict[str, str]) -> None:
    assert followed(new, policies) == ([], held)


@pytest.mark.parametrize(
    ("new", "policies", "said", "remedy"),
    [
        (form(ID, A, B, (4, "c")), Policies(add="stop"), "the new column c", "schema.add = evolve or"),
        (form(ID, B), Policies(drop="stop"), "its column a was dropped", "schema.drop = "),
        (form(ID, (2, "x"), B), Policies(rename="stop"), "its column a is now called x", "schema.rename = "),
        (form(ID, (2, "a", LONG), B), Policies(widen="stop"), "its column a is now bigint", "schema.widen = "),
        (form(ID, (2, "a", pa.int16()), B), ALWAYS, "now smallint, and was int", "schema.narrow = ignore"),
        (form(ID, (2, "a", TEXT), B), ALWAYS, "its column a is now string", ""),
        (form(ID, A, B, key=(1,)), Policies(key="stop"), "key has other columns", "schema.key = evolve"),
        (form(ID, A, B, (4, "c"), key=(3,)), ALWAYS, "its new key has the column c", ""),
        (form(ID, A, (3, "B"), (4, "b")), ALWAYS, "cannot be in one table", "column.exclude.list"),
        (form(ID, A, B, (4, "__OWN")), ALWAYS, "__own and __OWN cannot be", "column.exclude.list"),
    ],
)  # fmt: skip
def test_what_a_table_does_not_follow(new: BlockForm, policies: Policies, said: str, remedy: str) -> None:
    with pytest.raises(UnfollowedAlteration) as caught:
        followed(new, policies)
    assert said in caught.value.why
    assert remedy in caught.value.remedy


def test_a_name_that_a_renamed_column_has_kept_is_no_other_columns() -> None:
    """Whether both alterations are found at once or one after the other, no value goes into another column."""
    new, ignoring = form(ID, (2, "x"), B, (4, "a")), Policies(rename="ignore")
    kept = list(Alteration(TABLE, form(ID, (2, "x"), B), AT, kinds(OLD), ignoring).phases())[-1].record
    for old, policies in ((TABLE, ignoring), (kept, ignoring), (kept, ALWAYS)):
        with pytest.raises(
            UnfollowedAlteration, match="its column x is called a in the table, and it has another"
        ) as told:
            followed(new, policies, old=old)
        assert "schema.add = ignore" in told.value.remedy
        assert followed(new, replace(policies, rename="ignore", add="ignore"), old=old) == (
            [], {"id": "id", "x": "a", "b": "b", "a": ""}
        )  # fmt: skip


def test_a_table_that_was_made_anew_under_the_same_name_is_told() -> None:
    old = replace(TABLE, relation=5)
    assert followed(replace(OLD, relation=5), old=old)[0] == []
    with pytest.raises(UnfollowedAlteration, match="another one has its name"):
        followed(replace(OLD, relation=6), old=old)


REREADS = Policies(recreated="reread", narrow="reread", added_default="reread")


def test_another_table_under_the_name_is_known_by_the_names_of_its_columns() -> None:
    """Numbers of columns mean nothing in another table, and no row is left that a new column could lack values in."""
    old = replace(TABLE, relation=5)
    new = form((1, "b", TEXT), (2, "id", LONG), (4, "c"), key=(1,), added=(2,), relation=6)
    steps, held = followed(new, REREADS, old=old)
    assert steps == [
        ("drop", "a", ""), ("drop", "b", ""), ("widen", "id", "bigint"), ("add", "b", "string"), ("add", "c", "int"),
    ]  # fmt: skip
    assert held == {"id": "id", "b": "b", "c": "c"}
    assert Alteration(old, new, AT, kinds(OLD), REREADS).reread == ""


@pytest.mark.parametrize("done", range(8))
def test_another_table_is_followed_after_a_crash_at_any_step(done: int) -> None:
    record, types = replace(TABLE, relation=5), kinds(OLD)
    new = form((1, "b", TEXT), (2, "id", LONG), (4, "c"), key=(1,), added=(2,), relation=6)
    # The steps and records up to the crash, and then all.
    for most in (done, 100):
        before = record
        phases = list(Alteration(before, new, AT, types, REREADS).phases())
        steps = [(phase, step) for phase in phases for step in (*phase.steps, None)]
        for phase, step in steps[:most]:
            if step is None:
                record = phase.record
            elif step.what == "drop":
                del types[step.name]
            else:
                types[step.name] = step.to
    assert types == kinds(new)
    assert (record.relation, record.key, {held.source: held.number for held in record.columns}) == (
        6, ("id",), {"b": 1, "id": 2, "c": 4},
    )  # fmt: skip


def test_a_column_of_another_type_is_made_anew_and_read_again() -> None:
    new = form(ID, (2, "a", TEXT), B)
    with pytest.raises(UnfollowedAlteration, match="the type of its column a is now string") as caught:
        followed(new)
    assert "schema.narrow = reread" in caught.value.remedy
    assert followed(new, REREADS)[0] == [("drop", "a", ""), ("add", "a", "string")]
    assert Alteration(TABLE, new, AT, kinds(OLD), REREADS).reread == (
        "existing rows have values of another type in its column a"
    )
    assert followed(form(ID, (2, "a", LONG), B), REREADS)[0] == [("widen", "a", "bigint")]
    with pytest.raises(UnfollowedAlteration, match="the type of its column id is now string"):
        followed(form((1, "id", TEXT), A, B), REREADS)
    lost = {"id": "int", "b": "int"}
    with pytest.raises(UnfollowedAlteration, match="another program has dropped or renamed the table's column a"):
        followed(OLD, REREADS, types=lost)
    assert followed(new, REREADS, types=lost, old=replace(TABLE, since=AT))[0] == [("add", "a", "string")]


def test_a_column_with_a_default_stops_unless_it_may_be_null() -> None:
    new = form(ID, A, B, (4, "c"), added=(3,))
    with pytest.raises(UnfollowedAlteration, match="may have values in its new column c,") as caught:
        followed(new)
    assert "added.default = reread" in caught.value.remedy
    assert followed(new, Policies(added_default="null"))[0] == [("add", "c", "int")]
    assert Alteration(TABLE, new, AT, kinds(OLD), REREADS).reread == (
        "existing rows may have values in its new column c"
    )
    assert followed(new, Policies(add="ignore"))[0] == []


def test_a_column_of_somebody_else_is_left_alone_unless_one_of_its_name_comes() -> None:
    types = kinds(OLD) | {"mine": "int"}
    assert followed(OLD, types=types)[0] == []
    assert followed(form(ID, A, B, (4, "mine")), types=types)[0] == []
    with pytest.raises(UnfollowedAlteration, match="mine and Mine"):
        followed(form(ID, (2, "Mine"), B), types=types)
    with pytest.raises(UnfollowedAlteration, match="another program has dropped or renamed the table's column b"):
        followed(form(ID, (2, "x"), B), types={"id": "int", "a": "int"})


def test_a_column_that_was_kept_takes_the_next_one_of_its_name() -> None:
    (phase,) = Alteration(TABLE, form(ID, B), AT, kinds(OLD), Policies(drop="ignore")).phases()
    assert HeldColumn(2, "a", "a", gone=True) in phase.record.columns
    steps, held = followed(form(ID, B, (4, "a")), Policies(drop="ignore"), old=phase.record)
    assert (steps, held) == ([], {"id": "id", "b": "b", "a": "a"})
    with pytest.raises(UnfollowedAlteration, match="cannot be in one table"):
        followed(form(ID, (3, "a")), Policies(drop="ignore"), old=phase.record)


def test_the_key_follows_its_columns() -> None:
    renamed = Alteration(TABLE, form((1, "key"), A, B), AT, kinds(OLD), ALWAYS)
    assert (renamed.key, renamed.moves_key) == (("key",), False)
    both = Alteration(TABLE, form(ID, A, (3, "c"), key=(2,)), AT, kinds(OLD), ALWAYS)
    assert (both.key, both.present_key, both.moves_key) == (("c",), ("b",), True)
    other = form((1, "n"), (2, "id"), key=(0,), relation=6)
    anew = Alteration(replace(TABLE, relation=5), other, AT, kinds(OLD), REREADS)
    assert (anew.key, anew.present_key, anew.moves_key) == (("n",), (), True)
    moved = Alteration(TABLE, form(ID, A, B, key=(2, 1)), AT, kinds(OLD), ALWAYS)
    assert (moved.key, moved.moves_key) == (("b", "a"), True)


class Stored:
    """A table of columns, each with the number of the source column whose values it has."""

    def __init__(self, first: BlockForm) -> None:
        self.record = HeldTable.first(first, ("0A", 0))
        self.columns = dict(zip(first.names, first.numbers, strict=True))

    def follow(self, new: BlockForm, crash: int) -> bool:
        """Follow the form, with a crash after a number of commits. Return True if there was none."""
        types = dict.fromkeys(self.columns, "int")
        numbers = dict(zip(new.names, new.numbers, strict=True))
        for phase in Alteration(self.record, new, AT, types, ALWAYS).phases():
            for commit in (*phase.steps, phase):
                if crash == 0:
                    return False
                crash -= 1
                if isinstance(commit, Phase):
                    self.record = commit.record
                elif commit.what == "rename":
                    assert commit.to.lower() not in map(str.lower, self.columns)
                    self.columns[commit.to] = self.columns.pop(commit.name)
                elif commit.what == "drop":
                    del self.columns[commit.name]
                else:
                    assert commit.name.lower() not in map(str.lower, self.columns)
                    self.columns[commit.name] = numbers[commit.name]
        return True


def forms(highest: int) -> st.SearchStrategy[BlockForm]:
    """Draw forms of numbered columns with few names, so that names are reused; number 1 is the key."""
    names = st.permutations(["id", "a", "b", "c", "d", "e"])
    numbers = st.lists(st.integers(2, highest), unique=True, max_size=4).map(sorted)
    return st.builds(lambda names, found: form(*zip([1, *found], names, strict=False)), names, numbers)


@given(forms(5), forms(8), st.lists(st.integers(0, 12), max_size=4))
def test_a_crash_at_any_step_loses_no_column(old: BlockForm, new: BlockForm, crashes: list[int]) -> None:
    stored = Stored(old)
    for crash in [*crashes, 1000]:
        if stored.follow(new, crash):
            break
    assert stored.columns == dict(zip(new.names, new.numbers, strict=True))
    assert {held.name: held.number for held in stored.record.columns} == stored.columns
    assert stored.record.key == (new.names[0],)
    types = dict.fromkeys(stored.columns, "int")
    assert Alteration(stored.record, new, AT, types, ALWAYS).is_nothing


@pytest.mark.parametrize(
    ("old", "new"),
    [("tinyint", "smallint"), ("smallint", "int"), ("int", "bigint"), ("int", "double"), ("float", "double"),
     ("int", "decimal(10,0)"), ("int", "decimal(12,2)"), ("bigint", "decimal(20,0)"), ("date", "timestamp_ntz"),
     ("decimal(10,2)", "decimal(12,2)"), ("decimal(10,2)", "decimal(12,4)")],
)  # fmt: skip
def test_wider_types(old: str, new: str) -> None:
    assert widens(old, new)
    assert not widens(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [("bigint", "decimal(19,0)"), ("bigint", "double"), ("int", "decimal(11,2)"), ("decimal(10,2)", "decimal(11,4)"),
     ("decimal(10,2)", "decimal(12,1)"), ("int", "string"), ("array<int>", "array<bigint>"), ("timestamp", "date")],
)  # fmt: skip
def test_types_that_are_not_wider(old: str, new: str) -> None:
    assert not widens(old, new)


@pytest.mark.parametrize(
    ("old", "new", "room"),
    [("bigint", "int", True), ("int", "bigint", False), ("double", "int", True), ("double", "bigint", False),
     ("decimal(12,2)", "int", True), ("decimal(11,2)", "int", False), ("decimal(12,2)", "decimal(10,2)", True),
     ("decimal(12,2)", "decimal(10,3)", False), ("string", "date", True), ("string", "double", False),
     ("timestamp_ntz", "date", True), ("timestamp", "date", False), ("string", "binary", False)],
)  # fmt: skip
def test_types_with_room(old: str, new: str, room: bool) -> None:
    assert holds(old, new) is room


def test_columns_are_found_by_their_numbers() -> None:
    target = form(ID, A, (9, "new"))
    assert places_of(form(ID, (2, "old")), target) == (0, 1, -1)
    assert places_of(form(ID, (5, "a"), (2, "new")), target) == (0, 2, -1)
    assert places_of(form((0, "id"), (0, "new")), target) == (0, -1, 1)


def shard(name: str, *columns: str, **more: Any) -> BlockForm:
    """Return the form of a table that is routed into one with others."""
    return BlockForm(columns, (INT,) * len(columns), (0,), shard=name, **more)


def test_shards_may_be_altered_one_after_another() -> None:
    """A column that one shard has and another one lacks stays until the last one drops it."""
    record = HeldTable.first(shard("d.s.o_1", "id", "a"), AT)
    for name, columns, steps in (
        ("d.s.o_2", ("id", "a"), []),
        ("d.s.o_1", ("id", "a", "n"), [("add", "n", "int")]),
        ("d.s.o_2", ("id", "a"), []),
        ("d.s.o_2", ("id", "a", "n"), []),
        ("d.s.o_1", ("id", "n"), []),
        ("d.s.o_3", ("id", "n"), []),
        ("d.s.o_2", ("id", "n"), [("drop", "a", "")]),
    ):
        types = {held.name: "int" for held in record.columns}
        found = list(Alteration(record, shard(name, *columns), AT, types, ALWAYS).phases())
        assert [(step.what, step.name, step.to) for phase in found for step in phase.steps] == steps, (name, columns)
        record = found[-1].record
        assert HeldTable.of(record.text()) == record
    assert [held.name for held in record.columns] == ["id", "n"]


def test_what_a_table_cannot_know_of_one_shard_stops_it() -> None:
    record = HeldTable.first(shard("d.s.o_1", "id", "a"), AT)
    types = {"id": "int", "a": "int"}
    with pytest.raises(UnfollowedAlteration, match=r"d\.s\.o_1 has b in place of a"):
        Alteration(record, shard("d.s.o_1", "id", "b"), AT, types, ALWAYS)
    with pytest.raises(UnfollowedAlteration, match="may have values in its new column c"):
        Alteration(
            record, shard("d.s.o_1", "id", "a", "c", added=(2,), values=((2, "7"),)), AT, types, ALWAYS, (), True
        )
    # The same holds for a column that another shard already has.
    both = list(Alteration(record, shard("d.s.o_2", "id", "a", "c"), AT, types, ALWAYS).phases())[-1].record
    with pytest.raises(UnfollowedAlteration, match="may have values in its new column c"):
        Alteration(both, shard("d.s.o_1", "id", "a", "c", added=(2,)), AT, types | {"c": "int"}, ALWAYS)


def test_a_new_column_is_filled_before_the_record_knows_it() -> None:
    new = form(ID, A, B, (4, "c"), added=(3,), values=((3, "7"),))
    found = list(Alteration(TABLE, new, AT, kinds(OLD), ALWAYS, (), True).phases())
    assert [(phase.fills, len(phase.record.columns)) for phase in found] == [((), 3), ((("c", "cast('7' as int)"),), 4)]
    # After a crash between the two, the column exists and is filled again.
    again = list(Alteration(TABLE, new, AT, kinds(OLD) | {"c": "int"}, ALWAYS, (), True).phases())
    assert again[0].steps == ()
    assert again[-1].fills == found[-1].fills


def test_rows_before_a_new_column_in_the_same_batch_have_its_value() -> None:
    """Their block has the older form, and the table has the newest one."""
    new = form(ID, A, B, (4, "c"), (5, "at", pa.timestamp("us", "UTC")), values=((3, "7"), (4, "1000000")))
    into = with_values(replace(new, values=()), [(OLD, AT), (new, AT)])
    assert into.values == ((3, "7"), (4, "1000000"))
    told = {"op": "u", "position": "0A", "ordinal": 0, "part": 0, "at": datetime(2024, 2, 3, tzinfo=UTC)}
    row = told | {"missing": None, "origin": None, "c0": 1, "c1": 2, "c2": 3}
    head = Head("d", "s", "t", OLD, 1, AT, AT)
    block = {"key": [head.text()], "value": [written(pa.RecordBatch.from_pylist([row], OLD.schema))]}
    (opened,) = BlockOpening(into).blocks(iter([pa.RecordBatch.from_pydict(block)]))
    assert opened["c3"].to_pylist() == [7]
    assert opened["c4"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
