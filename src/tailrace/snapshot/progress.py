"""Progress: the part of an offset for signals and incremental snapshots. Immutable; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.snapshot.incremental import Collection, IncrementalSnapshot, Notification, PausedTable
from tailrace.snapshot.table_commands import NO_COMMANDS, TableCommands


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of an offset for signals and incremental snapshots.

    - `state`: the running snapshot.
    - `before`: its state before the batch's window; None if the batch has no window.
    - `blocking`: the tables that a blocking snapshot reads next; `reading`: the tables that it reads now.
    - `notifications`: the notifications of the batch, each with its time in ms.
    - `positions`: the position up to which each channel outside the log has been read.
    - `windows`: the number of windows. A window that is read again needs another offset, or Spark would see nothing
      new.
    - `done`: the tables that the batch's window finishes, without tables that have a condition.
    - `commands`: the tables that were added and removed while the query ran; they hold after the batch.
    - `held`: the tables whose reading a user has paused.
    """

    state: IncrementalSnapshot | None = None
    before: IncrementalSnapshot | None = None
    blocking: tuple[Collection, ...] = ()
    reading: tuple[Collection, ...] = ()
    notifications: tuple[tuple[Notification, int], ...] = ()
    positions: tuple[tuple[str, int], ...] = ()
    windows: int = 0
    done: tuple[str, ...] = ()
    commands: TableCommands = NO_COMMANDS
    held: tuple[PausedTable, ...] = ()

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.state is not None:
            fields["state"] = self.state.to_json()
        if self.before is not None:
            fields["before"] = self.before.to_json()
        for name, collections in (("blocking", self.blocking), ("reading", self.reading)):
            if collections:
                fields[name] = [collection.to_json() for collection in collections]
        if self.notifications:
            fields["notices"] = [
                [
                    notification.id,
                    notification.aggregate,
                    notification.type,
                    [list(pair) for pair in notification.data],
                    at,
                ]
                for notification, at in self.notifications
            ]
        if self.positions:
            fields["positions"] = [list(pair) for pair in self.positions]
        if self.windows:
            fields["windows"] = self.windows
        if self.done:
            fields["done"] = list(self.done)
        if self.commands != NO_COMMANDS:
            fields["tables"] = self.commands.to_json()
        if self.held:
            fields["held"] = [paused.to_json() for paused in self.held]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Progress:
        state, before = fields.get("state"), fields.get("before")
        return cls(
            None if state is None else IncrementalSnapshot.from_json(state),
            None if before is None else IncrementalSnapshot.from_json(before),
            tuple(Collection(*parts) for parts in fields.get("blocking", ())),
            tuple(Collection(*parts) for parts in fields.get("reading", ())),
            tuple(
                (Notification(id_, aggregate, kind, tuple((name, value) for name, value in data)), at)
                for id_, aggregate, kind, data, at in fields.get("notices", ())
            ),
            tuple((name, position) for name, position in fields.get("positions", ())),
            fields.get("windows", 0),
            tuple(fields.get("done", ())),
            TableCommands.from_json(fields["tables"]) if "tables" in fields else NO_COMMANDS,
            tuple(map(PausedTable.from_json, fields.get("held", ()))),
        )


NO_PROGRESS = Progress()


def read_through(before: Progress, now: Progress) -> set[str]:
    """Return the tables whose rows snapshots have read completely, up to the batch that ends with `before`.

    `now` is the progress at the end of the next batch. Its window does not count: it may still be read again.
    """
    read = {*before.done, *(str(collection) for collection in before.reading if collection.filter is None)}
    going = [collection for state in (now.before, now.state) if state is not None for collection in state.collections]
    return read - {str(collection) for collection in going}
