"""What `tailrace.transforms` and the source call here: a Documents. What it needs is loaded when it is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.descriptor import Schemas
from tailrace.connectors.mongodb.documents.options import CLASS, configured, unwrap
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.connectors.mongodb.documents.extended import Document
    from tailrace.connectors.mongodb.documents.unwrap import Unwrapping

_NAME = "unwrap"


def transform(config: Config) -> Unwrapping | None:
    """What the configuration's `transforms` ask for, None where it has none. Any process; no I/O."""
    settings = configured(config)
    if settings is None:
        return None
    from tailrace.connectors.mongodb.documents.unwrap import Unwrapping

    enabled = (bool(config[f"{part}.converter.schemas.enable"]) for part in ("key", "value", "header"))
    return Unwrapping(settings, Schemas(*enabled))


def unwrapping(options: Mapping[str, str], event_format: str, schemas: Schemas) -> Unwrapping:
    """The transform with `options` of its own, without any prefix, for records whose parts have schemas or not.

    Raises ConfigError for options that do not exist in the Debezium that `event_format` stands for.
    """
    from tailrace.connectors.mongodb.documents.unwrap import Unwrapping

    given = {f"transforms.{_NAME}.{name}": text for name, text in options.items()}
    given[f"transforms.{_NAME}.type"] = CLASS
    settings, faults = unwrap([_NAME], given, event_format)
    if settings is None:
        raise ConfigError("; ".join(faults).replace(f"transforms.{_NAME}.", "") + ".", "Correct the options.")
    return Unwrapping(settings, schemas)


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
