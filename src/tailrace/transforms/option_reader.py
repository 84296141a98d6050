"""OptionReader: the options of one transform as typed values. No I/O. Any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.config.expressions import compile_groups
from tailrace.config.named_options import NamedOptions, nearest
from tailrace.config.naming import replacement_fault
from tailrace.errors import ConfigError

_REMEDY = "Correct the options of the transform."


class OptionReader(NamedOptions):
    """Reads options by name, with defaults; every method raises ConfigError for a wrong text.

    `done` is called last: it refuses options that no method has read. Messages name options but hold no values.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name: text.strip() for name, text in options.items()}
        self._known: list[str] = []

    def wrong(self, name: str, why: str) -> ConfigError:
        """Return the error for a wrong option; `why` follows its name."""
        return ConfigError(f"{name} {why}.", _REMEDY)

    def has(self, name: str) -> bool:
        """Return True if the option is given and not empty."""
        return bool(self.text(name))

    def text(self, name: str, default: str = "") -> str:
        """Return a text, stripped of spaces."""
        self._known.append(name)
        return self._options.get(name) or default

    def required(self, name: str) -> str:
        """Return a text that must be given."""
        found = self.text(name)
        if not found:
            raise ConfigError(f"It needs the option {name}.", _REMEDY)
        return found

    def verbatim(self, name: str, default: str) -> str:
        """Return a text that may be given as empty."""
        self._known.append(name)
        return self._options.get(name, default)

    def integer(self, name: str, default: int | None, least: int = 1) -> int:
        """Parse a whole number; with the default None the option must be given."""
        text = self.required(name) if default is None else self.text(name, str(default))
        try:
            found = int(text)
        except ValueError:
            raise self.wrong(name, "must be a whole number") from None
        if found < least:
            raise self.wrong(name, f"must be at least {least}")
        return found

    def number(self, name: str, default: float) -> float:
        """Parse a number above zero."""
        try:
            found = float(self.text(name, str(default)))
        except ValueError:
            found = 0.0
        if not 0.0 < found < float("inf"):
            raise self.wrong(name, "must be a number above 0")
        return found

    def word(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return one of `choices`, given in any case; with an empty default the option must be given."""
        return super().word(name, default or self.required(name).lower(), choices)

    def names(self, name: str) -> tuple[str, ...]:
        """Parse a list of names separated by commas."""
        return tuple(part for part in map(str.strip, self.text(name).split(",")) if part)

    def substitution(self, regex: str, replacement: str, default: tuple[str, str] | None) -> tuple[str, str]:
        """Return a Java regular expression and its replacement; with the default None both must be given."""
        if default is None:
            found = self.required(regex), self.required(replacement)
        else:
            found = self.text(regex, default[0]), self.text(replacement, default[1])
        fault = replacement_fault(regex, found[0], replacement, found[1])
        if fault:
            raise ConfigError(f"{fault}.", _REMEDY)
        return found

    def expression(self, name: str, default: str) -> str:
        """Return a Java regular expression."""
        found = self.text(name, default)
        try:
            compile_groups(found)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}.", _REMEDY) from None
        return found

    def idle(self, reasons: Mapping[str, str]) -> tuple[str, ...]:
        """Return a notice for each given option without effect; `reasons` are by option name."""
        return tuple(f"{name} has no effect: {why}." for name, why in reasons.items() if self.has(name))

    def done(self) -> None:
        """Raise ConfigError for options that no method has read."""
        for name in self._options:
            if name not in self._known:
                close = nearest(name, self._known)
                hint = f"; the nearest is {close}" if close else ""
                raise ConfigError(f"It has no option {name}{hint}.", _REMEDY)
