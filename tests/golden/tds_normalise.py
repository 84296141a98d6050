"""Replacement of variable parts of SQL Server's records by names, as in `normalise` for PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.golden.normalise import INSTANT, Normaliser, payload
from tests.golden.record import Record
from tests.golden.wire import Text

LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:(?:[0-9a-f]{4}|[0-9a-f]{16})")


@dataclass(slots=True)
class TdsNormaliser(Normaliser):
    """A normaliser for the records of one run, in place. LSNs are named by their order in the run."""

    def _lsn(self, leaf: object) -> object:
        text = leaf.string if isinstance(leaf, Text) else None
        if text is None or not LSN.fullmatch(text):
            return leaf
        return self._leaf(['"', ("lsn", str(int(text.replace(":", ""), 16))), '"'])

    def _transaction(self, leaf: object, kind: str = "lsn") -> object:
        return self._lsn(leaf)

    def _source(self, block: dict[str, object]) -> None:
        for name in ("commit_lsn", "change_lsn"):
            if name in block:
                block[name] = self._lsn(block[name])
        self._moment(block)

    def _value(self, value: dict[str, object], envelope: bool) -> None:
        source = value.get("source")
        if isinstance(source, dict) and "commit_lsn" in source:
            self._source(source)
            envelope = True
        transaction = value.get("transaction")
        if isinstance(transaction, dict) and "id" in transaction:
            transaction["id"] = self._lsn(transaction["id"])
        if "status" in value and "data_collections" in value:
            value["id"] = self._lsn(value.get("id"))
            envelope = True
        for prefix in ("__", "__source_"):
            for name in ("commit_lsn", "change_lsn"):
                if prefix + name in value:
                    value[prefix + name] = self._lsn(value[prefix + name])
            self._moment(value, (f"{prefix}ts_ms", f"{prefix}ts_us", f"{prefix}ts_ns"))
        if "specversion" in value:
            self._event(value)
            return
        if envelope:
            self._moment(value)

    def _event(self, event: dict[str, object]) -> None:
        """Normalise a CloudEvent. Its id consists of name, change and commit LSN, whose agreement
        is compared by parts."""
        identity = event.get("id")
        if isinstance(identity, Text) and identity.string is not None:
            parts: list[str | tuple[str, str]] = []
            at = 0
            for match in LSN.finditer(identity):
                parts += [identity[at : match.start()], ("lsn", str(int(match.group().replace(":", ""), 16)))]
                at = match.end()
            event["id"] = self._leaf([*parts, str(identity[at:])])
        moment = event.get("time")
        if isinstance(moment, Text) and INSTANT.fullmatch(moment.string or ""):
            event["time"] = Text('"<instant>"')
        for name in ("commitlsn", "changelsn", "commit_lsn", "change_lsn", "txid"):
            if f"iodebezium{name}" in event:
                event[f"iodebezium{name}"] = self._lsn(event[f"iodebezium{name}"])
        self._moment(event, ("iodebeziumtsms", "iodebeziumtsus", "iodebeziumtsns"))

    def _record(self, record: Record) -> None:
        key, value = payload(record.key), payload(record.value)
        if isinstance(key, dict) and isinstance(value, dict) and "status" in value and "id" in key:
            key["id"] = self._lsn(key["id"])
        # Under dataclass(slots=True), super() without arguments fails.
        Normaliser._record(self, record)
