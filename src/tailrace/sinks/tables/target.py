"""A table that a pipeline writes: its creation, its ownership, and its alteration along with the source's. Driver."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tailrace.columns.blocks import BlockForm, Place
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.evolution import (
    DEFAULTS,
    REREAD,
    Alteration,
    HeldTable,
    Policies,
    UnfollowedAlteration,
    demand_names,
)
from tailrace.sinks.tables.formats.base import Columns, StoredTable, TableCommit, TableFormat, own_metadata
from tailrace.sinks.tables.formats.delta import Delta

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

log = logging.getLogger("tailrace")

PIPELINE, SOURCE, MODE, KEY = "tailrace.pipeline", "tailrace.source", "tailrace.mode", "tailrace.key"
DELETES, COLUMNS = "tailrace.upsert-keep-deletes", "tailrace.columns"
"""Properties of a table: the pipeline, the source's table, the mode, the columns of the key, whether deleted rows are
kept, and the HeldTable with its columns."""


def _cannot_reread(source: str, reason: str) -> None:
    raise AssertionError(f"{source} must be read again, and nobody asks for it")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of tables and its settings. `pipeline` is the id of the checkpoint, `policies` are the policies for
    alterations. With `keeps_deletes`, deleted rows are kept.

    `reread(table, reason)` asks for a snapshot of a source table. The snapshot begins after the batch that is being
    written. When the function returns, the request is durable.
    """

    pipeline: str
    mode: str
    policies: Policies = DEFAULTS
    keeps_deletes: bool = False
    format: TableFormat = field(default_factory=Delta)
    reread: Callable[[str, str], None] = _cannot_reread


