"""A table that one pipeline keeps: made, found again, altered as the source's is. Driver."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tailrace.columns.blocks import Form, Place
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.evolution import DEFAULTS, Alteration, HeldTable, Policies, Unfollowed, demand_names
from tailrace.sinks.tables.formats.base import Columns, Commit, Stored, TableFormat, told
from tailrace.sinks.tables.formats.delta import Delta

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

log = logging.getLogger("tailrace")

PIPELINE, SOURCE, MODE, KEY = "tailrace.pipeline", "tailrace.source", "tailrace.mode", "tailrace.key"
DELETES, COLUMNS = "tailrace.upsert-keep-deletes", "tailrace.columns"
"""Properties of a table: whose it is, which table of the source, how it is kept, the columns of its key, whether
deleted rows stay, and the Record of its columns."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who keeps a table: the pipeline's checkpoint by its id, and how. `policies` are the answers to alterations;
    `keeps_deletes` says that deleted rows stay. The table is stored in `format`."""

    pipeline: str
    mode: str
    policies: Policies = DEFAULTS
    keeps_deletes: bool = False
    format: TableFormat = field(default_factory=Delta)


class Target:
    """A table, of the source's table `source`. `own` are the columns that it has beside those.

    `prepare` comes first in each batch. `stored` is the table itself, in the session of the batch.
    """

    def __init__(self, stored: Stored, source: str, owner: Owner, own: Columns = ()) -> None:
        self.stored, self.source, self.owner, self.own = stored, source, owner, own
        self._columns: dict[str, DataType] = {}
        self._record: HeldTable | None = None
        self._seen: Form | None = None
        self._written: str | None = None
        self._newest = -1
        self.run = uuid4().hex
        """By what commits of this object are told from those of another process."""

    @property
    def path(self) -> str:
        """Where the table is."""
        return self.stored.path

    def demand(self, is_known: bool) -> None:
        """Raise SinkError where the table is not there, though earlier batches are known to be in it."""
        if is_known and not self.stored.is_there():
            raise SinkError(
                f"The table {self.path} is gone, and what earlier batches have written with it.",
                "Put it back, or begin anew with another path and another checkpoint.",
            )

    def prepare(self, forms: Sequence[tuple[Form, Place]]) -> Form:
        """Make the table, or let it follow its source's through these forms, each with the place of its first change.

        Gives the form of the table's columns. Raises SinkError where the table is another pipeline's, or cannot follow,
        or is not to.
        """
        self._find()
        for given, since in forms:
            form = replace(given, types=tuple(map(self.stored.held, given.types)))
            if self._record is None:
                self._record = self._make(form, since)
            elif form != self._seen and since >= self._record.since:
                # an older form comes again with a batch that is repeated, or behind a second snapshot
                self._alter(self._record, form, since)
            else:
                continue
            self._seen = form
        assert self._record is not None
        form, _ = forms[-1]
        found = [self._record.find(form.number(place), form.names[place]) for place in form.key]
        key = {held.name for held in found if held is not None}
        if self.owner.mode != "log" and key != set(self._record.key):
            raise self._stop(Unfollowed("the log is read again from before its key was altered"))
        return self._form(self._record)

    def is_beyond(self, forms: Sequence[tuple[Form, Place]], number: int) -> bool:
        """Whether an alteration behind these forms has begun that is of the batch `number` too: what is before it in
        the batch is in the table."""
        self._find()
        record = self._record
        if record is None or any(since >= record.since for _, since in forms):
            return False
        self.written(number)
        return self._newest == number

    def _find(self) -> None:
        if self._record is None:
            self._record = self._found()

    def written(self, number: int) -> str:
        """What `note` was given at the last write that the table knows of; "" where nothing was written yet.

        Raises SinkError where that was a batch behind `number`, which is to be written.
        """
        if self._written is None:
            commits, is_all = self._last()
            # somebody else's rows, or too many other commits: what is known of the pipeline's own holds no more
            self._written = "" if is_all else _FOREIGN
            for commit in commits:
                own = told(commit.metadata)
                if own is not None:
                    self._newest = int(own.get("batch", 0))
                    self._demand_order(number, self._newest)
                    self._written = str(own.get("snapshot", ""))
                    break
                if commit.changes:
                    self._written = _FOREIGN
                    break
        return self._written

    def _last(self) -> tuple[list[Commit], bool]:
        """The last commits, as many as it takes to find one that has changed rows, and whether these are all."""
        for limit in (1, _COMMITS, 50 * _COMMITS):
            commits = self.stored.commits(limit)
            if len(commits) < limit or any(commit.changes for commit in commits):
                break
        return commits, len(commits) < limit

    def _demand_order(self, number: int, newest: int) -> None:
        if newest > number:
            # Delta would take the batches up to that one for done, whatever is in them
            raise SinkError(
                f"The table {self.path} holds batch {newest}, and its checkpoint is at batch {number}: it was put back "
                "to an earlier state.",
                "Name another path and another checkpoint.",
            )

    def _demand_alone(self, number: int, newest: int, run: str) -> None:
        # a batch that was there when this object came is one that is repeated
        if run != self.run and newest >= number > self._newest:
            raise SinkError(
                f"Another process has written batch {newest} to the table {self.path}, with a copy of this pipeline's "
                "checkpoint.",
                "Let one of the two run alone, and begin with the other anew, with another path and another "
                "checkpoint.",
            )

    def note(self, snapshot: str) -> None:
        """Keep in mind what was written last: the snapshot, "-" for changes."""
        self._written = snapshot

    def version(self, number: int) -> int:
        """The table's version after the batch `number`: that of the newest commit of this pipeline, for what others
        have done since is not of the source; the newest of all where the pipeline has none.

        Raises SinkError where somebody else has written the batch under this pipeline's id: nothing was written then.
        """
        commits: Sequence[Commit] = ()
        for limit in (1, _COMMITS):
            commits = self.stored.commits(limit)
            for commit in commits:
                own = told(commit.metadata)
                if own is not None:
                    self._demand_alone(number, int(own.get("batch", 0)), own.get("run", self.run))
                    return commit.version
        return commits[0].version if commits else 0

    def _found(self) -> HeldTable | None:
        """What the table that is there holds; None where there is none."""
        if not self.stored.is_there():
            return None
        told = self.stored.properties()
        self._demand_own(told)
        self._columns = self.stored.columns()
        lost = [name for name, _ in self.own if name not in self._columns]
        if lost or COLUMNS not in told:
            raise self._stop(Unfollowed("somebody else has altered the table"))
        return HeldTable.of(told[COLUMNS])

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

    def _make(self, form: Form, since: Place) -> HeldTable:
        try:
            demand_names(form.names, [name for name, _ in self.own])
        except Unfollowed as error:
            raise self._stop(error) from None
        record = HeldTable.first(form, since)
        listed = zip(form.names, map(statements.type_of, form.types), strict=True)
        columns = [*listed, *self.own]
        self.stored.create(columns, {**self._own_properties(), **_recorded(record)})
        self._columns, self._written = self.stored.columns(), ""
        return record

    def _alter(self, record: HeldTable, form: Form, since: Place) -> None:
        """Let the table follow from its record to a form; nothing is done where it is that one already."""
        try:
            own = [name for name, _ in self.own]
            types = {name: kind.simpleString() for name, kind in self._columns.items()}
            alteration = Alteration(record, form, since, types, self.owner.policies, own, self.stored.can_fill)
        except Unfollowed as error:
            raise self._stop(error) from None
        if alteration.is_nothing:
            return
        if alteration.unfilled:
            log.warning(
                "%s: rows that nobody writes have null in the new column %s of %s, whatever the source has; the "
                "mend is to read %s by a snapshot (signal execute-snapshot)",
                self.source, ", ".join(alteration.unfilled), self.path, self.source,
            )  # fmt: skip
        if alteration.moves_key:
            self._demand_key(alteration.key)
        phases = list(alteration.phases())
        steps = [step for phase in phases for step in phase.steps]
        if steps:
            # from here on older forms count as such, should their batch be repeated
            self.stored.announce(steps, _recorded(replace(record, since=since)))
        for phase in phases:
            if phase.fills and self.owner.mode != "log":
                self.stored.fill(dict(phase.fills), "__valid_to is null" if self.owner.mode == "history" else "true")
            self.stored.alter(phase.steps, _recorded(phase.record))
            self._record = phase.record
        self._columns = self.stored.columns()

    def _demand_key(self, key: Sequence[str]) -> None:
        """Raise SinkError where the rows that are there cannot be told apart by these columns."""
        if self.owner.mode == "log":
            return
        where = "__valid_to is null" if self.owner.mode == "history" else "true"
        if self.stored.session.sql(statements.doubled(self.stored.name(), key, where)).collect():
            why = f"its key is made of {', '.join(key)} now, and rows of the table have no values there, or the same"
            raise self._stop(Unfollowed(why))

    def _form(self, record: HeldTable) -> Form:
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


def _recorded(record: HeldTable) -> dict[str, str]:
    return {COLUMNS: record.text(), KEY: json.dumps(record.key)}


_FOREIGN = "?"
_COMMITS = 20


def metadata(batch: int, snapshot: str, run: str = "", last: Mapping[str, Any] | None = None) -> str:
    """What a commit to a table says of itself; `run` is that of its Target, `last` what Positions know behind it."""
    said: dict[str, Any] = {"batch": batch, "snapshot": snapshot}
    more = {name: value for name, value in (("run", run), ("last", last)) if value}
    return json.dumps({"tailrace": said | more})
