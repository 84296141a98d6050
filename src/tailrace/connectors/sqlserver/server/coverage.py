"""Coverage: the parts of a captured table that its changes do not carry, by the catalog. Driver, planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tailrace.columns import TableId
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.findings import Finding
from tailrace.connectors.sqlserver.server import statements
from tailrace.errors import PrerequisiteError

_COMPUTED = "it is computed, and null in changes; a copy is without it"


class CoverageSession(Protocol):
    """The methods of a session that the checks of coverage use."""

    def all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        ...

    def one(self, statement: str, *parameters: Any) -> Any:
        """Return the first value of a statement; None without rows."""
        ...


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source table. `number` is its id in the table, which is never reused."""

    name: str
    number: int
    is_computed: bool = False
    is_set: bool = False
    is_masked: bool = False
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """The difference between a table and its capture instance.

    `columns` are the columns of the source. `captured` has the instance's columns by name, with their ids in the
    source. `sees_masked` is True if the login sees masked values, `has_filter` if a security policy filters rows,
    `may_switch` if partitions may be switched in and out.
    """

    capture: CaptureTable
    columns: tuple[SourceColumn, ...]
    captured: Mapping[str, int]
    sees_masked: bool = True
    has_filter: bool = False
    may_switch: bool = False

    def uncarried(self) -> Iterator[tuple[str, str]]:
        """Yield the columns whose values changes do not carry, each with the reason.

        Columns that were added later are not among them: `CaptureHealth.altered` reports these.
        """
        last = max(self.captured.values(), default=0)
        present = {column.name for column in self.columns}
        for column in self.columns:
            number = self.captured.get(column.name)
            if number is None:
                if column.number <= last:
                    yield column.name, "it is not captured"
            elif number != column.number:
                yield column.name, "it was dropped and made again, and is null in changes"
            elif column.is_computed:
                yield column.name, _COMPUTED
            elif column.is_set:
                yield column.name, "it is a column set, which changes do not show"
        for name in self.captured:
            if name not in present:
                yield name, "it was dropped, and is null in changes"

    def masked(self) -> list[str]:
        """Return the captured columns whose values this login sees masked."""
        return [
            one.name for one in self.columns if one.name in self.captured and one.is_masked and not self.sees_masked
        ]

    def unread(self) -> Iterator[tuple[str, str]]:
        """Yield the columns whose values a SELECT of this login does not show, each with the reason."""
        for column in self.columns:
            if column.name in self.captured and column.is_encrypted:
                yield column.name, "it is encrypted by Always Encrypted, and there is no key here"
            elif column.name in self.masked():
                yield column.name, "it is masked for this login, and changes may show what is behind the mask"


def read(session: CoverageSession, captures: Sequence[CaptureTable]) -> list[Coverage]:
    """Return the coverage of each table by its newest capture instance, in the order of the tables."""
    newest = {one.source: one for one in captures}
    if not newest:
        return []
    objects = [one.source_id for one in newest.values()]
    columns: dict[int, list[SourceColumn]] = {}
    for number, name, place, *kinds in session.all(statements.covered(objects)):
        columns.setdefault(number, []).append(SourceColumn(name, place, *map(bool, kinds)))
    captured: dict[int, dict[str, int]] = {}
    for number, name, place in session.all(statements.CAPTURED_COLUMNS):
        captured.setdefault(number, {})[name] = place
    filtered, switched = _numbers(session.all(statements.FILTERED)), _numbers(session.all(statements.SWITCHED))
    sees = not any(one.is_masked for of in columns.values() for one in of) or bool(session.one(statements.UNMASKED))
    return [
        Coverage(
            one,
            tuple(columns[one.source_id]),
            captured.get(one.object_id, {}),
            sees,
            one.source_id in filtered,
            one.object_id in switched,
        )
        for _, one in sorted(newest.items())
        # a table without columns was dropped meanwhile, which other checks report
        if one.source_id in columns
    ]


def _numbers(rows: Iterable[tuple[Any, ...]]) -> set[int]:
    return {number for (number,) in rows}


def findings(coverages: Iterable[Coverage], shows: Callable[[TableId, str], bool], of: str) -> Iterator[Finding]:
    """Yield one warning for each table whose changes lack anything that a SELECT returns.

    `shows` returns True if the options include a table's column. `of` names the database if there are several.
    """
    for one in coverages:
        gaps = list(_told(one, shows))
        if gaps:
            text = f"{one.capture.source}{of}: {'; '.join(text for text, _ in gaps)}."
            yield Finding("warning", "coverage", text, " ".join(remedy for _, remedy in gaps))


def _told(one: Coverage, shows: Callable[[TableId, str], bool]) -> Iterator[tuple[str, str]]:
    """Yield a part of a sentence and a remedy for each kind of rows or values that changes do not carry."""
    source = one.capture.source
    uncarried = [f"{name} ({why})" for name, why in one.uncarried() if shows(source, name)]
    if uncarried:
        more = any(why != _COMPUTED for name, why in one.uncarried() if shows(source, name))
        yield (
            f"changes do not carry {', '.join(uncarried)}",
            ("Make a second capture instance with sys.sp_cdc_enable_table; or leave" if more else "Leave")
            + " the columns out with column.exclude.list.",
        )
    unread = [f"{name} ({why})" for name, why in one.unread() if shows(source, name)]
    if unread:
        yield (
            f"a snapshot does not read the values of {', '.join(unread)}",
            "grant unmask to …; or leave the columns out with column.exclude.list.",
        )
    if one.has_filter:
        yield (
            "a security policy filters its rows for each login, but changes come of all rows",
            "Let the policy's predicate pass this login.",
        )
    if one.may_switch:
        yield (
            "the log has no changes of rows in partitions that are switched in or out",
            "Then read the table by a snapshot (signal execute-snapshot), or run tailrace verify --repair; "
            "@allow_partition_switch = 0 of sys.sp_cdc_enable_table forbids it.",
        )


def demand_sight(
    session: CoverageSession, captures: Sequence[CaptureTable], shows: Callable[[TableId, str], bool]
) -> None:
    """Raise PrerequisiteError if this login does not see all rows and values of a table.

    A comparison would count hidden rows as deleted at the source, and a repair would remove them from the copy.
    """
    for one in read(session, captures):
        source = one.capture.source
        masked = [name for name in one.masked() if shows(source, name)]
        if masked:
            raise PrerequisiteError(
                f"{source} cannot be compared: this login sees masked values of {', '.join(masked)}.",
                "grant unmask to …; or leave the columns out with column.exclude.list.",
            )
        if one.has_filter and not _sees_all(session, source):
            raise PrerequisiteError(
                f"{source} cannot be compared: a security policy hides some of its rows from this login.",
                "Let the policy's predicate pass this login; compare while nobody writes to the table.",
            )


def _sees_all(session: CoverageSession, table: TableId) -> bool:
    """Return True if the login sees as many rows as the table has. Repeated, because writers may disturb the
    comparison."""
    count = statements.hidden_rows(table)
    return any(session.one(count, table.schema, table.table) == 0 for _ in range(_TRIES))


_TRIES = 3