class Target:
    """A table for the source's table `source`, with additional columns `own`.

    `stored` is the table itself in the session of the current batch. Each batch begins with `prepare`.
    """

    def __init__(self, stored: StoredTable, source: str, owner: Owner, own: Columns = ()) -> None:
        self.stored, self.source, self.owner, self.own = stored, source, owner, own
        self._columns: dict[str, DataType] = {}
        self._record: HeldTable | None = None
        self._seen: BlockForm | None = None
        self._written: str | None = None
        self._newest = -1
        self.run = uuid4().hex
        """An id that distinguishes commits of this object from commits of other processes."""

    @property
    def path(self) -> str:
        """The table's path."""
        return self.stored.path

    def demand(self, is_known: bool) -> None:
        """Raise SinkError if the table is missing although earlier batches were written to it (`is_known`)."""
        if is_known and not self.stored.is_there():
            raise SinkError(
                f"The table {self.path} is gone, with all that earlier batches have written to it.",
                "Restore it, or begin anew with another path and another checkpoint.",
            )

    def prepare(self, forms: Sequence[tuple[BlockForm, Place]]) -> BlockForm:
        """Create the table, or alter it to follow `forms`, each given with the place of its first change.

        Return the form of the table's columns. Raises SinkError if the table belongs to another pipeline, if it cannot
        follow, or if a policy forbids it.
        """
        self._find()
        for given, since in forms:
            form = replace(given, types=tuple(map(self.stored.held, given.types)))
            if self._record is None:
                self._record = self._make(form, since)
            elif form != self._seen and since >= self._record.since:
                # An older form, from a replayed batch or after a second snapshot, is skipped.
                self._alter(self._record, form, since)
            else:
                continue
            self._seen = form
        assert self._record is not None
        form, _ = forms[-1]
        known = self._record.matching(form)
        key = {held.name for held in (known[place] for place in form.key) if held is not None}
        if self.owner.mode != "log" and key != set(self._record.key):
            raise self._stop(UnfollowedAlteration("the log is read again from before its key was altered"))
        return self._form(self._record)

    def is_beyond(self, forms: Sequence[tuple[BlockForm, Place]], number: int) -> bool:
        """Return True if the batch `number` has already begun an alteration that follows these forms.

        The part of the batch before the alteration is then in the table.
        """
        self._find()
        record = self._record
        if record is None or any(since >= record.since for _, since in forms):
            return False
        self.written(number)
        return self._newest == number

    def replaced(self, forms: Sequence[tuple[BlockForm, Place]]) -> BlockForm | None:
        """Return the form of the table's columns if `forms` are of another source table that a snapshot is to read.

        Return None otherwise, or if the alteration that follows has begun.
        """
        self._find()
        record, (form, since) = self._record, forms[0]
        is_reread = self.owner.policies.recreated == REREAD
        if record is None or not is_reread or not record.is_of_another(form) or since <= record.since:
            return None
        return self._form(record)

    def reread(self, reason: str) -> None:
        """Ask for a snapshot of the source's table."""
        self.owner.reread(self.source, reason)

    def _find(self) -> None:
        if self._record is None:
            self._record = self._found()

    def written(self, number: int) -> str:
        """Return what the table's last write passed to `note`; "" if nothing was written yet, "?" if it is unknown.

        Raises SinkError if the table holds a later batch than `number`, the batch to write.
        """
        if self._written is None:
            commits, is_all = self._last()
            # The last own write is unknown after foreign commits that changed rows, and after too many foreign commits.
            self._written = "" if is_all else _UNKNOWN
            for commit in commits:
                own = own_metadata(commit.metadata)
                if own is not None:
                    self._newest = int(own.get("batch", 0))
                    self._demand_order(number, self._newest)
                    self._written = str(own.get("snapshot", ""))
                    break
                if commit.changes:
                    self._written = _UNKNOWN
                    break
        return self._written

    def _last(self) -> tuple[list[TableCommit], bool]:
        """Return the last commits, back to one that has changed rows, and True if these are all commits."""
        for limit in (1, _COMMITS, 50 * _COMMITS):
            commits = self.stored.commits(limit)
            if len(commits) < limit or any(commit.changes for commit in commits):
                break
        return commits, len(commits) < limit

    def _demand_order(self, number: int, newest: int) -> None:
        if newest > number:
            # The format would skip all batches up to the newest batch as already written.
            raise SinkError(
                f"The table {self.path} holds batch {newest}, and its checkpoint is at batch {number}: the checkpoint "
                "was put back to an earlier state.",
                "Name another path and another checkpoint.",
            )

    def _demand_alone(self, number: int, newest: int, run: str) -> None:
        # A batch that was in the table before this object's first write is a replay, not a write of another process.
        if run != self.run and newest >= number > self._newest:
            raise SinkError(
                f"Another process has written batch {newest} to the table {self.path}, with a copy of this pipeline's "
                "checkpoint.",
                "Stop one of the two pipelines, and begin it anew with another path and another checkpoint.",
            )

    def note(self, snapshot: str) -> None:
        """Remember the snapshot of the last write, "-" for changes."""
        self._written = snapshot

    def version(self, number: int) -> int:
        """Return the table's version after the batch `number`.

        It is the version of this pipeline's newest commit, because later foreign commits are not from the source.
        Without such a commit, it is the newest version. Raises SinkError if another process has written the batch under
        this pipeline's id; then this process has written nothing.
        """
        commits: Sequence[TableCommit] = ()
        for limit in (1, _COMMITS):
            commits = self.stored.commits(limit)
            for commit in commits:
                own = own_metadata(commit.metadata)
                if own is not None:
                    self._demand_alone(number, int(own.get("batch", 0)), own.get("run", self.run))
                    return commit.version
        return commits[0].version if commits else 0

    def _found(self) -> HeldTable | None:
        """Return the record of the existing table; None if there is no table."""
        if not self.stored.is_there():
            return None
        properties = self.stored.properties()
        self._demand_own(properties)
        self._columns = self.stored.columns()
        lost = [name for name, _ in self.own if name not in self._columns]
        if lost or COLUMNS not in properties:
            raise self._stop(UnfollowedAlteration("another program has altered the table"))
        return HeldTable.of(properties[COLUMNS])

    def _demand_own(self, properties: Mapping[str, str]) -> None:
        """Raise SinkError if the table's properties do not name this pipeline, source and mode."""
        wanted = self._own_properties()
        for name, what in ((PIPELINE, "pipeline"), (SOURCE, "source's table"), (MODE, "mode")):
            if properties.get(name) != wanted[name]:
                other = f": {properties[name]}" if name in properties else ", or of none"
                raise SinkError(
                    f"The table {self.path} already exists, of another {what}{other}.",
                    "Name another debezium.sink.tables.path, or move the table away.",
                )
        deletes = properties.get(DELETES, "false")
        if deletes != wanted[DELETES]:
            raise SinkError(
                f"The table {self.path} already exists, created with debezium.sink.tables.upsert-keep-deletes = "
                f"{deletes}.",
                "Set the option to that value, or begin anew with another path and another checkpoint.",
            )

    def _own_properties(self) -> dict[str, str]:
        deletes = "true" if self.owner.keeps_deletes else "false"
        return {PIPELINE: self.owner.pipeline, SOURCE: self.source, MODE: self.owner.mode, DELETES: deletes}

    def _make(self, form: BlockForm, since: Place) -> HeldTable:
        try:
            demand_names(form.names, [name for name, _ in self.own])
        except UnfollowedAlteration as error:
            raise self._stop(error) from None
        record = HeldTable.first(form, since)
        listed = zip(form.names, map(statements.type_of, form.types), strict=True)
        columns = [*listed, *self.own]
        self.stored.create(columns, {**self._own_properties(), **_recorded(record)})
        self._columns, self._written = self.stored.columns(), ""
        return record

    def _alter(self, record: HeldTable, form: BlockForm, since: Place) -> None:
        """Alter the table from its record to a form, unless it already has this form."""
        try:
            own = [name for name, _ in self.own]
            types = {name: kind.simpleString() for name, kind in self._columns.items()}
            # A log keeps its older changes unaltered, and a rebuild would find nulls in them.
            can_fill = self.stored.can_fill and self.owner.mode != "log"
            alteration = Alteration(record, form, since, types, self.owner.policies, own, can_fill)
        except UnfollowedAlteration as error:
            raise self._stop(error) from None
        if alteration.is_nothing:
            return
        if alteration.reread:
            # The request precedes the alteration: after a crash in between, nothing else would repeat the request.
            self.reread(alteration.reread)
        elif alteration.unfilled:
            log.warning(
                "%s: existing rows have null in the new column %s of %s, whatever the source has; "
                "remedy: read %s by a snapshot (signal execute-snapshot)",
                self.source, ", ".join(alteration.unfilled), self.path, self.source,
            )  # fmt: skip
        if alteration.moves_key:
            self._demand_key(alteration.present_key, alteration.key)
        phases = list(alteration.phases())
        steps = [step for phase in phases for step in phase.steps]
        if steps:
            # From here on, `prepare` recognises older forms if their batch is replayed.
            self.stored.announce(steps, _recorded(replace(record, since=since)))
        for phase in phases:
            if phase.fills:
                self.stored.fill(dict(phase.fills), "__valid_to is null" if self.owner.mode == "history" else "true")
            self.stored.alter(phase.steps, _recorded(phase.record))
            self._record = phase.record
        self._columns = self.stored.columns()

    def _demand_key(self, present: Sequence[str], key: Sequence[str]) -> None:
        """Raise SinkError if the columns `present` do not identify the existing rows. `key` holds their next names."""
        if self.owner.mode == "log" or not present:
            return
        where = "__valid_to is null" if self.owner.mode == "history" else "true"
        if self.stored.session.sql(statements.doubled(self.stored.name(), present, where)).collect():
            why = f"its key is now {', '.join(key)}, and rows of the table have null or equal values there"
            raise self._stop(UnfollowedAlteration(why))

    def _form(self, record: HeldTable) -> BlockForm:
        """Return the form of the source's columns that the table has."""
        from pyspark.sql.pandas.types import to_arrow_type

        held = [held for held in record.columns if held.name]
        names = [one.name for one in held]
        return BlockForm(
            tuple(names),
            tuple(to_arrow_type(self._columns[name], timezone="UTC") for name in names),
            tuple(names.index(name) for name in record.key),
            (),
            tuple(one.number for one in held),
            record.relation,
        )

    def _stop(self, why: UnfollowedAlteration) -> SinkError:
        remedy = why.remedy or "Begin anew with another path and another checkpoint"
        return SinkError(f"The table {self.path} cannot follow {self.source}: {why.why}.", f"{remedy}.")


def _recorded(record: HeldTable) -> dict[str, str]:
    return {COLUMNS: record.text(), KEY: json.dumps(record.key)}


_UNKNOWN = "?"
"""The snapshot of a last write that is not known, and so equal to no snapshot."""

_COMMITS = 20


def metadata(batch: int, snapshot: str, run: str = "", last: Mapping[str, Any] | None = None) -> str:
    """Return the metadata of a commit. `run` is the Target's id, `last` the state of Positions after the commit."""
    contents: dict[str, Any] = {"batch": batch, "snapshot": snapshot}
    more = {name: value for name, value in (("run", run), ("last", last)) if value}
    return json.dumps({"tailrace": contents | more})
