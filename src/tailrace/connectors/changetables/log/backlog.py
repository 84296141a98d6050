"""The part of the log that a checkpoint has not read, and whether it still exists. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.config.files import checkpoint_directory
from tailrace.connectors.changetables.dialect import Position, Session
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset
from tailrace.connectors.changetables.position import following
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.findings import Finding, listed
from tailrace.errors import PositionLost

SUBJECT = "checkpoint"
NEAR = 0.75
"""Fraction of the retention after which a warning says that the clean-up is near."""


def reached(config: Config, database: str) -> DatabaseProgress | None:
    """Return the progress of a database in the checkpoint; None if there is no checkpoint. Ignores the name's case."""
    stored = stored_offset(checkpoint_directory(config))
    try:
        databases = {} if stored is None else TablesOffset.from_json(stored).databases
    except (KeyError, TypeError, ValueError):
        return None
    return next((one for known, one in databases.items() if known.lower() == database.lower()), None)


def lost(session: Session, read: DatabaseProgress) -> list[TableId]:
    """Return, sorted, the tables whose changes after `read` were cleaned up, or whose change tables are gone.

    Raises the errors of sessions, except PositionLost.
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
    session: Session,
    read: DatabaseProgress,
    age_min: float | None,
    kept_min: int | None,
    mends: bool,
    of: str,
    longer: str,
) -> Iterator[Finding]:
    """Yield a finding on whether the changes that the checkpoint has not read still exist, and for how long.

    `age_min` is the age of the oldest unread transaction in minutes, `kept_min` the retention in minutes; None if
    unknown, or unlimited. `mends` is True if a new snapshot replaces lost changes, `of` names the database in
    sentences, `longer` says how to extend the retention. Raises the errors of sessions.
    """
    newest = session.newest()
    remedy = "Start with a new checkpoint, or with snapshot.mode=when_needed"
    if newest is not None and newest < read.position:
        yield Finding(
            "warning" if mends else "error",
            SUBJECT,
            f"The newest position{of} is before the checkpoint: the database was restored, or capture set up again.",
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
