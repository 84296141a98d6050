"""Verification: compares the source's rows at one position with the tables at one moment. Driver.

Position and moment are rarely the same place in the log, so the changes between them are read from the log. A differing
key that none of these changes touches is different for certain. A touched key is undecided, and compared again later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tailrace.columns.blocks import LAST, ROWS
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors import registry
from tailrace.connectors.consistent_read import ComparedSource as Snapshot
from tailrace.errors import ConfigError, SinkError
from tailrace.events.event_settings import EventSettings
from tailrace.sinks.tables.names import TableNames
from tailrace.sinks.tables.statements import DELETED
from tailrace.spark.lock import is_held
from tailrace.verify.comparison import DUPLICATE, EXTRA, ComparedSide, Key, comparable, compare, counting_session
from tailrace.verify.moments import WholeMoment, newest, version_at
from tailrace.verify.rows import TableForm, source_side, table_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.config import Config

_PAUSE_S = 0.5
_AT_ONCE = 4
"""Number of tables compared at the same time."""
_CURRENT = {"latest": "true", "history": "__valid_to is null"}
"""SQL condition for the rows of a table that the source has too, by the sink's mode."""


@runtime_checkable
class Lake(Protocol):
    """A sink that keeps a Delta Lake or Iceberg table for each captured table, at the place that `names` gives."""

    path: str
    mode: str
    keeps_deletes: bool
    names: TableNames


