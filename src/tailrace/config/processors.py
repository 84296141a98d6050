"""Post-processors: columns of an event that are reselected from the table. No I/O, any process."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tailrace.config.columns import expressions
from tailrace.config.expressions import Expression
from tailrace.config.option import Kind, Option

FAMILY = "post.processors"
RESELECT = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_CACHE = "reselect.cache."
_LISTS = ("reselect.columns.include.list", "reselect.columns.exclude.list")
_TABLE = (
    Option(_LISTS[0], Kind.EXPRESSIONS, "Columns to read again, as schema.table:column; unset: all.", []),
    Option(_LISTS[1], Kind.EXPRESSIONS, "Columns not to read again, as schema.table:column.", []),
    Option("reselect.unavailable.values", Kind.BOOLEAN, "Read values again that the log does not carry.", True),
    Option("reselect.null.values", Kind.BOOLEAN, "Read nulls again.", True),
    Option("reselect.use.event.key", Kind.BOOLEAN,
           "Look for rows by the event's key instead of the table's own.", False),
    Option("reselect.error.handling.mode", Kind.TEXT,
           "Response to a row that is gone or cannot be read: a warning and a count, or an error.", "warn",
           choices=("warn", "fail")),
)  # fmt: skip

OPTIONS = (
    Option(FAMILY, Kind.LIST, "Names of post-processors, which change events before transforms.", []),
    Option(f"{FAMILY}.<name>.<option>", Kind.TEXT,
           "Options of a post-processor; `type` is its class. `<name>.<option>` is the older spelling.",
           pattern=r"post\.processors\..+"),
)  # fmt: skip
"""For connectors of tables."""


def refused(reason: str) -> tuple[Option, ...]:
    """Return the same options, refused for this `reason`, for a connector without post-processors."""
    return tuple(replace(option, unsupported=reason) for option in OPTIONS)


@dataclass(frozen=True, slots=True)
class Reselection:
    """The values of events to reselect from their tables. Hashable, picklable.

    `included` and `excluded` are expressions over `schema.table:column`, at most one of them filled. `unavailable` and
    `nulls` select values; `by_event_key`: rows are found by the event's key; `fails`: a row that is gone or unreadable
    is an error. `left_out` are signal tables, as the options name them, from which nothing is read.
    """

    included: tuple[Expression, ...] = ()
    excluded: tuple[Expression, ...] = ()
    unavailable: bool = True
    nulls: bool = True
    by_event_key: bool = False
    fails: bool = False
    left_out: tuple[str, ...] = ()

    def concerns(self, table: str, column: str) -> bool:
        """Return True if the column of a table, named schema.table, is reselected."""
        if any(name == table or name.endswith(f".{table}") for name in self.left_out):
            return False
        name = f"{table}:{column}"
        if self.included:
            return any(expression.fullmatch(name) for expression in self.included)
        return not any(expression.fullmatch(name) for expression in self.excluded)


class ProcessorChain(NamedTuple):
    """The post-processors in order, their faults, and the options without effect, each with the reason.

    Faults are sentences without an end that name options, never values.
    """

    processors: tuple[Reselection, ...]
    faults: list[str]
    idle: list[tuple[str, str]]


def today(written: str, given: Mapping[str, str]) -> str:
    """Return today's name of an option written as `<name>.<option>`, if post.processors names it; else ""."""
    names = next((text for name, text in given.items() if name.strip().lower() == FAMILY), "")
    for name in filter(None, (part.strip() for part in names.split(","))):
        rest = written[len(name) + 1 :]
        if written.startswith(f"{name}.") and (rest.lower() == "type" or rest.lower().startswith("reselect.")):
            return f"{FAMILY}.{written}"
    return ""


def processors(values: Mapping[str, Any]) -> ProcessorChain:
    """Return the post-processors that a configuration's `values` name."""
    found = ProcessorChain((), [], [])
    made = []
    left_out = values.get("signal.data.collection") or ()
    signals = (left_out,) if isinstance(left_out, str) else tuple(left_out)
    for name in values.get(FAMILY) or ():
        start = f"{FAMILY}.{name}."
        own = {option[len(start) :]: str(values[option]) for option in values if option.startswith(start)}
        kind = own.pop("type", "").strip()
        if not kind:
            found.faults.append(f"{start}type is missing")
        elif kind.rpartition(".")[2] != RESELECT.rpartition(".")[2]:
            found.faults.append(f"{start}type = {kind} is not supported: only {RESELECT} is")
        else:
            made.append(_reselection(start, own, signals, found))
    return found._replace(processors=tuple(processor for processor in made if processor is not None))


def _reselection(
    start: str, given: Mapping[str, str], signals: tuple[str, ...], found: ProcessorChain
) -> Reselection | None:
    values: dict[str, Any] = {option.name: option.default for option in _TABLE}
    before = len(found.faults)
    for written, text in given.items():
        option = next((known for known in _TABLE if known.name == written.lower()), None)
        if written.lower().startswith(_CACHE):
            found.idle.append((start + written, "a task reads the rows of many events at once, and keeps none of them"))
        elif option is None:
            found.faults.append(f"{start}{written} is not an option{_nearest(written)}")
        elif text.strip():
            try:
                values[option.name] = option.parse(text)
            except ValueError as fault:
                found.faults.append(f"{start}{written} {fault}")
    lists = dict(_compiled(start, values, found.faults))
    if values[_LISTS[0]] and values[_LISTS[1]]:
        found.faults.append(f"{start}{_LISTS[0]} and {_LISTS[1]} exclude each other: give one of them")
    if len(found.faults) > before:
        return None
    return Reselection(
        included=lists[_LISTS[0]],
        excluded=lists[_LISTS[1]],
        unavailable=values["reselect.unavailable.values"],
        nulls=values["reselect.null.values"],
        by_event_key=values["reselect.use.event.key"],
        fails=values["reselect.error.handling.mode"] == "fail",
        left_out=signals,
    )


def _compiled(start: str, values: Mapping[str, Any], faults: list[str]) -> Iterator[tuple[str, tuple[Expression, ...]]]:
    for name in _LISTS:
        try:
            yield name, expressions(values[name])
        except ValueError as fault:
            faults.append(f"{start}{name}: {fault}")


def _nearest(written: str) -> str:
    close = difflib.get_close_matches(written.lower(), [option.name for option in _TABLE], n=1)
    return f"; the nearest is {close[0]}" if close else ""
