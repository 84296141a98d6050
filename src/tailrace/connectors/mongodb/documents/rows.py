"""Documents as rows: records of events by the shapes of their documents, each with a struct of the document's
fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tailrace.connectors.mongodb.documents.shapes import Shaper, struct
from tailrace.connectors.mongodb.documents.tree import Branch, DocumentStyle, Leaves, shape_column, tree_of
from tailrace.records.layout import BlockColumn, RecordLayout, Struct
from tailrace.records.transform import RefusedRecord, Rewritten, VaryingLayout

_IMAGE = "after"


def opened(record: RecordLayout, made: Callable[[Struct], Rewritten], text: str) -> Rewritten:
    """Implements `Documents.opened` of `tailrace.connectors.descriptor`."""
    envelope = record.value
    assert isinstance(envelope, Struct)
    node = envelope.part(_IMAGE)
    if not isinstance(node, BlockColumn) or node.name != _IMAGE:
        raise RefusedRecord("The document in the field after was changed by another transform, or there is none")
    manner = DocumentStyle(whole=text)
    return VaryingLayout(shape_column(_IMAGE, manner), partial(_of_shape, node.type.name, made, manner))


def _of_shape(
    name: str | None, made: Callable[[Struct], Rewritten], manner: DocumentStyle, shape: bytes | None
) -> Rewritten:
    if shape is None:
        raise RefusedRecord("An event has no document in the field after")
    tree = tree_of(shape, manner.spread)
    assert isinstance(tree, Branch)
    found = Shaper(manner, Leaves(_IMAGE, manner)).fields(tree, name)
    # as in Debezium, the struct keeps the name of the text's schema
    return made(struct(found, name, optional=True))
