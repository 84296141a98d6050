"""Alteration of a table to follow its source's table: the recorded columns, and the steps. No I/O.

A source column is identified by its number, which it keeps when it is renamed. If log and catalog have no numbers, it
is identified by its name; then a rename is the drop of a column and the addition of another one.

The steps of an alteration are several commits. Before them, a record with the place of the alteration is written to the
table's properties, so that older forms are recognised. Each phase also ends with a record. After a crash at any step,
the alteration continues where it stopped: within a phase no name is ambiguous, and finished steps are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tailrace.columns.blocks import BlockForm, Place
from tailrace.sinks.tables import statements

EVOLVE, IGNORE, STOP, REREAD, NULL = "evolve", "ignore", "stop", "reread", "null"

CHOICES: Mapping[str, tuple[str, ...]] = {
    "add": (EVOLVE, IGNORE, STOP),
    "drop": (EVOLVE, IGNORE, STOP),
    "rename": (EVOLVE, IGNORE, STOP),
    "widen": (EVOLVE, STOP),
    "narrow": (STOP, IGNORE, REREAD),
    "key": (EVOLVE, STOP),
    "recreated": (STOP, REREAD),
}
"""Kinds of alterations with their supported policies, the default first."""

SENSELESS = {
    ("widen", IGNORE): "values of the wider type need not fit into the column",
    ("narrow", EVOLVE): "a column cannot be made narrower than the values that it has",
    ("key", IGNORE): "deletes have only the new key",
}
"""Reasons against the other policies."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policy for each kind of alteration. `added_default` is the policy for a new column in which existing rows may
    have values that the log does not contain: STOP, NULL or REREAD."""

    add: str = EVOLVE
    drop: str = EVOLVE
    rename: str = EVOLVE
    widen: str = EVOLVE
    narrow: str = STOP
    key: str = EVOLVE
    recreated: str = STOP
    added_default: str = STOP


DEFAULTS = Policies()


class UnfollowedAlteration(Exception):
    """An alteration that the table does not support or that its policy forbids, with the reason and a remedy."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


@dataclass(frozen=True, slots=True)
class HeldColumn:
    """A column of the source's table: its number and name there (`source`), and its name in the table.

    `name` is "" if the table leaves the column out. `gone` is True if the source no longer has the column.
    """

    number: int
    source: str
    name: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class HeldTable:
    """The columns of the source's table `relation` that a table holds. The form is valid from the place `since`.

    `key` holds the names of the key's columns in the table. `shards` holds the columns of each source table if several
    are routed into this table.
    """

    columns: tuple[HeldColumn, ...]
    key: tuple[str, ...]
    relation: int = 0
    since: Place = ("", 0)
    shards: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def text(self) -> str:
        """Return the record as the text of a table property."""
        columns = [[held.number, held.source, held.name, int(held.gone)] for held in self.columns]
        fields = {"columns": columns, "key": self.key, "relation": self.relation, "since": self.since}
        return json.dumps(fields | ({"shards": self.shards} if self.shards else {}))

    @classmethod
    def of(cls, text: str) -> HeldTable:
        """Return the record that `text` has written."""
        fields = json.loads(text)
        columns = tuple(
            HeldColumn(number, source, name, bool(gone)) for number, source, name, gone in fields["columns"]
        )
        shards = tuple((shard, tuple(names)) for shard, names in fields.get("shards", ()))
        return cls(columns, tuple(fields["key"]), fields["relation"], (fields["since"][0], fields["since"][1]), shards)

    @classmethod
    def first(cls, form: BlockForm, since: Place) -> HeldTable:
        """Return the record of a table that is created for `form`."""
        columns = tuple(HeldColumn(form.number(place), name, name) for place, name in enumerate(form.names))
        key = tuple(form.names[place] for place in form.key)
        return cls(columns, key, form.relation, since).with_shard(form)

    def with_shard(self, form: BlockForm) -> HeldTable:
        """Return the record with the columns of the form's shard, if it has one."""
        if not form.shard:
            return self
        return replace(self, shards=tuple(sorted((dict(self.shards) | {form.shard: form.names}).items())))

    def matching(self, form: BlockForm) -> list[HeldColumn | None]:
        """Return the record of each column of a form, by number, else by name; None for a column that is new.

        A record that one column matches by number is not matched by name: the column was renamed.
        """
        by_number = {held.number: held for held in self.columns if held.number}
        numbered = [by_number.get(form.number(place)) for place in range(len(form.names))]
        by_name = {held.source: held for held in self.columns if not held.gone and held not in numbered}
        found = []
        for place, (name, held) in enumerate(zip(form.names, numbered, strict=True)):
            named = by_name.get(name)
            is_same = named is not None and not (form.number(place) and named.number)
            found.append(held if held is not None else named if is_same else None)
        return found

    def by_name(self) -> HeldTable:
        """Return the record for another table of the source, whose columns have other numbers."""
        return replace(self, columns=tuple(replace(held, number=0) for held in self.columns))

    def is_of_another(self, form: BlockForm) -> bool:
        """Return True if the form is of another table of the source than the record."""
        return bool(self.relation and form.relation) and self.relation != form.relation

    def called(self, names: Mapping[str, str]) -> HeldTable:
        """Return the record after a rename of columns in the table."""
        columns = tuple(replace(held, name=names.get(held.name, held.name)) for held in self.columns)
        return replace(self, columns=columns, key=tuple(names.get(name, name) for name in self.key))


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """A change of a column: `drop`, `rename` (`to` is the new name), `widen` or `add` (`to` is the type)."""

    what: str
    name: str
    to: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps, and the record that holds after them. `fills` are columns and their values, as SQL, which all rows must
    get before the record holds."""

    steps: tuple[ColumnStep, ...]
    record: HeldTable
    fills: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Move:
    """A column of the form: its old and its new record, and its current name in the table, "" if the table lacks it.

    `to` is the type that it is widened to or added with, `fill` the value for existing rows; "" for none.
    """

    was: HeldColumn | None
    held: HeldColumn
    now: str = ""
    to: str = ""
    fill: str = ""

    @property
    def aside(self) -> str:
        """The column's temporary name while its next name still belongs to another column."""
        return _aside(self.held.number)


