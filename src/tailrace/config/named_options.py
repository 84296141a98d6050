"""NamedOptions: options that are read one by one, by name, as transforms, converters and sinks read theirs.

No I/O, any process.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tailrace.errors import TailraceError


class NamedOptions(ABC):
    """Options as typed values. A subclass finds the text of an option, and makes the error for a wrong one.

    Messages name options but hold no values, which may be secrets.
    """

    @abstractmethod
    def text(self, name: str, /) -> str:
        """Return the text of an option, stripped of blanks; "" if it is absent or empty."""

    @abstractmethod
    def wrong(self, name: str, why: str) -> TailraceError:
        """Return the error for a wrong option; `why` follows its name in a sentence."""

    def boolean(self, name: str, default: bool = False) -> bool:
        """Parse true or false, in any case."""
        word = self.text(name).lower()
        if word not in ("", "true", "false"):
            raise self.wrong(name, "must be true or false")
        return word == "true" if word else default

    def word(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return one of `choices`, given in any case."""
        word = (self.text(name) or default).lower()
        if word not in choices:
            raise self.wrong(name, f"must be one of {', '.join(choices)}")
        return word


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`; "" if none is like it."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return close[0] if close else ""
