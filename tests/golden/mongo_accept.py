"""Records that Debezium's MongoDB connector writes and ours does not: rules about the configuration, with reasons.

docs/guarantees/compatibility.md lists them as deliberate. A recording loses exactly these records before it is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tailrace.config.expressions import compile_expression
from tailrace.config.option import split_list
from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text

Rule = Callable[[Record], bool]


def unwanted(properties: Mapping[str, str], form: str) -> list[tuple[str, Rule]]:
    """Return the surplus records of a recording in the format `form`: reasons, and tests for the records."""
    rules: list[tuple[str, Rule]] = []
    skipped = {word.lower() for word in split_list(properties.get("skipped.operations", ""))}
    if form == "1.1" and len(skipped) > 1:
        rules.append(
            ("all skipped operations are skipped; there none is, once two are named", lambda r: _op(r) in skipped)
        )
    included = properties.get("database.include.list")
    if form == "3" and included:
        named = [compile_expression(text) for text in split_list(included)]
        rules.append(
            (
                "database.include.list matches whole names; there, in the stream, any part of one",
                lambda r: _database(r) is not None and not any(one.fullmatch(str(_database(r))) for one in named),
            )
        )
    excluded = properties.get("database.exclude.list")
    if form == "3" and excluded:
        left_out = [compile_expression(text) for text in split_list(excluded)]
        rules.append(
            (
                "database.exclude.list holds for snapshot and stream; there for the snapshot only",
                lambda r: any(one.fullmatch(str(_database(r))) for one in left_out),
            )
        )
    return rules


def without(records: Iterable[Record], rules: list[tuple[str, Rule]]) -> list[bool]:
    """Return for each record whether it is kept; a tombstone is removed with the delete before it."""
    stays: list[bool] = []
    latest: dict[str, bool] = {}
    for record in records:
        tombstone = record.value == NULL
        stay = latest.get(record.topic, True) if tombstone else not any(rule(record) for _, rule in rules)
        latest[record.topic] = stay
        stays.append(stay)
    return stays


def _source(record: Record) -> dict[str, object]:
    value = payload(record.value)
    source = value.get("source") if isinstance(value, dict) else None
    return source if isinstance(source, dict) else {}


def _database(record: Record) -> str | None:
    leaf = _source(record).get("db")
    return leaf.string if isinstance(leaf, Text) else None


def _op(record: Record) -> str | None:
    value = payload(record.value)
    leaf = value.get("op") if isinstance(value, dict) else None
    return leaf.string if isinstance(leaf, Text) else None
