"""Classification of failures of sessions that read the log: retriable or lasting. Planner."""

from __future__ import annotations

from tailrace.connectors.postgres.server.causes import deliberate
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, SpoolFailed, TailraceError

# SQLSTATEs of a missing object, of a slot in use, and of a slot that cannot be read.
UNDEFINED_OBJECT, OBJECT_IN_USE, NOT_IN_STATE = "42704", "55006", "55000"
# SQLSTATEs with which the server refuses to copy the slot.
NO_SLOT_LEFT, DUPLICATE_OBJECT, FORBIDDEN = "53400", "42710", "42501"
# SQLSTATE of a function that a compatible server does not implement.
UNSUPPORTED = "0A000"
# SQL expression: the slot `s` of pg_replication_slots has the option two_phase, which PostgreSQL 14 has brought.
TWO_PHASE = "coalesce((to_jsonb(s) ->> 'two_phase')::bool, false)"
_AUTHORISATION = ("28000", "28P01", "42501", "3D000")


class SlotInUse(PrerequisiteError):
    """Another client reads the slot; it may be a walsender that has not noticed yet that its client is gone."""

    sqlstate = OBJECT_IN_USE

    def __init__(self, slot: str, pid: int) -> None:
        super().__init__(
            f"The replication slot {slot} is in use by process {pid}.",
            "Stop the other reader, or give this one a slot of its own with slot.name.",
        )
        self.args = (slot, pid)


def two_phase_refused(slot: str) -> PrerequisiteError:
    """Return the error for a slot from which the server sends prepared transactions before they are committed."""
    return PrerequisiteError(
        f"The replication slot {slot} was made with two_phase: the server sends transactions when they are prepared, "
        "and then only that they are committed.",
        "Drop that slot, or choose another slot.name, and begin with a new checkpoint.",
    )


def classify(error: Exception, slot: str) -> TailraceError | None:
    """Return the lasting error behind `error`; None if a new session may succeed."""
    if isinstance(error, TailraceError) and not isinstance(error, ConnectionFailed | SpoolFailed):
        return error
    if (found := deliberate(error)) is not None:
        return found
    state = getattr(error, "sqlstate", None)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if state == NOT_IN_STATE:
        return PositionLost(
            f"The replication slot {slot} cannot be read any more: {text}.",
            "See wal_status and invalidation_reason in pg_replication_slots. Drop the slot and the checkpoint to "
            "start again with a snapshot.",
        )
    if state == UNDEFINED_OBJECT:
        return PrerequisiteError(f"{text}.", "Create the publication, or let publication.autocreate.mode create it.")
    if state in _AUTHORISATION:
        return ConnectionFailed(
            f"PostgreSQL refuses the session: {text}.",
            "Check the user, its rights and the password.",
            is_lasting=True,
        )
    module = type(error).__module__
    if isinstance(error, ConnectionFailed | SpoolFailed | OSError) or (
        module.startswith(("psycopg", "adbc")) and type(error).__name__ in _SESSION_ERRORS
    ):
        return None
    return TailraceError(f"Reading slot {slot} failed: {type(error).__name__}: {text}")


def exhausted(error: Exception, slot: str) -> TailraceError:
    """Return the lasting error for a session that is not retried any more."""
    if isinstance(error, TailraceError):
        if isinstance(error, ConnectionFailed):
            error.is_lasting = True
        return error
    text = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    return ConnectionFailed(
        f"Reading slot {slot} failed again and again: {text}.",
        "Start again with the same checkpoint when the server is back; errors.max.retries limits the attempts.",
        is_lasting=True,
    )


_SESSION_ERRORS = ("OperationalError", "AdminShutdown", "CannotConnectNow", "CrashShutdown", "InterfaceError")
