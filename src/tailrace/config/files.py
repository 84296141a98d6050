"""RunConfig: what one pipeline runs, and the files that describe it. Reads files; driver only.

Three kinds of files are understood: Debezium Server's `application.properties`, a Kafka Connect connector as JSON
(`{"name": …, "config": {…}}` or the options alone), and a connector's plain `.properties`. The latter two name no
sink; entries `debezium.sink.*` beside the options do.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.config.config import Config
from tailrace.config.formats import is_known
from tailrace.config.properties import parse_properties
from tailrace.config.secrets import resolve
from tailrace.errors import ConfigError

_FORMATS = {
    "jsonbytearray": "it is the same JSON: say json",
    **dict.fromkeys(
        ("avro", "protobuf", "cloudevents", "simplestring", "binary", "clientprovided", "connect"),
        "only json is written, for now",
    ),
}

# So that the error for a file which names one of them says so, and not that it is misspelt.
SERVER_SINKS = (
    "kafka", "kinesis", "pubsub", "pubsublite", "eventhubs", "http", "pulsar", "redis", "nats-streaming",
    "nats-jetstream", "rabbitmq", "rabbitmqstream", "rocketmq", "pravega", "infinispan", "sqs", "sns", "milvus",
    "qdrant", "fluss", "jdbc", "instructlab",
)  # fmt: skip
"""The words of `debezium.sink.type` in Debezium Server."""

_DEFAULT_SINK = "console"

Configure = Callable[[Mapping[str, str]], Config]
"""Makes the configuration of a connector, which `connector.class` names among its options. Raises ConfigError."""

_log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """A sink by name, with its options under the names that follow `debezium.sink.<name>.`."""

    name: str
    options: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that one pipeline needs: the source's options, the sink, and the sentences about what has no effect.

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
        """The directory of Spark's checkpoint; None when it is in no local file system."""
        return checkpoint_directory(self.source)

    @property
    def checkpoint_location(self) -> str:
        """Where Spark's checkpoint is, as Spark takes it: an absolute path, or what was given when it has a scheme."""
        named = str(self.source["checkpoint.location"] or "")
        if _SCHEME.match(named) or self.checkpoint is None:
            return named
        return str(self.checkpoint.absolute())


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")


def checkpoint_directory(config: Config) -> Path | None:
    """The directory of Spark's checkpoint: `checkpoint.location`, else `.tailrace/<name>` where we run.

    None when it is elsewhere than in the local file system: s3a://…, hdfs://….
    """
    named = config["checkpoint.location"]
    if not named:
        return Path(".tailrace") / re.sub(r"[^\w.\-]", "_", str(config["name"] or config.logical_name))
    if not _SCHEME.match(named):
        return Path(named)
    local = re.match(r"(?i)file:(?://(?:localhost)?(?=/))?(?=/)", named)
    return Path("/" + named[local.end() :].lstrip("/")) if local else None


def read(
    path: str | Path,
    configure: Configure,
    overrides: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    sinks: Collection[str] = (),
) -> RunConfig:
    """The pipeline that a file describes, with `overrides` (entries of the same kind) over its own.

    `checkpoint` takes the place of `checkpoint.location`; `configure` and `sinks` as in `from_entries`.
    Raises ConfigError when the file cannot be read or understood, and for every fault of its options.
    """
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be read: {error.strerror}.", "Check its name.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The file {path} is not text in UTF-8.", "Check its name.") from None
    entries = _connector_json(path, text) if text.lstrip().startswith("{") else parse_properties(text)
    entries |= overrides or {}
    if checkpoint is not None:
        server = any(name.startswith("debezium.source.") for name in entries)
        entries["debezium.source.checkpoint.location" if server else "checkpoint.location"] = checkpoint
    return from_entries(entries, configure, sinks=sinks)


