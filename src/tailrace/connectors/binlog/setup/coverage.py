"""Coverage: the tables of which the log does not carry all that a SELECT returns, by the catalog. Planner, driver."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.config import Config, TableFilter
from tailrace.connectors.binlog.schema.catalog import ListedTable, holds_rows, quoted
from tailrace.connectors.binlog.schema.definition import Name
from tailrace.connectors.binlog.server.connection import rows
from tailrace.connectors.findings import Finding, listed

if TYPE_CHECKING:
    from pymysql.connections import Connection

_TRANSACTIONAL = ("INNODB", "NDB", "NDBCLUSTER", "ROCKSDB", "TOKUDB", "")
_MERGED = "MRG_MYISAM"
_ELSEWHERE = ("FEDERATED", "CONNECT", "SPIDER", "SPHINX", "S3", "OQGRAPH", "SEQUENCE")
"""Engines of tables whose rows other servers, files or tables have."""
_UNION = re.compile(r"\bUNION=\((.*?)\)")
_NAMED = re.compile(r"(?:`((?:[^`]|``)+)`\.)?`((?:[^`]|``)+)`")


def findings(
    session: Connection[Any], there: Sequence[ListedTable], captured: Collection[Name], *, copies: bool
) -> Iterator[Finding]:
    """Yield findings about the tables `captured`; `there` are all tables of the server. `copies` is True if rows are
    for copies."""
    chosen = [one for one in there if one.id in captured]
    yield from _engines(chosen)
    yield from _versioned(session, chosen, copies=copies)
    yield from _merged(session, there, captured)
    yield from _cascades(session, captured)


def views(config: Config, every: Sequence[ListedTable]) -> Iterator[Finding]:
    """Yield a warning if `table.include.list` matches what is no table; `every` are all tables and views."""
    lists = TableFilter(config).lists
    others = [one for one in every if config["table.include.list"] and not holds_rows(one) and lists(*one.id)]
    if others:
        named = [f"{_shown(one.id)} ({one.kind.lower()})" for one in others]
        yield Finding(
            "warning", "coverage",
            f"table.include.list matches what is no table, and no change of it arrives: {listed(named)}.",
            "Capture the tables from which its rows come.",
        )  # fmt: skip


def images(of: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning if the server's variables `of` say that rows of the log lack columns."""
    image = of.get("binlog_row_image", "FULL").upper()
    if image != "FULL":
        yield Finding(
            "warning", "log",
            f"binlog_row_image is {image}: rows of the log lack columns, and events show the placeholder for them. "
            "Numbers, times and other types without a placeholder are null or zero there, and so in copies by the sink "
            "jdbc.",
            "SET GLOBAL binlog_row_image = FULL; sessions that are open keep theirs.",
        )  # fmt: skip


def _engines(captured: Sequence[ListedTable]) -> Iterator[Finding]:
    engines = [(one.engine.upper(), f"{_shown(one.id)} ({one.engine})") for one in captured]
    known = (*_TRANSACTIONAL, *_ELSEWHERE, "BLACKHOLE", _MERGED)
    if others := [shown for engine, shown in engines if engine not in known]:
        yield Finding(
            "warning", "tables",
            f"Tables of engines without transactions: {listed(others)}. A snapshot may have their rows of several "
            "moments.",
            "ALTER TABLE … ENGINE = InnoDB.",
        )  # fmt: skip
    if away := [shown for engine, shown in engines if engine in _ELSEWHERE]:
        yield Finding(
            "warning", "tables",
            f"Tables whose rows are elsewhere: {listed(away)}. The log has what is written through them, and nothing "
            "of what changes there.",
            "Capture the tables that have the rows, and leave these out.",
        )  # fmt: skip
    if empty := [shown for engine, shown in engines if engine == "BLACKHOLE"]:
        yield Finding(
            "warning", "tables",
            f"Tables that keep no rows: {listed(empty)}. The log has rows, which a copy keeps and no SELECT shows.",
            "Leave them out.",
        )  # fmt: skip


def _merged(session: Connection[Any], there: Sequence[ListedTable], captured: Collection[Name]) -> Iterator[Finding]:
    """Yield the tables that share rows, of which at least one is captured."""
    import pymysql

    found: set[Name] = set()
    for one in there:
        if one.engine.upper() != _MERGED:
            continue
        try:
            text = str(rows(session, f"SHOW CREATE TABLE {quoted(*one.id)}")[0][1])
        except pymysql.err.Error:
            # one that is broken, or that the user may not see
            text = ""
        union = _UNION.search(text)
        parts = _NAMED.findall(union[1]) if union else []
        found.update({one.id, *((database or one.database, table) for database, table in parts)}.intersection(captured))
    if found:
        yield Finding(
            "warning", "tables",
            f"Tables of the engine MERGE, and those behind them: {listed([_shown(name) for name in sorted(found)])}. "
            "They share rows, and the log has each change under one name only.",
            "Write to the tables behind, capture these, and leave the merged ones out.",
        )  # fmt: skip


def _versioned(session: Connection[Any], chosen: Sequence[ListedTable], *, copies: bool) -> Iterator[Finding]:
    """Yield findings about the tables with system versioning whose period has named columns (MariaDB)."""
    versioned = {one.id for one in chosen if one.kind == "SYSTEM VERSIONED"}
    if not versioned:
        return
    ends = rows(
        session,
        "SELECT TABLE_SCHEMA, TABLE_NAME, DATA_TYPE FROM information_schema.COLUMNS "
        "WHERE UPPER(GENERATION_EXPRESSION) = 'ROW END'",
    )
    named = sorted(((database, table), kind) for database, table, kind in ends if (database, table) in versioned)
    if by_ids := [_shown(name) for name, kind in named if kind.upper() == "BIGINT"]:
        yield Finding(
            "error", "tables",
            f"Tables whose row versions are marked by transaction ids: {listed(by_ids)}. MariaDB logs statements "
            "instead of their rows, whatever binlog_format is.",
            "Give their periods columns of the type TIMESTAMP(6), or leave the tables out with table.exclude.list.",
        )  # fmt: skip
    if by_times := [_shown(name) for name, kind in named if kind.upper() != "BIGINT" and not copies]:
        yield Finding(
            "warning", "tables",
            f"Tables with system versioning and named period columns: {listed(by_times)}. Events bring their "
            "historical rows, too, as rows with an earlier end: an update comes with a create, and DELETE HISTORY with "
            "deletes.",
            "Keep the column of the end in the key, and tell historical rows by it; copies leave these rows out.",
        )  # fmt: skip


def _cascades(session: Connection[Any], captured: Collection[Name]) -> Iterator[Finding]:
    ruled = rows(
        session,
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS "
        "WHERE DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION')",
    )
    found = sorted({_shown((database, table)) for database, table in ruled if (database, table) in captured})
    if found:
        yield Finding(
            "warning", "tables",
            f"Foreign keys of these tables cascade: {listed(found)}. The log has no rows of what a cascade changes.",
            "Copies keep these rows as they were: tailrace verify finds and repairs them.",
        )  # fmt: skip


def _shown(name: Name) -> str:
    return ".".join(name)
