"""PyMongo's errors: tests for transient errors, and explanations for users."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, TailraceError
from tailrace.process.runtime import THREADS, Runtime

log = logging.getLogger("tailrace")

Result = TypeVar("Result")

_LOST = {
    286: "The change stream's resume token is no longer in the oplog",
    280: "The change stream cannot go on from its resume token",
    260: "The server does not know the change stream's resume token",
    222: "The change stream's resume token is not in the oplog of this cluster",
}
_REMEDY_LOST = (
    "The changes in between are lost: delete the checkpoint to start again with a snapshot, or set "
    "snapshot.mode=when_needed. A larger oplog keeps more."
)
_TOO_LARGE = 10334
_NO_PRIVILEGE = 13
_NOT_A_REPLICA_SET = (40573, 20, 123)
_NO_MAJORITY = 148
_LOG_IN = 18
# Codes for a primary that steps down, lost cursors, interruptions, locks and an unknown commit point. With 136 a capped
# collection has dropped the entry at which a cursor stands: the next cursor checks the log.
_PASSING = frozenset({6, 7, 24, 43, 46, 50, 63, 89, 91, 112, 133, 134, 136, 150, 175, 189, 202, 234, 237, 239, 246, 262,
                      267, 9001, 10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436})  # fmt: skip


class NotYetCommitted(Exception):
    """The server has the entry at which reading stopped, but does not yet know that a majority has it."""


def is_not_yet_committed(error: BaseException) -> bool:
    """Return True if a new primary does not know yet which entries a majority has."""
    return isinstance(error, NotYetCommitted)


def is_passing(error: BaseException) -> bool:
    """Return True if a later attempt may succeed, as after a lost connection, an election or a lost cursor."""
    from pymongo.errors import AutoReconnect, ConfigurationError, OperationFailure, ServerSelectionTimeoutError

    if isinstance(error, TailraceError | ConfigurationError):
        return False
    if isinstance(error, AutoReconnect | ServerSelectionTimeoutError | NotYetCommitted):
        return True
    if isinstance(error, OperationFailure):
        return error.code in _PASSING or error.has_error_label("ResumableChangeStreamError")
    return False


def is_refused_login(error: BaseException) -> bool:
    """Return True if the error is the server's refusal of the user or the password."""
    from pymongo.errors import OperationFailure

    return isinstance(error, OperationFailure) and error.code == _LOG_IN


def explained_error(error: BaseException) -> TailraceError:
    """Return the error as a TailraceError, without parts of the server's text that may contain documents."""
    from pymongo.errors import OperationFailure, PyMongoError

    if isinstance(error, TailraceError):
        return error
    if isinstance(error, OperationFailure):
        code = error.code or 0
        if code in _LOST:
            return PositionLost(f"{_LOST[code]}.", _REMEDY_LOST)
        if code == _TOO_LARGE:
            return PrerequisiteError(
                "A change event is larger than 16 MB, the most that MongoDB can send.",
                "Set cursor.oversize.handling.mode=split (MongoDB 6.0.9 and later), or skip with a "
                "cursor.oversize.skip.threshold.",
            )
        if code == _NO_PRIVILEGE:
            return PrerequisiteError(
                f"The user may not read what the connector needs (code {code}).",
                "Grant it the role readAnyDatabase, or with capture.scope=database or collection the role read on that "
                "database; for the oplog the role read on local and on the captured databases.",
            )
        if code == _LOG_IN:
            return ConnectionFailed(
                "MongoDB refuses the login.",
                "Check mongodb.user, mongodb.password or mongodb.password.command, and mongodb.authsource.",
            )
        if code in _NOT_A_REPLICA_SET:
            return PrerequisiteError(
                "The server is not a member of a replica set, so it has no oplog.",
                "Start it with --replSet and run rs.initiate(), or connect to a mongos.",
            )
        name = str((error.details or {}).get("codeName") or "no name")
        return ConnectionFailed(f"MongoDB refuses a command with code {code} ({name}).", "Check its log.")
    if isinstance(error, NotYetCommitted):
        return ConnectionFailed(
            "The primary does not show the position where reading stopped as known to a majority.",
            "Wait until a majority of the replica set's members is up.",
        )
    if isinstance(error, PyMongoError):
        return _tls_fault(error) or ConnectionFailed(
            f"MongoDB cannot be reached ({type(error).__name__}).",
            "Check the address, the network, and mongodb.ssl.enabled: both sides have to speak TLS, or neither.",
        )
    return ConnectionFailed(
        f"Reading MongoDB failed ({type(error).__name__}: {error}).", "This is a defect: report it."
    )


def explained(call: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function that calls `call` and raises PyMongo's errors as `explained_error` returns them."""

    @wraps(call)
    def inner(*arguments: Any, **named: Any) -> Result:
        from pymongo.errors import PyMongoError

        try:
            return call(*arguments, **named)
        except (PyMongoError, NotYetCommitted) as error:
            raise explained_error(error) from None

    return inner


def _tls_fault(error: BaseException) -> ConnectionFailed | None:
    """Return the error for a fault of TLS, recognised by OpenSSL's text in PyMongo's error; None for other errors."""
    text = str(error)
    for expression, reason, remedy in _TLS:
        if re.search(expression, text):
            return ConnectionFailed(f"TLS with MongoDB fails: {reason}.", remedy)
    return None


_TLS = (
    (
        r"(?i)(?:hostname|IP address) mismatch|is not valid for '",
        "the server's certificate is for another name",
        "Name the servers in mongodb.connection.string or mongodb.hosts as their certificates do; "
        "mongodb.ssl.invalid.hostname.allowed=true compares no names.",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "no known authority has signed the server's certificate, or it has expired",
        "Name the file of the authority in mongodb.ssl.truststore; it has to be where the tasks run, too.",
    ),
    (
        r"(?i)alert certificate required|alert unknown ca|alert bad certificate|alert handshake failure",
        "the server asks for a client's certificate that it does not get",
        "Name the file with certificate and key in mongodb.ssl.keystore.",
    ),
    (
        r"\[SSL\b|\bSSL handshake|WRONG_VERSION_NUMBER",
        "the server does not answer in TLS",
        "Check mongodb.ssl.enabled and the versions of TLS that the server accepts.",
    ),
)
"""Expressions for OpenSSL's texts, with their meaning and the remedy."""


def patiently(
    call: Callable[[], Result],
    attempts: int,
    delay: float,
    longest: float,
    runtime: Runtime = THREADS,
    passes: Callable[[BaseException], bool] = is_passing,
) -> Result:
    """Call, and retry `attempts` times (-1: for ever) after transient errors.

    Pauses double from `delay` to `longest` seconds.
    """
    while True:
        try:
            return call()
        except Exception as error:
            if not attempts or not passes(error):
                raise
            fault = _tls_fault(error)
            reason = type(error).__name__ if fault is None else fault.message.rstrip(".")
            log.warning("reading the log is interrupted (%s); trying again", reason)
        attempts -= 1
        runtime.sleep(delay)
        delay = min(2 * delay, longest)


def lacks_majority_reads(error: BaseException) -> bool:
    """Return True if the error says that the server has no read concern `majority`."""
    from pymongo.errors import OperationFailure

    return isinstance(error, OperationFailure) and error.code == _NO_MAJORITY
