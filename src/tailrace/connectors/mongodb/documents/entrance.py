"""The entrance of `tailrace.transforms` to this package. Implements Documents; imports the rest at first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.connectors.mongodb.documents.extended import ExtendedDocument
    from tailrace.records.layout import RecordLayout, Struct
    from tailrace.records.transform import Rewritten


def opened(record: RecordLayout, made: Callable[[Struct], Rewritten], text: str) -> Rewritten:
    """Implements `Documents.opened`."""
    from tailrace.connectors.mongodb.documents import rows

    return rows.opened(record, made, text)


def read(text: str) -> ExtendedDocument:
    """Return the document of a text from an event or from `write`. Worker. Raises ConversionError."""
    from tailrace.connectors.mongodb.documents import extended

    found: ExtendedDocument = extended.read(text)
    return found


def write(document: ExtendedDocument) -> str:
    """Return a document as text, in the form of `after` and `before`. Worker."""
    from tailrace.connectors.mongodb.documents import extended

    return extended.write(document)


def state_after(before: ExtendedDocument | None, payload: dict[str, Any]) -> ExtendedDocument | None:
    """Return the document after an event; see `states.state_after`. Worker. Raises ConversionError."""
    from tailrace.connectors.mongodb.documents import states

    return states.state_after(before, payload)
