"""Findings about captured collections whose changes are not all in the log. Driver, planner; raises PyMongo's
errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tailrace.connectors.findings import Finding, listed
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter

if TYPE_CHECKING:
    from pymongo import MongoClient


def findings(client: MongoClient[Any], captured: CollectionFilter) -> Iterator[Finding]:
    """Yield a warning for each kind of captured collection whose changes are not all in the log."""
    kinds: dict[str, list[str]] = {}
    for database in sorted(client.list_database_names()):
        if not captured.includes_database(database):
            continue
        for one in client[database].list_collections():
            name, kind = str(one["name"]), str(one.get("type", "collection"))
            if name.startswith("system.") or not captured.includes(database, name):
                continue
            if kind == "collection" and one.get("options", {}).get("capped"):
                kind = "capped"
            kinds.setdefault(kind, []).append(f"{database}.{name}")
    for kind, (text, remedy) in _TOLD.items():
        if kind in kinds:
            yield Finding("warning", "coverage", f"{text} {listed(sorted(kinds[kind]))}.", remedy)


_TOLD = {
    "view": (
        "These are views. The log has no changes of views, and snapshots do not read them:",
        "Capture the collections that they show; or leave the views out of the lists.",
    ),
    "timeseries": (
        "These are time series. MongoDB reports no changes of time series, and snapshots do not read them:",
        "Leave them out of the lists.",
    ),
    "capped": (
        "These collections are capped, and the log has no deletes of the documents that they drop to make room:",
        "Remove such documents from copies by tailrace verify --repair; or use a TTL index, whose deletes are in the "
        "log.",
    ),
}
