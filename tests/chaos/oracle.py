"""The committed changes of PostgreSQL in commit order, read from a slot of the harness's own by pgoutput.

The decoder knows protocol 1 and the few types of the harness's tables, and shares no code with the product.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.chaos.changes import UNAVAILABLE, Change

SLOT = "chaos_oracle"
PUBLICATION = "chaos_oracle"


@dataclass
class _Relation:
    schema: str
    name: str
    columns: list[str]
    keys: list[bool]


@dataclass
class Oracle:
    """A reader of new changes. Transactions that commit before `begin_lsn` are not delivered to the pipeline.

    `keys` holds the key's columns of tables with REPLICA IDENTITY FULL, where the server marks all columns.
    """

    dsn: str
    schema: str
    keys: Mapping[str, Collection[str]] = field(default_factory=dict)
    _relations: dict[int, _Relation] = field(default_factory=dict)

    def create(self) -> None:
        """Create the publication and the slot before the tables have rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"create publication {PUBLICATION} for all tables")
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Return all committed changes since the last call, each with the LSN of its commit record."""
        with psycopg.connect(self.dsn, autocommit=True) as connection, connection.cursor(binary=True) as cursor:
            self._relations.clear()
            found = cursor.stream(
                "select (lsn - '0/0')::int8, data from pg_logical_slot_get_binary_changes(%s, null, null, "
                "'proto_version', '1', 'publication_names', %s)",
                (SLOT, PUBLICATION),
                size=1000,
            )
            commit = xid = 0
            for lsn, data in found:
                kind = data[:1]
                if kind == b"B":
                    commit, _, xid = struct.unpack_from(">qqI", data, 1)
                elif kind == b"R":
                    self._relation(data)
                elif kind in (b"I", b"U", b"D", b"T"):
                    for change in self._row(kind, data, int(lsn), xid):
                        yield commit, change

    def _relation(self, data: bytes) -> None:
        (oid,) = struct.unpack_from(">I", data, 1)
        schema, at = _text(data, 5)
        name, at = _text(data, at)
        (count,) = struct.unpack_from(">H", data, at + 1)
        at += 3
        columns, keys = [], []
        for _ in range(count):
            marked = bool(data[at] & 1)
            column, at = _text(data, at + 1)
            keys.append(marked and column in self.keys.get(name, (column,)))
            columns.append(column)
            at += 8
        self._relations[oid] = _Relation(schema, name, columns, keys)

    def _row(self, kind: bytes, data: bytes, lsn: int, xid: int) -> Iterator[Change]:
        if kind == b"T":
            (count,) = struct.unpack_from(">I", data, 1)
            for oid in struct.unpack_from(f">{count}I", data, 6):
                relation = self._relations[oid]
                if relation.schema == self.schema:
                    yield Change(relation.name, "t", "", None, lsn, xid)
            return
        (oid,) = struct.unpack_from(">I", data, 1)
        relation = self._relations[oid]
        if relation.schema != self.schema:
            return
        at, old, new = 5, None, None
        if data[at : at + 1] in (b"K", b"O"):
            old, at = _tuple(data, at + 1, relation)
        if data[at : at + 1] == b"N":
            new, at = _tuple(data, at + 1, relation)
        if kind == b"I":
            assert new is not None
            yield Change(relation.name, "c", _key(relation, new), _shown(new), lsn, xid)
        elif kind == b"D":
            assert old is not None
            yield Change(relation.name, "d", _key(relation, old), None, lsn, xid)
        else:
            assert new is not None
            if old is not None and _key(relation, old) != _key(relation, new):
                yield Change(relation.name, "d", _key(relation, old), None, lsn, xid)
                yield Change(relation.name, "c", _key(relation, new), _shown(new), lsn, xid)
            else:
                yield Change(relation.name, "u", _key(relation, new), _shown(new), lsn, xid)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int, relation: _Relation) -> tuple[dict[str, str | None], int]:
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    values: dict[str, str | None] = {}
    for name in relation.columns[:count]:
        kind = data[at : at + 1]
        at += 1
        if kind == b"t":
            (length,) = struct.unpack_from(">I", data, at)
            values[name] = data[at + 4 : at + 4 + length].decode()
            at += 4 + length
        else:
            values[name] = None if kind == b"n" else UNAVAILABLE
    return values, at


def _key(relation: _Relation, values: dict[str, Any]) -> str:
    names = sorted(name for name, is_key in zip(relation.columns, relation.keys, strict=True) if is_key)
    return ",".join(str(values[name]) for name in names)


def _shown(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
