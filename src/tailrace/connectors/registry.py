"""Which connectors there are: tailrace's own, and those that other packages bring. No I/O but to find and load them.

Another package brings a connector by an entry point of the group `tailrace.connectors`, whose object is a Descriptor
and whose name is the connector's. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tailrace import config
from tailrace.config import Config, files, foreign
from tailrace.config.config import Examined
from tailrace.config.files import Examination, RunConfig
from tailrace.config.option import Option
from tailrace.connectors.descriptor import Descriptor, Documents
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.extensions import Extensions

GROUP = "tailrace.connectors"
"""The group of the entry points."""

OWN = ("postgres", "mongodb", "sqlserver", "db2")
"""The packages here that hold a descriptor. A file that names no class means the first."""

# So that the error for a file which names one of them says so, and not that it is misspelt.
_ELSEWHERE = ("mysql", "mariadb", "oracle", "cassandra", "vitess", "spanner", "informix")

_PLACES = {name: f"tailrace.connectors.{name}.descriptor:CONNECTOR" for name in OWN}
_PARTS = Extensions(GROUP, "connector", _PLACES, ConfigError)

_log = logging.getLogger("tailrace")


def find(name: str) -> Descriptor:
    """The connector called `name`. Raises ConfigError for one that is not there or cannot be loaded."""
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
    """Every connector that can be loaded, tailrace's own first; a warning names the others."""
    return list(_each())


def of_class(text: str) -> Descriptor:
    """The connector that `connector.class` names; the first of tailrace's own for an empty text. Raises ConfigError."""
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
    """The configuration that `options` describe for the connector called `name`; see `tailrace.config.parse`."""
    descriptor = find(name)
    return config.parse(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor))


def table(name: str) -> tuple[Option, ...]:
    """Every option of the connector called `name`. Raises ConfigError."""
    return find(name).load_options().table


def examine(options: Mapping[str, str], unknown: Collection[str] = ()) -> Examined:
    """What `options` say to the connector that their `connector.class` names; see `tailrace.config.config.examine`.

    Raises ConfigError for a class that is not there.
    """
    descriptor = of_class(options.get("connector.class", ""))
    return config.examine(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor), unknown)


def _foreign(descriptor: Descriptor) -> config.Foreign:
    """What is known of names that the connector does not have: those of other programs and of the other connectors."""

    def reason(name: str) -> str:
        known = foreign.reason(name)
        if known:
            return known
        for other in map(_own, OWN):
            if other.name != descriptor.name and any(_has(option, name) for option in other.load_options().table):
                return f"it is an option of the connector for {other.title}, and Debezium's one here has none such"
        return ""

    return reason


def _has(option: Option, name: str) -> bool:
    names = (option.name, *option.aliases, *option.deprecated_names)
    return name in map(str.lower, names) or option.matches(name)


def read(
    path: str | Path,
    overrides: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    sinks: Collection[str] = (),
) -> RunConfig:
    """The pipeline that a file describes; see `tailrace.config.files.read`."""
    return files.read(path, examine, overrides, checkpoint=checkpoint, sinks=sinks)


def from_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> RunConfig:
    """The pipeline that a file's entries describe; see `tailrace.config.files.from_entries`."""
    return files.from_entries(entries, examine, environment, sinks=sinks)


def examine_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> Examination:
    """What becomes of each of a file's entries; see `tailrace.config.files.examine_entries`."""
    return files.examine_entries(entries, examine, environment, sinks=sinks)


def lacking_driver(error: BaseException) -> PrerequisiteError | None:
    """What to install where `error` says that a connector's driver cannot be found; None for any other error."""
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
    """What makes documents of the events of a database that holds them: of the first connector that has such a part.

    Raises ConfigError where none has.
    """
    for descriptor in _each():
        found = descriptor.load_documents()
        if found is not None:
            return found
    raise ConfigError("No connector makes documents of its events.", "Install one that does.")


def _own(name: str) -> Descriptor:
    found: Descriptor = _PARTS.own(name)
    return found


def _each() -> Iterator[Descriptor]:
    """As `known`, one by one: other packages are not looked for as long as tailrace's own will do."""
    for name in OWN:
        yield _own(name)
    for name in _PARTS.names()[len(OWN) :]:
        try:
            yield find(name)
        except ConfigError as error:
            _log.warning("%s %s", error.message, error.remedy)
