"""The mode `history`: every version of every row, with the places from and to which it was there. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.sinks.tables import versions
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.formats.base import Once, Stored
from tailrace.sinks.tables.frames import in_session
from tailrace.sinks.tables.kept import Kept
from tailrace.sinks.tables.target import Owner
from tailrace.sinks.tables.versions import VALIDITY, Lasting, version_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS, _NEWS, _LASTING, _CHANGES = "tailrace_rows", "tailrace_news", "tailrace_lasting", "tailrace_changes"


class History(Kept):
    """A table of versions, kept by appends of the initial snapshot and a MERGE for each batch after it.

    `unknown` says what a value becomes that nobody has.
    """

    mode = "history"

    def __init__(self, path: str, source: str, owner: Owner, unknown: str = "stop") -> None:
        super().__init__(path, source, owner, VALIDITY)
        self._unknown = unknown

    def marks(self, batch: TableBatch) -> Sequence[str]:
        return ("position", "ordinal", "at", "cast(null as string)", "cast(null as bigint)", "cast(null as timestamp)")

    def merge(self, stored: Stored, batch: TableBatch, once: Once) -> None:
        session, table = stored.session, stored.name()
        form = batch.form
        opened = batch.opened()
        in_session(session, opened).createOrReplaceTempView(_ROWS)
        new = session.sql(versions.news(table, form, _ROWS))
        schema: Any = _declared(batch)
        lasting = batch.parted(new).mapInArrow(Lasting(form), schema)
        lasting.createOrReplaceTempView(_LASTING)
        session.sql(versions.changes(table, form, _LASTING, self._unknown)).createOrReplaceTempView(_CHANGES)
        truncate = None if batch.truncate is None else _first_truncate(opened)
        stored.merge(replace(versions.merge(form, _CHANGES, truncate), small=batch.small), once)


def _declared(batch: TableBatch) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(version_schema(batch.form), prefer_timestamp_ntz=True)


def _first_truncate(rows: DataFrame) -> tuple[str, int, int] | None:
    found = rows.where("op = 't'").orderBy("position", "ordinal")
    first = found.selectExpr("position", "ordinal", "unix_micros(at) as micros").first()
    return None if first is None else (first["position"], first["ordinal"], first["micros"])
