"""Blocks are written and read back: the head as a row's key, and the rows as its value."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.columns.blocks import COUNTED, DOCUMENTS, FIXED, BlockForm, Head, read, written
from tailrace.columns.typed import is_variant

NESTED = pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int32())))])
FORM = BlockForm(("id", 'it\'s "v"', "n"), (pa.int64(), pa.decimal128(10, 2), NESTED), (0, 1), (2,), (1, 2, 7), 16384)
HEAD = Head("d", "s", 'it\'s "t"', FORM, 3, ("00FF", 1), ("01FF", 2))


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        replace(HEAD, snapshot="00FF@1", truncate=("0100", 7), missing=True, moved=True),
        replace(HEAD, routed=True, apart=True, changes=1_000_000),
        replace(HEAD, form=DOCUMENTS),
        replace(HEAD, form=BlockForm((), (), ()), rows=0),
    ],
)
def test_a_head_survives_being_a_text(head: Head) -> None:
    found = Head.of(head.text())
    assert found == head
    assert hash(found) == hash(head)


def test_the_schema_of_the_rows_follows_from_the_form() -> None:
    assert FORM.schema.names == [*(field.name for field in FIXED), "origin", "c0", "c1", "c2"]
    assert FORM.schema.field("origin").type == pa.struct(
        [pa.field("k0", pa.int64()), pa.field("k1", pa.decimal128(10, 2))]
    )
    assert [FORM.schema.field(f"c{place}").type for place in range(3)] == list(FORM.types)
    assert [FORM.number(place) for place in range(3)] == [1, 2, 7]
    assert replace(FORM, numbers=()).number(2) == 0


def test_the_form_of_documents_has_variants_that_are_told_as_such() -> None:
    assert is_variant(Head.of(replace(HEAD, form=DOCUMENTS).text()).form.types[1])


def test_rows_survive_being_bytes() -> None:
    rows = pa.RecordBatch.from_pydict({"op": ["c", "d"], "c0": [1, None]})
    found = read(written(rows))
    assert found.to_pylist() == rows.to_pylist()
    assert found.schema == rows.schema
    assert read(written(rows.slice(0, 0))).num_rows == 0
    assert isinstance(written(rows), bytes)


def test_a_query_counts_changes_by_the_heads_field() -> None:
    assert "$.changes" in COUNTED
    assert b'"changes": 7' in replace(HEAD, changes=7).text()
