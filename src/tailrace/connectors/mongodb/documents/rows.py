"""Documents as rows: the records of events by the shapes of their documents, each with a struct of the fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tailrace.connectors.mongodb.documents.shapes import STRING, Shaper
from tailrace.connectors.mongodb.documents.tree import Branch, Leaves, Manner, shape_column, text_column, tree_of
from tailrace.records.layout import Column, Member, RecordLayout, Struct
from tailrace.records.transform import Refused, Rewritten, Varying

_IMAGE = "after"
_MANNER = Manner()


def opened(record: RecordLayout, made: Callable[[Struct], Rewritten], texts: frozenset[str]) -> Rewritten:
    """See `Documents.opened` in `tailrace.connectors.descriptor`."""
    envelope = record.value
    assert isinstance(envelope, Struct)
    node = envelope.part(_IMAGE)
    if not isinstance(node, Column) or node.name != _IMAGE:
        raise Refused("The document in the field after was changed by another transform, or there is none")
    name = (envelope.name or "").removesuffix(".Envelope")
    return Varying(shape_column(_IMAGE, _MANNER), partial(_of_shape, name, made, texts))


def _of_shape(
    name: str, made: Callable[[Struct], Rewritten], texts: frozenset[str], shape: bytes | None
) -> Rewritten:  # fmt: skip
    if shape is None:
        raise Refused("An event has no document in the field after")
    tree = tree_of(shape, _MANNER.spread)
    assert isinstance(tree, Branch)
    parts = dict(tree.parts)
    written = {field for field in texts if isinstance(parts.get(field), Branch)}
    shown = Branch(tuple(part for part in tree.parts if part[0] not in written))
    found = dict(Shaper(_MANNER, Leaves(_IMAGE, _MANNER)).fields(shown, name))
    found |= {field: text_column(_IMAGE, _MANNER, field, STRING) for field in written}
    members = (Member(field, found[field]) for field in parts if field in found)
    return made(Struct(tuple(members), f"{name}.Value", optional=True))
