"""Verification: the source's rows at one position beside the tables at one moment, until each key is decided. Driver.

The two are rarely the same place of the log. What lies between them is read from the log itself: a key that differs and
that no change between them touches is different for certain. One that is touched is compared again, at a later pair.
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
from tailrace.connectors.held import Compared as Snapshot
from tailrace.errors import ConfigError, SinkError
from tailrace.events.settings import EventSettings
from tailrace.sinks.tables.names import Names
from tailrace.sinks.tables.statements import DELETED
from tailrace.spark.lock import is_held
from tailrace.verify.comparison import Key, Side, comparable, compare, counting_session
from tailrace.verify.moments import Newest, newest, version_at
from tailrace.verify.rows import Shape, source_side, table_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.config import Config

_PAUSE_S = 0.5
_AT_ONCE = 4
"""How many tables are compared at the same time."""
_CURRENT = {"latest": "true", "history": "__valid_to is null"}
"""Which rows of a table are those that the source has."""


@runtime_checkable
class Lake(Protocol):
    """A sink that keeps a table of Delta Lake or Iceberg for each captured table, under `path`; `names` says where."""

    path: str
    mode: str
    keeps_deletes: bool
    names: Names


@dataclass(slots=True)
class TableResult:
    """What is known of one table: the keys that differ, with what is wrong; those that changed each time they were
    compared; at which version of the table it was found. `rows` are the source's. `condition` makes SQL of keys."""

    table: TableId
    path: str
    shape: Shape
    condition: Callable[[Sequence[str], Sequence[Sequence[Any]]], str]
    rows: int = 0
    version: int | None = None
    differing: dict[Key, str] = field(default_factory=dict)
    undecided: dict[Key, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not self.differing and not self.undecided


@dataclass(frozen=True, slots=True)
class Verified:
    """All tables, the source's position and the tables' moment of the last look, and whether the pipeline ran then."""

    tables: tuple[TableResult, ...]
    position: str
    moment: Newest
    is_running: bool

    @property
    def is_clean(self) -> bool:
        return all(table.is_clean for table in self.tables)


class Verification:
    """Compares the tables of one configuration. `options` are those that its pipeline gives the source."""

    def __init__(
        self, spark: SparkSession, sink: Lake, connector: str, options: dict[str, str], checkpoint: Path | None = None
    ) -> None:
        """`checkpoint` is the pipeline's, where it is a directory of this host.

        Raises ConfigError or SinkError where this configuration cannot be verified.
        """
        self._spark, self._counting, self.sink = spark, counting_session(spark), sink
        self._connector, self._checkpoint = connector, checkpoint
        source = registry.parse(connector, options)
        demand(connector, sink, source)
        self._options = options | {"row.blocks": LAST}
        self._settings = replace(EventSettings.from_options(source, "verify"), blocks=ROWS)

    def run(self, names: Sequence[str], wait_s: float, clock: Callable[[], float] = time.monotonic) -> Verified:
        """Compare the tables called so, all captured ones without names.

        While a pipeline runs, keys that have changed between the two sides are compared again for `wait_s` seconds.
        Raises TailraceError.
        """
        until = clock() + wait_s

        def is_over() -> bool:
            return clock() >= until

        verified = self._look(names, None, is_over)
        while verified.is_running and any(table.undecided for table in verified.tables) and not is_over():
            # what the tables did not have yet comes with another moment
            behind = verified.moment.position < verified.position
            while behind and self.newest(verified).batch == verified.moment.batch and not is_over():
                time.sleep(_PAUSE_S)
            pending = [str(table.table) for table in verified.tables if table.undecided]
            verified = self._look(pending, verified, is_over)
        return verified

    def newest(self, verified: Verified) -> Newest:
        """The newest moment, which is that of `verified` or behind it."""
        return newest(self._counting, self.sink.path, verified.moment.position)

    def _look(self, names: Sequence[str], before: Verified | None, is_over: Callable[[], bool]) -> Verified:
        """One look at the tables called so; of those that were looked at before, at the keys that are not decided."""
        known = {str(table.table): table for table in before.tables} if before else {}
        with closing(self._snapshot(names)) as snapshot:
            # behind the copy of the log's position, so that the copy has all that is between; the source is read
            # meanwhile
            with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(_AT_ONCE) as pool:
                moment = other.submit(newest, self._counting, self.sink.path, snapshot.committed)
                snapshot.take()
                tables = list(self._named(snapshot, names))
                results = list(pool.map(lambda table: self._compared(snapshot, table, moment), tables))
            is_told = not any(result.differing for result in results) or self._told(snapshot, is_over)
            for table, result in zip(tables, results, strict=True):
                _decide(result, snapshot, table, moment.result(), is_told)
                earlier = known.get(str(table.id))
                if earlier is not None:
                    result.differing = earlier.differing | _of(result.differing, earlier.undecided)
                    result.undecided = _of(result.undecided, earlier.undecided)
                known[str(table.id)] = result
            is_running = snapshot.is_running()
            if is_running is None:
                # a pipeline whose checkpoint is elsewhere may run elsewhere
                is_running = self._checkpoint is None or is_held(self._checkpoint)
            return Verified(tuple(known.values()), snapshot.position, moment.result(), is_running)

    @staticmethod
    def _told(snapshot: Snapshot, is_over: Callable[[], bool]) -> bool:
        """Wait until the log tells of all that the rows may show; whether it does."""
        while not (is_told := snapshot.is_told()) and not is_over():
            time.sleep(_PAUSE_S)
        return is_told

    def _snapshot(self, names: Sequence[str]) -> Snapshot:
        chosen = ",".join(re.escape(name).replace(",", r"\,") for name in names) or ".*"
        options = self._options | {"snapshot.include.collection.list": chosen}
        opening = registry.find(self._connector).load_compared()
        assert opening is not None
        return opening(registry.parse(self._connector, options), self._settings)

    def _named(self, snapshot: Snapshot, names: Sequence[str]) -> Iterator[TableSchema]:
        found = {str(table.id): table for table in snapshot.tables}
        for name in names:
            if name not in found:
                raise ConfigError(f"{name} is none of the captured tables.", "Write --table SCHEMA.TABLE.")
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

    def _compared(self, snapshot: Snapshot, table: TableSchema, moment: Future[Newest]) -> TableResult:
        """What differs between the source and the table, whatever lies between them."""
        form = snapshot.form
        shape = Shape.of_documents() if form is None else Shape.of(table, self._settings, form)
        result = TableResult(table.id, self._path(table.id), shape, snapshot.condition)

        def side() -> Side:
            result.version = version_at(self._counting, result.path, moment.result(), self._name(result.path))
            where = f"{DELETED} = 'false'" if self.sink.keeps_deletes else _CURRENT[self.sink.mode]
            return table_side(self._spark, self._counting, result.path, result.version, shape, where)

        source = source_side(self._spark, self._counting, snapshot.of_table(table), shape)
        result.rows, result.differing = compare(source, side, shape.keys)
        return result

    def _name(self, path: str) -> str:
        """What a moment calls the table at `path`."""
        return path.removeprefix(f"{self.sink.path}/")


def _decide(result: TableResult, snapshot: Snapshot, table: TableSchema, moment: Newest, is_told: bool) -> None:
    """Tell apart what differs for certain and what has changed between the two that were compared.

    Where the log does not tell all that has changed (`is_told`), nothing is certain.
    """
    if not result.differing:
        return
    if not is_told:
        result.differing, result.undecided = {}, result.differing
        return
    ends = sorted((moment.position, snapshot.position))
    touched = snapshot.touched(table, ends[0], ends[1])
    keys = {comparable(key) for key in zip(*result.shape.values(touched.columns), strict=True)}
    found = result.differing
    result.differing = {} if touched.everything else {key: kind for key, kind in found.items() if key not in keys}
    result.undecided = {key: kind for key, kind in found.items() if key not in result.differing}


def demand(connector: str, sink: Lake, source: Config) -> None:
    """Raise an error where tables of this connector, mode or configuration cannot be compared."""
    found = registry.find(connector)
    if found.load_compared() is None:
        there = [one.title for one in registry.known() if one.load_compared() is not None]
        raise ConfigError(
            f"tailrace verify is not there for {found.title} yet.", f"It compares tables of {', '.join(there)}."
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
                f"{option} leaves rows of the source out, and nobody knows of them in the log.",
                "Leave it out to compare with all rows.",
            )


def _of(found: dict[Key, str], keys: dict[Key, str]) -> dict[Key, str]:
    return {key: kind for key, kind in found.items() if key in keys}
