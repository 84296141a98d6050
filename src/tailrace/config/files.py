"""RunConfig: a pipeline's configuration, and the files that describe it. Reads files; driver only.

Three kinds of files are understood: Debezium Server's `application.properties`; a Kafka Connect connector as JSON
(`{"name": …, "config": {…}}`, the options alone, or Strimzi's resource); and a connector's plain `.properties`. The
latter two name no sink, so entries `debezium.sink.*` among the options do.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.config.config import Config, ConfigExamination, announce, config_error
from tailrace.config.formats import KNOWN, is_known
from tailrace.config.outcome import Outcome, attributed
from tailrace.config.properties import parse_properties
from tailrace.config.secrets import resolve
from tailrace.errors import ConfigError

_FORMATS = dict.fromkeys(("clientprovided", "connect"), "it is not written")

# Known words, so that the error for such a file does not call them misspelt.
SERVER_SINKS = (
    "kafka", "kinesis", "pubsub", "pubsublite", "eventhubs", "http", "pulsar", "redis", "nats-streaming",
    "nats-jetstream", "rabbitmq", "rabbitmqstream", "rocketmq", "pravega", "infinispan", "sqs", "sns", "milvus",
    "qdrant", "fluss", "jdbc", "instructlab",
)  # fmt: skip
"""The words of `debezium.sink.type` in Debezium Server."""

_DEFAULT_SINK = "console"
_JSON_WORDS = {"json": "", "jsonbytearray": "it is the same JSON"}
_SOURCE = "debezium.source."
_OVERRIDE = "producer.override."
_REFERRED = re.compile(r"\$\{([^${}:]+)[:}]")
_VARIABLES = re.compile(r"DEBEZIUM_(?:SOURCE|SINK|FORMAT|TRANSFORMS|PREDICATES)_")
_UNKNOWN = "tailrace.unknown.options"

# Entries of the Java runtime, as found beside Debezium Server's.
_RUNTIME = ("quarkus.", "%", "smallrye.", "mp.", "java.", "log4j", "logging.", "debezium.api.", "debezium.metrics.")

Examine = Callable[[Mapping[str, str], Collection[str]], ConfigExamination]
"""Returns the meaning of options for the connector of their `connector.class`, like `tailrace.config.examine`.

The second argument has the names of options whose texts are not known yet. Raises ConfigError for an unknown class.
"""

_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """A sink by name, with its options under the names that follow `debezium.sink.<name>.`."""

    name: str
    options: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that one pipeline needs: the source's options, the sink, and notices about entries without effect.

    Picklable. `name` names the checkpoint and the query.
    """

    source: Config
    sink: SinkConfig
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.source["name"] or self.source.logical_name)

    @property
    def checkpoint(self) -> Path | None:
        """The directory of Spark's checkpoint; None if it is not in a local file system."""
        return checkpoint_directory(self.source)

    @property
    def checkpoint_location(self) -> str:
        """The location of Spark's checkpoint for Spark: an absolute path, or the given text if it has a scheme."""
        named = str(self.source["checkpoint.location"] or "")
        if _SCHEME.match(named) or self.checkpoint is None:
            return named
        return str(self.checkpoint.absolute())


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")


