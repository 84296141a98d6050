"""Records of any shape, as transforms make them, with instants, LSNs and transactions at any place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.golden.normalise import Named, Normaliser, payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text, quote

_FIRST, _LAST = 1_767_225_600, 2_556_057_600
"""Seconds since 1970: instants of recordings and runs are from 2026 on, those of their data are older."""

_DIGITS = re.compile(r"-?\d{13,19}")
_ISO = re.compile(r"20(?:2[6-9]|[3-7]\d)-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")


@dataclass(slots=True)
class Shapes(Normaliser):
    """A normaliser for such records.

    `fields` names the fields with LSNs (`lsn`), transactions (`tx`, `transaction`) or positions (`sequence`) whose
    names do not end in `lsn`, `txId` or `sequence`.
    """

    fields: Mapping[str, str] = field(default_factory=dict)

    def _record(self, record: Record) -> None:
        # Classes with slots are created anew, so that super() without arguments fails.
        Normaliser._record(self, record)
        record.key = self._walked(record.key, "key")
        record.value = self._walked(record.value, "value")
        record.timestamp = self._moment_of(record.timestamp)
        record.headers = [(name, self._walked(value, name)) for name, value in record.headers]

    def _walked(self, part: object, name: str) -> object:
        if isinstance(part, dict) and set(part) == {"schema", "payload"}:
            return {**part, "payload": self._walk(part["payload"], name)}
        return self._walk(payload(part), name)

    def _walk(self, value: object, name: str) -> object:
        if isinstance(value, dict):
            return {key: self._walk(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [self._walk(part, name) for part in value]
        if isinstance(value, Named) or not isinstance(value, Text) or value == NULL:
            return value
        return self._scalar(value, self.fields.get(name) or _kind(name))

    def _scalar(self, leaf: Text, kind: str | None) -> object:
        text = leaf.string
        if kind in ("lsn", "tx") and (text or leaf).isdigit():
            return self._number(kind, leaf)
        if kind == "sequence" and text is not None:
            return self._sequence(leaf, None)
        if kind in ("tx", "transaction") and text is not None and re.fullmatch(r"\d+:\d+", text):
            return self._transaction(leaf)
        return self._moment_of(leaf)

    def _moment_of(self, leaf: object) -> object:
        if not isinstance(leaf, Text):
            return leaf
        number = leaf.string or leaf
        if _DIGITS.fullmatch(number):
            scale = 1000 ** ((len(number.lstrip("-")) - 10) // 3)
            if scale in (10**3, 10**6, 10**9) and _FIRST * scale <= int(number) < _LAST * scale:
                shown = f"<{len(number)} digits>"
                return Text(shown) if leaf.string is None else quote(shown)
        text = leaf.string
        return leaf if text is None or _ISO.search(text) is None else quote(_ISO.sub("<instant>", text))


def _kind(name: str) -> str | None:
    low = name.lower()
    if low.endswith("origin_lsn"):
        return None
    ends = {"lsn": "lsn", "txid": "tx", "sequence": "sequence"}
    return next((kind for end, kind in ends.items() if low.endswith(end)), None)
