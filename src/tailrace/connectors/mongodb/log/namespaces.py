"""CollectionFilter: the captured collections. Namespaces: the numbers that the planner gives them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from tailrace.config.expressions import Expression, compile_expression, literal
from tailrace.connectors.mongodb.log.indexed_run import Namespace

_OLD_BUILT_IN = frozenset({"admin", "local"})
_BUILT_IN = frozenset({"admin", "config", "local"})


class CollectionFilter:
    """The captured collections, by the four lists of a configuration. Picklable.

    Expressions match the whole name, of a database or as `database.collection`, in any case; with
    `filters.match.mode=literal` the lists hold literal names. Debezium 1.1 captures `config`, later versions do not.
    Collections outside of capture.scope and capture.target are neither captured nor read by snapshots. The signal
    collection is captured regardless of the lists, except in the 1.1 format, which has no signals.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        old = config["event.format"] == "1.1"
        self._built_in = _OLD_BUILT_IN if old else _BUILT_IN
        is_literal = config.get("filters.match.mode") == "literal"
        self.lists: dict[str, tuple[Expression, ...]] = {}
        """The expressions of the lists, by `database.include` and so on; each has to match a whole name."""
        for name in ("database.include", "database.exclude", "collection.include", "collection.exclude"):
            texts = config[f"{name}.list"]
            self.lists[name] = tuple(literal(t) if is_literal else compile_expression(t) for t in texts)
        signals = None if old else config.get("signal.data.collection")
        self.signals: Namespace | None = split(signals) if signals else None
        scope, target = config.get("capture.scope") or "deployment", config.get("capture.target") or ""
        self._target = split(target) if scope != "deployment" else ("", "")

    def includes(self, database: str, collection: str) -> bool:
        """Return True if the collection is captured. `system.` collections can be captured, as the log has their
        changes."""
        if database in self._built_in or not database or not collection or collection == "$cmd":
            return False
        if self._target[1] and collection != self._target[1]:
            return False
        if (database, collection) == self.signals:
            return not self._target[0] or database == self._target[0]
        return self.includes_database(database) and self._allows("collection", f"{database}.{collection}")

    def includes_database(self, database: str) -> bool:
        if self._target[0] and database != self._target[0]:
            return False
        return database not in self._built_in and self._allows("database", database)

    def _allows(self, kind: str, name: str) -> bool:
        included = self.lists[f"{kind}.include"]
        if included:
            return any(expression.fullmatch(name) for expression in included)
        return not any(expression.fullmatch(name) for expression in self.lists[f"{kind}.exclude"])


_CHOOSING = (
    "event.format", "filters.match.mode", "database.include.list", "database.exclude.list", "collection.include.list",
    "collection.exclude.list", "capture.scope", "capture.target", "signal.data.collection",
)  # fmt: skip
_LISTS = tuple(name for name in _CHOOSING if name.endswith(".list"))


def choice(config: Mapping[str, Any]) -> str:
    """Return the options that select collections, as a text for `chosen`."""
    return json.dumps({name: config[name] for name in _CHOOSING if config.get(name)}, sort_keys=True)


def chosen(text: str) -> CollectionFilter:
    """Return the filter of a text that `choice` returned."""
    return CollectionFilter({name: [] for name in _LISTS} | json.loads(text))


def split(name: str) -> Namespace:
    """Split a full name at its first dot into database and collection."""
    database, _, collection = name.partition(".")
    return database, collection


class Namespaces:
    """Numbers for collections, in the order of their first appearance; -1 for those that are not captured.
    Thread-safe."""

    def __init__(self, captured: CollectionFilter) -> None:
        self.names: list[Namespace] = []
        self._lock = threading.Lock()
        self._captured = captured
        self._known: dict[Namespace, int] = {}

    def number(self, namespace: Namespace) -> int:
        found = self._known.get(namespace)
        return self._new(namespace) if found is None else found

    def _new(self, namespace: Namespace) -> int:
        with self._lock:
            if namespace not in self._known:
                number = -1
                if self._captured.includes(*namespace):
                    number = len(self.names)
                    self.names.append(namespace)
                self._known[namespace] = number
            return self._known[namespace]
