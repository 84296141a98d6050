"""Rebuild of tables of the mode `latest` or `history` from tables of the mode `log`, without the database. Driver.

The rebuilt tables name their origin. A pipeline may continue with them under two conditions: they hold everything that
its checkpoint has delivered into the log, and neither the log's pipeline nor another rebuild has continued from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.storage import HadoopStorage
from tailrace.sinks.tables import rebuilt_rows, statements
from tailrace.sinks.tables.formats.base import Columns, StoredTable, TableFormat, WriteId, own_metadata
from tailrace.sinks.tables.formats.detection import FORMATS, found_at
from tailrace.sinks.tables.modes import CHANGE
from tailrace.sinks.tables.positions import COLUMNS, NAME, BatchEnd, Positions, whole_moments
from tailrace.sinks.tables.rebuilt_rows import RebuiltForm
from tailrace.sinks.tables.statements import KEPT, literal
from tailrace.sinks.tables.target import DELETES, KEY, MODE, PIPELINE, metadata
from tailrace.sinks.tables.versions import VALIDITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REBUILT, CONTINUED = "tailrace.rebuilt", "tailrace.continued"
"""Properties: the origin of a rebuilt table; on the positions of a log, the path where its pipeline has continued."""

FORM = "tailrace.form"
"""The property of the table of positions with the form of all tables under a path; tables of the form 1 have none."""

_COPIED = ("tailrace.", "delta.feature.", "delta.enable")
_MAPPING = "delta.columnMapping.mode"
_COMMITS = 1000
"""Number of commits that are searched for writes of other processes."""


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """A request to rebuild tables.

    `mode` is `latest` or `history`. `at` is a position or a time, None for the newest moment. `tables` holds names of
    tables, () for all. `keeps_deletes` and `unknown` are as in the sink's options.
    """

    mode: str
    at: str | datetime | None = None
    tables: Sequence[str] = ()
    keeps_deletes: bool = False
    unknown: str = "stop"


@dataclass(frozen=True, slots=True)
class _Logged:
    """A table of the log at a moment: its name, changes and properties.

    `renamed` is True if columns were renamed, None if the table's own history is too short to know.
    """

    name: str
    rows: DataFrame
    properties: Mapping[str, str]
    renamed: bool | None

    @property
    def columns(self) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in self.rows.schema.fields]

    def shape(self, unknown: str) -> RebuiltForm:
        """Return the form of its rows. Raises SinkError if it has no key."""
        if not json.loads(self.properties[KEY]):
            raise SinkError(f"The table {self.name} has no key, and only the mode log needs none.", "Name the others.")
        own = {name for name, _ in CHANGE}
        names = tuple(name for name, _ in self.columns if name not in own)
        key = tuple(names.index(name) for name in json.loads(self.properties[KEY]))
        return RebuiltForm(names, key, unknown, self.renamed)


def rebuild(spark: SparkSession, source: str, target: str, wanted: RebuildRequest) -> list[str]:
    """Rebuild tables under `target` from the log under `source`. Return their names.

    Tables of an earlier rebuild, complete or not, are replaced. Raises SinkError if `source` is not a log or has no
    such moment; if `target` has tables that no rebuild has made, which stay unchanged; or if a value is lacking.
    """
    # Formats set the options of a write in the session.
    spark = spark.newSession()
    if source == target:
        raise SinkError("A rebuild cannot write to the log's own path.", "Name another path to rebuild to.")
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
    origin = {"from": source, "position": at.position, "batch": at.batch, "continues": continues}
    owner = pipeline if continues else f"a rebuild of {source} at {at.position}"
    mark = {PIPELINE: owner, REBUILT: json.dumps(origin)}
    places = [f"{target}/{name}" for name in (NAME, *(table.name for table in tables))]
    storage = HadoopStorage(spark)
    for place in places:
        _demand_rebuilt(spark, place)
    shapes = [table.shape(wanted.unknown) for table in tables]
    for place in places:
        storage.delete(place)
    making = _Making(spark, kind, wanted, until, mark, WriteId(pipeline, at.batch, metadata(at.batch, "-")))
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
    """Raise SinkError if a pipeline cannot continue with the tables under `path`.

    It cannot continue with a log whose pipeline has continued elsewhere, or with an incomplete rebuild. Nor can it
    continue with a rebuild that ends at another point than the checkpoint.
    """
    positions = _stored(spark, f"{path}/{NAME}")
    if positions is None:
        return
    properties = positions.properties()
    form = properties.get(FORM, "1")
    if form != "1":
        raise SinkError(
            f"A newer tailrace has written the tables under {path}: they have the form {form}, and this version reads "
            "the form 1.",
            "Install the newer version again, or begin anew with another path and another checkpoint.",
        )
    if CONTINUED in properties:
        raise SinkError(
            f"The log under {path} has ended: its pipeline has continued with {properties[CONTINUED]}.",
            "Name that path.",
        )
    if REBUILT not in properties:
        return
    mark = json.loads(properties[REBUILT])
    if not mark["continues"]:
        raise SinkError(
            f"The tables under {path} were rebuilt from {mark['from']} at {mark['position']}: no pipeline can "
            "continue with them.",
            "Name another path, or rebuild all tables at their newest moment.",
        )
    newest = _newest_batch(positions)
    if properties[PIPELINE] != pipeline or newest > mark["batch"]:
        return
    if newest < mark["batch"]:
        raise SinkError(f"The rebuild of {mark['from']} under {path} was interrupted.", "Rebuild the tables again.")
    log = _stored(spark, f"{mark['from']}/{NAME}")
    if log is None:
        raise SinkError(
            f"{mark['from']}, from which the tables under {path} were rebuilt, does not exist for a comparison.",
            "Restore it, or begin with a new path and a new checkpoint.",
        )
    elsewhere = log.properties().get(CONTINUED, path)
    if elsewhere != path:
        raise SinkError(f"This pipeline has already continued with {elsewhere}.", "Name that path.")
    if _newest_batch(log) > mark["batch"]:
        raise SinkError(
            f"The log under {mark['from']} has grown since the tables under {path} were rebuilt.",
            "Rebuild them again, after the log's pipeline has ended between two transactions.",
        )
    log.announce((), {CONTINUED: path})


def _stored(spark: SparkSession, path: str) -> StoredTable | None:
    """Return the table at a path; None if there is none."""
    storage = HadoopStorage(spark)
    kinds = (kind for kind in FORMATS.values() if storage.sizes(f"{path}/{kind.marker}", "*.json"))
    found = (kind.table(spark, path) for kind in kinds)
    return next((stored for stored in found if stored.is_there()), None)


def _newest_batch(positions: StoredTable) -> int:
    row = positions.rows().selectExpr("max(batch) as batch").first()
    return -1 if row is None or row["batch"] is None else int(row["batch"])


def _moments(spark: SparkSession, source: str) -> tuple[Any, Any]:
    """Return the first and the newest whole moment of a log. Raises SinkError if there is none."""
    rows = whole_moments(spark, source).orderBy("batch")
    first, newest = rows.first(), rows.orderBy("batch", ascending=False).first()
    if first is None or newest is None:
        raise SinkError(f"{source} has no whole moment yet.", "Let its pipeline run until the snapshot is complete.")
    return first, newest


def _logged(spark: SparkSession, source: str, name: str, version: int) -> _Logged:
    path = f"{source}/{name}"
    stored = found_at(spark, path).table(spark, path)
    properties = stored.properties()
    if properties.get(MODE) != "log":
        raise SinkError(
            f"The table {path} has the mode {properties.get(MODE)}, and only the mode log has every change.",
            "Name the path of a pipeline with debezium.sink.tables.mode = log.",
        )
    keys, renamed = stored.past(KEY)
    if len(keys) > 1:
        raise SinkError(
            f"The key of the table {path} has had other columns, or columns with other names, before.",
            "Leave the table out by naming the others, or read the database anew.",
        )
    return _Logged(name, stored.rows(version), properties, renamed)


def _until(tables: Sequence[_Logged], moments: tuple[Any, Any], at: str | datetime | None) -> tuple[str, BatchEnd]:
    """Return an SQL condition for the changes up to `at`, and the moment of the last of them."""
    first, newest = moments
    if at is None:
        return "true", BatchEnd(newest["batch"], newest["position"], newest["ordinal"], newest["committed_at"])
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
            f"The log is not complete at {at}: it reaches from {lowest} to {newest['position']}.",
            "Name a moment in between.",
        )
    last = [
        table.rows.where(until)
        .selectExpr("max(struct(__position, __ordinal)) as place", "max(__committed_at) as at")
        .collect()[0]
        for table in tables
    ]
    position, ordinal = max(tuple(row["place"]) for row in last if row["place"] is not None)
    time = max(row["at"] for row in last if row["at"] is not None)
    return until, BatchEnd(newest["batch"], position, ordinal, time)


def _demand_rebuilt(spark: SparkSession, place: str) -> None:
    """Raise SinkError if `place` holds something that no rebuild has made, or that a pipeline has continued with."""
    stored = _stored(spark, place)
    begun = {kind.marker for kind in FORMATS.values()}
    if stored is None and begun.issuperset(HadoopStorage(spark).sizes(place)):
        return
    properties = {} if stored is None else stored.properties()
    if stored is None or REBUILT not in properties:
        raise SinkError(f"{place} already exists, and no rebuild has made it.", "Name another path, or move it away.")
    batch = json.loads(properties[REBUILT])["batch"]
    if any(
        commit.changes and not _is_rebuilt(own_metadata(commit.metadata), batch) for commit in stored.commits(_COMMITS)
    ):
        raise SinkError(f"{place} was rebuilt, and has been written to since.", "Name another path.")


def _is_rebuilt(contents: dict[str, Any] | None, batch: int) -> bool:
    """Return True if a commit's metadata is that of a rebuild up to `batch`. A pipeline's commit also names its run."""
    return contents is not None and "run" not in contents and contents["batch"] == batch


@dataclass(frozen=True, slots=True)
class _Making:
    """A maker of tables of a format, from the changes that fulfil `until`, with the properties `mark`."""

    spark: SparkSession
    kind: TableFormat
    wanted: RebuildRequest
    until: str
    mark: Mapping[str, str]
    once: WriteId

    def make(self, path: str, table: _Logged, shape: RebuiltForm) -> int:
        """Make one table and return its version. Raises SinkError if a value is lacking."""
        found = rebuilt_rows.changes(table.rows.where(self.until), shape)
        rebuilt_rows.demand_keys(found, shape, table.name)
        own: Columns
        if self.wanted.mode == "latest":
            rows = rebuilt_rows.last_rows(found, shape, self.wanted.keeps_deletes)
            own = KEPT if self.wanted.keeps_deletes else ()
        else:
            rows, own = rebuilt_rows.every_version(found, shape), VALIDITY
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
        """Return the properties of the log's table, adapted to the rebuilt table."""
        kept = {name: text for name, text in table.properties.items() if name.startswith(_COPIED) or name == _MAPPING}
        deletes = "true" if self.wanted.keeps_deletes else "false"
        return {**kept, **self.mark, MODE: self.wanted.mode, DELETES: deletes}


def _columns(log: Sequence[tuple[str, str]], own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the columns in the sink's order: its own columns stand before source columns that were added later."""
    change = [name for name, _ in CHANGE]
    found: list[tuple[str, str]] = []
    for name, kind in log:
        if name == change[0]:
            found.extend(own)
        elif name not in change:
            found.append((name, kind))
    return found
