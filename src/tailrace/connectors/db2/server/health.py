"""The state of capture, by the capture program and its register. Driver, planner; reads the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tailrace.connectors.db2.server.catalog import Catalog
from tailrace.connectors.db2.server.catalog import CatalogColumn as Found
from tailrace.connectors.db2.server.connection import RightLacking
from tailrace.connectors.db2.server.register import Registered
from tailrace.connectors.findings import Finding, listed

STALE_S = 300
"""A capture program that has not read the log for this time causes a warning. By default it commits every 30 s."""


def amiss(age: float | None, registered: Sequence[Registered], catalog: Catalog) -> list[str]:
    """Return sentences on problems that do not stop capture, for a running pipeline. Raises TailraceError.

    `age` is as in `program`.
    """
    findings = [*program(age), *states(registered), *columns(registered, catalog), *hidden(registered, catalog)]
    return [f"{finding.text} {finding.remedy}" for finding in findings if finding.level != "ok"]


def program(age: float | None) -> Iterator[Finding]:
    """Check that the capture program runs. `age` is the seconds since it read the log (SYNCHTIME of the global row)."""
    if age is None:
        yield Finding(
            "warning",
            "capture",
            "The register does not show when the capture program has last read the log.",
            "Check that it runs: values ASNCDC.ASNCDCSERVICES('status', 'asncdc').",
        )
    elif age > STALE_S:
        yield Finding(
            "warning",
            "capture",
            f"The capture program has not read the log for more than {_duration(age)}.",
            "Check that it runs: values ASNCDC.ASNCDCSERVICES('status', 'asncdc'), or asnccmd … status.",
        )
    else:
        yield Finding("ok", "capture", "The capture program runs.")


def _duration(seconds: float) -> str:
    """Return a duration in coarse words, so that a running pipeline logs at most three different sentences."""
    if seconds < 3600:
        return f"{STALE_S // 60} minutes"
    return "an hour" if seconds < 86400 else "a day"


def states(registered: Iterable[Registered]) -> Iterator[Finding]:
    """Yield warnings by the state of each table in the register: A is captured, I is not yet, S has stopped after an
    error."""
    rows = list(registered)
    for state, words in (("S", "has stopped capturing them after an error"), ("I", "does not capture them yet")):
        found = [f"{row.schema}.{row.table}" for row in rows if row.state == state]
        if found:
            yield Finding(
                "warning",
                "tables",
                f"The capture program {words}: {listed(found)}.",
                "See STATE_INFO in IBMSNAP_REGISTER, then values ASNCDC.ASNCDCSERVICES('reinit', 'asncdc').",
            )
    half = [f"{row.schema}.{row.table}" for row in rows if not row.pairs and not row.prefix]
    if half:
        yield Finding(
            "warning",
            "updates",
            f"Updates are captured without the old values, so that events have no `before`: {listed(half)}.",
            "Register them with CHG_UPD_TO_DEL_INS = Y, as ASNCDC.ADDTABLE does, or with before images.",
        )


def hidden(registered: Sequence[Registered], catalog: Catalog) -> Iterator[Finding]:
    """Yield a warning for tables whose changes may have rows or values that a SELECT hides, or if this is unknown."""
    try:
        controlled = catalog.controlled() if registered else set()
    except RightLacking:
        yield Finding(
            "warning",
            "coverage",
            "The user may not read SYSCAT.TABLES: nothing tells whether permissions, masks or labels hide rows or "
            "values from it, which a snapshot would lack.",
            "grant select on SYSCAT.TABLES to …",
        )
        return
    found = [f"{row.schema}.{row.table}" for row in registered if (row.schema, row.table) in controlled]
    if found:
        yield Finding(
            "warning",
            "coverage",
            f"Permissions, masks or labels hide rows or values of {listed(found)} from some users, but changes come of "
            "all: a snapshot may lack them.",
            "Let the permissions and masks pass this user.",
        )


def columns(registered: Sequence[Registered], catalog: Catalog) -> Iterator[Finding]:
    """Yield a warning for columns of source tables that their change tables lack: added later, or not captured."""
    sources = catalog.columns([(row.schema, row.table) for row in registered])
    changes = catalog.columns([(row.change_schema, row.change_table) for row in registered])
    lacking = []
    for row in registered:
        source: list[Found] = sources.get((row.schema, row.table), [])
        change = {one.name: one for one in changes.get((row.change_schema, row.change_table), [])}
        if not change:
            continue
        absent = [one.name for one in source if one.name not in change or (one.is_lob and not change[one.name].is_lob)]
        if absent:
            lacking.append(f"{row.schema}.{row.table} ({', '.join(absent)})")
    if lacking:
        yield Finding(
            "warning",
            "columns",
            f"Columns that are not captured, and that events do not have: {listed(lacking)}.",
            "Add them to the change table (alter table … add column, with asncap's addcol signal), or take the table "
            "out of capture mode and put it back.",
        )
