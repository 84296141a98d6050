"""Rebuild: tables of the mode `latest` or `history` out of those of the mode `log`, without the database. Driver.

The tables that are made name what they were rebuilt from. A pipeline may go on with them where that is sound: where
they hold all that its checkpoint has delivered into the log, and nothing else has gone on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.storage import HadoopStorage
from tailrace.sinks.tables import replay, statements
from tailrace.sinks.tables.formats.base import Columns, Once, Stored, TableFormat, told
from tailrace.sinks.tables.formats.known import FORMATS, found_at
from tailrace.sinks.tables.modes import CHANGE
from tailrace.sinks.tables.positions import COLUMNS, NAME, Moment, Positions, whole_moments
from tailrace.sinks.tables.replay import ReplayedForm
from tailrace.sinks.tables.statements import KEPT, literal
from tailrace.sinks.tables.target import DELETES, KEY, MODE, PIPELINE, metadata
from tailrace.sinks.tables.versions import VALIDITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REBUILT, CONTINUED = "tailrace.rebuilt", "tailrace.continued"
"""Properties: what a table was rebuilt from; and, of the positions of a log, where its pipeline has gone on."""

_COPIED = ("tailrace.", "delta.feature.", "delta.enable")
_MAPPING = "delta.columnMapping.mode"
_COMMITS = 1000
"""How far back writes of others are looked for."""


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """What is to be made: the mode `latest` or `history`; `at`, a position or a time, None for the newest moment; and
    the tables by their names, none for all. The others are as the options of the sink."""

    mode: str
    at: str | datetime | None = None
    tables: Sequence[str] = ()
    keeps_deletes: bool = False
    unknown: str = "stop"


@dataclass(frozen=True, slots=True)
class _Logged:
    """A table of the log as it is at the moment: its name, its changes, its properties, and whether columns of it were
    renamed, None where its own log does not reach back so far."""

    name: str
    rows: DataFrame
    properties: Mapping[str, str]
    renamed: bool | None

    @property
    def columns(self) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in self.rows.schema.fields]

    def shape(self, unknown: str) -> ReplayedForm:
        """What its rows are made of. Raises SinkError where it has no key."""
        if not json.loads(self.properties[KEY]):
            raise SinkError(f"The table {self.name} has no key, and only the mode log needs none.", "Name the others.")
        own = {name for name, _ in CHANGE}
        names = tuple(name for name, _ in self.columns if name not in own)
        key = tuple(names.index(name) for name in json.loads(self.properties[KEY]))
        return ReplayedForm(names, key, unknown, self.renamed)


def rebuild(spark: SparkSession, source: str, target: str, wanted: RebuildRequest) -> list[str]:
    """Make tables under `target` of the log under `source`; their names.

    What an earlier rebuild has made there, whole or not, is made anew. Raises SinkError where `source` is no log, or
    has no such moment; where `target` has tables of others, which stay as they are; or where a value is lacking.
    """
    # formats set in a session how it writes
    spark = spark.newSession()
    if source == target:
        raise SinkError("A rebuild cannot have the log's own path.", "Name another path to rebuild to.")
    first, newest = _moments(spark, source)
    names = sorted(newest["versions"])
    unknown = sorted(set(wanted.tables).difference(names))
    if unknown:
        raise SinkError(f"There is no table {unknown[0]} under {source}.", f"There are: {', '.join(names)}.")
    chosen = names if wanted.at is not None or not wanted.tables else sorted(wanted.tables)
    log = {name: _logged(spark, source, name, newest["versions"][name]) for name in chosen}
    until, at = _until(list(log.values()), (first, newest), wanted.at)
    tables = [log[name] for name in chosen if not wanted.tables or name in wanted.tables]
    kind = found_at(spark, f"{source}/{NAME}")
    pipeline = kind.table(spark, f"{source}/{NAME}").properties()[PIPELINE]
    continues = wanted.at is None and len(tables) == len(names)
    told = {"from": source, "position": at.position, "batch": at.batch, "continues": continues}
    owner = pipeline if continues else f"a rebuild of {source} at {at.position}"
    mark = {PIPELINE: owner, REBUILT: json.dumps(told)}
    places = [f"{target}/{name}" for name in (NAME, *(table.name for table in tables))]
    storage = HadoopStorage(spark)
    for place in places:
        _demand_rebuilt(spark, place)
    shapes = [table.shape(wanted.unknown) for table in tables]
    for place in places:
        storage.delete(place)
    making = _Making(spark, kind, wanted, until, mark, Once(pipeline, at.batch, metadata(at.batch, "-")))
    versions = {
        table.name: making.make(f"{target}/{table.name}", table, shape)
        for table, shape in zip(tables, shapes, strict=True)
    }
    kind.table(spark, f"{target}/{NAME}").create(COLUMNS, mark)
    positions = Positions(f"{target}/{NAME}", newest["query"], owner, kind)
    positions.open(spark, at.batch)
    positions.add(spark, at, True, versions)
    return sorted(versions)


def demand_sound(spark: SparkSession, path: str, pipeline: str) -> None:
    """Raise SinkError where a pipeline cannot go on with what is under `path`: where that is a log which it has left,
    or was rebuilt, not wholly or not to where the pipeline's checkpoint is."""
    positions = _stored(spark, f"{path}/{NAME}")
    if positions is None:
        return
    told = positions.properties()
    if CONTINUED in told:
        raise SinkError(
            f"The log under {path} has ended: its pipeline has gone on with {told[CONTINUED]}.", "Name that path."
        )
    if REBUILT not in told:
        return
    mark = json.loads(told[REBUILT])
    if not mark["continues"]:
        raise SinkError(
            f"The tables under {path} were rebuilt from {mark['from']} at {mark['position']}: no pipeline can go on "
            "with them.",
            "Name another path, or rebuild all of the tables at their newest moment.",
        )
    newest = _newest_batch(positions)
    if told[PIPELINE] != pipeline or newest > mark["batch"]:
        return
    if newest < mark["batch"]:
        raise SinkError(f"The rebuild of {mark['from']} under {path} was cut off.", "Rebuild the tables again.")
    log = _stored(spark, f"{mark['from']}/{NAME}")
    if log is None:
        raise SinkError(
            f"{mark['from']}, from which the tables under {path} were rebuilt, is not there to be compared.",
            "Bring it back, or begin with a new path and a new checkpoint.",
        )
    elsewhere = log.properties().get(CONTINUED, path)
    if elsewhere != path:
        raise SinkError(f"This pipeline has gone on with {elsewhere} already.", "Name that path.")
    if _newest_batch(log) > mark["batch"]:
        raise SinkError(
            f"The log under {mark['from']} has gone on since the tables under {path} were rebuilt.",
            "Rebuild them again; its pipeline must have delivered whole transactions alone before.",
        )
    log.announce((), {CONTINUED: path})