def checkpoint_directory(config: Config) -> Path | None:
    """Return the directory of Spark's checkpoint: `checkpoint.location`, or `.tailrace/<name>` in the working
    directory.

    None if it is not in the local file system: s3a://…, hdfs://….
    """
    named = config["checkpoint.location"]
    if not named:
        return Path(".tailrace") / re.sub(r"[^\w.\-]", "_", str(config["name"] or config.logical_name))
    if not _SCHEME.match(named):
        return Path(named)
    local = re.match(r"(?i)file:(?://(?:localhost)?(?=/))?(?=/)", named)
    return Path("/" + named[local.end() :].lstrip("/")) if local else None


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of examining a file: its `entries`, in order, and the `outcomes` of each.

    `waiting` are the entries that refer to a missing variable or file. `run` is the pipeline as far as it is known
    without them, None if there are `faults`; these are among the outcomes too. `implied` are entries that follow from
    the names of other entries.
    """

    entries: Mapping[str, str] = field(repr=False)
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...]
    notices: tuple[str, ...]
    run: RunConfig | None
    waiting: tuple[str, ...] = ()
    implied: Mapping[str, str] = field(default_factory=dict)


def read(
    path: str | Path,
    examine: Examine,
    overrides: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    sinks: Collection[str] = (),
) -> RunConfig:
    """Return the pipeline that a file describes, with `overrides` (entries of the same kind) over its own.

    Entries of Debezium Server in the environment replace those of the file, and `overrides` replace both. `checkpoint`
    replaces `checkpoint.location`; `examine` and `sinks` are as in `from_entries`. Raises ConfigError if the file
    cannot be read or understood, and for faults of its options.
    """
    entries = read_entries(path)
    if _is_servers(entries):
        entries = _with_environment(entries, os.environ)
    entries |= overrides or {}
    if checkpoint is not None:
        entries[f"{_SOURCE if _is_servers(entries) else ''}checkpoint.location"] = checkpoint
    return from_entries(entries, examine, sinks=sinks)


def _with_environment(entries: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return Debezium Server's entries, overridden by those in the environment, like DEBEZIUM_SOURCE_TOPIC_PREFIX."""
    written = {re.sub(r"[^A-Za-z0-9]", "_", entry).upper(): entry for entry in entries}
    found = {
        written.get(variable, variable.lower().replace("_", ".")): text.replace("${", "$${")
        for variable, text in environment.items()
        if _VARIABLES.match(variable)
    }
    return {**entries, **found}


def read_entries(path: str | Path) -> dict[str, str]:
    """Return the entries of a file as written. Raises ConfigError if it cannot be read or understood."""
    try:
        # whatever the locale; some editors begin a file with a byte order mark
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be read: {error.strerror}.", "Check its name.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The file {path} is not text in UTF-8.", "Save it in UTF-8, or check its name.") from None
    if text.lstrip().startswith(("{", "[")):
        return _connector_json(path, text)
    if re.search(r"^\s*kind:\s*KafkaConnector\s*$", text, re.MULTILINE):
        raise ConfigError(f"The file {path} is YAML.", "Write the resource as JSON: kubectl get -o json gives it.")
    return parse_properties(text)


def from_entries(
    entries: Mapping[str, str],
    examine: Examine,
    environment: Mapping[str, str] | None = None,
    *,
    sinks: Collection[str] = (),
) -> RunConfig:
    """Return the pipeline that a file's entries describe; `examine` knows the connectors.

    Entries of a sink not in use are ignored with a notice if the sink is Debezium Server's or one of `sinks`, the words
    of `tailrace.sinks.names()`. Raises ConfigError.
    """
    # Debezium Server reads its file with expressions; Kafka Connect's connectors know only providers.
    resolved = resolve(entries, environment, expressions=_is_servers(entries))
    found = _examined(entries, resolved, examine, sinks, ())
    if found.run is None:
        raise config_error(found.faults)
    announce(found.notices)
    return found.run


def examine_entries(
    entries: Mapping[str, str],
    examine: Examine,
    environment: Mapping[str, str] | None = None,
    *,
    sinks: Collection[str] = (),
) -> Examination:
    """Return the outcome of each entry of a file, without asking any server.

    A reference to a missing variable or file is not a fault. Raises ConfigError for a reference that can never be
    replaced, and for an unknown connector.
    """
    waiting: list[str] = []
    resolved = resolve(entries, environment, expressions=_is_servers(entries), waiting=waiting)
    return _examined(entries, resolved, examine, sinks, waiting)


def _is_servers(entries: Mapping[str, str]) -> bool:
    """Return True for entries of Debezium Server's file, False for Kafka Connect's."""
    return any(name.startswith(_SOURCE) for name in entries)


