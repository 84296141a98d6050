"""Replacement of variable parts by names, so that equal values stay equal and different ones different.

A variable value is replaced by a Named leaf. It is shown in two ways: masked (`<lsn>`), for a first comparison of all
fixed parts, and named (`<lsn 3>`) by the rank of the value among all of its kind in the run. The rank follows the log,
not the order in which topics were read, so two runs that interleave their topics differently agree.

Contradictions within one record (three timestamps that are not one instant, a sequence that does not end with the
record's LSN) are left in place as a text that names them, and so differ from a sound record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tests.golden.record import Record
from tests.golden.wire import NULL, Text, quote

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WINDOW = re.compile(UUID.pattern + "-(?:open|close)")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
HASH = re.compile(r"@[0-9a-f]+$")
DIGITS = {"ts_ms": 13, "ts_us": 16, "ts_ns": 19}
HEARTBEATS = "__debezium-heartbeat"
NOTIFICATIONS = "notifications"
RUN_ID = "__debezium.context.runId"


@dataclass(slots=True)
class Named:
    """A leaf with variable parts: texts, and (kind, value) pairs that are shown by name."""

    parts: list[str | tuple[str, str]]
    names: dict[tuple[str, str], str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        shown = []
        for part in self.parts:
            if isinstance(part, str):
                shown.append(part)
            else:
                shown.append(f"<{part[0]}>" if self.names is None else f"<{part[0]} {self.names[part]}>")
        return "".join(shown)


@dataclass(slots=True)
class Normaliser:
    """A normaliser for the records of one run, in place.

    `heartbeats` is the prefix of the heartbeats' topics, `notifications` the topic of notifications.
    """

    heartbeats: str = HEARTBEATS
    notifications: str = NOTIFICATIONS
    _named: list[Named] = field(default_factory=list)

    def normalise(self, records: Iterable[Record]) -> dict[str, list[Record]]:
        """Return the records by topic, masked. Of heartbeats, whose number depends on time, only distinct ones stay."""
        topics: dict[str, list[Record]] = {}
        for record in records:
            topics.setdefault(record.topic, []).append(record)
        # Sorted, so that names in order of appearance do not depend on the order of the topics.
        for topic in sorted(topics):
            for record in topics[topic]:
                self._record(record)
            if topic.startswith(self.heartbeats):
                distinct = {str([_show(record.key), _show(record.value)]): record for record in topics[topic]}
                topics[topic] = list(distinct.values())
        return topics

    def name(self) -> None:
        """From here on, show every variable value by its name."""
        values: dict[str, dict[str, None]] = {}
        for leaf in self._named:
            for part in leaf.parts:
                if not isinstance(part, str):
                    values.setdefault(part[0], {})[part[1]] = None
        names: dict[tuple[str, str], str] = {}
        for kind, seen in values.items():
            ordered = sorted(seen, key=int) if all(value.isdigit() for value in seen) else list(seen)
            names |= {(kind, value): str(rank) for rank, value in enumerate(ordered, 1)}
        for leaf in self._named:
            leaf.names = names

    # ---- leaves

    def _leaf(self, parts: list[str | tuple[str, str]]) -> Named:
        leaf = Named(parts)
        self._named.append(leaf)
        return leaf

    def _number(self, kind: str, leaf: object) -> object:
        """Replace an integer, or a string of digits, by a name; anything else stays."""
        if isinstance(leaf, Text):
            if leaf.isdigit():
                return self._leaf([(kind, str(leaf))])
            if (leaf.string or "").isdigit():
                return self._leaf(['"', (kind, leaf[1:-1]), '"'])
        return leaf

    def _sequence(self, leaf: object, lsn: object) -> object:
        text = leaf.string if isinstance(leaf, Text) else None
        if text is None:
            return leaf
        match = re.fullmatch(r'\[(?:"(\d+)"|null),"(\d+)"\]', text)
        if match is None:
            return leaf
        own = lsn.strip('"') if isinstance(lsn, Text) and lsn != NULL else None
        if own is not None and own != match[2]:
            return Text(f"{leaf} does not end in the LSN {own}")
        head: list[str | tuple[str, str]] = ['\\"', ("commit", match[1]), '\\"'] if match[1] else ["null"]
        return self._leaf(['"[', *head, ',\\"', ("lsn", match[2]), '\\"]"'])

    def _transaction(self, leaf: object, kind: str = "lsn") -> object:
        """Replace the id of a transaction: its number, in today's format with an LSN, of a commit's end (`commit`) in
        END.

        Whether a commit's end is the next change's LSN depends on other records that the server writes in between.
        """
        text = leaf.string if isinstance(leaf, Text) else None
        match = re.fullmatch(r"(\d+)(?::(\d+))?", text or "")
        if match is None:
            return leaf
        position: list[str | tuple[str, str]] = [":", (kind, match[2])] if match[2] else []
        return self._leaf(['"', ("tx", match[1]), *position, '"'])

    def _uuids(self, leaf: object) -> object:
        """Replace the UUIDs in a string by names, and mask its instants."""
        if not isinstance(leaf, Text) or leaf.string is None:
            return leaf
        parts: list[str | tuple[str, str]] = []
        at = 0
        text = INSTANT.sub("<instant>", leaf)
        for match in UUID.finditer(text):
            parts += [text[at : match.start()], ("uuid", match.group())]
            at = match.end()
        return self._leaf([*parts, text[at:]])

    # ---- blocks

    def _moment(self, block: dict[str, object], names: tuple[str, str, str] = ("ts_ms", "ts_us", "ts_ns")) -> None:
        leaves = [block.get(name) for name in names]
        numbers = [int(leaf.strip('"')) if isinstance(leaf, Text) and _digits(leaf) else None for leaf in leaves]
        ms, us, ns = numbers
        for name, leaf, number, digits in zip(names, leaves, numbers, DIGITS.values(), strict=True):
            if number is None or not isinstance(leaf, Text):
                continue
            if us is not None and ns is not None and not ms == us // 1000 == ns // 1_000_000:
                block[name] = Text(f"{leaf} is not the moment of the other timestamps")
            elif len(str(number)) == digits:
                block[name] = Text(f'"<{digits} digits>"' if leaf.startswith('"') else f"<{digits} digits>")

    def _source(self, block: dict[str, object]) -> None:
        _change(block, "sequence", lambda leaf: self._sequence(leaf, block.get("lsn")))
        _change(block, "lsn", lambda leaf: self._number("lsn", leaf))
        _change(block, "txId", lambda leaf: self._number("tx", leaf))
        self._moment(block)

    def _cloud_event(self, event: dict[str, object]) -> None:
        def plain(name: str) -> str:
            leaf = event.get(f"iodebezium{name}")
            return "null" if leaf is NULL or not isinstance(leaf, Text) else leaf.string or str(leaf)

        identity = event.get("id")
        if isinstance(identity, Text) and "iodebeziumname" not in event:
            event["id"] = self._bare_identity(identity)
        elif isinstance(identity, Text):
            parts = {name: plain(name) for name in ("name", "lsn", "txId", "sequence")}
            wanted = ";".join(f"{name}:{value}" for name, value in parts.items())
            if identity.string == wanted:
                event["id"] = Text("<the id made of name, lsn, txId and sequence>")
        moment = event.get("time")
        if isinstance(moment, Text) and INSTANT.fullmatch(moment.string or ""):
            event["time"] = Text('"<instant>"')
        _change(event, "iodebeziumsequence", lambda leaf: self._sequence(leaf, event.get("iodebeziumlsn")))
        _change(event, "iodebeziumlsn", lambda leaf: self._number("lsn", leaf))
        _change(event, "iodebeziumtxId", lambda leaf: self._number("tx", leaf))
        _change(event, "iodebeziumtxid", self._transaction)
        self._moment(event, ("iodebeziumtsms", "iodebeziumtsus", "iodebeziumtsns"))

    def _bare_identity(self, leaf: Text) -> object:
        """Replace the id of an event without extension attributes."""
        match = re.fullmatch(r"(name:.*;lsn:)(\d+)(;txId:)(\d+)(;sequence:)(\[.*\])", leaf.string or "")
        if match is None:
            return leaf
        sequence = self._sequence(quote(match[6]), Text(match[2]))
        inner = sequence.parts if isinstance(sequence, Named) else [str(sequence)]
        return self._leaf(['"', match[1], ("lsn", match[2]), match[3], ("tx", match[4]), match[5], *inner, '"'])

    def _flat(self, row: dict[str, object]) -> None:
        """Normalise the metadata that ExtractNewRecordState adds to a row, with its default prefix."""
        for prefix in ("__", "__source_"):
            own = row.get(f"{prefix}lsn")
            _change(row, f"{prefix}sequence", partial(self._sequence, lsn=own))
            _change(row, f"{prefix}lsn", lambda leaf: self._number("lsn", leaf))
            _change(row, f"{prefix}txId", lambda leaf: self._number("tx", leaf))
            self._moment(row, (f"{prefix}ts_ms", f"{prefix}ts_us", f"{prefix}ts_ns"))

    def _value(self, value: dict[str, object], envelope: bool) -> None:
        if "specversion" in value:
            self._cloud_event(value)
            return
        source = value.get("source")
        if isinstance(source, dict) and "lsn" in source:
            self._source(source)
            envelope = True
        transaction = value.get("transaction")
        if isinstance(transaction, dict):
            _change(transaction, "id", self._transaction)
        if "status" in value and "data_collections" in value:
            envelope = True
            _change(value, "id", partial(self._transaction, kind=_boundary(value)))
            collections = value["data_collections"]
            for row in collections if isinstance(collections, list) else []:
                name = row["data_collection"]
                if isinstance(name, Text) and name.string is not None:
                    row["data_collection"] = Text('"' + HASH.sub("@<hash>", name.string) + '"')
            if isinstance(collections, list):
                # The place of an object without a name of its own in a Java hash map depends on its address.
                value["data_collections"] = sorted(collections, key=lambda row: "<hash>" not in row["data_collection"])
        self._flat(value)
        if envelope:
            self._moment(value)

    def _record(self, record: Record) -> None:
        key, value = payload(record.key), payload(record.value)
        notification = record.topic == self.notifications
        if isinstance(value, dict):
            self._value(value, notification or record.topic.startswith(self.heartbeats))
            if notification:
                self._moment(value, ("timestamp", "", ""))
        if isinstance(key, dict) and isinstance(value, dict) and "status" in value and "data_collections" in value:
            _change(key, "id", partial(self._transaction, kind=_boundary(value)))
        if isinstance(key, dict) and set(key) == {"id"} and value == NULL and record.topic.endswith(".transaction"):
            # CloudEvents show nothing else of a transaction's boundaries.
            match = re.fullmatch(r'"(\d+):\d+"', str(key["id"]))
            key["id"] = self._leaf(['"', ("tx", match[1]), ':<lsn>"']) if match else key["id"]
        if notification and isinstance(value, dict) and value.get("aggregate_type") == '"Initial Snapshot"':
            _change(value, "additional_data", _set_of_tables)
        # The first column of a signal table is the id, whatever its name.
        identity = next(iter(key.values()), None) if isinstance(key, dict) else None
        if notification or (isinstance(identity, Text) and WINDOW.fullmatch(identity.string or "")):
            rows = [value.get("before"), value.get("after")] if isinstance(value, dict) else []
            for part in (key, value, *rows):
                if isinstance(part, dict):
                    for name in part:
                        _change(part, name, self._uuids)
        record.headers = [(name, _run_id(leaf) if name == RUN_ID else leaf) for name, leaf in record.headers]


def _set_of_tables(data: object) -> object:
    """Return a notification with its tables sorted, because Java keeps them in a set ordered by hash codes."""
    tables = data.get("data_collections") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(tables, Text) or tables.string is None:
        return data
    return {**data, "data_collections": Text('"' + ",".join(sorted(tables.string.split(","))) + '"')}


def _boundary(value: object) -> str:
    """Return the kind of LSN in the id of a BEGIN or END record."""
    ends = isinstance(value, dict) and isinstance(value.get("status"), Text) and value["status"].string == "END"
    return "commit" if ends else "lsn"


def payload(part: object) -> object:
    """Return the payload of Connect's JSON with a schema; JSON without a schema is its own payload."""
    return part["payload"] if isinstance(part, dict) and set(part) == {"schema", "payload"} else part


def _run_id(part: object) -> object:
    """Mask the run's id in any form, if it is a string that is not empty."""
    leaf = payload(part)
    if not isinstance(leaf, Text) or not leaf.string:
        return part
    return {**part, "payload": Text('"<run>"')} if isinstance(part, dict) else Text('"<run>"')


def _change(block: dict[str, object], name: str, change: Callable[[object], object]) -> None:
    if name in block:
        block[name] = change(block[name])


def _digits(leaf: Text) -> bool:
    return leaf.isdigit() or (leaf.string or "").isdigit()


def _show(part: object) -> str:
    return json.dumps(part, default=str, ensure_ascii=False)
