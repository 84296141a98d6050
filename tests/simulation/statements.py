"""The answers of a simulated PostgreSQL with tables to the statements of planner and tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from tailrace.connectors.postgres.log import identity
from tailrace.connectors.postgres.schema import catalog, coverage, inventory
from tailrace.connectors.postgres.snapshot import key_chunks, session, windows
from tests.simulation import server as plain
from tests.simulation.server import Answer, Session, Slot, may_lose
from tests.simulation.tables import KEY, Shape, Value, Version

if TYPE_CHECKING:
    from tests.simulation.sessions import TableSession

Found = list[tuple[Any, ...]]
_OUTPUT = "pg_catalog.textout"
_TYPE_NAMES = {20: "bigint", 23: "integer", 25: "text", 1043: "character varying"}


def _shapes(session: TableSession, oids: Sequence[int]) -> list[Shape]:
    """Return the tables in the statement's snapshot."""
    found = (session.server.tables.shown(oid, session.snapshot) for oid in oids)
    return [shape for shape in found if shape is not None]


def _now(session: TableSession, oid: int) -> Shape | None:
    """Return the table's current state, even if the transaction's snapshot shows another."""
    return session.server.tables.shown(oid, session.server.snapshot())


def _index(shape: Shape) -> int:
    return shape.oid + 5


# --- the catalog ----------------------------------------------------------------------------------------------------


