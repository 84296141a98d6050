"""What `tailrace.transforms` calls here: a Documents. What it needs is loaded when it is first asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.connectors.mongodb.documents.extended import Document
    from tailrace.records.layout import RecordLayout, Struct
    from tailrace.records.transform import Rewritten


def opened(record: RecordLayout, made: Callable[[Struct], Rewritten], text: str) -> Rewritten:
    """See `Documents.opened`."""
    from tailrace.connectors.mongodb.documents import rows

    return rows.opened(record, made, text)


def read(text: str) -> Document:
    """The document that a text of an event, or one that `write` made, stands for. Worker. Raises ConversionError."""
    from tailrace.connectors.mongodb.documents import extended

    found: Document = extended.read(text)
    return found


def write(document: Document) -> str:
    """A document as text, in the form that `after` and `before` have. Worker."""
    from tailrace.connectors.mongodb.documents import extended

    return extended.write(document)


def state_after(before: Document | None, payload: dict[str, Any]) -> Document | None:
    """The document after an event; see `states.state_after`. Worker. Raises ConversionError."""
    from tailrace.connectors.mongodb.documents import states

    return states.state_after(before, payload)
