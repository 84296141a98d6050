"""A table of Delta Lake that one pipeline keeps: made, found again, altered as the source's is. Driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.columns.blocks import Form, Place
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.evolution import DEFAULTS, Alteration, Policies, Record, Step, Unfollowed, demand_names
from tailrace.sinks.tables.once import IDLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

PIPELINE, SOURCE, MODE, KEY = "tailrace.pipeline", "tailrace.source", "tailrace.mode", "tailrace.key"
DELETES, COLUMNS = "tailrace.upsert-keep-deletes", "tailrace.columns"
"""Properties of a table: whose it is, which table of the source, how it is kept, the columns of its key, whether
deleted rows stay, and the Record of its columns."""

_PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    # a column of this type may come later
    "delta.feature.timestampNtz": "supported",
}
_MAPPING = {"delta.columnMapping.mode": "name"}
_WIDENING = {"delta.enableTypeWidening": "true"}

Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who keeps a table: the pipeline's checkpoint by its id, and how. `policies` are the answers to alterations;
    `keeps_deletes` says that deleted rows stay."""

    pipeline: str
    mode: str
    policies: Policies = DEFAULTS
    keeps_deletes: bool = False


class Target:
    """One table at `path`, of the source's table `source`. `own` are the columns that it has beside those.

    `prepare` comes first in each batch. `spark` is the session of the batch.
    """

    def __init__(self, spark: SparkSession, path: str, source: str, owner: Owner, own: Columns = ()) -> None:
        self.spark, self.path, self.source, self.owner, self.own = spark, path, source, owner, own
        self._columns: dict[str, DataType] = {}
        self._record: Record | None = None
        self._seen: Form | None = None
        self._written: str | None = None
        self._newest = -1

    def prepare(self, forms: Sequence[tuple[Form, Place]]) -> Form:
        """Make the table, or let it follow its source's through these forms, each with the place of its first change.

        Gives the form of the table's columns. Raises SinkError where the table is another pipeline's, or cannot follow,
        or is not to.
        """
        if self._record is None:
            self._record = self._found()
        for form, since in forms:
            if self._record is None:
                self._record = self._make(form, since)
            elif form != self._seen and since >= self._record.since:
                # an older form comes again with a batch that is repeated, or behind a second snapshot
                self._alter(self._record, form, since)
            else:
                continue
            self._seen = form
        assert self._record is not None
        return self._form(self._record)

    def written(self, number: int) -> str:
        """What `note` was given at the last write that the table knows of; "" where nothing was written yet.

        Raises SinkError where that was a batch behind `number`, which is to be written.
        """
        if self._written is None:
            rows, is_all = self._commits()
            # somebody else's rows, or too many other commits: what is known of the pipeline's own holds no more
            self._written = "" if is_all else _FOREIGN
            for row in rows:
                told = _told(row["userMetadata"])
                if told is not None:
                    self._newest = int(told.get("batch", 0))
                    self._demand_order(number, self._newest)
                    self._written = str(told.get("snapshot", ""))
                    break
                if row["operation"] in ("MERGE", "WRITE", "DELETE", "UPDATE", "TRUNCATE"):
                    self._written = _FOREIGN
                    break
        return self._written

    def _commits(self) -> tuple[list[Any], bool]:
        """The last commits, as many as it takes to find one that is no maintenance, and whether these are all."""
        for limit in (_COMMITS, 50 * _COMMITS):
            query = f"describe history {statements.at_path(self.path)} limit {limit}"
            rows = self.spark.sql(query).select("operation", "userMetadata").collect()
            if len(rows) < limit or any(row["operation"] not in IDLE for row in rows):
                break
        return rows, len(rows) < limit

    def _demand_order(self, number: int, newest: int) -> None:
        if newest > number:
            # Delta would take the batches up to that one for done, whatever is in them
            raise SinkError(
                f"The table {self.path} holds batch {newest}, and its checkpoint is at batch {number}: it was put back "
                "to an earlier state.",
                "Name another path and another checkpoint.",
            )

    def note(self, number: int, snapshot: str) -> None:
        """Keep in mind what was written last: the batch, and the snapshot, "-" for changes."""
        self._newest, self._written = number, snapshot

    def has(self, number: int) -> bool:
        """Whether something of a batch is in the table; after `written`."""
        return self._newest == number

    def is_keyed_as(self, forms: Sequence[tuple[Form, Place]]) -> bool:
        """Whether the table knows rows by the key that the forms have; after `prepare`. Changes need no key."""
        assert self._record is not None
        form, _ = forms[-1]
        found = [self._record.find(form.number(place), form.names[place]) for place in form.key]
        same = set(self._record.key) == {held.name for held in found if held is not None}
        return self.owner.mode == "log" or (same and None not in found)

    def version(self) -> int:
        """The table's version after a batch: that of the newest commit of this pipeline, for what others have done
        since is not of the source; the newest of all where the pipeline has none."""
        for limit in (1, _COMMITS):
            query = f"describe history {statements.at_path(self.path)} limit {limit}"
            rows = self.spark.sql(query).select("version", "userMetadata").collect()
            for row in rows:
                if _told(row["userMetadata"]) is not None:
                    return int(row["version"])
        return int(rows[0]["version"])

    def is_there(self) -> bool:
        """Whether there is a table. Raises SinkError where there is something else."""
        storage = self.spark._jvm.org.apache.hadoop.fs.Path(self.path)  # type: ignore[union-attr]
        system = storage.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        if not system.exists(storage) or not len(system.listStatus(storage)):
            return False
        log = self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log")  # type: ignore[union-attr]
        if not system.exists(log):
            raise SinkError(
                f"{self.path} is there already and is no table of Delta Lake.",
                "Name another debezium.sink.tables.path, or move it away.",
            )
        return True

    def _found(self) -> Record | None:
        """What the table that is there holds; None where there is none."""
        if not self.is_there():
            return None
        told = self.properties()
        self._demand_own(told)
        self._columns = self.columns()
        lost = [name for name, _ in self.own if name not in self._columns]
        if lost or COLUMNS not in told:
            raise self._stop(Unfollowed("somebody else has altered the table"))
        return Record.of(told[COLUMNS])

    def columns(self) -> dict[str, DataType]:
        """The table's columns and their types."""
        schema = self.spark.read.format("delta").load(self.path).schema
        return {field.name: field.dataType for field in schema.fields}

    def properties(self) -> dict[str, str]:
        """The table's properties."""
        rows = self.spark.sql(f"show tblproperties {statements.at_path(self.path)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def _demand_own(self, told: Mapping[str, str]) -> None:
        """Raise SinkError where the table's properties say that it is another one than this pipeline's."""
        wanted = self._own_properties()
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

    def _own_properties(self) -> dict[str, str]:
        deletes = "true" if self.owner.keeps_deletes else "false"
        return {PIPELINE: self.owner.pipeline, SOURCE: self.source, MODE: self.owner.mode, DELETES: deletes}

    def _make(self, form: Form, since: Place) -> Record:
        try:
            demand_names(form.names, [name for name, _ in self.own])
        except Unfollowed as error:
            raise self._stop(error) from None
        record = Record.first(form, since)
        listed = zip(form.names, map(statements.type_of, form.types), strict=True)
        columns = [*listed, *self.own]
        properties = {**_PROPERTIES, **self._own_properties(), **_recorded(record)}
        if statements.needs_mapping(form.names):
            properties |= _MAPPING
        self.spark.sql(statements.create(self.path, columns, properties))
        self._columns, self._written = self.columns(), ""
        return record

    def _alter(self, record: Record, form: Form, since: Place) -> None:
        """Let the table follow from its record to a form; nothing is done where it is that one already."""
        try:
            own = [name for name, _ in self.own]
            types = {name: kind.simpleString() for name, kind in self._columns.items()}
            alteration = Alteration(record, form, since, types, self.owner.policies, own)
        except Unfollowed as error:
            raise self._stop(error) from None
        if alteration.is_nothing:
            return
        if alteration.moves_key:
            self._demand_key(alteration.key)
        for phase in alteration.phases():
            properties = _recorded(phase.record)
            if any(step.what in ("drop", "rename") or statements.needs_mapping([step.name]) for step in phase.steps):
                self.spark.sql(statements.set_properties(self.path, _MAPPING))
            if any(step.what == "widen" for step in phase.steps):
                self.spark.sql(statements.set_properties(self.path, _WIDENING))
            for step in phase.steps:
                self.spark.sql(_STATEMENTS[step.what](self.path, step))
            self.spark.sql(statements.set_properties(self.path, properties))
            self._record = phase.record
        self._columns = self.columns()

    def _demand_key(self, key: Sequence[str]) -> None:
        """Raise SinkError where the rows that are there cannot be told apart by these columns."""
        if self.owner.mode == "log":
            return
        where = "__valid_to is null" if self.owner.mode == "history" else "true"
        if self.spark.sql(statements.doubled(self.path, key, where)).collect():
            why = f"its key is made of {', '.join(key)} now, and rows of the table have no values there, or the same"
            raise self._stop(Unfollowed(why))

    def _form(self, record: Record) -> Form:
        """The form of the columns that the table holds of the source's."""
        from pyspark.sql.pandas.types import to_arrow_type

        held = [held for held in record.columns if held.name]
        names = [one.name for one in held]
        return Form(
            tuple(names),
            tuple(to_arrow_type(self._columns[name], timezone="UTC") for name in names),
            tuple(names.index(name) for name in record.key),
            (),
            tuple(one.number for one in held),
            record.relation,
        )

    def _stop(self, why: Unfollowed) -> SinkError:
        remedy = why.remedy or "Begin anew with another path and another checkpoint"
        return SinkError(f"The table {self.path} cannot follow {self.source}: {why.why}.", f"{remedy}.")


_STATEMENTS: Mapping[str, Callable[[str, Step], str]] = {
    "drop": lambda path, step: statements.drop_column(path, step.name),
    "rename": lambda path, step: statements.rename_column(path, step.name, step.to),
    "widen": lambda path, step: statements.widen_column(path, step.name, step.to),
    "add": lambda path, step: statements.add_columns(path, [(step.name, step.to)]),
}


def _recorded(record: Record) -> dict[str, str]:
    return {COLUMNS: record.text(), KEY: json.dumps(record.key)}


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