def _tables(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    shapes = sorted(session.server.tables.all_shown(session.snapshot), key=lambda shape: shape.name)
    return [(shape.oid, "public", shape.name, "d", "r") for shape in shapes]


def _table(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(shape.oid, "public", shape.name, "d") for shape in _shapes(session, values[0])]


def _columns(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [
        (shape.oid, column.name, column.type, -1, column.nullable, "", column.default, None, column.number)
        for shape in _shapes(session, values[1])
        for column in shape.columns
    ]


def _keys(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    found = []
    for shape in _shapes(session, values[0]):
        key = shape.numbered(KEY)
        assert key is not None
        found.append((shape.oid, True, [key.name]))
    return found


def _present(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    may_lose(session)
    seen, end = session.snapshot, session.server.end
    found: Found = []
    for oid in values[1]:
        shape = session.server.tables.shown(oid, seen)
        columns = indexes = dropped = None
        if shape is not None:
            columns = [
                (one.number, one.name, not one.nullable, False, one.default, None, one.type, -1, one.xmin,
                 one.default_xmin, not one.nullable, None)
                for one in shape.columns
            ]  # fmt: skip
            indexes = [(_index(shape), True, False, f"{shape.name}_pkey", shape.xmin, [KEY])]
            dropped = session.server.tables.dropped(oid, seen)
        heap, xmin = (0, 0) if shape is None else (shape.heap, shape.xmin)
        found.append((oid, seen.xmax, sorted(seen.running), end, columns, indexes, dropped, heap, xmin))
    return found


def _alters(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    xid, oid = int(values[0]), values[1]
    server = session.server
    return [()] if xid in server.running() and oid in server.tables.alters.get(xid, ()) else []


def _relations(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    found: Found = []
    for shape in _shapes(session, values[0]):
        key = shape.numbered(KEY)
        assert key is not None
        names = [column.name for column in shape.columns]
        found.append(
            (
                shape.oid,
                "public",
                shape.name,
                "r",
                "p",
                False,
                "d",
                False,
                [],
                [],
                False,
                names,
                [],
                [],
                [key.name],
                False,
            )
        )
    return found


def _published(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(shape.oid, None, None) for shape in session.server.tables.all_shown(session.snapshot)]


def _highest(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(max(shape.oid for shape in session.server.tables.all_shown(session.snapshot)),)]


# --- snapshots ------------------------------------------------------------------------------------------------------


def _create_slot(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    server = session.server
    name = text.split('"')[1]
    before = set(server.open)
    # the slot begins after the end of all transactions that are running now
    session.process.wait(None, lambda: session.is_lost or not before & set(server.open))
    session.call("the slot is made")
    server.write("X")
    server.flush()
    server.slots[name] = Slot(server.end, server.end)
    server.tell(server.end)
    exported = session.export(server.logged(server.end))
    return [(name, f"{server.end >> 32:X}/{server.end & 0xFFFFFFFF:X}", exported, "pgoutput")]


def _exported(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    """Return the name of an exported snapshot, its text, the end of the log if it is asked for, and the time."""
    name, shown = session.export(session.snapshot), str(session.snapshot)
    return [(name, shown, session.server.tell(session.server.end), 0) if "_insert_lsn" in text else (name, shown, 0)]


def _storage(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(shape.oid, shape.heap) for shape in _shapes(session, values[0])]


def _form(shape: Shape) -> str:
    columns = ",".join(f"{column.number} public {shape.name} {column.name}" for column in shape.columns)
    return f"{shape.oid} {shape.heap} {columns}"


def _shown_form(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(shape.oid, _form(shape)) for shape in _shapes(session, values[0])]


def _present_form(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(oid, _form(shape)) for oid in values[0] if (shape := _now(session, oid)) is not None]


def _sizes(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    heaps = session.server.tables.heaps
    shapes = [(oid, shape) for oid in values[0] if (shape := _now(session, oid)) is not None]
    return [(oid, 1 + max((version.page for version in heaps[shape.heap]), default=-1)) for oid, shape in shapes]


# --- rows -----------------------------------------------------------------------------------------------------------

_PAGES = re.compile(r"ctid (>=|<) '\((\d+),0\)'")
_BOUNDS = re.compile(r"operator\(pg_catalog\.(<=|>)\) \('(.*?)'::")
_SINCE = re.compile(r"xmin::text::int8 - (\d+)\)")
_SELECT = re.compile(r"select (.*?) from ")


def _read(session: TableSession, text: str) -> tuple[Shape, list[Version]]:
    """Return the table of a query, and the rows that it selects, in key order."""
    oid = session.lock(text)
    shape = _now(session, oid)
    assert shape is not None
    pages, bounds = _PAGES.findall(text), _BOUNDS.findall(text)
    since = _SINCE.search(text)
    found = []
    for version in session.server.tables.rows(shape.heap, session.snapshot):
        key = str(version.values[KEY])
        is_wanted = all((version.page >= int(page)) == (sign == ">=") for sign, page in pages)
        is_wanted &= all((key <= bound) == (sign == "<=") for sign, bound in bounds)
        if is_wanted and (since is None or version.xmin >= int(since[1])):
            found.append(version)
    return shape, sorted(found, key=lambda version: str(version.values[KEY]))


def _value(version: Version, shape: Shape, number: int) -> Value:
    column = shape.numbered(number)
    assert column is not None
    return version.values.get(number, column.default)


def selected(session: TableSession, text: str) -> pa.RecordBatch:
    """Return the rows of a task's query."""
    if "pg_identify_object_as_address" in text:
        oid = int(text.split("'{")[1].split("}", maxsplit=1)[0])
        rows = _present_form(session, text, [[oid]])
        return pa.record_batch({"oid": pa.array([row[0] for row in rows]), "form": pa.array([row[1] for row in rows])})
    if text.startswith("select coalesce("):
        return pa.record_batch({"still": pa.array([_is_still(session, text)])})
    shape, versions = _read(session, text)
    listed = _SELECT.match(text)
    assert listed is not None
    names = re.findall(r'"(\w+)"', listed[1])
    found = {}
    for name in names:
        column = shape.column(name)
        if column is None:
            raise session.refused("42703", f'column "{name}" does not exist')
        values = [_value(version, shape, column.number) for version in versions]
        is_number = column.type in (20, 23)
        found[name] = (
            pa.array([None if value is None else int(value) for value in values], pa.int64())
            if is_number
            else pa.array(values, pa.string())
        )
    return pa.record_batch(found)


def _are_there(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [tuple(bool(_read(session, part)[1]) for part in text.split("exists (")[1:])]


def _count(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(len(_read(session, text)[1]),)]


def _last_page(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(max((version.page for version in _read(session, text)[1]), default=None),)]


def _largest_key(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(version.values[KEY],) for version in _read(session, text)[1][-1:]]


def _nth_key(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    place = int(text.split(" offset ")[1].split(maxsplit=1)[0])
    return [(version.values[KEY],) for version in _read(session, text)[1][place : place + 1]]


# --- windows --------------------------------------------------------------------------------------------------------


def _named(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    shape = session.server.named(values[1], session.snapshot)
    return [] if shape is None else [(shape.oid, "r", False)]


def _keyed_columns(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [
        (
            column.name,
            column.number,
            _TYPE_NAMES[column.type],
            column.nullable,
            _identity(shape, column.name),
            "pg_catalog",
        )
        for shape in _shapes(session, values)
        for column in shape.columns
    ]


def _identity(shape: Shape, name: str) -> str:
    return f"public.{shape.name}.{name}"


def _files(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(shape.oid, shape.heap) for shape in _shapes(session, values)]


def _fingerprint(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(f"{shape.serial} {shape.heap}",) for shape in _shapes(session, values)] or [(None,)]


_STILL = re.compile(r"""'"public"\."(\w+)"'::regclass::oid = (\d+)""")
_FILE = re.compile(r"pg_relation_filenode\((\d+)\), 0\) = (\d+)")
_COLUMN = re.compile(r"'pg_class'::regclass, (\d+), (\d+)\)\) = '(.*?)'")


def _is_still(session: TableSession, text: str) -> bool:
    """Evaluate the condition that a table is unaltered."""
    named = _STILL.search(text)
    assert named is not None
    shape = session.server.named(named[1])
    if shape is None:
        raise session.refused("42P01", f"relation {named[1]} does not exist")
    if shape.oid != int(named[2]):
        return False
    columns = {column.number: _identity(shape, column.name) for column in shape.columns}
    return all(shape.heap == int(heap) for _, heap in _FILE.findall(text)) and all(
        columns.get(int(number)) == identity for _, number, identity in _COLUMN.findall(text)
    )


def _still(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(_is_still(session, text),)]


def _insert(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    listed = text.split(" values (")[1].rstrip(")")
    texts = re.findall(r"'(.*?)'(?:, |$)|(null)", listed)
    session.server.put("signals", tuple(None if none else one for one, none in texts), is_local=True)
    return []


def _delete(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    session.server.remove("signals", text.split("operator(pg_catalog.=) '")[1].rstrip("'"))
    return []


def _running(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(xid,) for xid in sorted(session.server.unseen)]


def _of(answer: Any) -> Answer:
    def given(session: Session, text: str, values: Sequence[Any]) -> Found:
        found: Found = answer(cast("TableSession", session), text, values)
        return found

    return given


def _snapshot_text(session: TableSession, text: str, values: Sequence[Any]) -> Found:
    return [(str(session.snapshot),)]


ANSWERS: tuple[tuple[str, Answer], ...] = (
    *(
        (part, _of(answer))
        for part, answer in (
            (catalog._TABLES, _tables),
            (catalog._TABLE, _table),
            (catalog._COLUMNS, _columns),
            (catalog._KEYS, _keys),
            (catalog._PRESENT, _present),
            (catalog._ALTERS, _alters),
            (coverage._RELATIONS, _relations),
            (coverage._PUBLISHED, _published),
            (inventory._HIGHEST, _highest),
            (identity._WAITING, _running),
            (windows._TABLE, _named),
            (key_chunks._COLUMNS, _keyed_columns),
            (key_chunks._FINGERPRINT, _fingerprint),
            (key_chunks._FILES, _files),
            (session._SHOWN_FORM, _shown_form),
            (session.PRESENT_FORM, _present_form),
            (windows._FIRST_COLUMN, lambda session, text, values: [("id",)]),
            ("CREATE_REPLICATION_SLOT", _create_slot),
            ("pg_export_snapshot", _exported),
            ("relfilenode::int8 from", _storage),
            ("pg_catalog.pg_relation_size(oid)", _sizes),
            ("(ctid::text::point)", _last_page),
            ("select exists (select from", _are_there),
            ("pg_catalog.count(*)", _count),
            (" desc limit 1", _largest_key),
            (" limit 1) k(", _nth_key),
            ("select reltuples", lambda session, text, values: [(-1,)]),
            ("select coalesce('", _still),
            ("insert into", _insert),
            ("delete from", _delete),
            ("select pg_current_snapshot()", _snapshot_text),
            ("wal_writer_delay", lambda session, text, values: [(200,)]),
            ("then null else txid_current() end", lambda session, text, values: plain.flushing(session)),
            ("set_config('search_path'", lambda session, text, values: []),
        )
    ),
    *plain.ANSWERS,
)
