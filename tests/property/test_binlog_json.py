"""The kernel that writes binary JSON gives the texts of the plain one, on documents and on any other bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.connectors.binlog.log.decoder import texts
from tailrace.connectors.binlog.log.forms import ColumnForm, ValueKind
from tailrace.connectors.binlog.log.json_documents import document_text
from tailrace.errors import DecodeError
from tests.extent import examples
from tests.property.binlog_json import documents

checked = settings(deadline=None, max_examples=examples(200))
FORM = ColumnForm(ValueKind.JSON, -4)


def compiled(given_documents: list[bytes | None]) -> object:
    data = b"".join(one or b"" for one in given_documents)
    lengths = np.array([-1 if one is None else len(one) for one in given_documents], np.int32)
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))[:-1]]).astype(np.int32)
    try:
        return texts(FORM, np.frombuffer(data or b"\0", np.uint8), starts, lengths).to_pylist()
    except DecodeError:
        return DecodeError


def plain(given_documents: list[bytes | None]) -> object:
    try:
        return [None if one is None else document_text(one).encode() for one in given_documents]
    except DecodeError:
        return DecodeError


columns = st.lists(st.none() | documents(), min_size=1, max_size=6)


@checked
@given(columns)
def test_documents_become_the_same_texts(found: list[bytes | None]) -> None:
    assert compiled(found) == plain(found)


@checked
@given(columns, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3), st.booleans())
def test_other_bytes_are_written_alike_or_refused_alike(
    found: list[bytes | None], changes: list[tuple[int, int]], is_cut: bool
) -> None:
    broken: list[bytes | None] = []
    for one in found:
        raw = bytearray(one or b"")
        for place, byte in changes:
            if place < len(raw):
                raw[place] = byte
        broken.append(bytes(raw[:-1] if is_cut and raw else raw) if one is not None else None)
    assert compiled(broken) == plain(broken)
