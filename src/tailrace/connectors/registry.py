"""The registry of connectors: tailrace's own, and those of other packages. No I/O but to find and load them.

Another package adds a connector by an entry point of the group `tailrace.connectors`, whose object is a Descriptor and
whose name is the connector's. Nothing is imported before it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tailrace import config
from tailrace.config import Config, files, foreign
from tailrace.config.config import Examined
from tailrace.config.extensions import Extensions
from tailrace.config.files import Examination, RunConfig
from tailrace.config.option import Option
from tailrace.connectors.descriptor import Descriptor, Documents
from tailrace.errors import ConfigError, PrerequisiteError

GROUP = "tailrace.connectors"
"""The group of the entry points."""

OWN = ("postgres", "mongodb", "sqlserver", "db2")
"""The packages here that hold a descriptor. The first is the default of files without connector.class."""

# Debezium's other connectors: the error for them says that they are not supported, not that they are unknown.
_ELSEWHERE = ("mysql", "mariadb", "oracle", "cassandra", "vitess", "spanner", "informix")

_PLACES = {name: f"tailrace.connectors.{name}.descriptor:CONNECTOR" for name in OWN}
_PARTS = Extensions(GROUP, "connector", _PLACES, ConfigError)

_log = logging.getLogger("tailrace")


def find(name: str) -> Descriptor:
    """Return the connector called `name`. Raises ConfigError if it does not exist or cannot be loaded."""
    if name in OWN:
        return _own(name)
    found = _PARTS.load(name)
    if not isinstance(found, Descriptor) or found.name != name:
        raise ConfigError(
            f"What the entry point {name!r} of {GROUP} names is no Descriptor of that name.",
            "Install a version of its package that fits, or uninstall it.",
        )
    return found


def known() -> list[Descriptor]:
    """Return every connector that can be loaded, tailrace's own first. A warning names the others."""
    return list(_each())


def of_class(text: str) -> Descriptor:
    """Return the connector that `connector.class` names; for an empty text the first of tailrace's own. Raises
    ConfigError."""
    short = text.strip().rpartition(".")[2].lower()
    if not short:
        return _own(OWN[0])
    for descriptor in _each():
        if short in descriptor.names:
            return descriptor
    titles = ", ".join(one.title for one in sorted(known(), key=lambda one: one.name))
    if any(short.startswith(other) for other in _ELSEWHERE):
        raise ConfigError(f"connector.class = {text} is not supported, for now.", f"Known are: {titles}.")
    raise ConfigError(
        f"connector.class = {text} is no connector that is known.",
        f"Name one as Debezium does, as {_own(OWN[0]).class_name}; known are: {titles}.",
    )


def parse(name: str, options: Mapping[str, str]) -> Config:
    """Return the configuration of the connector called `name` from `options`; see `tailrace.config.parse`."""
    descriptor = find(name)
    return config.parse(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor))


def table(name: str) -> tuple[Option, ...]:
    """Return every option of the connector called `name`. Raises ConfigError."""
    return find(name).load_options().table


def examine(options: Mapping[str, str], unknown: Collection[str] = ()) -> Examined:
    """Examine `options` for the connector that their `connector.class` names; see `tailrace.config.config.examine`.

    Raises ConfigError for an unknown class.
    """
    descriptor = of_class(options.get("connector.class", ""))
    return config.examine(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor), unknown)


def _foreign(descriptor: Descriptor) -> config.Foreign:
    """Return a function that explains names that the connector does not have: those of other programs and
    connectors."""

    def reason(name: str) -> str:
        known = foreign.reason(name)
        if known:
            return known
        for other in map(_own, OWN):
            if other.name != descriptor.name and any(_has(option, name) for option in other.load_options().table):
                return f"it is an option of the connector for {other.title}; Debezium's connector here has none such"
        return ""

    return reason


def _has(option: Option, name: str) -> bool:
    """Return True if another connector's option has the name. Options of drivers are too general to tell a
    connector."""
    names = (option.name, *option.aliases, *option.deprecated_names)
    return name in map(str.lower, names) or (not option.name.startswith("driver.") and option.matches(name))


def read(
    path: str | Path,
    overrides: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    sinks: Collection[str] = (),
) -> RunConfig:
    """Read the pipeline of a file; see `tailrace.config.files.read`."""
    return files.read(path, examine, overrides, checkpoint=checkpoint, sinks=sinks)


def from_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> RunConfig:
    """Return the pipeline of a file's entries; see `tailrace.config.files.from_entries`."""
    return files.from_entries(entries, examine, environment, sinks=sinks)


def examine_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> Examination:
    """Examine each of a file's entries; see `tailrace.config.files.examine_entries`."""
    return files.examine_entries(entries, examine, environment, sinks=sinks)


def lacking_driver(error: BaseException) -> PrerequisiteError | None:
    """Return an error that says what to install if `error` is a missing driver of a connector; None for any other
    error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    for descriptor in _each():
        if error.name.partition(".")[0] in descriptor.drivers:
            return PrerequisiteError(
                f"The driver of {descriptor.title} is not installed: there is no module {error.name}.",
                f"Install it: pip install '{descriptor.requirement}'.",
            )
    return None


def documents() -> Documents:
    """Return the part that makes documents from events, of the first connector that has one. Raises ConfigError."""
    for descriptor in _each():
        found = descriptor.load_documents()
        if found is not None:
            return found
    raise ConfigError("No connector makes documents of its events.", "Install one that does.")


def _own(name: str) -> Descriptor:
    found: Descriptor = _PARTS.own(name)
    return found


def _each() -> Iterator[Descriptor]:
    """Yield every connector, as `known` does. Entry points are searched only after tailrace's own connectors."""
    for name in OWN:
        yield _own(name)
    for name in _PARTS.names()[len(OWN) :]:
        try:
            yield find(name)
        except ConfigError as error:
            _log.warning("%s %s", error.message, error.remedy)
