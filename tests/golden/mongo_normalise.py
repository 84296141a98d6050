"""Replacement of variable parts of MongoDB's records by names, as in `normalise` for PostgreSQL.

Entries that were fed to the oplog are of 2019 and equal in every run, so positions of that time stay unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.golden.normalise import INSTANT, WINDOW, Normaliser, payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text

RECORDED_SINCE = 1_600_000_000_000
"""Times before this, in ms, are those of entries that were fed to the oplog."""

_WINDOW_DOCUMENT = re.compile(r"snapshot-window-(?:open|close)")
_DATE = re.compile(r'(\\"\$date\\": ?)-?\d+')
_TRANSACTION = re.compile(r'"(\{.*\}):(\d+)"')


@dataclass(slots=True)
class MongoNormaliser(Normaliser):
    """A normaliser for the records of one run, in place. In a `genuine` run the log was fed by hand, and nothing
    varies."""

    genuine: bool = False

    def _transaction(self, leaf: object, kind: str = "lsn") -> object:
        """Return a transaction's id, from the session's and its own number; in Debezium 1.1 it is an entry's `h`."""
        found = _TRANSACTION.fullmatch(leaf) if isinstance(leaf, Text) else None
        return leaf if found is None else self._leaf(['"', ("lsid", found[1]), ":", ("txn", found[2]), '"'])

    def _source(self, block: dict[str, object]) -> None:
        if _genuine(block):
            return
        wall = block.get("wallTime")
        if isinstance(wall, Text) and wall != NULL:
            block["wallTime"] = Text("<that of ts_ms>") if wall == block.get("ts_ms") else Text(f"{wall} is not ts_ms")
        seconds = block.get("ts_ms")
        if "rs" in block and isinstance(seconds, Text) and not seconds.endswith("000"):
            block["ts_ms"] = Text(f"{seconds} is not a second")
        self._moment(block)
        ord_ = block.get("ord")
        if isinstance(ord_, Text) and ord_.isdigit():
            block["ord"] = Text("<ord>")
        lsid = block.get("lsid")
        if isinstance(lsid, Text) and lsid != NULL:
            block["lsid"] = self._leaf(['"', ("lsid", lsid[1:-1]), '"'])
        if "txnNumber" in block:
            block["txnNumber"] = self._number("txn", block["txnNumber"])

    def _value(self, value: dict[str, object], envelope: bool) -> None:
        if "specversion" in value:
            self._cloud(value)
            return
        source = value.get("source")
        if isinstance(source, dict):
            self._source(source)
            envelope = True
        transaction = value.get("transaction")
        if isinstance(transaction, dict) and "id" in transaction:
            transaction["id"] = self._transaction(transaction["id"])
        if "status" in value and "data_collections" in value:
            value["id"] = self._transaction(value["id"])
            envelope = True
        if envelope:
            self._moment(value)
        elif not self.genuine:
            self._flat(value)
        for image in ("before", "after"):
            leaf = value.get(image)
            if isinstance(leaf, Text) and _WINDOW_DOCUMENT.search(leaf):
                value[image] = self._uuids(Text(_DATE.sub(r"\1<date>", leaf)))

    def _flat(self, row: dict[str, object]) -> None:
        """Normalise the metadata that ExtractNewDocumentState adds to a document."""
        for prefix in ("__", "__source_"):
            self._moment(row, (f"{prefix}ts_ms", f"{prefix}ts_us", f"{prefix}ts_ns"))
            leaf = row.get(f"{prefix}ord")
            if isinstance(leaf, Text) and leaf.isdigit():
                row[f"{prefix}ord"] = Text("<ord>")

    def _cloud(self, event: dict[str, object]) -> None:
        def plain(name: str) -> str:
            leaf = event.get(f"iodebezium{name}")
            return (leaf.string or str(leaf)) if isinstance(leaf, Text) else ""

        identity, moment = event.get("id"), event.get("time")
        wanted = f"name:{plain('name')};ts:{plain('tsms')};ord:{plain('ord')}"
        if isinstance(identity, Text) and identity.string == wanted:
            event["id"] = Text("<the id made of name, ts and ord>")
        if isinstance(moment, Text) and INSTANT.fullmatch(moment.string or ""):
            event["time"] = Text('"<instant>"')
        if event.get("iodebeziumwallTime") == event.get("iodebeziumtsms"):
            event["iodebeziumwallTime"] = Text("<that of tsms>")
        if plain("ord").isdigit():
            event["iodebeziumord"] = Text("<ord>")
        self._moment(event, ("iodebeziumtsms", "iodebeziumtsus", "iodebeziumtsns"))

    def _record(self, record: Record) -> None:
        # A class with slots is created anew, so that super() without arguments fails.
        Normaliser._record(self, record)
        key = payload(record.key)
        identity = key.get("id") if isinstance(key, dict) else None
        # The key is the JSON text of the id, in quotes.
        if isinstance(key, dict) and isinstance(identity, Text) and WINDOW.search(identity):
            key["id"] = self._uuids(identity)


def _genuine(source: dict[str, object]) -> bool:
    moment, seconds = source.get("ts_ms"), source.get("sec")
    if isinstance(moment, Text) and moment.isdigit():
        return int(moment) < RECORDED_SINCE
    return isinstance(seconds, Text) and seconds.isdigit() and int(seconds) * 1000 < RECORDED_SINCE


def by_window(records: list[Record], size: int) -> list[Record]:
    """Return the records with the documents of each window of an incremental snapshot in the order of their keys.

    Debezium keeps them in a Java hash map. A window has at most `size` consecutive records of a topic.
    """
    arranged: list[Record] = list(records)
    places: dict[str, list[int]] = {}

    def close(topic: str) -> None:
        window = places.pop(topic, [])
        ordered = sorted((records[at] for at in window), key=lambda record: str(payload(record.key)))
        for at, record in zip(window, ordered, strict=True):
            arranged[at] = record

    for at, record in enumerate(records):
        value = payload(record.value)
        source = value.get("source") if isinstance(value, dict) else None
        if isinstance(source, dict) and source.get("snapshot") == '"incremental"':
            places.setdefault(record.topic, []).append(at)
            if len(places[record.topic]) == size:
                close(record.topic)
        else:
            close(record.topic)
            if isinstance(value, dict) and _WINDOW_DOCUMENT.search(str(value.get("after"))):
                for topic in list(places):
                    close(topic)
    for topic in list(places):
        close(topic)
    return arranged
