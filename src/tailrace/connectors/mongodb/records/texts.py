"""The texts of an event: documents, keys and changed fields as JSON, and the names of transactions. Worker."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.connectors.mongodb.records.images import Images, Values
from tailrace.connectors.mongodb.records.segment import OPLOG, Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.extended_json import json_texts
from tailrace.connectors.mongodb.values.field_filters import FieldFilter
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.connectors.mongodb.values.json_forms import KEY, KEY_1_1, RELAXED, STRICT, STRICT_1_1, JsonForm
from tailrace.connectors.mongodb.values.plain_json import text_of
from tailrace.errors import DecodeError
from tailrace.kernels.programs import CHANGE, KINDS, Fragment, Programs
from tailrace.values.fragments import strings_fragment
from tailrace.values.json_text import quoted

_EMPTY = 5


def key_form(settings: MongoSettings) -> JsonForm:
    """Return the form of `_id` in keys."""
    return KEY_1_1 if settings.legacy else KEY


def document_form(settings: MongoSettings) -> JsonForm:
    """Return the form of documents."""
    return STRICT_1_1 if settings.legacy else STRICT


Edit = Callable[[Bytes, Int64s, Bytes], tuple[Bytes, Int64s]]
"""A function that edits a column of documents, as the methods of FieldFilter do."""


def values(data: Bytes, found: Values, form: JsonForm, edit: Edit | None = None) -> Fragment:
    """Return each value as a JSON string, `null` if there is none. `edit` is applied to documents first."""
    if edit is None:
        return json_texts(data, found.places, found.kinds, form)
    edited, places = edit(data, found.places, found.kinds)
    return json_texts(edited, places, np.where(places >= 0, found.kinds, 0).astype(np.uint8), form)


def unquoted(texts: pa.Array) -> pa.Array:
    """Return the contents of JSON strings; null stays null. Fast for strings with no escapes but quotes."""
    inner = pc.utf8_slice_codeunits(texts, 1, -1)
    odd = pc.or_(
        pc.match_substring(pc.replace_substring(inner, '\\"', ""), "\\"), pc.invert(pc.starts_with(texts, '"'))
    )
    plain = pc.replace_substring(inner, '\\"', '"')
    if not pc.any(odd).as_py():
        return plain
    return pc.replace_with_mask(plain, odd, pa.array(map(json.loads, texts.filter(odd).to_pylist()), pa.string()))


def update_descriptions(
    data: Bytes, updated: Values, removed: Values, truncated: Values, edits: FieldFilter | None = None
) -> Fragment:
    """Return the `updateDescription` of each change, `null` if it has none. `edits` leave out and rename fields."""
    programs = Programs()
    programs.begin()
    programs.literal(b'{"removedFields":')
    programs.fragment(update_part(data, removed, "removedFields", edits), CHANGE)
    programs.literal(b',"updatedFields":')
    programs.fragment(update_part(data, updated, "updatedFields", edits), CHANGE)
    programs.literal(b',"truncatedArrays":')
    programs.fragment(update_part(data, truncated, "truncatedArrays", edits), CHANGE)
    programs.literal(b"}")
    programs.end()
    without = programs.begin()
    programs.literal(b"null")
    programs.end()
    count = len(updated.places)
    index = np.zeros((KINDS, count), np.int32)
    index[CHANGE] = np.arange(count)
    program = np.where(updated.places >= 0, 0, without).astype(np.uint16)
    return Fragment(*programs.run(program, index))


def update_part(data: Bytes, part: Values, called: str, edits: FieldFilter | None) -> Fragment:
    """Return a part of `updateDescription`, by its name; `null` if there is none."""
    if called == "updatedFields":
        return values(data, part, RELAXED, None if edits is None else edits.changes)

    def name(text: str) -> str | None:
        return text if edits is None else edits.name(text)

    if called == "removedFields":
        return _lists(data, part, _removed, name, fields.STRING)
    return _lists(data, part, _truncated, name, fields.DOCUMENT)


Names = Callable[[str], str | None]
"""A function that returns a field's name in events; None if it is left out."""


def _lists(
    data: Bytes, found: Values, write: Callable[[Bytes, int, Names], str | None], name: Names, of: int
) -> Fragment:
    """Return arrays of values of the type `of` as JSON; `null` for missing and empty arrays."""
    arrays = found.kinds == fields.ARRAY
    filled = arrays & (fields.sizes_of(data, np.where(arrays, found.places, -1)) > _EMPTY)
    texts = [b"null"] * len(arrays)
    for row in np.flatnonzero(filled).tolist():
        places, kinds = fields.elements(data, int(found.places[row]))
        if (kinds != of).any():
            raise DecodeError("A list of an update description holds something else.", int(found.places[row]))
        items = [text for place in places.tolist() if (text := write(data, place, name)) is not None]
        if items:
            texts[row] = f"[{','.join(items)}]".encode()
    return strings_fragment(texts)


def _removed(data: Bytes, place: int, name: Names) -> str | None:
    shown = name(_string(data, place))
    return None if shown is None else quoted(shown)


def _truncated(data: Bytes, place: int, name: Names) -> str | None:
    places, kinds = fields.locate(data, np.array([place], np.int64), ("field", "newSize"))
    if kinds[0, 0] != fields.STRING:
        raise DecodeError("A truncated array of an update description has no name.", place)
    size = int(fields.int64s(data, places[1], kinds[1])[0])
    shown = name(_string(data, int(places[0, 0])))
    return None if shown is None else f'{{"field":{quoted(shown)},"size":{size}}}'


def _string(data: Bytes, place: int) -> str:
    size = int(fields.load(data, place))
    return text_of(data[place + 4 : place + 3 + size].tobytes())


def transaction_names(segment: Segment, found: Images, low: int, high: int) -> list[str | None]:
    """Return the names of the transactions of the changes `low` to `high` in events; None outside of transactions.

    In a stream the name is the session as JSON and the transaction's number, in an oplog the entry's `h`.
    """
    if segment.kind == OPLOG:
        if segment.hash is None or segment.hashed is None:
            return [None] * (high - low)
        known = zip(segment.hash[low:high].tolist(), segment.hashed[low:high].tolist(), strict=True)
        return [str(number) if hashed else None for number, hashed in known]
    part = found.session.part(low, high)
    rows = np.flatnonzero((part.places >= 0) & found.has_transaction[low:high])
    names: list[str | None] = [None] * (high - low)
    if not len(rows):
        return names
    places = part.places[rows]
    codes, distinct = fields.distinct(segment.data, places, fields.sizes_of(segment.data, places))
    sessions = [session_text(document) for document in distinct]
    numbers = found.transaction[low:high][rows].tolist()
    for row, code, number in zip(rows.tolist(), codes.tolist(), numbers, strict=True):
        names[row] = f"{sessions[code]}:{number}"
    return names


def session_text(document: bytes) -> str:
    """Return a session's id, a BSON document, as source blocks show it."""
    place, kind = np.zeros(1, np.int64), np.full(1, fields.DOCUMENT, np.uint8)
    text = json_texts(np.frombuffer(document, np.uint8), place, kind, STRICT, within_string=False)
    return text.data[: int(text.offsets[-1])].tobytes().decode()
