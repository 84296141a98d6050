"""Findings: what a check of a server has found, for `tailrace check` and the start of a pipeline. No I/O. Driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.errors import PrerequisiteError

if TYPE_CHECKING:
    from tailrace.events.settings import EventSettings

Level = Literal["ok", "warning", "error"]
SHOWN = 10
"""Tables that a sentence names at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `subject` is a word or two, `text` a sentence, `remedy` what to do; "" for ok."""

    level: Level
    subject: str
    text: str
    remedy: str = ""


def demanded(findings: Sequence[Finding]) -> list[Finding]:
    """The same findings; raises PrerequisiteError with all errors among them when there are any."""
    errors = [finding for finding in findings if finding.level == "error"]
    if len(errors) == 1:
        raise PrerequisiteError(errors[0].text, errors[0].remedy)
    if errors:
        listed = "".join(f"\n  - {finding.text} {finding.remedy}" for finding in errors)
        raise PrerequisiteError(f"The server is not ready:{listed}")
    return list(findings)


def collisions(settings: EventSettings, tables: Sequence[Any]) -> list[Finding]:
    """Tables (TableId) whose topics or schemas get one name, because illegal characters or cases are lost in it."""
    # Sinks have findings too, and a run does not wait for what makes events before it starts the JVM.
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


def listed(tables: Sequence[Any]) -> str:
    """The first names of a list, and how many there are beyond them."""
    shown = ", ".join(str(table) for table in tables[:SHOWN])
    return shown if len(tables) <= SHOWN else f"{shown} and {len(tables) - SHOWN} more"
