"""References in option values: those of Kafka Connect's config providers and of Debezium Server. Driver only.

Both kinds of files have providers: `${env:NAME}` is a variable of the environment, `${file:PATH:KEY}` an entry of a
.properties file, `${dir:PATH:NAME}` (or `directory`) the whole text of a file in a directory. Debezium Server's files
have expressions too: `${NAME}` is another entry, or else a variable, also in capitals with `_` for other characters;
`${NAME:default}` falls back to a text that may contain references. `$${` stands for a literal `${`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tailrace.config.option import holds_secret
from tailrace.config.properties import parse_properties
from tailrace.errors import ConfigError

PROVIDERS = ("env", "file", "dir", "directory")
"""The known providers."""

# In expressions a word before the colon may be a variable. These are usual names of providers that only look up
# secrets: the text after the colon is never meant as a default.
_VAULTS = frozenset(
    (
        "vault",
        "secret",
        "secrets",
        "configmaps",
        "secretsmanager",
        "secretmanager",
        "ssm",
        "aws",
        "awssm",
        "azure",
        "keyvault",
        "azurekeyvault",
        "gcp",
        "gsm",
        "conjur",
        "cyberark",
    )
)
_CONNECT = re.compile(r"\$\$\{|\$\{([^}]*)\}")

# Options in which `${…}` has another meaning: groups of an expression, the database in a statement, code.
_OWN_MEANING = re.compile(r"(?:.*\.)?(?:transforms|predicates)\..+|.+\.(?:replacement|query)", re.IGNORECASE)

# Families that may have unknown members.
_FAMILIES = re.compile(r"(?:debezium\.source\.)?(?:driver|signal\.consumer|producer\.override)\.", re.IGNORECASE)

_log = logging.getLogger("tailrace")


def resolve(
    options: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    *,
    expressions: bool = True,
    waiting: list[str] | None = None,
) -> dict[str, str]:
    """Return the options with every reference replaced; `expressions`: they are those of Debezium Server.

    Without `expressions`, `${NAME}` stays unchanged. Replacements are not searched again. Raises ConfigError with the
    name of each option whose reference cannot be replaced, never a value. If `waiting` is given, it receives the names
    of options that refer to something missing, or hold `${NAME}` for another program; these stay unchanged and are no
    faults.
    """
    known = os.environ if environment is None else environment
    faults: list[str] = []
    resolved = {}
    for option, text in options.items():
        reading = _Reading(option, options, known, expressions)
        resolved[option] = reading.expanded(text) if expressions else reading.provided(text)
        if waiting is not None and (reading.absent or reading.templates) and not reading.faults:
            waiting.append(option)
            resolved[option] = text
            continue
        faults += [*reading.faults, *reading.absent]
        if reading.templates:
            _log.warning("%s holds ${…} without a provider, which stays as it is: a variable is ${env:NAME}.", option)
    if faults:
        raise ConfigError(
            "; ".join(dict.fromkeys(faults)) + ".",
            "Put the value where the reference says, or refer to where it is: ${env:NAME}, ${file:PATH:KEY} or "
            "${dir:PATH:NAME}.",
        )
    return resolved


class _Reading:
    """The references in the value of one option, and their faults."""

    def __init__(
        self, option: str, options: Mapping[str, str], environment: Mapping[str, str], expressions: bool
    ) -> None:
        self.option = option
        self.faults: list[str] = []
        self.absent: list[str] = []
        self.templates: list[str] = []
        self._options = options
        self._environment = environment
        self._expressions = expressions
        self._within: list[str] = []

    def provided(self, text: str) -> str:
        """Replace Kafka Connect's references: `${provider:[path:]key}`, and nothing else."""

        def replace(found: re.Match[str]) -> str:
            if found[1] is None:
                return "${"
            provider, colon, rest = found[1].partition(":")
            if colon:
                return self._from(provider, rest, found[0])
            if not _OWN_MEANING.fullmatch(self.option):
                self.templates.append(self.option)
            return found[0]

        return _CONNECT.sub(replace, text)

    def expanded(self, text: str) -> str:
        """Replace Debezium Server's references: nested expressions, and providers."""
        out: list[str] = []
        at = 0
        while at < len(text):
            if text.startswith(("$${", "\\${"), at):
                out.append("${")
                at += 3
            elif text.startswith("${", at) and (end := _closing(text, at + 2)) >= 0:
                out.append(self._expression(text[at + 2 : end]))
                at = end + 1
            else:
                out.append(text[at])
                at += 1
        return "".join(out)

    def _expression(self, inside: str) -> str:
        split = _colon(inside)
        name = self.expanded(inside if split < 0 else inside[:split])
        rest = None if split < 0 else inside[split + 1 :]
        if rest is not None and (name in PROVIDERS or name.lower() in _VAULTS or rest.startswith(":")):
            return self._from(name, self.expanded(rest), f"${{{inside}}}")
        found = self._variable(name)
        if found is not None:
            return found
        if rest is not None:
            return self.expanded(rest)
        if _OWN_MEANING.fullmatch(self.option):
            return f"${{{name}}}"
        return self._missing(f"${{{inside}}}")

    def _variable(self, name: str) -> str | None:
        """Return another entry, with its references replaced, or a variable of the environment."""
        entry = self._options.get(name)
        if entry is not None and name != self.option and name not in self._within:
            self._within.append(name)
            try:
                return self.expanded(entry)
            finally:
                self._within.pop()
        value = self._environment.get(name)
        return value if value is not None else self._environment.get(re.sub(r"[^A-Za-z0-9]", "_", name).upper())

    def _from(self, provider: str, rest: str, shown: str) -> str:
        """Return a provider's value for `[path:]key`; `shown` is the reference as written."""
        look_up = _LOOK_UPS.get(provider)
        if look_up is None:
            default = "; ${NAME:default} is for Debezium Server's files" if not self._expressions else ""
            named = f"the provider {provider}" if self._may_show(shown) else "a provider"
            self.faults.append(
                f"{self.option} refers to {named}, which is not known: there are {', '.join(PROVIDERS)}{default}"
            )
            return ""
        if provider == "env":
            found = self._environment.get(rest)
        else:
            path, _, key = rest.partition(":")
            try:
                found = look_up(path, key)
            except (OSError, UnicodeDecodeError):
                found = None
        return found if found is not None else self._missing(shown)

    def _missing(self, reference: str) -> str:
        named = reference if self._may_show(reference) else "a variable, an entry or a file"
        self.absent.append(f"{self.option} refers to {named}, which does not exist")
        return ""

    def _may_show(self, reference: str) -> bool:
        """Return True if a reference may be shown: within a secret, `${…}` may be a literal part of it."""
        provider = reference[2:].partition(":")[0]
        is_plain = provider in PROVIDERS or provider.lower() in _VAULTS
        is_whole = self._options[self.option].strip() == reference
        if holds_secret(self.option) or _FAMILIES.match(self.option):
            return is_whole and is_plain
        return is_whole or is_plain


def _entry(path: str, key: str) -> str | None:
    return parse_properties(Path(path).read_text("utf-8-sig")).get(key)


def _file(folder: str, name: str) -> str | None:
    # The name must not be a path to a file elsewhere.
    return (Path(folder) / name).read_text("utf-8") if folder and name and Path(name).name == name else None


_LOOK_UPS: Mapping[str, Callable[[str, str], str | None]] = {
    "env": lambda path, key: None,
    "file": _entry,
    "dir": _file,
    "directory": _file,
}


def _closing(text: str, at: int) -> int:
    """Return the place of the brace that closes a reference whose inside begins at `at`; -1 if there is none."""
    depth = 1
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            at += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


def _colon(inside: str) -> int:
    """Return the place of the first colon outside of inner references; -1 if there is none."""
    depth = 0
    for at, char in enumerate(inside):
        if inside.startswith("${", at):
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        elif char == ":" and not depth:
            return at
    return -1