def from_entries(
    entries: Mapping[str, str],
    configure: Configure,
    environment: Mapping[str, str] | None = None,
    *,
    sinks: Collection[str] = (),
) -> RunConfig:
    """The pipeline that a file's entries describe; `configure` knows the connectors.

    Entries of another sink than the one in use are passed over, with a notice, when it is one of Debezium Server's or
    of `sinks`, which are the words of `tailrace.sinks.names()`. Raises ConfigError.
    """
    # Debezium Server reads its file with expressions, Kafka Connect's connectors know providers alone.
    server = any(name.startswith("debezium.source.") for name in entries)
    resolved = resolve(entries, environment, expressions=server)
    own = {name: text for name, text in resolved.items() if name.startswith("debezium.")}
    rest = {name: text for name, text in resolved.items() if name not in own}
    runtime = sorted(name for name in rest if name.startswith(("quarkus.", "%", "smallrye.", "mp.")))
    for name in runtime:
        del rest[name]
    notices = [f"{name} has no effect: it configures Debezium Server's own runtime." for name in runtime]
    options, sink, idle, faults = _sort_out(own, {*SERVER_SINKS, *sinks})
    notices += [f"{name} has no effect: events go to another sink." for name in idle]
    for name, text in rest.items():
        # Beside debezium.source.* a bare name is a slip; alone it is how a plain connector names it.
        if any(given.startswith("debezium.source.") for given in own):
            faults.append(f"{name} does not begin with debezium.source., debezium.sink. or debezium.format.")
        else:
            options[name] = text
    if any(name.lower() == "row.columns" for name in options):
        faults.append("row.columns is for spark.readStream: here the sink says which columns it reads")
    if faults:
        raise ConfigError("\n  - ".join(["The file has entries that are not supported:", *faults]) + "\n",
                          "Correct the file.")  # fmt: skip
    source = configure(options)
    if sink is None:
        notices.append(f"No sink is named: events go to the {_DEFAULT_SINK}. Name one in debezium.sink.type.")
        sink = SinkConfig(_DEFAULT_SINK)
    for notice in notices:
        _log.warning(notice)
    return RunConfig(source, sink, (*source.notices, *notices))


def _connector_json(path: str | Path, text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The file {path} is no JSON: {error}.", "Correct the file.") from None
    inner = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(inner, dict):
        raise ConfigError(f"The file {path} holds no connector.", 'Write {"name": …, "config": {…}} or the options.')
    named = {"name": document["name"]} if inner is not document and "name" in document else {}
    return {name: _text(name, value) for name, value in (named | inner).items()}


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name} is not a text, a number, true or false.", "Kafka Connect's options are flat.")


def _sort_out(
    own: Mapping[str, str], sinks: Collection[str]
) -> tuple[dict[str, str], SinkConfig | None, list[str], list[str]]:
    """The connector's options, the sink, the entries of other `sinks`, the faults among Debezium Server's entries."""
    options: dict[str, str] = {}
    sink_options: dict[str, str] = {}
    sink_type = ""
    faults: list[str] = []
    for entry, text in own.items():
        area, _, name = entry.removeprefix("debezium.").partition(".")
        if area == "source":
            options[name] = text
        elif entry == "debezium.sink.type":
            sink_type = text.strip().lower()
        elif area == "sink":
            sink_options[name] = text
        elif area == "format":
            _take_format(entry, name, text.strip(), options, faults)
        elif area in ("transforms", "predicates"):
            # Of the entries that Debezium Server has for transforms, each is the connector's own option.
            if text.strip():
                options[entry.removeprefix("debezium.")] = text
        else:
            faults.append(f"{entry} is not an entry of Debezium Server")
    if not sink_type:
        faults += [f"debezium.sink.{name} is given, but no debezium.sink.type" for name in sink_options]
        return options, None, [], faults
    mine: dict[str, str] = {}
    idle: list[str] = []
    for name, text in sink_options.items():
        owner, _, option = name.partition(".")
        if owner == sink_type:
            mine[option] = text
        elif owner in sinks:
            # One file may serve several sinks in turn, the one in use named on the command line.
            idle.append(f"debezium.sink.{name}")
        else:
            faults.append(f"debezium.sink.{name} does not belong to the sink {sink_type}")
    return options, SinkConfig(sink_type, mine), idle, faults


def _take_format(entry: str, name: str, text: str, options: dict[str, str], faults: list[str]) -> None:
    """One `debezium.format.*` entry: the format of keys, values and headers, and the options of their converters."""
    part, _, option = name.partition(".")
    if part in ("key", "value", "header"):
        if option:
            options[f"{part}.converter.{option}"] = text
        elif text.lower() != "json" and part != "header" and is_known(text):
            options[f"{part}.converter"] = text
        elif text.lower() in _FORMATS:
            faults.append(f"{entry} = {text} is not supported: {_FORMATS[text.lower()]}")
        elif text.lower() != "json":
            faults.append(f"{entry} = {text} is not a format; known is json")
    else:
        options[f"converter.{name}"] = text
