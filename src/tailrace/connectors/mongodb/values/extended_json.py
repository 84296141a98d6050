"""BSON values as JSON text, a column at a time. Worker.

The text is exactly what Debezium's connector writes; `json_forms` has the forms. In an event it is the value of a JSON
string, so it is written with the escapes of this string at once.
"""

from __future__ import annotations

import secrets
import threading
from functools import lru_cache

import numpy as np

from tailrace.connectors.mongodb.values import extended_json_kernels as kernels
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.connectors.mongodb.values.json_forms import Form
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.errors import ConversionError
from tailrace.kernels.buffers import readonly
from tailrace.kernels.programs import Fragment
from tailrace.values.json_text import quoted

_MOST = 2**31 - 1
_compiled = lru_cache(Form.compiled)
_local = threading.local()


def json_texts(data: Bytes, places: Int64s, kinds: Bytes, form: Form, within_string: bool = True) -> Fragment:
    """Return the texts of the values of types `kinds` at `places` in `data`.

    Places and kinds are those of `fields.locate` and `fields.elements`; a whole document is of kind DOCUMENT. With
    `within_string` each text is a JSON string, with quotes and escapes, and a missing value (kind ABSENT) is `null`;
    otherwise texts are bare. Raises DecodeError for a value that does not follow BSON; ConversionError for a value
    nested more than 1,024 levels deep, for a type that the form refuses, and for texts of more than 2 GiB.
    """
    compiled = _compiled(form, within_string)
    count = len(places)
    places = readonly(np.ascontiguousarray(places, np.int64).view())
    kinds = readonly(np.ascontiguousarray(kinds, np.uint8).view())
    # The compiled writer takes contiguous arrays, read-only if they are inputs.
    data = readonly(data.view())
    offsets, left = np.zeros(count + 1, np.int64), np.zeros(count, np.uint8)
    out = np.empty(_first_guess(data, count), np.uint8)
    seen = _seen()
    row = 0
    while True:
        row = int(kernels.write(data, places, kinds, row, compiled, seen, out, offsets, left))
        if row == count:
            break
        if len(out) > _MOST + 1024:
            raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
        larger = np.empty(2 * len(out) + 65_536, np.uint8)
        larger[: offsets[row]] = out[: offsets[row]]
        out = larger
    total = int(offsets[-1])
    out = out[:total]
    if left.any():
        out, offsets = _with_plain(data, places, kinds, form, within_string, out, offsets, left)
    if int(offsets[-1]) > _MOST:
        raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
    return Fragment(out, offsets.astype(np.int32))


def _first_guess(data: Bytes, count: int) -> int:
    return 2 * len(data) + 64 * count + 4096


def _seen() -> kernels.Seen:
    """Return this thread's table of names."""
    if not hasattr(_local, "seen"):
        serials = np.zeros(kernels.SLOTS + 2, np.int64)
        serials[kernels.SLOTS + 1] = secrets.randbits(32)
        _local.seen = kernels.Seen(serials, np.zeros(kernels.SLOTS, np.int64))
    found: kernels.Seen = _local.seen
    return found


def _with_plain(
    data: Bytes,
    places: Int64s,
    kinds: Bytes,
    form: Form,
    within_string: bool,
    out: Bytes,
    offsets: Int64s,
    left: Bytes,
) -> tuple[Bytes, Int64s]:
    """Return the texts, with those that the compiled writer has left inserted."""
    content = data.tobytes()
    parts: list[Bytes] = []
    sizes = np.diff(offsets)
    done = 0
    for row in np.flatnonzero(left).tolist():
        text = plain_text(content, int(kinds[row]), int(places[row]), form)
        encoded = (quoted(text) if within_string else text).encode()
        parts += (out[done : int(offsets[row])], np.frombuffer(encoded, np.uint8))
        done = int(offsets[row])
        sizes[row] = len(encoded)
    parts.append(out[done:])
    bounds = np.zeros(len(offsets), np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return np.concatenate(parts), bounds