def _stored(spark: SparkSession, path: str) -> Stored | None:
    """The table at a path; None where there is none."""
    storage = HadoopStorage(spark)
    kinds = (kind for kind in FORMATS.values() if storage.sizes(f"{path}/{kind.marker}", "*.json"))
    found = (kind.table(spark, path) for kind in kinds)
    return next((stored for stored in found if stored.is_there()), None)


def _newest_batch(positions: Stored) -> int:
    row = positions.rows().selectExpr("max(batch) as batch").first()
    return -1 if row is None or row["batch"] is None else int(row["batch"])


def _moments(spark: SparkSession, source: str) -> tuple[Any, Any]:
    """The first and the newest whole moment of a log."""
    rows = whole_moments(spark, source).orderBy("batch")
    first, newest = rows.first(), rows.orderBy("batch", ascending=False).first()
    if first is None or newest is None:
        raise SinkError(f"{source} has no whole moment yet.", "Let its pipeline run on until the snapshot is over.")
    return first, newest


def _logged(spark: SparkSession, source: str, name: str, version: int) -> _Logged:
    path = f"{source}/{name}"
    stored = found_at(spark, path).table(spark, path)
    told = stored.properties()
    if told.get(MODE) != "log":
        raise SinkError(
            f"The table {path} has the mode {told.get(MODE)}, and only the mode log has every change.",
            "Name the path of a pipeline with debezium.sink.tables.mode = log.",
        )
    keys, renamed = stored.past(KEY)
    if len(keys) > 1:
        raise SinkError(
            f"The key of the table {path} is made of other columns than before, or of columns that had other names.",
            "Leave the table out by naming the others, or read the database anew.",
        )
    return _Logged(name, stored.rows(version), told, renamed)


