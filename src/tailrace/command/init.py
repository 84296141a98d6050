"""The command `tailrace init`: looks at a server and writes the first file of a pipeline. Driver.

The file has the tables that are there, the statements that an administrator has to run, and a sink. Passwords stay out
of it: it refers to an environment variable.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace.command import migrate
from tailrace.config.option import Kind
from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tailrace.errors import ConfigError

SINKS: Mapping[str, tuple[str, str]] = {
    "file": ("path", "events"),
    "kafka": ("producer.bootstrap.servers", "localhost:9092"),
    "tables": ("path", "lake"),
}
"""For each sink, the option that it needs and that option's first value."""

_SERVER, _SOURCE, _SINK = "debezium.", "debezium.source.", "debezium.sink."
_PASSWORD = "TAILRACE_PASSWORD"


@dataclass(frozen=True, slots=True)
class Questions:
    """Answers to the questions of `init`: from `given`, by name, else from `ask`, which is None without a terminal."""

    given: Mapping[str, str]
    ask: Callable[[str], str] | None

    def answer(self, name: str, default: str) -> str:
        """Return an answer, or the default. Raises ConfigError if there is neither."""
        found = self.given.get(name, "")
        if not found and self.ask is not None:
            found = self.ask(f"{name} [{default}]: " if default else f"{name}: ").strip()
        if not (found or default):
            raise ConfigError(f"{name} is not given, and there is no terminal to ask.", f"Give --set {name}=….")
        return found or default


def write(path: Path, given: Mapping[str, str], connector: str, sink: str, password: str) -> None:
    """Ask for the options that `given` lacks, look at the server, and write the file `path`. Raises TailraceError.

    `given` has options of the source without their prefix, and other entries, such as those of the sink, in full.
    `password` names the environment variable with the password.
    """
    if path.exists():
        raise ConfigError(f"The file {path} already exists.", "Name another one, or move it away.")
    others = {name: text for name, text in given.items() if name.startswith(_SERVER)}
    given = {name: text for name, text in given.items() if name not in others}
    questions = Questions(given, input if sys.stdin.isatty() else None)
    known = {descriptor.name: descriptor for descriptor in registry.known() if descriptor.asked}
    word = connector or questions.answer("connector", next(iter(known)))
    if word not in known:
        raise ConfigError(f"tailrace init does not know the connector {word}.", f"It knows {', '.join(known)}.")
    described = known[word]
    options = dict(_options(described, questions, password or _PASSWORD))
    options |= {name: text for name, text in given.items() if name not in options}
    chosen = sink or others.get(f"{_SINK}type") or questions.answer("sink", next(iter(SINKS)))
    if chosen not in SINKS:
        raise ConfigError(f"tailrace init does not know the sink {chosen}.", f"It knows {', '.join(SINKS)}.")
    option, value = SINKS[chosen]
    target = {f"{_SINK}type": chosen, f"{_SINK}{chosen}.{option}": value, **others} | {f"{_SINK}type": chosen}
    statements: tuple[str, ...] = ()
    survey = described.load_survey()
    if survey is not None:
        entries = {"connector.class": described.class_name, **options, **target}
        look = survey(registry.from_entries(entries, sinks=SINKS).source)
        statements = look.statements
        options |= {name: text for name, text in look.entries if name not in options}
    migrate.write_new(path, "".join(_lines(described, options, target, statements)))
    print(f"written  {path}")
    if statements:
        print("\nAn administrator has to run:\n")
        print(*(f"  {statement}" for statement in statements), sep="\n")
    print()


def _options(described: Descriptor, questions: Questions, password: str) -> list[tuple[str, str]]:
    """Return the options that name the server, as texts; a secret as a reference to the variable `password`."""
    table = {option.name: option for option in described.load_options().table}
    found = []
    for name, default in described.asked:
        if table[name].kind is not Kind.SECRET:
            found.append((name, questions.answer(name, default)))
            continue
        if password not in os.environ:
            if questions.ask is None:
                raise ConfigError(f"The environment variable {password} is not set.", f"Set it: {name} refers to it.")
            # for this process alone: the look at the server and the check
            os.environ[password] = getpass.getpass(f"{name}, which the file takes from {password}: ")
        found.append((name, f"${{env:{password}}}"))
    named = dict(found)
    database = named.get("database.dbname") or named.get("database.names", "").partition(",")[0] or described.name
    return [*found, ("topic.prefix", questions.answer("topic.prefix", database))]


def _lines(
    described: Descriptor, options: Mapping[str, str], target: Mapping[str, str], statements: tuple[str, ...]
) -> list[str]:
    lines = [f"# A pipeline from {described.title}; `tailrace check` says what it lacks.\n"]
    if statements:
        lines += ["# An administrator has to run:\n", *(f"#   {statement}\n" for statement in statements)]
    lines.append(migrate.line(f"{_SOURCE}connector.class", described.class_name))
    lines += [migrate.line(f"{_SOURCE}{option}", text) for option, text in options.items()]
    lines += [migrate.line(entry, text) for entry, text in target.items()]
    return lines
