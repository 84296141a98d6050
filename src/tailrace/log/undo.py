"""Undo: a call of the planner that fails leaves everything that the planner remembers as it was. Planner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Undo:
    """What some objects remember, put back when a call fails.

    Every attribute of `parts` counts, so that none can be forgotten; lists, dictionaries and sets are copied. What an
    attribute holds beside these is put back as the object that it was: it must be immutable, or be one of `parts`.
    """

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    @contextmanager
    def on_failure(self) -> Iterator[None]:
        """Around a call: whatever it raises, the parts are afterwards as they were before it."""
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
