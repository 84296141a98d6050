"""Extensions: parts of one kind by name, built-in ones and those of other packages. Any process.

Another package offers a part by an entry point. Its group is the kind of the part, its name the word in configurations,
its value the object. Nothing is imported before it is used.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Extensions:
    """The parts under the entry points of `group`, and built-in parts: `places` has `module:attribute` of each.

    `kind` is the word for a part in messages; `error` the class raised for a part that cannot be loaded. The first
    search in other packages takes 0.1 s; `own` does not search.
    """

    def __init__(self, group: str, kind: str, places: Mapping[str, str], error: type[TailraceError]) -> None:
        self.places = places
        self.kind = kind
        self._group = group
        self._error = error

    def names(self) -> tuple[str, ...]:
        """Return the names of all parts, built-in ones first. Searches the installed packages."""
        others = {point.name for point in self._points()}
        return (*self.places, *sorted(others.difference(self.places)))

    def beside(self, places: Mapping[str, str]) -> Extensions:
        """Return these extensions with further built-in parts, which replace those of the same name."""
        return Extensions(self._group, self.kind, {**self.places, **places}, self._error)

    def own(self, name: str) -> Any:
        """Import the built-in part `name`."""
        module, _, attribute = self.places[name].partition(":")
        return getattr(import_module(module), attribute)

    def _points(self) -> Iterable[EntryPoint]:
        from importlib.metadata import entry_points

        return entry_points(group=self._group)

    def load(self, name: str) -> Any:
        """Import the part `name`. Raises the kind's error if there is none or several, or if the import fails."""
        points = [point for point in self._points() if point.name == name]
        packages = [*(["tailrace"] if name in self.places else []), *sorted(map(_package, points))]
        if not packages:
            known = self.names()
            close = difflib.get_close_matches(name, known, n=1)
            nearest = f"; the nearest is {close[0]}" if close else ""
            raise self._error(f"There is no {self.kind} {name!r}{nearest}.", f"Known: {', '.join(known)}.")
        if len(packages) > 1:
            raise self._error(
                f"The {self.kind} {name} is in several packages: {', '.join(packages)}.", "Keep one of them."
            )
        if not points:
            return self.own(name)
        try:
            return points[0].load()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise self._error(
                f"The {self.kind} {name} of the package {packages[0]} cannot be loaded: {said}.",
                "Repair that package, or remove it.",
            ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