def _until(tables: Sequence[_Logged], moments: tuple[Any, Any], at: str | datetime | None) -> tuple[str, Moment]:
    """Which changes are up to `at`, as a condition, and where that is."""
    first, newest = moments
    if at is None:
        return "true", Moment(newest["batch"], newest["position"], newest["ordinal"], newest["committed_at"])
    lowest = first["position"]
    if isinstance(at, str):
        until, known = f"__position <= {literal(at)}", lowest <= at <= newest["position"]
    else:
        micros = round(at.timestamp() * 1_000_000)
        later = f"__op <> 'r' and unix_micros(__committed_at) > {micros}"
        cuts = [table.rows.where(later).selectExpr("min(__position) as cut").collect()[0]["cut"] for table in tables]
        cut = min((found for found in cuts if found is not None), default=None)
        until = "true" if cut is None else f"__position < {literal(cut)}"
        known = cut is None or cut > lowest
    if not known:
        raise SinkError(
            f"The log is not whole at {at}: it is from {lowest} to {newest['position']}.", "Name a moment in between."
        )
    last = [
        table.rows.where(until)
        .selectExpr("max(struct(__position, __ordinal)) as place", "max(__committed_at) as at")
        .collect()[0]
        for table in tables
    ]
    position, ordinal = max(tuple(row["place"]) for row in last if row["place"] is not None)
    time = max(row["at"] for row in last if row["at"] is not None)
    return until, Moment(newest["batch"], position, ordinal, time)


def _demand_rebuilt(spark: SparkSession, place: str) -> None:
    """Raise SinkError where something is at `place` that no rebuild has made, or that a pipeline has gone on with."""
    stored = _stored(spark, place)
    begun = {kind.marker for kind in FORMATS.values()}
    if stored is None and begun.issuperset(HadoopStorage(spark).sizes(place)):
        return
    properties = {} if stored is None else stored.properties()
    if stored is None or REBUILT not in properties:
        raise SinkError(f"{place} is there already, and no rebuild has made it.", "Name another path, or move it away.")
    batch = json.loads(properties[REBUILT])["batch"]
    if any(commit.changes and not _is_rebuilt(told(commit.metadata), batch) for commit in stored.commits(_COMMITS)):
        raise SinkError(f"{place} was rebuilt, and has been written to since.", "Name another path.")


def _is_rebuilt(said: dict[str, Any] | None, batch: int) -> bool:
    """Whether a commit says of itself that a rebuild up to `batch` has made it: a pipeline's tables name its run."""
    return said is not None and "run" not in said and said["batch"] == batch


@dataclass(frozen=True, slots=True)
class _Making:
    """How tables of a format are made: of the changes of which `until` is true, with the properties `mark`."""

    spark: SparkSession
    kind: TableFormat
    wanted: RebuildRequest
    until: str
    mark: Mapping[str, str]
    once: Once

    def make(self, path: str, table: _Logged, shape: ReplayedForm) -> int:
        """Make one table; its version. Raises SinkError where a value is lacking."""
        found = replay.changes(table.rows.where(self.until), shape)
        replay.demand_keys(found, shape, table.name)
        own: Columns
        if self.wanted.mode == "latest":
            rows = replay.last_rows(found, shape, self.wanted.keeps_deletes)
            own = KEPT if self.wanted.keeps_deletes else ()
        else:
            rows, own = replay.every_version(found, shape), VALIDITY
        columns = _columns(table.columns, own)
        stored = self.kind.table(self.spark, path)
        stored.create(columns, self._properties(table))
        try:
            stored.append(rows.select(*(statements.quoted(name) for name, _ in columns)), self.once)
        except Exception as error:
            lacking = statements.unknown_column(str(error))
            if lacking is None:
                raise
            raise SinkError(
                f"No change in the log has the value of the column {lacking} of a row of {table.name}.",
                "Rebuild with --unknown-values null.",
            ) from None
        return stored.commits(1)[0].version

    def _properties(self, table: _Logged) -> dict[str, str]:
        """Those of the log's table, with what is other here."""
        kept = {name: text for name, text in table.properties.items() if name.startswith(_COPIED) or name == _MAPPING}
        deletes = "true" if self.wanted.keeps_deletes else "false"
        return {**kept, **self.mark, MODE: self.wanted.mode, DELETES: deletes}


def _columns(log: Sequence[tuple[str, str]], own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The columns in the order in which the sink would have them: those that came later behind its own."""
    change = [name for name, _ in CHANGE]
    found: list[tuple[str, str]] = []
    for name, kind in log:
        if name == change[0]:
            found.extend(own)
        elif name not in change:
            found.append((name, kind))
    return found