def _examined(
    entries: Mapping[str, str],
    resolved: Mapping[str, str],
    examine: Examine,
    sinks: Collection[str],
    waiting: Collection[str],
) -> Examination:
    referred = {name for text in entries.values() for name in _REFERRED.findall(text)}
    sorting = _Sorting(resolved, {*SERVER_SINKS, *sinks}, referred)
    unknown = [option for option, entry in sorting.origins.items() if entry in waiting]
    found = examine(sorting.options, unknown)
    outcomes, _ = attributed(sorting.outcomes.values(), sorting.faults)
    prefix = _SOURCE if sorting.is_servers else ""
    for outcome in found.outcomes:
        entry = sorting.origins.get(outcome.name)
        if entry is not None and outcomes[entry].state == "kept":
            becomes = prefix + outcome.becomes if outcome.becomes else ""
            outcomes[entry] = replace(outcome, name=entry, becomes=becomes)
    faults = (*sorting.faults, *found.faults)
    notices = list(sorting.notices)
    sink = sorting.sink
    if sink is None:
        notices.append(f"No sink is named: events go to the {_DEFAULT_SINK}. Name one in debezium.sink.type.")
        sink = SinkConfig(_DEFAULT_SINK)
    run = None
    if found.config is not None and not faults:
        run = RunConfig(found.config, sink, (*found.notices, *notices))
    return Examination(
        dict(entries),
        tuple(outcomes.values()),
        faults,
        (*found.notices, *notices),
        run,
        tuple(waiting),
        {prefix + name: text for name, text in found.implied.items()},
    )


