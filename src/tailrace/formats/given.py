"""The options that a converter is given, read as typed values. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.errors import ConfigError
from tailrace.formats.base import Encoding, Taken


class Given:
    """The options of one converter, without their beginning `prefix`; all that is not read is unknown.

    Reading raises ConfigError for a value that is not taken. Texts name options, and never values that may be secret.
    """

    def __init__(self, prefix: str, options: Mapping[str, str]) -> None:
        self.prefix = prefix
        self._options = {name.lower(): text.strip() for name, text in options.items()}
        self._written = {name.lower(): name for name in options}
        self._read: set[str] = set()
        self.without_effect: list[str] = []
        self.notices: list[str] = []

    def text(self, name: str, *others: str) -> str:
        """The text of the option, or of the first of the others that is there; empty where there is none."""
        found = ""
        for one in (name, *others):
            self._read.add(one.lower())
            found = found or self._options.get(one.lower(), "")
        return found

    def boolean(self, name: str, default: bool) -> bool:
        """Whether the option is true."""
        word = self.text(name).lower()
        if word not in ("", "true", "false"):
            raise ConfigError(f"{self.prefix}{name} must be true or false.", "Correct the configuration.")
        return word == "true" if word else default

    def word(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of the words that are allowed, compared without regard to case."""
        given = self.text(name)
        found = next((word for word in allowed if word.lower() == given.lower()), None) if given else default
        if found is None:
            known = ", ".join(word for word in allowed if word)
            raise ConfigError(f"{self.prefix}{name} = {given} is not supported.", f"Use one of: {known}.")
        return found

    def refuse_true(self, name: str, why: str) -> None:
        """Raise ConfigError where the option is true, since `why`."""
        if self.boolean(name, False):
            raise ConfigError(f"{self.prefix}{name} = true is not supported: {why}.", "Leave it out.")

    def names(self, beginning: str) -> list[str]:
        """The rest of the names of the options that begin so."""
        return [self._written[name][len(beginning) :] for name in self._options if name.startswith(beginning.lower())]

    def part(self, beginning: str) -> dict[str, str]:
        """The options that begin so, without that."""
        found = {name: self.text(beginning + name) for name in self.names(beginning)}
        return found

    def idle(self, *names: str) -> None:
        """Take note that these options have no effect here."""
        self.without_effect += [name for name in names if self.text(name)]

    def nested(self, beginning: str, taken: Taken) -> Encoding:
        """The encoding that the options beginning so have made; what became of them is told with all others."""
        self.without_effect += [beginning + name for name in (*taken.idle, *taken.unknown)]
        self.notices += taken.notices
        return taken.encoding

    def taken(self, encoding: Encoding, keeps_nulls: bool | None = None) -> Taken:
        """The encoding that the options have made, and which of them it has not used."""
        unknown = tuple(self._written[name] for name in self._options if name not in self._read)
        return Taken(encoding, tuple(self.without_effect), unknown, keeps_nulls, tuple(self.notices))
