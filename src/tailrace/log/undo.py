"""Undo: rolls back the planner's state when a call fails. Planner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Undo:
    """The state of some objects, restored when a call fails.

    It covers every attribute of `parts`; lists, dictionaries and sets are copied. Any other value is restored as the
    same object: it must be immutable, or be one of `parts`.
    """

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    @contextmanager
    def on_failure(self) -> Iterator[None]:
        """Run a call; if it raises, restore the parts."""
        before = [_copied(part) for part in self._parts]
        try:
            yield
        except BaseException:
            for part, attributes in zip(self._parts, before, strict=True):
                vars(part).clear()
                vars(part).update(attributes)
            raise


def _copied(part: object) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, list | dict | set) else value for name, value in vars(part).items()}
