"""Outcome: what becomes of one entry of a configuration. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tailrace.config.columns import without_salt

State = Literal["kept", "translated", "without effect", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one entry.

    `name` is the entry's as it was written, a salt in it included. `text` says why the entry has no effect, or what
    takes its place; of one that is refused it goes on where the name ends. It holds no value that may be a secret. Of
    an entry that is translated `becomes` is the name that is used today, and `value` the text that is taken for its
    own, None where that stands.
    """

    name: str
    state: State = "kept"
    text: str = ""
    becomes: str = ""
    value: str | None = None


def attributed(
    outcomes: Iterable[Outcome], faults: Iterable[str], unknown: Iterable[str] = ()
) -> tuple[dict[str, Outcome], list[str]]:
    """The outcomes by their names, with each fault at the entry that it begins with; and the faults of no entry.

    A fault of an entry in `unknown`, whose value is not known yet, is none.
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
            said = fault.removeprefix(shown[name]).lstrip(" :")
            found[name] = replace(found[name], state="refused", text="; ".join(filter(None, (before, said))))
    return found, rest
