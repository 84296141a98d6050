"""The mode `history`: every version of every row, with the places from and to which it was there. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.tables import statements, versions
from tailrace.sinks.tables.batch import CHANGES, TableBatch, in_session
from tailrace.sinks.tables.once import Once
from tailrace.sinks.tables.target import Owner, Target, metadata
from tailrace.sinks.tables.versions import VALIDITY, Lasting, version_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS, _NEWS, _LASTING, _CHANGES = "tailrace_rows", "tailrace_news", "tailrace_lasting", "tailrace_changes"


class History:
    """One table of versions, kept by appends of the initial snapshot and a MERGE for each batch after it."""

    def __init__(self, path: str, source: str, owner: Owner, unknown: str) -> None:
        self.path, self._source, self._owner, self._unknown = path, source, owner, unknown
        self._target: Target | None = None

    def write(self, session: SparkSession, batch: TableBatch) -> int:
        """Bring the table to the end of the batch; its version then. Raises SinkError."""
        if not batch.form.key:
            raise SinkError(
                f"The table {self._source} has no key, and the mode history knows rows by their keys.",
                "Give it a primary key, name columns in message.key.columns, leave it out, or use the mode log.",
            )
        target = Target(session, self.path, self._source, self._owner, VALIDITY)
        if self._target is not None:
            target.take(self._target)
        self._target = target
        for form in batch.forms:
            target.prepare(form)
        once = Once(self._owner.pipeline, batch.number, metadata(batch.number, batch.snapshot))
        written = target.written(batch.number)
        # Rows of one snapshot have different keys. Those of the next one may be there already.
        if batch.snapshot != CHANGES and written in ("", batch.snapshot):
            self._append(session, batch, once)
        else:
            self._merge(session, batch, once)
        target.note(batch.snapshot)
        return target.version()

    def _append(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        named = [f"c{place} as {statements.quoted(name)}" for place, name in enumerate(batch.form.names)]
        own = ("position", "ordinal", "at", "cast(null as string)", "cast(null as bigint)", "cast(null as timestamp)")
        named += [f"{value} as {name}" for (name, _), value in zip(VALIDITY, own, strict=True)]
        once.append(in_session(session, batch.opened().selectExpr(*named)), self.path)

    def _merge(self, session: SparkSession, batch: TableBatch, once: Once) -> None:
        form = batch.form
        opened = batch.opened()
        in_session(session, opened).createOrReplaceTempView(_ROWS)
        new = session.sql(versions.news(self.path, form, _ROWS))
        schema: Any = _declared(batch)
        lasting = batch.parted(new).mapInArrow(Lasting(form), schema)
        lasting.createOrReplaceTempView(_LASTING)
        session.sql(versions.changes(self.path, form, _LASTING, self._unknown)).createOrReplaceTempView(_CHANGES)
        truncate = None if batch.truncate is None else _first_truncate(opened)
        once.run(session, versions.merge(self.path, form, _CHANGES, truncate))


def _declared(batch: TableBatch) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(version_schema(batch.form), prefer_timestamp_ntz=True)


def _first_truncate(rows: DataFrame) -> tuple[str, int, int] | None:
    found = rows.where("op = 't'").orderBy("position", "ordinal")
    first = found.selectExpr("position", "ordinal", "unix_micros(at) as micros").first()
    return None if first is None else (first["position"], first["ordinal"], first["micros"])
