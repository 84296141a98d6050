"""Chains of transforms without Spark: changes of a table go in, and rows come out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.columns import Column, TableSchema
from tailrace.config.transforms import transforms
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tests.event_settings import event_settings
from tests.unit.events.changes import Change, batch, table

CONNECT = "org.apache.kafka.connect.transforms."
PREDICATES = f"{CONNECT}predicates."
TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("item", "text", 25)], "id")
CHANGES: tuple[Change, ...] = (
    ("c", None, ["1", "rope"]),
    ("u", ["1", "rope"], ["1", None]),
    ("d", ["1", None], None),
)
"""An insert, an update and a delete with its tombstone."""


def chain(*steps: Mapping[str, str], predicates: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, Any]:
    """Return the options of transforms named a, b, c …, each given by its own options, `type` among them."""
    names = [chr(ord("a") + place) for place in range(len(steps))]
    options: dict[str, Any] = {"transforms": names, "predicates": list(predicates or {})}
    for name, step in zip(names, steps, strict=True):
        options |= {f"transforms.{name}.{option}": text for option, text in step.items()}
    for name, predicate in (predicates or {}).items():
        options |= {f"predicates.{name}.{option}": text for option, text in predicate.items()}
    return options


def faults(*steps: Mapping[str, str], predicates: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
    """Return the faults in the options."""
    return transforms(chain(*steps, predicates=predicates)).faults


def settings(options: Mapping[str, Any], **more: Any) -> EventSettings:
    """Return settings with these transforms, as they reach a worker."""
    found = transforms({"replace.null.with.default": more.get("replace_null_with_default", True), **options})
    assert not found.faults
    shown = {"key_schemas_enable": False, "value_schemas_enable": False, "header_schemas_enable": False}
    chosen = event_settings(
        "s", "golden", transforms=found.transforms, extended_headers_enabled=False, **(shown | more)
    )
    unpickled: EventSettings = pickle.loads(pickle.dumps(chosen))
    assert unpickled.transforms == chosen.transforms
    return unpickled


def rows(
    *steps: Mapping[str, str],
    schema: TableSchema = TABLE,
    changes: Sequence[Change] = CHANGES,
    predicates: Mapping[str, Mapping[str, str]] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Return the rows of the changes after the transforms, with keys, values and headers read."""
    chosen = settings(chain(*steps, predicates=predicates), **more)
    found = [row for part in to_rows(batch(schema, changes), chosen, FORM) for row in part.to_pylist()]
    for row in found:
        row["key"] = _read(row["key"])
        row["value"] = _read(row["value"])
        row["headers"] = [(header["key"], _read(header["value"])) for header in row["headers"] or ()]
    return found


def _read(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)
