"""Statements consist of names in brackets and of parameters, in the order of their docstrings."""

from __future__ import annotations

import itertools
import re

import pyarrow as pa
import pytest

from tailrace.columns import Column, TableId
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.declaration import modifier
from tailrace.connectors.sqlserver.values.texts import has_bit

TABLE = TableId("shop", "dbo", "t]; drop table u --")


def column(name: str, nullable: bool = False) -> Column:
    return Column(name, "int", 56, modifier("int", 4, 10, 0), nullable)


A, B, C = column("a"), column("b"), column("c")


def test_changes_are_read_in_their_order_from_a_half_open_range() -> None:
    assert statements.changes("cdc", "dbo_t_CT", [A, B], by_command=True) == (
        "select [__$start_lsn], [__$seqval], [__$operation], isnull([__$command_id], 0), [a], [b] "
        "from [cdc].[dbo_t_CT] where [__$start_lsn] > ? and [__$start_lsn] <= ? "
        "order by [__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
    )
    assert statements.changes("cdc", "dbo_t_CT", [A], by_command=False) == (
        "select [__$start_lsn], [__$seqval], [__$operation], 0, [a] from [cdc].[dbo_t_CT] "
        "where [__$start_lsn] > ? and [__$start_lsn] <= ? order by [__$start_lsn], [__$seqval], [__$operation]"
    )
    assert statements.changes_by_function("dbo_t", [A]) == (
        "select [__$start_lsn], [__$seqval], [__$operation], 0, [a] "
        "from [cdc].[fn_cdc_get_all_changes_dbo_t](?, ?, N'all update old') "
        "order by [__$start_lsn], [__$seqval], [__$operation]"
    )


def evaluated(condition: str, parameters: list[int], row: dict[str, int | None]) -> bool:
    """Return a condition's result for a row, by Python's rules and SQL's NULL, which makes every comparison false."""
    rest = iter(parameters)
    text = re.sub(r"convert\(int, \?\)", lambda _: str(next(rest)), condition)
    text = re.sub(r"\[(\w+)\] is null", r"(v['\1'] is None)", text)
    text = re.sub(
        r"\[(\w+)\] (<=|>=|<|>|=) (-?\d+)",
        lambda m: f"(v['{m[1]}'] is not None and v['{m[1]}'] {'==' if m[2] == '=' else m[2]} {m[3]})",
        text,
    )
    return bool(eval(text, {"v": row}))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_conditions_on_keys_compare_as_tuples(count: int) -> None:
    key = [A, B, C][:count]
    for limit in itertools.product(range(3), repeat=count):
        parameters = statements.compared_parts(list(limit))
        for row in itertools.product(range(3), repeat=count):
            named = dict(zip("abc", row, strict=False))
            assert evaluated(statements.above(key, {}), parameters, named) == (row > limit)
            assert evaluated(statements.up_to(key, {}), parameters, named) == (row <= limit)


def test_null_sorts_before_every_value() -> None:
    key = [column("a", nullable=True), column("b", nullable=True)]
    parameters = statements.compared_parts([1, 1])
    for row in itertools.product((None, 0, 1, 2), repeat=2):
        named = dict(zip("ab", row, strict=True))
        order = tuple(-1 if value is None else value for value in row)
        assert evaluated(statements.up_to(key, {}), parameters, named) == (order <= (1, 1))
        assert evaluated(statements.above(key, {}), parameters, named) == (order > (1, 1))


def test_names_never_end_their_brackets() -> None:
    made = [
        statements.any_row(TABLE),
        statements.write_signal(TABLE),
        statements.delete_signal(TABLE, "i]d"),
        statements.rows(statements.quoted(TABLE.schema, TABLE.table), [column("x]y")], "", ["[x]]y]"], False),
    ]
    for statement in made:
        assert "drop table" not in re.sub(r"\[(?:[^\]]|\]\])*\]", "", statement)


def test_only_whole_numbers_are_listed() -> None:
    assert "in (1, 2)" in statements.columns([1, 2])
    with pytest.raises(ValueError, match="invalid literal"):
        statements.keys(["1) or (1=1"])  # type: ignore[list-item]


def test_a_users_select_becomes_a_table_with_its_order() -> None:
    assert statements.as_table("select 1 as a;") == "(\nselect 1 as a\n) as [rows]"
    assert statements.ordered("select 1 as a order by 1; ").endswith("order by 1\noffset 0 rows")
    # A comment at the end does not swallow the following text.
    assert statements.as_table("select 1 as a -- why").endswith("-- why\n) as [rows]")


@pytest.mark.parametrize("mark", ["${db}", "[#db]"])
def test_the_agents_question_names_the_database(mark: str) -> None:
    assert statements.agent(f"select 1 from {mark}.sys.t", "my]db") == "select 1 from [my]]db].sys.t"


def test_a_mask_names_the_columns_that_an_update_has_set() -> None:
    masks = pa.array([b"\x01", b"\x00\x02", b"\x80", None], pa.binary())
    assert has_bit(masks, 0).tolist() == [True, False, False, False]
    assert has_bit(masks, 1).tolist() == [False, True, False, False]
    assert has_bit(masks, 7).tolist() == [False, False, True, False]
    assert has_bit(pa.array([b"\x01\x00"], pa.binary()), 8).tolist() == [True]
    assert "[__$operation], 0, [__$update_mask], " in statements.changes_by_function("dbo_t", [column("v")], True)
    assert "mask" not in statements.changes_by_function("dbo_t", [column("v")])
