"""Layouts through a chain of transforms, which its options name, without events and without a table."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from tailrace import formats
from tailrace.columns.logical import LogicalType
from tailrace.config.transforms import transforms
from tailrace.formats.arrow import array_of, folded
from tailrace.records.layout import ComputedColumn, Constant, Header, Node, RecordLayout
from tailrace.records.transform import LeftOutRecords, RefusedRecord, Rewritten, resolved, rewritten
from tests.layout_blocks import BARE, LayoutBlock
from tests.unit.transforms.chains import CONNECT, chain

DEBEZIUM = "io.debezium.transforms."
Steps = Mapping[str, str] | tuple[Mapping[str, str], ...]


class Seen(NamedTuple):
    """A record as delivered: its payloads without schemas, and the schemas of key and value."""

    topic: str
    key: Any
    value: Any
    headers: list[tuple[str, Any]]
    partition: int | None
    timestamp: int | None
    key_schema: LogicalType | None
    value_schema: LogicalType | None


def connect(name: str, **options: str) -> dict[str, str]:
    """Return the options of a transform of Kafka Connect; `_` in their names is a dot."""
    return {"type": CONNECT + name} | {option.replace("_", "."): text for option, text in options.items()}


def debezium(name: str, **options: str) -> dict[str, str]:
    """Return the options of a transform of Debezium; `_` in their names is a dot."""
    return {"type": DEBEZIUM + name} | {option.replace("_", "."): text for option, text in options.items()}


def record_of(
    value: Node | None, key: Node | None = None, *, headers: Mapping[str, Node] | None = None, **more: Any
) -> RecordLayout:
    """Return the layout of a record with this value; `more` are further fields of it."""
    pairs = tuple(Header(name, node) for name, node in (headers or {}).items())
    return replace(BARE, value=value, key=key, headers=pairs, **more)


def made_of(steps: Steps, predicates: Mapping[str, Mapping[str, str]] | None = None, **options: Any) -> tuple[Any, ...]:
    """Return the transforms of a chain as they reach a worker."""
    given = (steps,) if isinstance(steps, Mapping) else steps
    found = transforms(chain(*given, predicates=predicates) | options)
    assert not found.faults, found.faults
    sent: tuple[Any, ...] = pickle.loads(pickle.dumps(found.transforms))
    assert sent == found.transforms
    return sent


def seen(
    steps: Steps,
    record: RecordLayout,
    block: LayoutBlock | None = None,
    predicates: Mapping[str, Mapping[str, str]] | None = None,
    **options: Any,
) -> list[Seen | None]:
    """Return the result for each record of the block; None for one that is left out.

    Without a block all values are known, and there is one record.
    """
    columns = LayoutBlock(1) if block is None else block
    found = rewritten(record, made_of(steps, predicates, **options))
    everyone = columns.index[0]
    if isinstance(found, RecordLayout):
        return _delivered(found, columns, everyone)
    rows: list[Seen | None] = []
    for row in everyone:
        one = _of_record(found, columns, everyone[row : row + 1])
        rows += [None] if one is None else _delivered(one, columns, everyone[row : row + 1])
    return rows


def one(steps: Steps, record: RecordLayout, **more: Any) -> Seen:
    """Return the result for a record whose values are all known. Fails if it is left out."""
    (found,) = seen(steps, record, **more)
    assert found is not None
    return found


def values(steps: Steps, value: Node, block: LayoutBlock | None = None, **more: Any) -> list[Any]:
    """Return the values of records. Fails if one is left out."""
    found = seen(steps, record_of(value), block, **more)
    assert None not in found
    return [record.value for record in found if record is not None]


def left_out(steps: Steps, record: RecordLayout) -> str:
    """Return why records of the layout are left out, in the words of the log."""
    found = rewritten(record, made_of(steps))
    assert isinstance(found, LeftOutRecords)
    return found.reason


def refused(steps: Steps, record: RecordLayout, block: LayoutBlock | None = None, **more: Any) -> str:
    """Return why the records are refused."""
    with pytest.raises(RefusedRecord) as error:
        seen(steps, record, block, **more)
    return error.value.reason


def _of_record(found: Rewritten, block: LayoutBlock, records: npt.NDArray[np.int32]) -> RecordLayout | None:
    result = resolved(found, lambda leaf: array_of(leaf, block, records)[0].as_py())
    return None if isinstance(result, LeftOutRecords) else result


def _delivered(record: RecordLayout, block: LayoutBlock, records: npt.NDArray[np.int32]) -> list[Seen | None]:
    """Return records of one layout."""

    def shown(node: Node | None) -> list[Any]:
        if node is None:
            return [None] * len(records)
        encoding = formats.find("json")
        of = np.ones(block.count, np.int32)
        of[records] = 0
        document = encoding.compile(node, False, record)
        found = formats.Blocks(block).of(encoding).encode([document, None], of).to_pylist()
        if _is_known(node):
            assert encoding.one(folded(node), False, record) == found[records[0]]
        return [json.loads(found[row]) for row in records]

    topics = [record.topic] * len(records) if isinstance(record.topic, str) else _column(record.topic, block, records)
    headers = [(header.name, shown(header.node)) for header in record.headers]
    keys, payloads = shown(record.key), shown(record.value)
    partitions, times = _column(record.partition, block, records), _column(record.timestamp, block, records)
    kinds = tuple(None if node is None else node.type for node in (record.key, record.value))
    return [
        Seen(topics[row], keys[row], payloads[row], [(name, found[row]) for name, found in headers], partitions[row],
             times[row], *kinds)
        for row in range(len(records))
    ]  # fmt: skip


def _is_known(node: Node) -> bool:
    """Return True if all values of a node are constants."""
    if isinstance(node, ComputedColumn):
        return False
    return (
        all(_is_known(part.node) for part in node.members) if hasattr(node, "members") else isinstance(node, Constant)
    )


def _column(node: Node | None, block: LayoutBlock, records: npt.NDArray[np.int32]) -> list[Any]:
    if node is None:
        return [None] * len(records)
    found = array_of(node, block, records)
    return found.cast("int64").to_pylist() if "timestamp" in str(found.type) else found.to_pylist()
