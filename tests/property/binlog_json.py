"""Documents in MySQL's binary form, as a server writes them."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st


def documents() -> st.SearchStrategy[bytes]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=200), st.sampled_from([Opaque(15, b"\x00\xff"), Opaque(246, b"\x05\x02\x80\x7b\x2d"[:5])]),
    )  # fmt: skip
    nested = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
        max_leaves=20,
    )
    return nested.map(encoded)


class Opaque:
    """A value of a type that JSON does not have."""

    def __init__(self, kind: int, data: bytes) -> None:
        self.kind, self.data = kind, data


def encoded(value: Any) -> bytes:
    kind, body = _value(value, False)
    return bytes([kind]) + body


def _length(size: int) -> bytes:
    out = b""
    while size > 127:
        out += bytes([size & 127 | 128])
        size >>= 7
    return out + bytes([size])


def _value(value: Any, large: bool) -> tuple[int, bytes]:
    if value is None or value is True or value is False:
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, Opaque):
        return 15, bytes([value.kind]) + _length(len(value.data)) + value.data
    if isinstance(value, int):
        for kind, form, low, high in ((5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31),
                                      (8, "<I", 0, 2**32), (9, "<q", -(2**63), 2**63)):  # fmt: skip
            if low <= value < high:
                return kind, struct.pack(form, value)
        return 10, struct.pack("<Q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode("utf-8", "replace")
        return 12, _length(len(data)) + data
    return _container(value, large)


def _container(value: Any, large: bool) -> tuple[int, bytes]:
    size, form = (4, "<I") if large else (2, "<H")
    is_object = isinstance(value, dict)
    keys = (
        sorted((key.encode("utf-8", "replace") for key in value), key=lambda key: (len(key), key)) if is_object else []
    )
    members = {key.encode("utf-8", "replace"): one for key, one in value.items()} if is_object else {}
    keys = list(dict.fromkeys(keys))
    items = [members[key] for key in keys] if is_object else list(value)
    head = 2 * size + len(keys) * (size + 2) + len(items) * (size + 1)
    key_entries, tail = b"", b""
    for key in keys:
        key_entries += struct.pack(form, head + len(tail)) + struct.pack("<H", len(key))
        tail += key
    entries = b""
    for one in items:
        kind, body = _value(one, False)
        if kind == 4 or kind in (5, 6) or (large and kind in (7, 8)):
            entries += bytes([kind]) + body.ljust(size, b"\0")
        else:
            if not large and head + len(tail) > 65535:
                return _container(value, True)
            entries += bytes([kind]) + struct.pack(form, head + len(tail))
            tail += body
    if not large and head + len(tail) > 65535:
        return _container(value, True)
    body = struct.pack(form, len(items)) + struct.pack(form, head + len(tail)) + key_entries + entries + tail
    return (0 if is_object else 2) + large, body
