"""Findings: the results of a check of a server, for `tailrace check` and the start of a pipeline. No I/O. Driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from tailrace.errors import ConfigError, PrerequisiteError

if TYPE_CHECKING:
    from tailrace.columns.table import TableSchema
    from tailrace.config import Config
    from tailrace.events.event_settings import EventSettings
    from tailrace.events.mapping import SourceForm

Level = Literal["ok", "warning", "error"]
SHOWN = 10
"""Most tables that a sentence names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: a word or two, a sentence, and the action to take, which is "" for ok."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def demanded(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings if none is an error. Raises PrerequisiteError with all errors among them."""
    errors = [finding for finding in findings if finding.level == "error"]
    if len(errors) == 1:
        raise PrerequisiteError(errors[0].text, errors[0].remedy)
    if errors:
        listed = "".join(f"\n  - {finding.text} {finding.remedy}" for finding in errors)
        raise PrerequisiteError(f"The server is not ready:{listed}")
    return list(findings)


def collisions(settings: EventSettings, tables: Sequence[Any]) -> list[Finding]:
    """Return a warning for tables (TableId) whose topics or schemas share a name, as illegal characters or case are
    lost."""
    # Imported here: sinks have findings too, and a run starts the JVM before it imports the code of events.
    from tailrace.events import names

    for what, of in (("topic", names.own_topic), ("schema name", names.schema_prefix)):
        seen: dict[str, list[Any]] = {}
        name_of: Callable[[EventSettings, Any], str] = of
        for table in tables:
            seen.setdefault(name_of(settings, table), []).append(table)
        clashing = [f"{' and '.join(map(str, found))} ({name})" for name, found in seen.items() if len(found) > 1]
        if clashing:
            return [
                Finding(
                    "warning",
                    "names",
                    f"After illegal characters are replaced, tables share a {what}: {'; '.join(clashing[:SHOWN])}.",
                    "Rename one of them, or leave one out.",
                )
            ]
    return []


def value_findings(settings: EventSettings, form: SourceForm, tables: Iterable[TableSchema]) -> list[Finding]:
    """Return the findings about columns whose values events leave out, or that a copy cannot show unchanged.

    A start raises the same errors. It logs the warnings when it reads the tables.
    """
    from tailrace.events.admission import doubts
    from tailrace.events.warnings import left_out

    found = []
    for table in tables:
        try:
            keyed = settings.shaping.keyed(table)
        except ConfigError as error:
            found.append(Finding("error", "values", error.message, error.remedy))
            continue
        for name in form.columns(keyed, settings)[1]:
            text, remedy = left_out(table.id, name, table.columns[table.index(name)].type_name)
            found.append(Finding("warning", "values", text, remedy))
        found += [Finding(level, "values", text, remedy) for level, text, remedy in doubts(keyed, settings, form)]
    return found


def unmatched(
    config: Config, names: Iterable[str], *, is_fresh: bool, what: str = "table", level: Level = "error"
) -> Finding | None:
    """Return the finding for include lists that match none of `names`, with the nearest names; None without such lists.

    Call it if the lists leave no table to capture. The finding is an error for a pipeline without a checkpoint
    (`is_fresh`), unless no.table.handling.mode says otherwise: the log may still have changes of a table that is gone.
    """
    lists = [name for name in config if name.endswith(f"{what}.include.list") or name in _WIDER]
    # an option of one database also counts under a general name that its users do not know
    given = {name: config[name] for name in lists if config.is_set(name) and config[name]}
    if not given:
        return None
    there = sorted(names)
    plain = {name.lower(): name for name in there}
    near = dict.fromkeys(
        plain[one]
        for entry in (entry for entries in given.values() for entry in entries)
        for one in get_close_matches(re.sub(r"\\(.)", r"\1", entry).lower(), plain, n=3)
    )
    hint = f" The nearest: {listed(list(near))}." if near else f" There are: {listed(there)}." if there else ""
    if not is_fresh or config["no.table.handling.mode"] == "warn":
        level = "warning"
    remedy = f"Correct {' and '.join(given)}"
    if level == "error":
        remedy += f"; or set no.table.handling.mode=warn if a {what} is made later"
    return Finding(level, f"{what}s", f"The include lists match no {what} of the database.{hint}", f"{remedy}.")


_WIDER = ("schema.include.list", "database.include.list")


def listed(tables: Sequence[Any]) -> str:
    """Return the first names of a list, and the number of the others."""
    shown = ", ".join(str(table) for table in tables[:SHOWN])
    return shown if len(tables) <= SHOWN else f"{shown} and {len(tables) - SHOWN} more"
