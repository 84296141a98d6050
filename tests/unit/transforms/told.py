"""Changes of a table through a chain of transforms, for the tests of transforms."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.columns import Column, TableSchema
from tailrace.columns.row import COLUMNS
from tailrace.config.transforms import transforms
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import TODAY, EventSettings
from tailrace.events.record_assembly import to_rows
from tests.event_settings import event_settings
from tests.unit.events.changes import Change, batch, table

CUSTOMERS = table(
    "customers",
    [
        Column("id", "int4", 23, nullable=False),
        Column("name", "text", 25, nullable=False),
        Column("region", "text", 25),
        Column("age", "int4", 23, default="18"),
    ],
    "id",
)
"""A table with nullable columns, NOT NULL columns, and columns with a default."""

PLACES = ("partition", "timestamp")


class Told(NamedTuple):
    """A record: payloads without schemas, the headers outside of the context, its partition and its time."""

    op: str
    topic: str
    key: Any
    value: Any
    headers: dict[str, Any]
    partition: int | None
    timestamp: int | None


def settings(chain: Sequence[dict[str, str]], form: str = TODAY, **more: Any) -> EventSettings:
    """Return the settings of a chain, each of whose transforms is given by its options; they pass through pickle."""
    options: dict[str, Any] = {"transforms": [f"t{place}" for place in range(len(chain))], "event.format": form}
    for place, given in enumerate(chain):
        options |= {f"transforms.t{place}.{name}": text for name, text in given.items()}
    made = transforms(options)
    assert not made.faults, made.faults
    plain = {"key_schemas_enable": False, "value_schemas_enable": False, "header_schemas_enable": False}
    chosen: dict[str, Any] = {"columns": (*COLUMNS, *PLACES), "transforms": made.transforms, **plain, **more}
    chosen.setdefault("skipped_operations", frozenset())
    return pickle.loads(pickle.dumps(event_settings("p", "golden", event_format=form, **chosen)))


def told(
    chain: Sequence[dict[str, str]],
    changes: Sequence[Change],
    of: TableSchema = CUSTOMERS,
    form: str = TODAY,
    **more: Any,
) -> list[Told]:
    """Return the records for changes of a table."""
    found = []
    for part in to_rows(batch(of, changes), settings(chain, form, **more), FORM):
        for row in part.to_pylist():
            headers = {one["key"]: read(one["value"]) for one in row["headers"] or ()}
            shown = {name: value for name, value in headers.items() if not name.startswith("__debezium.")}
            key, value = read(row["key"]), read(row["value"])
            found.append(Told(row["op"], row["topic"], key, value, shown, row["partition"], row["timestamp"]))
    return found


def read(data: bytes | None) -> Any:
    """Return JSON as values; the text TOMBSTONE for missing bytes."""
    return "TOMBSTONE" if data is None else json.loads(data)


def faults(chain: Sequence[dict[str, str]]) -> list[str]:
    """Return the faults in the options of a chain."""
    options: dict[str, Any] = {"transforms": [f"t{place}" for place in range(len(chain))]}
    for place, given in enumerate(chain):
        options |= {f"transforms.t{place}.{name}": text for name, text in given.items()}
    return transforms(options).faults


def notices(given: dict[str, str]) -> list[str]:
    """Return the notices about a transform's options."""
    options: dict[str, Any] = {"transforms": ["t"], **{f"transforms.t.{name}": text for name, text in given.items()}}
    return transforms(options).notices
