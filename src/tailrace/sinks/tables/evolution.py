"""How a table follows its source's when that one is altered: what it holds of which column, and the steps. Pure.

A source's column is known by its number, which it keeps when it is renamed, or by its name where the log and the
catalog do not tell numbers: then a renamed column is one that was dropped and one that was added.

The steps of one alteration are several commits. A record in the table's properties goes before them, with the place of
the alteration, so that older forms are known as such; and each phase of them ends with one. So after a crash at any
step the same alteration goes on where it was: within a phase no name can be taken for another column's, and a step that
is done is not needed any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.columns.blocks import Form, Place
from tailrace.sinks.tables import statements

EVOLVE, IGNORE, STOP = "evolve", "ignore", "stop"

CHOICES: Mapping[str, tuple[str, ...]] = {
    "add": (EVOLVE, IGNORE, STOP),
    "drop": (EVOLVE, IGNORE, STOP),
    "rename": (EVOLVE, IGNORE, STOP),
    "widen": (EVOLVE, STOP),
    "narrow": (STOP, IGNORE),
    "key": (EVOLVE, STOP),
}
"""The kinds of alterations, and the answers that each may have; the first one is the default."""

SENSELESS = {
    ("widen", IGNORE): "values of the wider type need not fit into the column",
    ("narrow", EVOLVE): "a column cannot be made narrower than the values that it has",
    ("key", IGNORE): "deletes tell the new key alone",
}
"""Why the other answers make no sense."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The answer to each kind of alteration, and whether a new column with a default is an error."""

    add: str = EVOLVE
    drop: str = EVOLVE
    rename: str = EVOLVE
    widen: str = EVOLVE
    narrow: str = STOP
    key: str = EVOLVE
    stops_at_defaults: bool = True


DEFAULTS = Policies()


