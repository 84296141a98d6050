"""Outcome: the result for one entry of a configuration. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tailrace.config.columns import without_salt

State = Literal["kept", "translated", "without effect", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one entry.

    `name` is the entry as written, including a salt. `text` says why the entry has no effect, or what replaces it; for
    a refused entry it continues after the name. It contains no value that may be a secret. For a translated entry,
    `becomes` is today's name, and `value` replaces the entry's value, unless it is None.
    """

    name: str
    state: State = "kept"
    text: str = ""
    becomes: str = ""
    value: str | None = None


def attributed(
    outcomes: Iterable[Outcome], faults: Iterable[str], unknown: Iterable[str] = ()
) -> tuple[dict[str, Outcome], list[str]]:
    """Return the outcomes by name, refused where a fault begins with the entry's name; and all other faults.

    Faults of entries in `unknown`, whose values are not known yet, are dropped.
    """
    found = {outcome.name: outcome for outcome in outcomes}
    passed = set(unknown)
    rest: list[str] = []
    for fault in faults:
        shown = {name: without_salt(name) for name in found}
        names = [name for name in found if fault.startswith((f"{shown[name]} ", f"{shown[name]}:"))]
        name = max(names, key=len, default=None)
        if name is None:
            rest.append(fault)
        elif name not in passed:
            before = found[name].text if found[name].state == "refused" else ""
            reason = fault.removeprefix(shown[name]).lstrip(" :")
            found[name] = replace(found[name], state="refused", text="; ".join(filter(None, (before, reason))))
    return found, rest
