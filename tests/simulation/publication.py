"""A simulated PostgreSQL's answers about its publication, which publishes its tables completely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.connectors.postgres.log.identity import EARLIER
from tailrace.connectors.postgres.schema import coverage, inventory
from tailrace.connectors.postgres.setup.coverage_watch import look
from tailrace.connectors.postgres.setup.publications import FOR_ALL_TABLES
from tailrace.connectors.postgres.setup.slots import STATE
from tailrace.connectors.postgres.snapshot.rights import IN_PART
from tests.simulation.log import TABLES

_OID = 77

QUIET = frozenset(
    (
        coverage._RELATED,
        coverage._PUBLICATION,
        inventory._PUBLICATION,
        inventory._HIGHEST,
        FOR_ALL_TABLES,
        STATE,
        EARLIER,
        IN_PART,
        look(schemas=False),
        look(schemas=True),
        inventory._ALTERATIONS,
        inventory._ENUMS,
        inventory._STORES,
        inventory._LABELS,
        coverage._NO_TABLES,
        coverage._MONEY,
        inventory._NEWEST_SCHEMA,
    )
)
"""Statements that only read at a start: a history does not kill the process between them, as they change nothing."""


def _relations(session: Any, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [
        (oid, "public", TABLES[oid], "r", "p", False, "d", False, [], [], False, ["id", "v"], [], [], ["id"], False)
        for oid in values[0]
        if oid in TABLES
    ]


ANSWERS: tuple[tuple[str, Callable[[Any, str, Sequence[Any]], list[tuple[Any, ...]]]], ...] = (
    # views and foreign tables
    ("case c.relkind when 'v'", lambda session, text, values: []),
    (inventory._STORES, lambda session, text, values: []),
    # labels of enums
    ("with recursive used(tab, kind)", lambda session, text, values: []),
    (coverage._RELATED, lambda session, text, values: []),
    (coverage._RELATIONS, _relations),
    (coverage._PUBLICATION, lambda session, text, values: [(True, False, False)]),
    (coverage._PUBLISHED, lambda session, text, values: [(oid, None, None) for oid in TABLES]),
    (inventory._PUBLICATION, lambda session, text, values: [(_OID,)]),
    (look(schemas=False), lambda session, text, values: [("",)]),
    (look(schemas=True), lambda session, text, values: [("",)]),
    (inventory._ALTERATIONS, lambda session, text, values: [(1, 1)]),
    (inventory._NEWEST_SCHEMA, lambda session, text, values: [(0,)]),
    (IN_PART, lambda session, text, values: []),
    (EARLIER, lambda session, text, values: []),
    (STATE, lambda session, text, values: [(None, "")]),
    (inventory._HIGHEST, lambda session, text, values: [(max(TABLES),)]),
    (coverage._MONEY, lambda session, text, values: []),
    ("pg_stat_get_tuples_updated", lambda session, text, values: [(0, 0, "")]),
)
