"""MongoDB's prerequisites for capture, checked one by one. Driver; only reads.

`check` returns the findings. `demand`, at the start of a pipeline, raises the errors among them as one exception.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns import TableId
from tailrace.config import Config
from tailrace.config.files import checkpoint_directory
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.findings import Finding, Level, collisions, demanded, listed, unmatched
from tailrace.connectors.mongodb.log import coverage
from tailrace.connectors.mongodb.log.indexed_run import Namespace
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, split
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained_error
from tailrace.connectors.mongodb.setup import advice
from tailrace.connectors.mongodb.snapshot.chunks import collections
from tailrace.errors import PrerequisiteError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from pymongo import MongoClient

OLDEST = (4, 2)
"""The oldest server that PyMongo connects to."""
_PRE_IMAGES, _SPLIT = (6, 0), (6, 0, 9)
_UNAUTHORIZED, _NO_MAJORITY = 13, 148
_LITTLE_S = 3600
"""Seconds below which the span of the oplog gives a warning: a longer stop of the pipeline loses changes."""

log = logging.getLogger("tailrace")


def check(config: Config) -> list[Finding]:
    """Return all findings, in the order of the checks, followed by advice.

    Raises ConnectionFailed or PrerequisiteError if it cannot connect.
    """
    return _inspected(config, advised=True)


def demand(config: Config) -> list[Finding]:
    """Return the findings without the advice. If some are errors, raises PrerequisiteError with all of them."""
    return demanded(_inspected(config, advised=False))


def rights(config: Config, client: MongoClient[Any]) -> list[Finding]:
    """Return the findings on the right to read the log; the remedy of an error is the statement that grants it."""
    return list(_Inspection(config, client).log_rights())


def _inspected(config: Config, *, advised: bool) -> list[Finding]:
    client = connect(Address.of(config, soon=True))
    try:
        inspection = _Inspection(config, client)
        found = list(inspection.run())
        if advised:
            found += advice.encryption(client)
            found += advice.rights(config, client, inspection.captured)
        return found
    except TailraceError:
        raise
    except Exception as error:
        raise explained_error(error) from None
    finally:
        client.close()


class _Inspection:
    """The checks of one replica set or sharded cluster, over one client."""

    def __init__(self, config: Config, client: MongoClient[Any]) -> None:
        self.config = config
        self.client = client
        self.mode = snapshot_mode(config)
        self.reads_oplog = config["capture.mode"] == "oplog"
        self.user = config["mongodb.user"] or "that is logged in"
        self.captured: list[Namespace] = []

    def run(self) -> Iterator[Finding]:
        hello = self._hello()
        version = self._version()
        number = ".".join(map(str, version))
        sharded = hello.get("msg") == "isdbgrid"
        if not sharded and not hello.get("setName"):
            yield Finding(
                "error",
                "server",
                f"MongoDB {number} here is a single server without a replica set, which keeps no log of its changes.",
                "Start it with --replSet, and run rs.initiate() once.",
            )
            return
        where = "the mongos of a sharded cluster" if sharded else f"the replica set {hello['setName']}"
        yield Finding("ok", "server", f"MongoDB {number}, {where}.")
        if sharded and self.reads_oplog:
            yield Finding(
                "error",
                "server",
                "A sharded cluster is read through change streams: its mongos has no oplog.",
                "Set event.format=3, or name one of the shards' replica sets.",
            )
            return
        if self.mode.streams:
            yield from self.log_rights()
            yield from self.features(version)
            yield from self.window()
        yield from self.collections()
        if self.config["signal.data.collection"] and self.mode.streams:
            yield from self.signals()

    def _hello(self) -> dict[str, Any]:
        from pymongo.errors import ConfigurationError

        try:
            return dict(self.client.admin.command("hello"))
        except ConfigurationError as error:
            # the server is too old for the driver, or DNS does not know its name
            raise PrerequisiteError(f"PyMongo cannot use the server: {str(error).rstrip('.')}.") from None

    def _version(self) -> tuple[int, ...]:
        return tuple(self.client.admin.command("buildInfo")["versionArray"][:3])

    def log_rights(self) -> Iterator[Finding]:
        """Check the right to read the log, by reading it."""
        from pymongo.errors import OperationFailure

        what = "the oplog" if self.reads_oplog else "a change stream"
        try:
            if self.reads_oplog:
                yield from self._oplog_rights()
            else:
                self._open_stream()
        except OperationFailure as error:
            if error.code != _UNAUTHORIZED:
                raise
            yield Finding("error", "rights", f"The user {self.user} may not read {what}.", self._grant())
        else:
            yield Finding("ok", "rights", f"The user {self.user} may read {what}.")

    def _oplog_rights(self) -> Iterator[Finding]:
        from pymongo.errors import OperationFailure

        question = {"find": "oplog.rs", "limit": 1, "singleBatch": True}
        self.client.local.command(question)
        try:
            self.client.local.command(question | {"readConcern": {"level": "majority"}})
        except OperationFailure as error:
            if error.code != _NO_MAJORITY:
                raise
            yield Finding(
                "warning",
                "majority",
                "The server has no majority read concern: changes that are rolled back after an election may be read.",
                "Start it without enableMajorityReadConcern: false.",
            )

    def _open_stream(self) -> None:
        scope, target = self.config["capture.scope"], self.config["capture.target"] or ""
        database, collection = split(target)
        stage: dict[str, Any] = {"allChangesForCluster": True} if scope == "deployment" else {}
        command = {
            "aggregate": collection if scope == "collection" else 1,
            "pipeline": [{"$changeStream": stage}],
            "cursor": {"batchSize": 0},
        }
        opened = self.client[database or "admin"].command(command)["cursor"]
        if opened["id"]:
            name = opened["ns"].partition(".")[2]
            self.client[database or "admin"].command({"killCursors": name, "cursors": [opened["id"]]})

    def _grant(self) -> str:
        scope, target = self.config["capture.scope"], self.config["capture.target"]
        if self.reads_oplog:
            return 'db.getSiblingDB("admin").grantRolesToUser(…, [{ role: "read", db: "local" }]);'
        if scope == "deployment":
            return 'db.getSiblingDB("admin").grantRolesToUser(…, ["readAnyDatabase"]);'
        return f'db.getSiblingDB("admin").grantRolesToUser(…, [{{ role: "read", db: "{split(target)[0]}" }}]);'

    def features(self, version: tuple[int, ...]) -> Iterator[Finding]:
        """Check that the server's version supports the options."""
        wanted: list[tuple[str, tuple[int, ...]]] = []
        if "pre_image" in self.config["capture.mode"]:
            wanted.append((f"capture.mode = {self.config['capture.mode']}", _PRE_IMAGES))
        if self.config["capture.mode.full.update.type"] == "post_image":
            wanted.append(("capture.mode.full.update.type = post_image", _PRE_IMAGES))
        if self.config["cursor.oversize.handling.mode"] == "split":
            wanted.append(("cursor.oversize.handling.mode = split", _SPLIT))
        for option, least in wanted:
            if version < least:
                yield Finding(
                    "error", "version", f"{option} needs MongoDB {'.'.join(map(str, least))}.", "Choose another mode."
                )

    def window(self) -> Iterator[Finding]:
        """Check how far the oplog reaches back, and whether it reaches the checkpoint."""
        from pymongo.errors import OperationFailure

        try:
            ends = [self.client.local["oplog.rs"].find_one(sort=[("$natural", way)]) for way in (1, -1)]
        except OperationFailure:
            # a mongos has no oplog, and users of change streams need no right to read it; the stream shows lost
            # positions
            return
        if ends[0] is None or ends[1] is None:
            return
        oldest, newest = ends[0]["ts"].time, ends[1]["ts"].time
        reach = newest - oldest
        read = self._position()
        if read is not None and read < oldest:
            mends = self.mode.mends
            remedy = (
                "Delete the checkpoint for a new snapshot, or set snapshot.mode=when_needed. A larger oplog keeps more."
            )
            yield Finding(
                "warning" if mends else "error",
                "oplog",
                f"The oplog begins at {_moment(oldest)}, after the checkpoint's position of {_moment(read)}, and the "
                "changes between are lost.",
                "A new snapshot will be taken." if mends else remedy,
            )
        elif read is not None:
            yield Finding("ok", "oplog", f"The oplog reaches back {_span(read - oldest)} beyond the checkpoint.")
        elif reach < _LITTLE_S and time.time() - newest < _LITTLE_S:
            yield Finding(
                "warning",
                "oplog",
                f"The oplog reaches back {_span(reach)} only: a longer stop of the pipeline loses changes.",
                "On a young server this grows by itself; else raise oplogSizeMB or storage.oplogMinRetentionHours.",
            )
        else:
            yield Finding("ok", "oplog", f"The oplog reaches back {_span(reach)}.")

    def _position(self) -> int | None:
        """Return the seconds of the checkpoint's log position; None without one."""
        stored = stored_offset(checkpoint_directory(self.config))
        try:
            seconds = 0 if stored is None else MongoOffset.from_json(stored).log.time >> 32
        except (KeyError, TypeError, ValueError, IndexError):
            return None
        return seconds or None

    def collections(self) -> Iterator[Finding]:
        from pymongo.errors import OperationFailure

        captured = CollectionFilter(self.config)
        try:
            found = collections(self.client, captured, self.config.event_format == "1.1")
        except OperationFailure as error:
            if error.code != _UNAUTHORIZED:
                raise
            yield Finding(
                "error",
                "collections",
                f"The user {self.user} may not list the collections.",
                'db.getSiblingDB("admin").grantRolesToUser(…, ["readAnyDatabase"]);',
            )
            return
        data = self.captured = [one for one in found if one != captured.signals]
        if not data:
            yield self._none()
            return
        names = [".".join(one) for one in data]
        count = "1 collection is" if len(data) == 1 else f"{len(data)} collections are"
        yield Finding("ok", "collections", f"{count} captured: {listed(names)}.")
        if self.mode.reads != "never":
            yield from self._readable(data)
        if self.mode.streams:
            yield from self._images(data)
            yield from coverage.findings(self.client, captured)
        most = self.config["guardrail.collections.max"]
        if most and len(data) > most:
            level: Level = "error" if self.config["guardrail.collections.limit.action"] == "fail" else "warning"
            yield Finding(
                level,
                "guardrail",
                f"{len(data)} collections are captured, more than guardrail.collections.max = {most}.",
                "Narrow the include lists, or raise the limit.",
            )
        yield from collisions(EventSettings.from_options(self.config), [TableId("", *one) for one in data])

    def _none(self) -> Finding:
        """Return the warning that nothing is captured, not an error: the first document of a collection creates it."""
        names = [
            f"{database}.{name}"
            for database in self.client.list_database_names()
            if database not in ("admin", "config", "local")
            for name in self.client[database].list_collection_names()
        ]
        return unmatched(self.config, names, is_fresh=False, what="collection") or Finding(
            "warning",
            "collections",
            "No collection is captured yet.",
            "Check database.include.list, collection.include.list and the exclude lists.",
        )

    def _readable(self, data: Sequence[Namespace]) -> Iterator[Finding]:
        from pymongo.errors import OperationFailure

        refused = []
        for database, name in data:
            try:
                self.client[database].command({"find": name, "limit": 1, "projection": {"_id": 1}})
            except OperationFailure as error:
                if error.code != _UNAUTHORIZED:
                    raise
                refused.append(f"{database}.{name}")
        if refused:
            yield Finding(
                "error",
                "select",
                f"The user {self.user} may not read {listed(refused)} for a snapshot.",
                'db.getSiblingDB("admin").grantRolesToUser(…, [{ role: "read", db: … }]);',
            )
        else:
            yield Finding("ok", "select", f"The user {self.user} may read every captured collection.")

    def _images(self, data: Sequence[Namespace]) -> Iterator[Finding]:
        """Check that the server keeps the documents before and after changes, as far as the options need them."""
        before = "pre_image" in self.config["capture.mode"]
        after = self.config["capture.mode.full.update.type"] == "post_image"
        if not before and not after:
            return
        kept: set[Namespace] = set()
        for database in sorted({database for database, _ in data}):
            for collection in self.client[database].list_collections():
                if (collection.get("options", {}).get("changeStreamPreAndPostImages") or {}).get("enabled"):
                    kept.add((database, collection["name"]))
        without = [".".join(one) for one in data if one not in kept]
        if without:
            empty = " and ".join(name for name, wanted in (("before", before), ("after of updates", after)) if wanted)
            yield Finding(
                "warning",
                "images",
                f"The server keeps no earlier documents of {listed(without)}, so that {empty} will be null.",
                "db.runCommand({ collMod: …, changeStreamPreAndPostImages: { enabled: true } });",
            )
        else:
            yield Finding("ok", "images", "The server keeps earlier documents of every captured collection.")

    def signals(self) -> Iterator[Finding]:
        name = self.config["signal.data.collection"]
        database, collection = split(name)
        if self.client[database].list_collection_names(filter={"name": collection}):
            yield Finding("ok", "signals", f"The signal collection {name} exists.")
        else:
            yield Finding(
                "warning",
                "signals",
                f"There is no signal collection {name} yet.",
                f'db.getSiblingDB("{database}").createCollection("{collection}");',
            )


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _span(seconds: int) -> str:
    """Return a duration in words, in the largest unit of which there are two or more."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} seconds"
