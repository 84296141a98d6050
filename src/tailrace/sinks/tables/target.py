"""A table of Delta Lake that one pipeline keeps: made, found again, grown by columns. Driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.blocks import Form
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE, SOURCE, MODE, KEY = "tailrace.pipeline", "tailrace.source", "tailrace.mode", "tailrace.key"
DELETES = "tailrace.upsert-keep-deletes"
"""Properties of a table: whose it is, which table of the source, how it is kept, the columns of its key, and whether
deleted rows stay."""

_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    # a column of this type may come later
    "delta.feature.timestampNtz": "supported",
}
_MAPPING = {"delta.columnMapping.mode": "name"}

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who keeps a table: the pipeline's checkpoint by its id, and how. `stops_at_defaults` is the answer to a new
    column that older rows have another value in than null; `keeps_deletes` says that deleted rows stay."""

    pipeline: str
    mode: str
    stops_at_defaults: bool = True
    keeps_deletes: bool = False


class Target:
    """One table at `path`, of the source's table `source`. `own` are the columns that it has beside those.

    `prepare` comes first in each batch. `spark` is the session of the batch.
    """

    def __init__(self, spark: SparkSession, path: str, source: str, owner: Owner, own: Columns = ()) -> None:
        self.spark, self.path, self.source, self.owner, self.own = spark, path, source, owner, own
        self._columns: dict[str, str] | None = None
        self._written: str | None = None

    def prepare(self, form: Form) -> None:
        """Make the table, or let it have the columns of `form`.

        Raises SinkError where the table is another pipeline's, or has columns or a key that do not go with `form`.
        """
        wanted = self._wanted(form)
        if self._columns is None:
            self._columns = self._found()
            if self._columns is None:
                self._make(form, wanted)
                return
            self._demand_own(form)
        if self._columns != dict(wanted):
            self._grow(form, dict(wanted))

    def written(self, number: int) -> str:
        """What `note` was given at the last write that the table knows of; "" where nothing was written yet.

        Raises SinkError where that was a batch behind `number`, which is to be written.
        """
        if self._written is None:
            query = f"describe history {statements.at_path(self.path)} limit {_COMMITS}"
            rows = self.spark.sql(query).select("operation", "userMetadata").collect()
            # somebody else's rows, or too many other commits: what is known of the pipeline's own holds no more
            self._written = "" if len(rows) < _COMMITS else _FOREIGN
            for row in rows:
                told = _told(row["userMetadata"])
                if told is not None:
                    self._demand_order(number, int(told.get("batch", 0)))
                    self._written = str(told.get("snapshot", ""))
                    break
                if row["operation"] in ("MERGE", "WRITE", "DELETE", "UPDATE", "TRUNCATE"):
                    self._written = _FOREIGN
                    break
        return self._written

    def _demand_order(self, number: int, newest: int) -> None:
        if newest > number:
            # Delta would take the batches up to that one for done, whatever is in them
            raise SinkError(
                f"The table {self.path} holds batch {newest}, and its checkpoint is at batch {number}: it was put back "
                "to an earlier state.",
                "Name another path and another checkpoint.",
            )

    def note(self, snapshot: str) -> None:
        """Keep in mind what was written last: the snapshot, "-" for changes."""
        self._written = snapshot

    def version(self) -> int:
        """The table's version, as this process's last write has left it."""
        # Delta's own object of the table, which a write brings up to date. `describe history` would be two jobs.
        logs: Any = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        return int(logs.forTable(self.spark._jsparkSession, self.path).unsafeVolatileSnapshot().version())

    def _wanted(self, form: Form) -> list[tuple[str, str]]:
        own = [name for name, _ in self.own]
        seen: dict[str, str] = {}
        for name in (*form.names, *own):
            other = seen.setdefault(name.lower(), name)
            if other != name or (name in own and name in form.names):
                raise SinkError(
                    f"The columns {other} and {name} of {self.source} cannot be in one table: Spark tells names apart "
                    "by more than their case.",
                    "Leave one of them out with column.exclude.list.",
                )
        return [
            *((name, statements.type_of(kind)) for name, kind in zip(form.names, form.types, strict=True)),
            *self.own,
        ]

    def _found(self) -> dict[str, str] | None:
        """The columns of the table that is there; None where there is none."""
        storage = self.spark._jvm.org.apache.hadoop.fs.Path(self.path)  # type: ignore[union-attr]
        system = storage.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(storage) or not len(system.listStatus(storage)):
            return None
        log = self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log")  # type: ignore[union-attr]
        if not system.exists(log):
            raise SinkError(
                f"{self.path} is there already and is no table of Delta Lake.",
                "Name another debezium.sink.tables.path, or move it away.",
            )
        schema = self.spark.read.format("delta").load(self.path).schema
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        rows = self.spark.sql(f"show tblproperties {statements.at_path(self.path)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def _demand_own(self, form: Form) -> None:
        told = self.properties()
        wanted = self._own_properties(form)
        for name, what in ((PIPELINE, "pipeline"), (SOURCE, "source's table"), (MODE, "mode")):
            if told.get(name) != wanted[name]:
                other = f": {told[name]}" if name in told else ", or of none"
                raise SinkError(
                    f"The table {self.path} is there already, of another {what}{other}.",
                    "Name another debezium.sink.tables.path, or move the table away.",
                )
        deletes = told.get(DELETES, "false")
        if deletes != wanted[DELETES]:
            raise SinkError(
                f"The table {self.path} is there already, made with debezium.sink.tables.upsert-keep-deletes = "
                f"{deletes}.",
                "Set it so again, or begin anew with another path and another checkpoint.",
            )
        if told.get(KEY) != wanted[KEY]:
            raise self._stop("its key is made of other columns than before")

    def _own_properties(self, form: Form) -> dict[str, str]:
        key = json.dumps([form.names[place] for place in form.key])
        deletes = "true" if self.owner.keeps_deletes else "false"
        own = {PIPELINE: self.owner.pipeline, SOURCE: self.source, MODE: self.owner.mode}
        return {**own, KEY: key, DELETES: deletes}

    def _make(self, form: Form, wanted: Columns) -> None:
        properties = {**_PROPERTIES, **self._own_properties(form)}
        if statements.needs_mapping([name for name, _ in wanted]):
            properties |= _MAPPING
        self.spark.sql(statements.create(self.path, wanted, properties))
        self._columns, self._written = dict(wanted), ""

    def _grow(self, form: Form, wanted: Mapping[str, str]) -> None:
        """Add columns; every other difference is an error."""
        assert self._columns is not None
        self._demand_own(form)
        gone = [name for name in self._columns if name not in wanted]
        if gone:
            raise self._stop(f"it has no column {gone[0]} any more: dropped, or called otherwise")
        for name, kind in wanted.items():
            if self._columns.get(name, kind) != kind:
                raise self._stop(f"its column {name} is of the type {kind} now, and was of {self._columns[name]}")
        added = [(name, kind) for name, kind in wanted.items() if name not in self._columns]
        defaults = {form.names[place] for place in form.added}
        for name, _ in added:
            if name in defaults and self.owner.stops_at_defaults:
                raise self._stop(
                    f"its new column {name} has a default, which rows may have that nobody has written since",
                    "Set debezium.sink.tables.added.default = null, and read the table anew by an incremental snapshot",
                )
        if added:
            if statements.needs_mapping([name for name, _ in added]):
                self.spark.sql(statements.set_properties(self.path, _MAPPING))
            self.spark.sql(statements.add_columns(self.path, added))
        self._columns = {**self._columns, **dict(added)}

    def _stop(self, why: str, remedy: str = "Begin anew with another path and another checkpoint") -> SinkError:
        return SinkError(f"The table {self.path} cannot follow {self.source}: {why}.", f"{remedy}.")


_FOREIGN = "?"
_COMMITS = 20


def metadata(batch: int, snapshot: str) -> str:
    """What a commit to a table says of itself."""
    return json.dumps({"tailrace": {"batch": batch, "snapshot": snapshot}})


def _told(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    told = found.get("tailrace") if isinstance(found, dict) else None
    return told if isinstance(told, dict) else None
