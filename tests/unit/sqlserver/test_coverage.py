"""Parts of a table that its changes do not carry are reported, for catalogs that the test server does not have."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import TableId
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.sqlserver.server import coverage, statements
from tailrace.errors import PrerequisiteError

SOURCE = TableId("shop", "dbo", "t")
CAPTURE = CaptureTable(SOURCE, "dbo_t", "cdc", "dbo_t_CT", b"\1", None, ("id",), ("id",), 20, 10)


class Catalog:
    """Answers of a server: a column is (name, number, computed, column set, masked, encrypted)."""

    def __init__(self, *columns: tuple[Any, ...], **answers: Any) -> None:
        self.columns, self.answers = columns, answers

    def all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if statement == statements.CAPTURED_COLUMNS:
            return [(20, name, number) for name, number, *_ in self.columns]
        if statement in (statements.FILTERED, statements.SWITCHED):
            name = "filtered" if statement == statements.FILTERED else "switched"
            return [(number,) for number in self.answers.get(name, ())]
        return [(10, *column) for column in self.columns]

    def one(self, statement: str, *parameters: Any) -> Any:
        if statement == statements.hidden_rows(SOURCE):
            assert parameters == ("dbo", "t")
            return self.answers["hidden"]
        assert statement == statements.UNMASKED
        return self.answers["unmask"]


def told(catalog: Catalog) -> list[str]:
    found = coverage.findings(coverage.read(catalog, [CAPTURE]), lambda table, name: True, "")
    return [one.text for one in found]


def test_a_table_of_plain_columns_is_carried_whole() -> None:
    assert told(Catalog(("id", 1, 0, 0, 0, 0))) == []


def test_values_that_a_select_does_not_show_are_told() -> None:
    masked, secret = ("m", 2, 0, 0, 1, 0), ("s", 3, 0, 0, 0, 1)
    (text,) = told(Catalog(masked, secret, unmask=0))
    assert "m (it is masked for this login" in text
    assert "s (it is encrypted by Always Encrypted" in text
    assert told(Catalog(masked, unmask=1)) == []


def test_a_column_set_is_not_carried() -> None:
    assert told(Catalog(("c", 2, 0, 1, 0, 0))) == [
        "dbo.t: changes do not carry c (it is a column set, which changes do not show)."
    ]


def test_rows_that_no_change_tells_of_are_told() -> None:
    (text,) = told(Catalog(("id", 1, 0, 0, 0, 0), filtered=[10], switched=[20]))
    assert "a security policy filters its rows" in text
    assert "partitions that are switched in or out" in text


@pytest.mark.parametrize(
    ("catalog", "why"),
    [
        (Catalog(("m", 2, 0, 0, 1, 0), unmask=0), "this login sees masked values of m"),
        (Catalog(("id", 1, 0, 0, 0, 0), filtered=[10], hidden=3), "a security policy hides some of its rows"),
        (Catalog(("m", 2, 0, 0, 1, 0), unmask=1), ""),
        (Catalog(("id", 1, 0, 0, 0, 0), filtered=[10], hidden=0), ""),
    ],
)
def test_a_table_that_the_login_does_not_see_whole_is_neither_compared_nor_repaired(catalog: Catalog, why: str) -> None:
    if not why:
        coverage.demand_sight(catalog, [CAPTURE], lambda table, name: True)
        return
    with pytest.raises(PrerequisiteError, match=why) as caught:
        coverage.demand_sight(catalog, [CAPTURE], lambda table, name: True)
    assert "dbo.t" in caught.value.message
    assert caught.value.remedy


def test_a_masked_column_that_is_left_out_is_no_obstacle() -> None:
    coverage.demand_sight(Catalog(("m", 2, 0, 0, 1, 0), unmask=0), [CAPTURE], lambda table, name: name != "m")
