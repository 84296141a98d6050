"""The state of capture: the agent, the capture job, and columns that are not captured. Driver, planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tailrace.config import Config
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.changetables.position import Newest
from tailrace.connectors.findings import Finding, listed
from tailrace.connectors.sqlserver.server import coverage, statements
from tailrace.errors import TailraceError
from tailrace.events.event_settings import ColumnShaping

_SILENT_S = 900


class HealthSession(Protocol):
    """The methods of a session that the checks of capture use."""

    database: str

    def all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        ...

    def one(self, statement: str, *parameters: Any) -> Any:
        """Return the first value of a statement; None without rows."""
        ...

    def newest(self) -> Newest | None:
        """Return the position up to which the log is captured."""
        ...


class CaptureHealth:
    """Checks of capture over one session. `of` names the database in sentences if there are several."""

    def __init__(self, session: HealthSession, config: Config, of: str) -> None:
        self._session = session
        self._question = config["database.sqlserver.agent.status.query"]
        self._shows = ColumnShaping.from_options(config).shows
        self._of = of

    def amiss(self, captures: Sequence[CaptureTable]) -> list[str]:
        """Return a sentence for each problem, for a running pipeline. Raises TailraceError."""
        found = [*self.agent(), *self.newest(), *self.altered(captures), *self.covered(captures)]
        return [f"{finding.text} {finding.remedy}".strip() for finding in found if finding.level != "ok"]

    def agent(self) -> Iterator[Finding]:
        """Check that capture is running."""
        question = statements.agent(self._question, self._session.database)
        try:
            runs = self._session.one(question)
        except TailraceError:
            runs = None
        # the capture job writes rows even on an idle server, so their age also shows a job that is stopped or fails
        silent = self._session.one(statements.SILENCE)
        if runs is not None and not int(runs):
            yield Finding(
                "warning",
                "agent",
                "SQL Server Agent is not running, so that no change is captured; none is lost, the log keeps them.",
                "Start the service SQL Server Agent.",
            )
        elif silent is not None and silent > _SILENT_S:
            yield Finding(
                "warning",
                "agent",
                f"The capture job{self._of} has written nothing for {silent // 60} minutes.",
                "Check whether the job cdc.<database>_capture runs: sys.dm_cdc_errors, sys.dm_cdc_log_scan_sessions.",
            )
        elif runs is None:
            yield Finding("ok", "agent", f"The login may not see services; the capture job{self._of} is at work.")
        else:
            yield Finding("ok", "agent", "SQL Server Agent is running.")

    def newest(self) -> Iterator[Finding]:
        if self._session.newest() is None:
            yield Finding(
                "warning",
                "position",
                f"No transaction was captured yet{self._of}: there is no greatest LSN.",
                "Check whether SQL Server Agent and the job cdc.<database>_capture run.",
            )

    def covered(self, captures: Sequence[CaptureTable]) -> Iterator[Finding]:
        """Yield warnings for values that changes do not carry."""
        return coverage.findings(coverage.read(self._session, captures), self._shows, self._of)

    def altered(self, captures: Sequence[CaptureTable]) -> Iterator[Finding]:
        """Yield warnings for tables that got columns after their newest capture instance was made."""
        altered = {number for number, _ in self._session.all(statements.ALTERED)} if captures else set()
        newest = {one.source: one for one in captures}
        affected = [one for one in newest.values() if one.object_id in altered]
        if not affected:
            return
        last = {number: place for number, _, place in self._session.all(statements.CAPTURED_COLUMNS)}
        columns: dict[int, list[tuple[str, int]]] = {}
        for number, name, place, *_ in self._session.all(statements.columns([one.source_id for one in affected])):
            columns.setdefault(number, []).append((name, place))
        for one in affected:
            added = [name for name, place in columns.get(one.source_id, ()) if place > last.get(one.object_id, place)]
            if added:
                yield Finding(
                    "warning",
                    "columns",
                    f"The capture instance {one.name}{self._of} lacks columns that {one.source} got later: "
                    f"{listed(added)}.",
                    "Make a second capture instance with sys.sp_cdc_enable_table: the reader switches to it at its "
                    "start, and then the first can be disabled.",
                )
