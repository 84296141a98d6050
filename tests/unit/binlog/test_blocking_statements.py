"""Statements of a signal's blocking snapshot: what is their own fault, and what another try may change."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import pymysql
import pytest

from tailrace.connectors.binlog.snapshot.chunks import TableSnapshots


class Snapshots(TableSnapshots):
    """Snapshots of `d.t` for a signal with a statement, whose queries fail with an error of a number."""

    def __init__(self, number: int) -> None:
        self._chosen, self._statements = {"d.t": "select 1"}, {"d.t": "select 1"}
        self._counts = {}
        self.number = number

    def _select(self, name: str) -> str:
        return "select 1"

    def _passing(self, query: str) -> NoReturn:
        raise pymysql.err.OperationalError(self.number, "text")


@pytest.mark.parametrize("number", [1064, 1142, 3024, 1969])
def test_a_statement_that_fails_by_itself_is_left_out(number: int) -> None:
    assert Snapshots(number)._fault("d.t") == f"fails with error {number}"


@pytest.mark.parametrize("number", [2013, 2006, 1205, 1213])
def test_a_failure_that_another_try_may_not_have_is_raised(number: int) -> None:
    with pytest.raises(pymysql.err.OperationalError) as caught:
        cast(Any, Snapshots(number))._fault("d.t")
    assert caught.value.args[0] == number
