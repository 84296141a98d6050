"""The tables of a pipeline with words for the state of each, for `tailrace tables list`. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from tailrace.config.config import Config
from tailrace.config.filters import TableFilter
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.table_commands import Table


def listing(
    config: Config,
    progress: Progress,
    captured: Callable[[TableFilter], Sequence[Table]],
    late: Container[Table] = (),
) -> list[tuple[str, str]]:
    """Return each table that the lists or the commands of a checkpoint name, with words for its state.

    `captured` returns the tables of the database that pass a filter. `late` has tables whose earlier rows are not read.
    """
    added, removed = set(progress.commands.added), set(progress.commands.removed)
    waiting = () if progress.state is None else progress.state.collections
    held = {(paused.collection.schema, paused.collection.table) for paused in progress.held}
    being_read = {(collection.schema, collection.table) for collection in waiting}
    lists, chosen = TableFilter(config), TableFilter(config)
    chosen.overrule(added | removed, ())
    there = captured(chosen)
    found = []
    for name in there:
        is_listed = lists.includes(*name)
        if name in removed:
            words = "removed by a command" + ("; the lists name it" if is_listed else "")
        elif name in added:
            words = "added by a command" + ("" if is_listed else "; the lists leave it out")
        else:
            words = "by the lists"
        if name in being_read:
            words += "; its rows are being read" if name == (waiting[0].schema, waiting[0].table) else "; it waits"
        elif name in held:
            words += "; its reading is paused: tailrace tables resume"
        elif name in late and name not in removed:
            words += "; rows that it had before are not read: tailrace tables resnapshot"
        found.append((".".join(name), words))
    gone = sorted(added - set(there))
    return found + [(".".join(name), "added by a command; it is not there") for name in gone]