def _connector_json(path: str | Path, text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The file {path} is not JSON: {error}.", "Correct the file.") from None
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if isinstance(document, dict) and document.get("kind") == "KafkaConnector":
        document = _of_resource(document)
    inner = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(inner, dict):
        raise ConfigError(f"The file {path} contains no connector.", 'Write {"name": …, "config": {…}} or the options.')
    named = {"name": document["name"]} if inner is not document and "name" in document else {}
    return {name: _text(name, value) for name, value in (named | inner).items()}


def _of_resource(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connector of Strimzi's resource, whose name, class and number of tasks are beside its options."""
    parts = [document.get(name) for name in ("metadata", "spec")]
    metadata, spec = (part if isinstance(part, dict) else {} for part in parts)
    beside = {"connector.class": spec.get("class"), "tasks.max": spec.get("tasksMax")}
    given = spec.get("config")
    options = {name: value for name, value in beside.items() if value is not None}
    return {"name": metadata.get("name", ""), "config": options | (given if isinstance(given, dict) else {})}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name} is not a text, a number, true or false.", "Kafka Connect's options are flat.")


class _Sorting:
    """A file's entries by purpose: the connector's options, the sink, the rest; and their faults.

    `options` are the connector's, `origins` their entries. `outcomes` has the outcome of each entry before the
    connector examines its options. `referred` are names to which entries refer.
    """

    def __init__(self, entries: Mapping[str, str], sinks: Collection[str], referred: Collection[str]) -> None:
        self.is_servers = _is_servers(entries)
        self.options: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.outcomes = {name: Outcome(name) for name in entries}
        self.faults: list[str] = []
        self.notices: list[str] = []
        self._sinks = sinks
        self._referred = referred
        self._sink_type = entries.get("debezium.sink.type", "").strip().lower()
        self._sink_options: dict[str, str] = {}
        lenient = [text for name, text in entries.items() if name.removeprefix(_SOURCE) == _UNKNOWN]
        self._is_lenient = any(text.strip().lower() == "warn" for text in lenient)
        for entry, text in entries.items():
            self._take(entry, text)
        self._take_producers()
        for name in self.options:
            if name.lower() in ("row.columns", "row.blocks", "row.copy", "row.route", "rows"):
                shown = self.origins[name]
                self.faults.append(f"{shown} is for spark.readStream: here the sink says which columns it reads")

    @property
    def sink(self) -> SinkConfig | None:
        return SinkConfig(self._sink_type, self._sink_options) if self._sink_type else None

    def _take(self, entry: str, text: str) -> None:
        area, _, name = entry.removeprefix("debezium.").partition(".")
        if entry.startswith(_RUNTIME):
            self._pass_over(entry, "it configures Debezium Server's own runtime")
        elif not entry.startswith("debezium."):
            self._take_bare(entry, text)
        elif area == "source":
            self._option(name, entry, text)
        elif area == "sink":
            self._take_sink(entry, name, text)
        elif area == "format":
            self._take_format(entry, name, text.strip())
        elif area in ("transforms", "predicates"):
            # Each of Debezium Server's entries for transforms is an option of the connector.
            if text.strip():
                self._option(entry.removeprefix("debezium."), entry, text)
        else:
            self._unknown(entry, f"{entry} is not an entry of Debezium Server")

    def _option(self, name: str, entry: str, text: str) -> None:
        if name in self.options and self.options[name] != text:
            self._pass_over(self.origins[name], f"{entry} has another value and comes later")
        self.options[name] = text
        self.origins[name] = entry

    def _pass_over(self, entry: str, reason: str) -> None:
        self.outcomes[entry] = Outcome(entry, "without effect", reason)
        self.notices.append(f"{entry} has no effect: {reason}.")

    def _unknown(self, entry: str, fault: str) -> None:
        if self._is_lenient:
            self._pass_over(entry, f"it is unknown, and {_UNKNOWN} = warn lets it pass")
        else:
            self.faults.append(fault)

    def _take_bare(self, entry: str, text: str) -> None:
        """Take an entry without prefix: an option of a plain connector. Debezium Server reads no such entries."""
        if not self.is_servers or entry == _UNKNOWN:
            self._option(entry, entry, text)
        elif entry in self._referred:
            return
        elif difflib.SequenceMatcher(None, entry.partition(".")[0].lower(), "debezium").ratio() > 0.7:
            self._unknown(entry, f"{entry} does not begin with debezium.source., debezium.sink. or debezium.format.")
        else:
            self._pass_over(entry, f"Debezium Server reads no such entry; an option is {_SOURCE}<option>")

    def _take_sink(self, entry: str, name: str, text: str) -> None:
        if name == "type":
            return
        owner, _, option = name.partition(".")
        if not self._sink_type:
            self.faults.append(f"{entry} is given, but no debezium.sink.type")
        elif owner == self._sink_type:
            self._sink_options[option] = text
        elif owner in self._sinks:
            # One file may serve several sinks in turn, with the sink named on the command line.
            self._pass_over(entry, "events go to another sink")
        else:
            self._unknown(entry, f"{entry} does not belong to the sink {self._sink_type}")

    def _take_producers(self) -> None:
        """Move the options of the connector's producer to the sink kafka. In Debezium Server's file they stay: only a
        worker of Kafka Connect reads them."""
        for name in [name for name in self.options if name.lower().startswith(_OVERRIDE)]:
            option = f"producer.{name[len(_OVERRIDE) :]}"
            if self._sink_type == "kafka" and not self.is_servers and option not in self._sink_options:
                self._sink_options[option] = self.options.pop(name)
                entry = self.origins.pop(name)
                becomes = f"debezium.sink.kafka.{option}"
                self.outcomes[entry] = Outcome(entry, "translated", "the sink's producer is the only one", becomes)

    def _take_format(self, entry: str, name: str, text: str) -> None:
        """Take a `debezium.format.*` entry: the format of keys, values or headers, or an option of their converters."""
        part, _, option = name.partition(".")
        if part not in ("key", "value", "header"):
            self._option(f"converter.{name}", entry, text)
        elif option:
            self._option(f"{part}.converter.{option}", entry, text)
        elif text.lower() in _JSON_WORDS:
            if reason := _JSON_WORDS[text.lower()]:
                self.outcomes[entry] = Outcome(entry, "translated", reason, entry, "json")
                self.notices.append(f"{entry} is taken as json: {reason}.")
        elif is_known(text, part):
            self._option(f"{part}.converter", entry, text)
        elif text.lower() in _FORMATS:
            self.faults.append(f"{entry} = {text} is not supported: {_FORMATS[text.lower()]}")
        else:
            known = ", ".join(word for word in KNOWN.places if is_known(word, part))
            self.faults.append(f"{entry} = {text} is not a format; known are {known}")