class Alteration:
    """The alteration of a table from its record to a form, which holds since the place `since`.

    `types` holds the table's columns, `own` the names of columns that are not the source's. `can_fill` is True if the
    table supports values of new columns in existing rows. If the form is of another table of the source, the table has
    no rows any more. Then columns are identified by their names, and columns with other types are dropped and added.
    Raises UnfollowedAlteration if the policies forbid the alteration or the table does not support it.
    """

    def __init__(
        self,
        record: HeldTable,
        form: BlockForm,
        since: Place,
        types: Mapping[str, str],
        policies: Policies,
        own: Sequence[str] = (),
        can_fill: bool = False,
    ) -> None:
        self._types, self._policies = types, policies
        self._is_another = record.is_of_another(form)
        if self._is_another:
            self._demand("recreated", "the source's table was dropped, and another one has its name")
            record = record.by_name()
        self._record, self._form, self._since = record, form, since
        self.unfilled: list[str] = []
        """New columns in which existing rows get null, though they may have values in the source."""
        # A shard's value for its column does not apply to the rows of other shards.
        self._can_fill = can_fill and not form.shard
        self._elsewhere = {name for shard, names in record.shards if shard != form.shard for name in names}
        self._demand_shard()
        matching = record.matching(form)
        replaced = {place for place, held in enumerate(matching) if held and self._is_replaced(place, held)}
        self._replaced = {place: matching[place] for place in sorted(replaced)}
        self._known = [None if place in replaced else held for place, held in enumerate(matching)]
        self._dropped, self._kept = self._gone([held for held in self._known if held is not None])
        self._moves = [self._moved(place, held) for place, held in enumerate(self._known)]
        adopted = {move.now for move in self._moves if move.was is None}
        self._kept = [held for held in self._kept if held.name not in adopted]
        recorded = {held.name for held in record.columns} | {move.now for move in self._moves}
        others = [*own, *(held.name for held in self._kept), *(set(types) - recorded)]
        names = [move.held.name for move in self._moves if move.held.name]
        self._demand_one_each(names)
        demand_names(names, others)
        self._key, self.moves_key = self._keyed()

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns in the table; different ones than before if `moves_key`."""
        return self._key

    @property
    def present_key(self) -> tuple[str, ...]:
        """The names of the key's columns before the alteration; () if some are new, which requires an empty table."""
        names = tuple(self._moves[place].now for place in self._form.key)
        return names if all(names) else ()

    @property
    def is_nothing(self) -> bool:
        """True if the alteration would change nothing in the record except the place."""
        *before, last = self.phases()
        return not before and not last.steps and replace(last.record, since=self._record.since) == self._record

    def phases(self) -> Iterator[Phase]:
        """Yield the phases in order. The last phase may have no steps."""
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
        # The record lacks the columns until they are filled, so that a crash repeats the fill.
        yield Phase((*widened, *added), record)
        yield Phase((), last, fills)

    def _demand_shard(self) -> None:
        """Raise UnfollowedAlteration if the table cannot follow an alteration of the form's shard."""
        before = dict(self._record.shards).get(self._form.shard)
        if before is None:
            return
        gone = [name for name in before if name not in self._form.names]
        came = [name for name in self._form.names if name not in before]
        if gone and came:
            raise UnfollowedAlteration(
                f"{self._form.shard} has {', '.join(came)} in place of {', '.join(gone)}, and renamed columns are not "
                "recognised if several tables are routed into one"
            )
        late = [name for name in came if self._form.names.index(name) in self._form.added]
        if late and self._policies.added_default == STOP:
            raise self._untold(late[0])
        self.unfilled += late

    def _demand_one_each(self, names: Sequence[str]) -> None:
        """Raise UnfollowedAlteration if a column would have the name that a renamed one has kept in the table."""
        taken = next((name for name in names if names.count(name) > 1), None)
        if taken is not None:
            renamed = next(one.held.source for one in self._moves if one.held.name == taken and one.was is not None)
            raise UnfollowedAlteration(
                f"its column {renamed} is called {taken} in the table, and it has another column {taken}",
                "Set debezium.sink.tables.schema.add = ignore, or leave that column out with column.exclude.list",
            )

    def _goes_aside(self, move: _Move, moves: Sequence[_Move]) -> bool:
        """Return True if a column must be renamed in two steps, by way of a temporary name.

        This is the case if its next name still belongs to another column, or if another column gets its current name.
        The temporary name ensures that a recorded name never stands for two columns.
        """
        if move.now == move.aside:
            return True
        if move.now == move.held.name:
            return False
        taken = {name.lower() for name in self._types} - {held.name.lower() for held in self._dropped}
        wanted = {other.held.name.lower() for other in moves if other is not move}
        return move.held.name.lower() in taken or move.now.lower() in wanted

    def _gone(self, found: Sequence[HeldColumn]) -> tuple[list[HeldColumn], list[HeldColumn]]:
        """Return the recorded columns to drop, and the columns to keep although the source no longer has them."""
        dropped, kept = [], []
        for held in self._record.columns:
            if held in found:
                continue
            if held.source in self._elsewhere:
                # Another shard still has it.
                kept.append(held)
                continue
            if held in self._replaced.values():
                dropped.append(held)
            elif held.gone:
                kept.append(held)
            elif not held.name:
                dropped.append(held)
            else:
                otherwise = "" if held.number else " or renamed"
                self._demand("drop", f"its column {held.source} was dropped{otherwise}")
                if self._policies.drop == IGNORE:
                    kept.append(replace(held, gone=True))
                else:
                    dropped.append(held)
        return dropped, kept

    def _moved(self, place: int, was: HeldColumn | None) -> _Move:
        """Return the move of a column of the form."""
        form = self._form
        name, number, kind = form.names[place], form.number(place), statements.type_of(form.types[place])
        if was is None:
            return self._added(place, HeldColumn(number, name, name), kind)
        held = replace(was, number=number or was.number, source=name, gone=False)
        if not was.name:
            return _Move(was, held)
        if was.source != name:
            self._demand("rename", f"its column {was.source} is now called {name}")
            if self._policies.rename == EVOLVE:
                held = replace(held, name=name)
        move = _Move(was, held)
        now = next((known for known in (was.name, move.aside, held.name) if known in self._types), "")
        if not now:
            raise UnfollowedAlteration(f"another program has dropped or renamed the table's column {was.name}")
        return replace(move, now=now, to=self._wider(name, self._types[now], kind))

    def _added(self, place: int, held: HeldColumn, kind: str) -> _Move:
        if place in self._replaced:
            return _Move(None, held, "", kind)
        self._demand("add", f"it has the new column {held.source}")
        if self._policies.add == IGNORE:
            return _Move(None, replace(held, name=""))
        value = dict(self._form.values).get(place)
        fill = statements.constant(kind, value) if value is not None and self._can_fill else ""
        if place in self._form.added and not fill and not self._is_another:
            if self._policies.added_default == STOP:
                raise self._untold(held.source)
            self.unfilled.append(held.source)
        dropped = {gone.name for gone in self._dropped}
        if held.name in self._types and held.name not in dropped and not self._leaves(held.name):
            return _Move(None, held, held.name, self._wider(held.name, self._types[held.name], kind), fill)
        return _Move(None, held, "", kind, fill)

    @staticmethod
    def _untold(column: str) -> UnfollowedAlteration:
        return UnfollowedAlteration(
            f"existing rows may have values in its new column {column}, which the log does not contain",
            "Set debezium.sink.tables.added.default = reread; or set it to null, and read the table anew by an "
            "incremental snapshot",
        )

    def _leaves(self, name: str) -> bool:
        """Return True if the table's column `name` is renamed in this alteration."""
        for was, source in zip(self._known, self._form.names, strict=True):
            if was is not None and was.name == name and was.source != source:
                return self._policies.rename == EVOLVE
        return False

    def _is_replaced(self, place: int, held: HeldColumn) -> bool:
        """Return True if the column is dropped, and another one of the new type is added in its place."""
        if not held.name or not (self._is_another or (self._policies.narrow == REREAD and place not in self._form.key)):
            return False
        old, new = self._types.get(held.name, ""), statements.type_of(self._form.types[place])
        if not old:
            # A crash has come between a drop, or a rename, and its record.
            name, others = self._form.names[place], {one.name for one in self._record.columns}
            renamed = [_aside(held.number)] if name in others else [_aside(held.number), name]
            has_begun = self._is_another or self._record.since == self._since
            return has_begun and not (held.number and set(renamed) & self._types.keys())
        fits = old == new or (self._policies.widen == EVOLVE and statements.widens(old, new))
        return not (fits or (self._policies.narrow == IGNORE and statements.holds(old, new)))

    @property
    def reread(self) -> str:
        """The reason why the source's table must be read again, as a clause for a log message; "" if there is none."""
        if self._is_another:
            return ""
        anew = [self._form.names[place] for place in self._replaced]
        if anew:
            return f"existing rows have values of another type in its column {', '.join(anew)}"
        if self.unfilled and self._policies.added_default == REREAD:
            return f"existing rows may have values in its new column {', '.join(self.unfilled)}"
        return ""

    def _wider(self, column: str, old: str, new: str) -> str:
        """Return the type to widen a column to; "" if it stays unchanged."""
        if old == new:
            return ""
        why = f"the type of its column {column} is now {new}, and was {old}"
        if statements.widens(old, new):
            self._demand("widen", why)
            return new
        if not statements.holds(old, new):
            raise UnfollowedAlteration(
                why,
                "Set debezium.sink.tables.schema.narrow = reread, unless the column is in the key, or begin anew with "
                "another path and another checkpoint",
            )
        self._demand("narrow", why)
        return ""

    def _keyed(self) -> tuple[tuple[str, ...], bool]:
        """Return the names of the key's columns in the table, and True if the key has other columns than before."""
        names = {_name(move.was): move.held.name for move in self._moves if move.was is not None}
        before = tuple(names.get(name, name) for name in self._record.key)
        key = [self._moves[place] for place in self._form.key]
        now = tuple(move.held.name for move in key)
        if set(before) == set(now):
            return before, False
        self._demand("key", "its key has other columns than before")
        for move in key:
            if not move.now and not self._is_another:
                source = move.held.source
                raise UnfollowedAlteration(f"its new key has the column {source}, whose values the table does not have")
        return now, True

    def _demand(self, kind: str, why: str) -> None:
        """Raise UnfollowedAlteration if the policy is stop."""
        if getattr(self._policies, kind) == STOP:
            others = " or ".join(word for word in CHOICES[kind] if word != STOP)
            raise UnfollowedAlteration(
                why,
                f"Set debezium.sink.tables.schema.{kind} = {others}, or begin anew with another path and another "
                "checkpoint",
            )


def demand_names(names: Sequence[str], others: Sequence[str]) -> None:
    """Raise UnfollowedAlteration if two columns have the same name in Spark, ignoring case. `others` are not the
    source's."""
    seen = {name.lower(): name for name in others}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name or name in others:
            raise UnfollowedAlteration(
                f"the columns {other} and {name} cannot be in one table: Spark ignores the case of names",
                "Leave one of them out with column.exclude.list",
            )


def _aside(number: int) -> str:
    return f"__tailrace_{number}"


def _name(held: HeldColumn | None) -> str:
    return "" if held is None else held.name
