"""Extensions: parts of one kind by their names, our own and those that other packages bring. Any process.

Another package brings a part by an entry point: its group says of which kind the part is, its name is the word by
which a configuration names it, and its value says where it is. Nothing is imported before it is used.
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
    """The parts that are found under the entry points of `group`, and our own: `places` has `module:attribute` of each.

    `kind` is what texts call one of them; `error` is what is raised for one that cannot be had. To look for other
    packages takes a tenth of a second at first: `own` does not.
    """

    def __init__(self, group: str, kind: str, places: Mapping[str, str], error: type[TailraceError]) -> None:
        self.places = places
        self.kind = kind
        self._group = group
        self._error = error

    def names(self) -> tuple[str, ...]:
        """The names of all parts, our own first. Reads what is installed."""
        others = {point.name for point in self._points()}
        return (*self.places, *sorted(others.difference(self.places)))

    def beside(self, places: Mapping[str, str]) -> Extensions:
        """The same with further parts of our own, which go before those of the same name."""
        return Extensions(self._group, self.kind, {**self.places, **places}, self._error)

    def own(self, name: str) -> Any:
        """Our own part called `name`."""
        module, _, attribute = self.places[name].partition(":")
        return getattr(import_module(module), attribute)

    def _points(self) -> Iterable[EntryPoint]:
        from importlib.metadata import entry_points

        return entry_points(group=self._group)

    def load(self, name: str) -> Any:
        """The part called `name`. Raises the kind's error where there is none, or several, or it cannot be imported."""
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
                "Mend that package, or remove it.",
            ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