@dataclass(slots=True)
class TableResult:
    """The result for one table: keys that differ and undecided keys, each with what is wrong.

    `rows` is the number of the source's rows, `version` the compared version of the table. `condition` makes SQL for
    the source from columns and keys.
    """

    table: TableId
    path: str
    shape: TableForm
    condition: Callable[[Sequence[str], Sequence[Sequence[Any]]], str]
    rows: int = 0
    version: int | None = None
    differing: dict[Key, str] = field(default_factory=dict)
    undecided: dict[Key, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not self.differing and not self.undecided


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The results of all tables. Position, moment and `is_running` (of the pipeline) are from the last comparison."""

    tables: tuple[TableResult, ...]
    position: str
    moment: WholeMoment
    is_running: bool

    @property
    def is_clean(self) -> bool:
        return all(table.is_clean for table in self.tables)


class Verification:
    """Compares the tables of one configuration. `options` are the source options of its pipeline."""

    def __init__(
        self, spark: SparkSession, sink: Lake, connector: str, options: dict[str, str], checkpoint: Path | None = None
    ) -> None:
        """`checkpoint` is the pipeline's, if it is a directory of this host.

        Raises ConfigError or SinkError if this configuration cannot be verified.
        """
        self._spark, self._counting, self.sink = spark, counting_session(spark), sink
        self._connector, self._checkpoint = connector, checkpoint
        source = registry.parse(connector, options)
        demand(connector, sink, source)
        self._options = options | {"row.blocks": LAST}
        self._settings = replace(EventSettings.from_options(source, "verify"), blocks=ROWS)

    def run(
        self, names: Sequence[str], wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> VerificationResult:
        """Compare the named tables; without names all captured tables.

        While a pipeline runs, undecided keys are compared again for `wait_s` seconds. Raises TailraceError.
        """
        until = clock() + wait_s
        verified = self._look(names, None, wait_s, clock)
        while verified.is_running and any(table.undecided for table in verified.tables) and clock() < until:
            # a later moment has the changes that the tables lack
            lags = verified.moment.position < verified.position
            while lags and self.newest(verified).batch == verified.moment.batch and clock() < until:
                time.sleep(_PAUSE_S)
            pending = [str(table.table) for table in verified.tables if table.undecided]
            verified = self._look(pending, verified, wait_s, clock)
        return verified

    def newest(self, verified: VerificationResult) -> WholeMoment:
        """Return the tables' newest moment: that of `verified` or a later one."""
        return newest(self._counting, self.sink.path, verified.moment.position)

    def _look(
        self, names: Sequence[str], before: VerificationResult | None, wait_s: float, clock: Callable[[], float]
    ) -> VerificationResult:
        """Compare the named tables once. Tables that are in `before` get new results of some keys: see `_settle`."""
        known = {str(table.table): table for table in before.tables} if before else {}
        with closing(self._snapshot(names)) as snapshot:
            # The moment is looked up after the snapshot has copied the log's position. The log from this position on
            # then covers all changes between the two. The source is read meanwhile.
            with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(_AT_ONCE) as pool:
                moment = other.submit(newest, self._counting, self.sink.path, snapshot.committed)
                snapshot.take()
                tables = list(self._named(snapshot, names))
                results = list(pool.map(lambda table: self._compared(snapshot, table, moment), tables))
            is_complete = not any(result.differing for result in results) or self._await_log(snapshot, wait_s, clock)
            # a copy of the pipeline's slot has no changes up to the position that the pipeline has committed
            is_complete = is_complete and not moment.result().has_gap
            for table, result in zip(tables, results, strict=True):
                _decide(result, snapshot, table, moment.result(), is_complete)
                earlier = known.get(str(table.id))
                if earlier is not None:
                    _settle(result, earlier)
                known[str(table.id)] = result
            is_running = snapshot.is_running()
            if is_running is None:
                # a pipeline with a checkpoint on another host may run there
                is_running = self._checkpoint is None or is_held(self._checkpoint)
            return VerificationResult(tuple(known.values()), snapshot.position, moment.result(), is_running)

    @staticmethod
    def _await_log(snapshot: Snapshot, wait_s: float, clock: Callable[[], float]) -> bool:
        """Wait up to `wait_s` seconds for `snapshot.is_told()`. Return its result."""
        until = clock() + wait_s
        while not (is_complete := snapshot.is_told()) and clock() < until:
            time.sleep(_PAUSE_S)
        return is_complete

    def _snapshot(self, names: Sequence[str]) -> Snapshot:
        chosen = ",".join(re.escape(name).replace(",", r"\,") for name in names) or ".*"
        options = self._options | {"snapshot.include.collection.list": chosen}
        opening = registry.find(self._connector).load_verify_source()
        assert opening is not None
        return opening(registry.parse(self._connector, options), self._settings)

    def _named(self, snapshot: Snapshot, names: Sequence[str]) -> Iterator[TableSchema]:
        found = {str(table.id): table for table in snapshot.tables}
        for name in names:
            if name not in found:
                raise ConfigError(f"{name} is not a captured table.", "Write --table SCHEMA.TABLE.")
        paths: dict[str, str] = {}
        for name, table in found.items():
            path = self._path(table.id)
            if paths.setdefault(path, name) != name:
                raise SinkError(
                    f"{paths[path]} and {name} are in one table, {path}: it cannot be compared with either.",
                    "Name other tables with --table.",
                )
            yield table

    def _path(self, table: TableId) -> str:
        return self.sink.names.path(self.sink.path, (table.database, table.schema, table.table))

    def _compared(self, snapshot: Snapshot, table: TableSchema, moment: Future[WholeMoment]) -> TableResult:
        """Compare the source with the table, and ignore the changes between position and moment."""
        form = snapshot.form
        shape = TableForm.of_documents() if form is None else TableForm.of(table, self._settings, form)
        result = TableResult(table.id, self._path(table.id), shape, snapshot.condition)

        def side() -> ComparedSide:
            result.version = version_at(self._counting, result.path, moment.result(), self._name(result.path))
            where = f"{DELETED} = 'false'" if self.sink.keeps_deletes else _CURRENT[self.sink.mode]
            return table_side(self._spark, self._counting, result.path, result.version, shape, where)

        source = source_side(self._spark, self._counting, snapshot.of_table(table), shape)
        result.rows, result.differing = compare(source, side, shape.keys)
        return result

    def _name(self, path: str) -> str:
        """Return the name of the table at `path` in a moment's `versions`."""
        return path.removeprefix(f"{self.sink.path}/")


def _decide(
    result: TableResult, snapshot: Snapshot, table: TableSchema, moment: WholeMoment, is_complete: bool
) -> None:
    """Move keys that changed between position and moment from `differing` to `undecided`.

    Unless `is_complete`, the log does not show all changes between them, and all keys are undecided.
    """
    if not result.differing:
        return
    if not is_complete:
        result.differing, result.undecided = {}, result.differing
        return
    ends = sorted((moment.position, snapshot.position))
    touched = snapshot.touched(table, ends[0], ends[1])
    keys = {comparable(key) for key in zip(*result.shape.values(touched.columns), strict=True)}
    found = result.differing
    result.differing = {} if touched.everything else {key: kind for key, kind in found.items() if key not in keys}
    result.undecided = {key: kind for key, kind in found.items() if key not in result.differing}


def demand(connector: str, sink: Lake, source: Config) -> None:
    """Raise ConfigError or SinkError if tables of this connector, mode or configuration cannot be compared."""
    found = registry.find(connector)
    if found.load_verify_source() is None:
        there = [one.title for one in registry.known() if one.load_verify_source() is not None]
        raise ConfigError(
            f"tailrace verify does not support {found.title} yet.", f"It compares tables of {', '.join(there)}."
        )
    if sink.mode not in _CURRENT:
        raise SinkError(
            f"tailrace verify compares tables of the modes {' and '.join(_CURRENT)}, not of {sink.mode}.",
            "Rebuild the rows out of the log's tables first.",
        )
    if sink.names.routing is not None:
        raise SinkError(
            "debezium.sink.tables.route.regex puts the rows of several tables into one, which cannot be compared yet.",
            "Compare the tables of a configuration without it.",
        )
    for option in ("snapshot.select.statement.overrides", "snapshot.collection.filter.overrides"):
        if source.get(option):
            raise ConfigError(
                f"{option} excludes rows of the source, but the log does not tell which changes are of these rows.",
                "Leave the option out to compare with all rows.",
            )


def _settle(result: TableResult, earlier: TableResult) -> None:
    """Keep what an earlier comparison has decided, and new results only of keys that it has named and not decided.

    Extra and duplicate keys are decided again: a repair removes them, and the source may have such a row by now.
    """
    removable = {key: kind for key, kind in earlier.differing.items() if kind in (EXTRA, DUPLICATE)}
    decided = {key: kind for key, kind in earlier.differing.items() if key not in removable}
    again = earlier.undecided | removable
    result.differing = decided | _of(result.differing, again)
    result.undecided = _of(result.undecided, again)


def _of(found: dict[Key, str], keys: dict[Key, str]) -> dict[Key, str]:
    return {key: kind for key, kind in found.items() if key in keys}
