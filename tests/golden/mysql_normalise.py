"""Replacement of variable parts of the records of MySQL and MariaDB by names, as in `normalise` for PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.golden.normalise import INSTANT, Normaliser, payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text

_PLACE = re.compile(r"file=(.*),pos=(\d+)")
_IDENTITY = re.compile(r"file:(.*);pos:(\d+)")
_UNITS = {"ts_ms": 1, "ts_us": 1000, "ts_ns": 1_000_000}


@dataclass(slots=True)
class MySqlNormaliser(Normaliser):
    """A normaliser for the records of one run, in place. Whole seconds stay apart from other times."""

    def _text(self, kind: str, leaf: object) -> object:
        """Replace a text by a name."""
        text = leaf.string if isinstance(leaf, Text) else None
        return leaf if text is None else self._leaf(['"', (kind, text), '"'])

    def _place(self, block: dict[str, object], prefix: str = "") -> None:
        file, pos = block.get(f"{prefix}file"), block.get(f"{prefix}pos")
        if isinstance(pos, Text) and pos.isdigit() and pos != "0":
            block[f"{prefix}pos"] = self._leaf([("pos", f"{file}:{pos}")])
        if isinstance(file, Text):
            block[f"{prefix}file"] = self._text("file", file)
        if f"{prefix}gtid" in block:
            block[f"{prefix}gtid"] = self._text("gtid", block[f"{prefix}gtid"])
        for name in ("server_id", "thread"):
            leaf = block.get(f"{prefix}{name}")
            if isinstance(leaf, Text) and leaf.isdigit() and leaf != "0":
                block[f"{prefix}{name}"] = self._leaf([(name, f"{name}{leaf}")])

    def _transaction(self, leaf: object, kind: str = "gtid") -> object:
        text = leaf.string if isinstance(leaf, Text) else None
        if text is None:
            return leaf
        found = _PLACE.fullmatch(text)
        if found is None:
            return self._text("gtid", leaf)
        return self._leaf(['"', ("file", found[1]), ",", ("pos", f'"{found[1]}":{found[2]}'), '"'])

    def _moment(self, block: dict[str, object], names: tuple[str, str, str] = ("ts_ms", "ts_us", "ts_ns")) -> None:
        leaves = [block.get(name) for name in names]
        numbers = [int(leaf) if isinstance(leaf, Text) and leaf.isdigit() else None for leaf in leaves]
        ms, us, ns = numbers
        for name, leaf, number in zip(names, leaves, numbers, strict=True):
            if not number:
                continue
            if us is not None and ns is not None and not ms == us // 1000 == ns // 1_000_000:
                block[name] = Text(f"{leaf} is not the moment of the other timestamps")
            else:
                whole = us is not None and us % 1_000_000 == 0
                block[name] = Text("<a whole second>" if whole else "<a moment>")

    def _value(self, value: dict[str, object], envelope: bool) -> None:
        if "specversion" in value:
            self._event(value)
            return
        source = value.get("source")
        if isinstance(source, dict) and "pos" in source:
            self._moment(source)
            self._place(source)
            envelope = True
        transaction = value.get("transaction")
        if isinstance(transaction, dict) and "id" in transaction:
            transaction["id"] = self._transaction(transaction["id"])
        if "status" in value and "data_collections" in value:
            value["id"] = self._transaction(value.get("id"))
            envelope = True
        for prefix in ("__", "__source_"):
            self._place(value, prefix)
            self._moment(value, (f"{prefix}ts_ms", f"{prefix}ts_us", f"{prefix}ts_ns"))
        if envelope:
            self._moment(value)

    def _event(self, event: dict[str, object]) -> None:
        """Normalise a CloudEvent, whose id consists of name, file and position."""
        identity = event.get("id")
        found = _IDENTITY.search(identity) if isinstance(identity, Text) else None
        if isinstance(identity, Text) and found is not None:
            parts = [str(identity[: found.start()]), ("pos", f'"{found[1]}":{found[2]}'), str(identity[found.end() :])]
            event["id"] = self._leaf(parts)  # type: ignore[arg-type]
        moment = event.get("time")
        if isinstance(moment, Text) and INSTANT.fullmatch(moment.string or ""):
            event["time"] = Text('"<instant>"')
        self._place(event, "iodebezium")
        leaf = event.get("iodebeziumserverid")
        if isinstance(leaf, Text) and leaf != NULL:
            event["iodebeziumserverid"] = self._leaf([("server_id", str(leaf))])
        thread = event.get("iodebeziumthread")
        if isinstance(thread, Text) and thread != NULL:
            event["iodebeziumthread"] = self._leaf([("thread", f"thread{thread}")])
        for name in ("iodebeziumtxid", "iodebeziumtransactionid"):
            if name in event:
                event[name] = self._transaction(event[name])
        for name in ("iodebeziumtsms", "iodebeziumtsus", "iodebeziumtsns"):
            if isinstance(event.get(name), Text) and event[name] != NULL:
                event[name] = Text("<a moment>")

    def _record(self, record: Record) -> None:
        key, value = payload(record.key), payload(record.value)
        if isinstance(key, dict) and record.topic.endswith(".transaction") and "id" in key:
            key["id"] = self._transaction(key["id"])
        # Under dataclass(slots=True), super() without arguments fails.
        Normaliser._record(self, record)
        if record.topic == self.notifications and isinstance(value, dict):
            data = value.get("additional_data")
            if isinstance(data, dict):
                # its order is that of a map of Java's
                value["additional_data"] = dict(sorted(data.items()))