class Unfollowed(Exception):
    """What an alteration asks for that the table cannot do, or that its policy does not let it do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


@dataclass(frozen=True, slots=True)
class HeldColumn:
    """A column of the source's table, by its number and name there, and what it is called in the table.

    `name` is empty where the table leaves it out. `gone` says that the source has it no more.
    """

    number: int
    source: str
    name: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class HeldTable:
    """What a table holds of the source's table `relation`, whose form is this one from the place `since` on.

    `key` are the names, in the table, of the columns of its key. `shards` are the columns of each table of the source
    that is put into it, where these are several.
    """

    columns: tuple[HeldColumn, ...]
    key: tuple[str, ...]
    relation: int = 0
    since: Place = ("", 0)
    shards: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def text(self) -> str:
        """The record as a property of the table."""
        columns = [[held.number, held.source, held.name, int(held.gone)] for held in self.columns]
        told = {"columns": columns, "key": self.key, "relation": self.relation, "since": self.since}
        return json.dumps(told | ({"shards": self.shards} if self.shards else {}))

    @classmethod
    def of(cls, text: str) -> HeldTable:
        """The record that `text` gave."""
        told = json.loads(text)
        columns = tuple(HeldColumn(number, source, name, bool(gone)) for number, source, name, gone in told["columns"])
        shards = tuple((shard, tuple(names)) for shard, names in told.get("shards", ()))
        return cls(columns, tuple(told["key"]), told["relation"], (told["since"][0], told["since"][1]), shards)

    @classmethod
    def first(cls, form: Form, since: Place) -> HeldTable:
        """That of a table which is made for `form`."""
        columns = tuple(HeldColumn(form.number(place), name, name) for place, name in enumerate(form.names))
        key = tuple(form.names[place] for place in form.key)
        return cls(columns, key, form.relation, since).with_shard(form)

    def with_shard(self, form: Form) -> HeldTable:
        """The record that knows the columns of the form's shard, where it has one."""
        if not form.shard:
            return self
        return replace(self, shards=tuple(sorted((dict(self.shards) | {form.shard: form.names}).items())))

    def find(self, number: int, name: str) -> HeldColumn | None:
        """What is known of a column of the source's."""
        for held in self.columns:
            if number and held.number == number:
                return held
        named = (held for held in self.columns if held.source == name and not held.gone)
        return next((held for held in named if not number or not held.number), None)

    def called(self, names: Mapping[str, str]) -> HeldTable:
        """The record after columns of the table have got other names."""
        columns = tuple(replace(held, name=names.get(held.name, held.name)) for held in self.columns)
        return replace(self, columns=columns, key=tuple(names.get(name, name) for name in self.key))


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """One change of a column: `drop`, `rename` (`to` is its name then), `widen` or `add` (`to` is the type)."""

    what: str
    name: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps, and the record that is true after them. `fills` are columns with the value, in SQL, that all rows get in
    them before the record is true."""

    steps: tuple[ColumnStep, ...]
    record: HeldTable
    fills: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Move:
    """A column of the form: what is known of it, what it becomes, and what it is called in the table now, if it is
    there. `to` is the type that it is widened to, or added with, `fill` the value that rows get which are there."""

    was: HeldColumn | None
    held: HeldColumn
    now: str = ""
    to: str = ""
    fill: str = ""

    @property
    def aside(self) -> str:
        """What the column is called while another one leaves its next name."""
        return f"__tailrace_{self.held.number}"


class Alteration:
    """The way from a record to a form, which holds from `since` on.

    `types` are the table's columns, `own` those of them that no column of the source is. Raises Unfollowed where the
    policies, or the table, are against it. `can_fill` says that rows which are there can get a value in a new column.
    """

    def __init__(
        self,
        record: HeldTable,
        form: Form,
        since: Place,
        types: Mapping[str, str],
        policies: Policies,
        own: Sequence[str] = (),
        can_fill: bool = False,
    ) -> None:
        if record.relation and form.relation and record.relation != form.relation:
            raise Unfollowed("the source's table was dropped, and another one has its name")
        self._record, self._form, self._since = record, form, since
        self._types, self._policies = types, policies
        self.unfilled: list[str] = []
        """The new columns in which rows that nobody writes may have values, and get null."""
        # the value of a shard's column is not that of the other shards' rows
        self._can_fill = can_fill and not form.shard
        self._elsewhere = {name for shard, names in record.shards if shard != form.shard for name in names}
        self._demand_shard()
        known = [record.find(form.number(place), name) for place, name in enumerate(form.names)]
        self._dropped, self._kept = self._gone([held for held in known if held is not None])
        self._moves = [self._moved(place, held) for place, held in enumerate(known)]
        adopted = {move.now for move in self._moves if move.was is None}
        self._kept = [held for held in self._kept if held.name not in adopted]
        recorded = {held.name for held in record.columns} | {move.now for move in self._moves}
        others = [*own, *(held.name for held in self._kept), *(set(types) - recorded)]
        demand_names([move.held.name for move in self._moves if move.held.name], others)
        self._key, self.moves_key = self._keyed()

    @property
    def key(self) -> tuple[str, ...]:
        """The names in the table of the columns of the key; with `moves_key` others than before."""
        return self._key

    @property
    def is_nothing(self) -> bool:
        """Whether the record says already what it would say then, but for the place."""
        *before, last = self.phases()
        return not before and not last.steps and replace(last.record, since=self._record.since) == self._record

    def phases(self) -> Iterator[Phase]:
        """What is to be done, in order. The last phase may be without a step."""
        record = replace(self._record, since=self._since)
        if self._dropped:
            record = replace(record, columns=tuple(held for held in record.columns if held not in self._dropped))
            steps = (ColumnStep("drop", held.name) for held in self._dropped if held.name in self._types)
            yield Phase(tuple(steps), record)
        moves = [move for move in self._moves if move.was is not None and move.was.name != move.held.name]
        if moves:
            away = [move for move in moves if self._goes_aside(move, moves)]
            if away:
                steps = (ColumnStep("rename", move.now, move.aside) for move in away if move.now != move.aside)
                record = record.called({_name(move.was): move.aside for move in away})
                yield Phase(tuple(steps), record)
            names = {(move.aside if move in away else _name(move.was)): move.held.name for move in moves}
            steps = (
                ColumnStep("rename", move.aside if move in away else move.now, move.held.name)
                for move in moves
                if move in away or move.now != move.held.name
            )
            record = record.called(names)
            yield Phase(tuple(steps), record)
        widened = (ColumnStep("widen", move.held.name, move.to) for move in self._moves if move.now and move.to)
        added = (ColumnStep("add", move.held.name, move.to) for move in self._moves if not move.now and move.to)
        columns = (*(move.held for move in self._moves), *self._kept)
        relation = self._form.relation or record.relation
        last = HeldTable(columns, self._key, relation, self._since, self._record.shards).with_shard(self._form)
        fills = tuple((move.held.name, move.fill) for move in self._moves if move.fill)
        if not fills:
            yield Phase((*widened, *added), last)
            return
        # the record lacks the columns until they are filled: after a crash that is done again
        yield Phase((*widened, *added), record)
        yield Phase((), last, fills)

    def _demand_shard(self) -> None:
        """Raise Unfollowed where the form's shard was altered so that the table cannot follow it alone."""
        before = dict(self._record.shards).get(self._form.shard)
        if before is None:
            return
        gone = [name for name in before if name not in self._form.names]
        came = [name for name in self._form.names if name not in before]
        if gone and came:
            raise Unfollowed(
                f"{self._form.shard} has {', '.join(came)} in the place of {', '.join(gone)}, and where several tables "
                "are put into one a column that was renamed is not known"
            )
        late = [name for name in came if self._form.names.index(name) in self._form.added]
        if late and self._policies.stops_at_defaults:
            raise self._untold(late[0])
        self.unfilled += late

    def _goes_aside(self, move: _Move, moves: Sequence[_Move]) -> bool:
        """Whether a column is renamed in two steps: its next name is another's still, or its name the next one of
        another. So a name that is recorded is never that of two columns."""
        if move.now == move.aside:
            return True
        if move.now == move.held.name:
            return False
        taken = {name.lower() for name in self._types} - {held.name.lower() for held in self._dropped}
        wanted = {other.held.name.lower() for other in moves if other is not move}
        return move.held.name.lower() in taken or move.now.lower() in wanted

    def _gone(self, found: Sequence[HeldColumn]) -> tuple[list[HeldColumn], list[HeldColumn]]:
        """The columns of the record to drop, and those that stay though the source has them no more."""
        dropped, kept = [], []
        for held in self._record.columns:
            if held in found:
                continue
            if held.source in self._elsewhere:
                # another shard has it still
                kept.append(held)
                continue
            if held.gone:
                kept.append(held)
            elif not held.name:
                dropped.append(held)
            else:
                otherwise = "" if held.number else ", or is called otherwise"
                self._demand("drop", f"its column {held.source} was dropped{otherwise}")
                if self._policies.drop == IGNORE:
                    kept.append(replace(held, gone=True))
                else:
                    dropped.append(held)
        return dropped, kept

    def _moved(self, place: int, was: HeldColumn | None) -> _Move:
        """What becomes of a column of the form."""
        form = self._form
        name, number, kind = form.names[place], form.number(place), statements.type_of(form.types[place])
        if was is None:
            return self._added(place, HeldColumn(number, name, name), kind)
        held = replace(was, number=number or was.number, source=name, gone=False)
        if not was.name:
            return _Move(was, held)
        if was.source != name:
            self._demand("rename", f"its column {was.source} is called {name} now")
            if self._policies.rename == EVOLVE:
                held = replace(held, name=name)
        move = _Move(was, held)
        now = next((known for known in (was.name, move.aside, held.name) if known in self._types), "")
        if not now:
            raise Unfollowed(f"somebody else has dropped or renamed the table's column {was.name}")
        return replace(move, now=now, to=self._wider(name, self._types[now], kind))

    def _added(self, place: int, held: HeldColumn, kind: str) -> _Move:
        self._demand("add", f"it has the new column {held.source}")
        if self._policies.add == IGNORE:
            return _Move(None, replace(held, name=""))
        value = dict(self._form.values).get(place)
        fill = statements.constant(kind, value) if value is not None and self._can_fill else ""
        if place in self._form.added and not fill:
            if self._policies.stops_at_defaults:
                raise self._untold(held.source)
            self.unfilled.append(held.source)
        dropped = {gone.name for gone in self._dropped}
        if held.name in self._types and held.name not in dropped and not self._leaves(held.name):
            return _Move(None, held, held.name, self._wider(held.name, self._types[held.name], kind), fill)
        return _Move(None, held, "", kind, fill)

    @staticmethod
    def _untold(column: str) -> Unfollowed:
        return Unfollowed(
            f"rows that nobody writes may have values in its new column {column}, which the log does not tell",
            "Set debezium.sink.tables.added.default = null, and read the table anew by an incremental snapshot",
        )

    def _leaves(self, name: str) -> bool:
        """Whether the column of that name gets another one."""
        for place, source in enumerate(self._form.names):
            was = self._record.find(self._form.number(place), source)
            if was is not None and was.name == name and was.source != source:
                return self._policies.rename == EVOLVE
        return False

    def _wider(self, column: str, old: str, new: str) -> str:
        """The type that a column is widened to; empty where it stays as it is."""
        if old == new:
            return ""
        why = f"its column {column} is of the type {new} now, and was of {old}"
        if statements.widens(old, new):
            self._demand("widen", why)
            return new
        if not statements.holds(old, new):
            raise Unfollowed(why)
        self._demand("narrow", why)
        return ""

    def _keyed(self) -> tuple[tuple[str, ...], bool]:
        """The key, and whether it is another one than before."""
        names = {_name(move.was): move.held.name for move in self._moves if move.was is not None}
        before = tuple(names.get(name, name) for name in self._record.key)
        key = [self._moves[place] for place in self._form.key]
        now = tuple(move.held.name for move in key)
        if set(before) == set(now):
            return before, False
        self._demand("key", "its key is made of other columns than before")
        for move in key:
            if not move.now:
                source = move.held.source
                raise Unfollowed(f"its new key has the column {source}, of which the table does not have the values")
        return now, True

    def _demand(self, kind: str, why: str) -> None:
        """Raise Unfollowed where the policy says stop."""
        if getattr(self._policies, kind) == STOP:
            others = " or ".join(word for word in CHOICES[kind] if word != STOP)
            raise Unfollowed(
                why,
                f"Set debezium.sink.tables.schema.{kind} = {others}, or begin anew with another path and another "
                "checkpoint",
            )


def demand_names(names: Sequence[str], others: Sequence[str]) -> None:
    """Raise Unfollowed where two columns have one name, as Spark compares names; `others` are not the source's."""
    seen = {name.lower(): name for name in others}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name or name in others:
            raise Unfollowed(
                f"the columns {other} and {name} cannot be in one table: Spark tells names apart by more than their "
                "case",
                "Leave one of them out with column.exclude.list",
            )


def _name(held: HeldColumn | None) -> str:
    return "" if held is None else held.name
