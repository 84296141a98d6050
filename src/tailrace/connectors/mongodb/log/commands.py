"""Commands on whole collections: the log has no changes for the documents that they remove or add. Planner, the
reader's thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, split

log = logging.getLogger("tailrace")

TOLD = ("drop", "rename", "dropDatabase")
"""Types of change events that give a warning."""
_REMEMBERED = 4096
_OVER = "remedy: remove the copies, or tailrace verify --repair"


class Commands:
    """Warns once of each command that removed or added documents of captured collections. Thread-safe."""

    def __init__(self, captured: CollectionFilter) -> None:
        self._captured = captured
        self._told: set[str] = set()

    def event(self, document: bytes) -> None:
        """Log a warning for a change event that is not a change of a document."""
        event = _decoded(document)
        self._tell(event.get("clusterTime"), _of_event(event))

    def entry(self, document: bytes) -> None:
        """Log a warning for an oplog entry that is a command."""
        entry = _decoded(document)
        if isinstance(entry.get("o"), Mapping):
            self._tell(entry.get("ts"), _of_entry(split(str(entry.get("ns", "")))[0], entry["o"]))

    def _tell(self, at: object, described: tuple[str, Namespace, Namespace] | None) -> None:
        if described is None:
            return
        for sentence in self._sentences(*described):
            if len(self._told) < _REMEMBERED and f"{at} {sentence}" not in self._told:
                self._told.add(f"{at} {sentence}")
                log.warning("%s", sentence)

    def _sentences(self, kind: str, of: Namespace, to: Namespace) -> Iterator[str]:
        """Yield the warnings for a command on the collection `of`, or on a database if its collection is empty.

        `to` is the new name of a renamed collection.
        """
        if kind == "dropDatabase":
            if self._captured.includes_database(of[0]):
                yield f"the database {of[0]} was dropped: copies of its collections stay as they are; {_OVER}"
            return
        if self._captured.includes(*of):
            name = ".".join(of)
            if kind == "drop":
                yield f"{name} was dropped: copies of it stay as they are; {_OVER}"
            elif kind == "rename":
                yield (
                    f"{name} was renamed to {'.'.join(to)}: copies of it under the old name stay as they are; {_OVER}"
                )
            else:
                yield (
                    f"{name} was altered by {kind}, which may remove documents, and copies of these stay; "
                    "remedy: tailrace verify --repair"
                )
        if kind == "rename" and self._captured.includes(*to):
            name = ".".join(to)
            yield (
                f"{'.'.join(of)} was renamed to {name}: the log does not bring its documents, and copies of an "
                f"earlier {name} stay; remedy: tailrace verify --repair, or remove them and read {name} by "
                "a snapshot (signal execute-snapshot)"
            )


def _decoded(document: bytes) -> Mapping[str, Any]:
    from bson import CodecOptions, decode

    found: Mapping[str, Any] = decode(document, CodecOptions(unicode_decode_error_handler="replace"))
    return found


def _of_event(event: Mapping[str, Any]) -> tuple[str, Namespace, Namespace] | None:
    kind = event.get("operationType")
    if kind not in TOLD or not isinstance(event.get("ns"), Mapping):
        return None
    return str(kind), _name(event["ns"]), _name(event.get("to"))


def _of_entry(database: str, command: Mapping[str, Any]) -> tuple[str, Namespace, Namespace] | None:
    kind, named = next(iter(command.items()), ("", None))
    if kind == "dropDatabase":
        return kind, (database, ""), ("", "")
    if kind == "renameCollection":
        return "rename", split(str(named)), split(str(command.get("to", "")))
    if kind in ("drop", "convertToCapped", "emptycapped"):
        return kind, (database, str(named)), ("", "")
    return None


def _name(namespace: Any) -> Namespace:
    found = namespace if isinstance(namespace, Mapping) else {}
    return str(found.get("db", "")), str(found.get("coll", ""))
