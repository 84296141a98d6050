"""The options given to a converter, read as typed values. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.config.named_options import NamedOptions
from tailrace.errors import ConfigError
from tailrace.formats.base import Encoding, EncodingChoice


class OptionReader(NamedOptions):
    """The options of one converter, without `prefix`; options that are not read are unknown.

    Reading raises ConfigError for an invalid value. Messages name options, never values that may be secret.
    """

    def __init__(self, prefix: str, options: Mapping[str, str]) -> None:
        self.prefix = prefix
        self._options = {name.lower(): text.strip() for name, text in options.items()}
        self._written = {name.lower(): name for name in options}
        self._read: set[str] = set()
        self.without_effect: list[str] = []
        self.notices: list[str] = []

    def wrong(self, name: str, why: str) -> ConfigError:
        """Return the error for a wrong option; `why` follows its name."""
        return ConfigError(f"{self.prefix}{name} {why}.", "Correct the configuration.")

    def text(self, name: str, *others: str) -> str:
        """Return the option's text, or that of the first of `others` that is present; empty if there is none."""
        found = ""
        for option in (name, *others):
            self._read.add(option.lower())
            found = found or self._options.get(option.lower(), "")
        return found

    def one_of(self, name: str, allowed: Sequence[str], default: str) -> str:
        """Return one of the allowed words as it is spelt there, compared without regard to case."""
        given = self.text(name)
        found = next((word for word in allowed if word.lower() == given.lower()), None) if given else default
        if found is None:
            known = ", ".join(word for word in allowed if word)
            raise ConfigError(f"{self.prefix}{name} = {given} is not supported.", f"Use one of: {known}.")
        return found

    def refuse_true(self, name: str, why: str) -> None:
        """Raise ConfigError if the option is true; `why` it is not supported."""
        if self.boolean(name, False):
            raise ConfigError(f"{self.prefix}{name} = true is not supported: {why}.", "Leave it out.")

    def names(self, beginning: str) -> list[str]:
        """Return the rest of the names of the options that begin with `beginning`."""
        return [self._written[name][len(beginning) :] for name in self._options if name.startswith(beginning.lower())]

    def part(self, beginning: str) -> dict[str, str]:
        """Return the options that begin with `beginning`, without it."""
        found = {name: self.text(beginning + name) for name in self.names(beginning)}
        return found

    def idle(self, *names: str) -> None:
        """Note that these options have no effect here."""
        self.without_effect += [name for name in names if self.text(name)]

    def nested(self, beginning: str, taken: EncodingChoice) -> Encoding:
        """Return the encoding made from options that begin with `beginning`, and note its idle and unknown ones."""
        self.without_effect += [beginning + name for name in (*taken.idle, *taken.unknown)]
        self.notices += taken.notices
        return taken.encoding

    def taken(self, encoding: Encoding, keeps_nulls: bool | None = None) -> EncodingChoice:
        """Return the encoding made from the options, and which of them it has not used."""
        unknown = tuple(self._written[name] for name in self._options if name not in self._read)
        return EncodingChoice(encoding, tuple(self.without_effect), unknown, keeps_nulls, tuple(self.notices))
