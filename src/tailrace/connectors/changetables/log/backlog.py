"""What a checkpoint still has to read, and whether the change tables reach back to it. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.config.files import checkpoint_directory
from tailrace.connectors.changetables.dialect import Position, Session
from tailrace.connectors.changetables.offset import Reached, TablesOffset
from tailrace.connectors.changetables.position import following
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.findings import Finding, listed
from tailrace.errors import PositionLost

SUBJECT = "checkpoint"
NEAR = 0.75
"""The part of the retention behind which the clean-up is near."""


def reached(config: Config, database: str) -> Reached | None:
    """How far the checkpoint has read a database, by its name in any case; None where there is no checkpoint."""
    stored = stored_offset(checkpoint_directory(config))
    try:
        databases = {} if stored is None else TablesOffset.from_json(stored).databases
    except (KeyError, TypeError, ValueError):
        return None
    return next((one for known, one in databases.items() if known.lower() == database.lower()), None)


def lost(session: Session, read: Reached) -> list[TableId]:
    """The tables whose changes behind a position are cleaned up, or whose change tables are gone; sorted.

    Raises TailraceError, as sessions do, but PositionLost.
    """
    first: Position = following(read.position)
    found = []
    for span in read.eras.spans(read.position, first):
        try:
            if session.oldest(span.era.capture) > max(first, span.era.since):
                found.append(span.era.table.id)
        except PositionLost:
            found.append(span.era.table.id)
    return sorted(found)


def held(
    session: Session, read: Reached, age_min: float | None, kept_min: int | None, mends: bool, of: str, longer: str
) -> Iterator[Finding]:
    """Whether what the checkpoint has not read is still there, and for how long.

    `age_min` is the age of the oldest unread transaction in minutes, `kept_min` how long changes are kept; None where
    unknown, or for ever. `mends` says that a new snapshot is taken where changes are lost, `of` names the database in
    sentences, `longer` says how changes are kept for longer. Raises TailraceError, as sessions do.
    """
    newest = session.newest()
    remedy = "Start with a new checkpoint, or with snapshot.mode=when_needed"
    if newest is not None and newest < read.position:
        yield Finding(
            "warning" if mends else "error",
            SUBJECT,
            f"The newest position{of} is before the checkpoint: the database was restored, or capture set up anew.",
            "A new snapshot will be taken." if mends else f"{remedy}.",
        )
    elif tables := lost(session, read):
        yield Finding(
            "warning" if mends else "error",
            SUBJECT,
            f"Changes behind the checkpoint are cleaned up, or their change tables are gone{of}: {listed(tables)}.",
            "A new snapshot will be taken." if mends else f"{remedy}; and {longer}",
        )
    elif age_min is not None and kept_min is not None and age_min > kept_min * NEAR:
        yield Finding(
            "warning",
            SUBJECT,
            f"The oldest unread change{of} is {age_min:.0f} minutes old, and changes are kept for {kept_min}.",
            f"Start the pipeline now, and {longer}",
        )
    else:
        yield Finding("ok", SUBJECT, f"The change tables{of} reach back to the checkpoint.")
