"""Kafka Connect's options in a connector's configuration: converters, offset storage, and options of the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.formats import JSON_CONVERTER, KNOWN, PARTS, format_of, is_known, taken
from tailrace.config.option import Check, Kind, Option
from tailrace.errors import ConfigError

_CHECKPOINT = "Spark's checkpoint takes the place of Kafka Connect's offset storage"
_WORKER = "it belongs to a Kafka Connect worker, and there is none"
_NO_LETTERS = (
    "a source has none; errors.tolerance and event.processing.failure.handling.mode decide about "
    "a record that cannot be made"
)
_RETRIES = "retriable.restart.connector.wait.ms and errors.max.retries decide about retries"
_POLLS = "a batch of Spark is committed as a whole"
_SINKS_OWN = "the sink has a connection of its own: debezium.sink.kafka.producer.<option>"


def _any_format(part: str) -> Check:
    return lambda name: "" if is_known(name, part) else _refusal(name, part)


def _refusal(name: str, part: str) -> str:
    known = [word for word in KNOWN.places if is_known(word, part)]
    return f"= {name} is not supported: {part}s are written by {JSON_CONVERTER}, and in the formats {', '.join(known)}"


def _converter(part: str) -> tuple[Option, ...]:
    prefix = f"{part}.converter"
    return (
        Option(prefix, Kind.TEXT, f"Converter of {part}s.", JSON_CONVERTER, check=_any_format(part)),
        Option(f"{prefix}.schemas.enable", Kind.BOOLEAN, f"Write the schema with each {part}.", True),
        Option(f"{prefix}.replace.null.with.default", Kind.BOOLEAN,
               "Write the column's default in the place of null.", True),
        Option(
            f"{prefix}.<option>", Kind.TEXT, f"Further options of the {part}s' converter.",
            pattern=rf"{part}\.converter\..+",
        ),
    )  # fmt: skip


@dataclass(slots=True)
class ConverterReading:
    """The result of reading the converters' options: `idle` lists those without effect, with the reason.

    `keeps_nulls` has the parts whose converter decides by itself whether a null stays null despite a default.
    """

    faults: list[str] = field(default_factory=list)
    idle: list[tuple[str, str]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    keeps_nulls: dict[str, bool] = field(default_factory=dict)


def read_converters(values: Mapping[str, Any], given: Mapping[str, str]) -> ConverterReading:
    """Return the effect of the converters' options. A converter ignores options that it does not know."""
    found, passed = ConverterReading(), {part: dict[str, str]() for part in PARTS}
    for part in PARTS:
        try:
            taken_of = taken(values, part)
        except ConfigError as error:
            found.faults.append(error.message.rstrip("."))
            continue
        if taken_of is None:
            continue
        found.notices += [f"{notice}." for notice in taken_of.notices if notice not in found.notices]
        passed[part] |= {option.lower(): "it has no effect here" for option in taken_of.idle}
        without = "JSON's converter" if format_of(values[f"{part}.converter"]) == "json" else "the converter"
        passed[part] |= {option.lower(): f"{without} goes without it" for option in taken_of.unknown}
        if taken_of.keeps_nulls is not None:
            found.keeps_nulls[part] = taken_of.keeps_nulls
    for name in given:
        part, converter, option = name.lower().partition("converter.")
        parts = [part.rstrip(".")] if part else ["key", "value"]
        if converter and set(parts) <= set(PARTS) and all(option in passed[word] for word in parts):
            found.idle.append((name, passed[parts[0]][option]))
    return found


CONNECT = (
    *_converter("key"),
    *_converter("value"),
    Option("header.converter", Kind.TEXT, "Converter of headers.", JSON_CONVERTER, check=_any_format("header")),
    Option(
        "header.converter.schemas.enable", Kind.BOOLEAN, "Write the schema with each header.", True,
    ),
    Option("header.converter.<option>", Kind.TEXT, "Further options of the headers' converter.",
           pattern=r"header\.converter\..+"),
    Option("converter.schemas.enable", Kind.BOOLEAN, "Write the schema with keys, values and headers.", True),
    Option("converter.replace.null.with.default", Kind.BOOLEAN,
           "Write the column's default in the place of null.", True,
           aliases=("replace.null.with.default",)),
    Option("converter.<option>", Kind.TEXT, "Further options of the converters of keys and values.",
           pattern=r"converter\..+"),
    Option("offset.storage", Kind.TEXT, "Java class of the offset storage.", notice=_CHECKPOINT),
    Option("offset.storage.<option>", Kind.TEXT, "Its options.", pattern=r"offset\.storage\..+", notice=_CHECKPOINT),
    Option("offset.flush.<option>", Kind.TEXT, "When offsets are stored.", pattern=r"offset\.flush\..+",
           notice=_CHECKPOINT),
    Option("offset.commit.policy", Kind.TEXT, "When offsets are stored.", notice=_CHECKPOINT),
    Option("offsets.storage.topic", Kind.TEXT, "Topic of the connector's offsets.", notice=_CHECKPOINT),
    Option("exactly.once.support", Kind.TEXT, "Whether Kafka Connect has to deliver exactly once.", "requested",
           choices=("requested", "required"),
           notice="the sink says how often a record comes: `tailrace check` prints it. Kafka's is at least once: a "
           "batch may come twice after a crash, with the same positions"),
    Option("transaction.boundary", Kind.TEXT, "Kafka Connect's transactions.", "poll",
           choices=("poll", "interval", "connector"), notice=_POLLS),
    Option("transaction.boundary.interval.ms", Kind.TEXT, "Their length.", notice=_POLLS),
    Option("errors.tolerance", Kind.TEXT,
           "Response to a record that a transform or a converter cannot take: an error, or, with `all`, drop it and "
           "log which and how many.", "none", choices=("none", "all")),
    Option("errors.log.<option>", Kind.TEXT, "Kafka Connect's log of errors.", pattern=r"errors\.log\..+",
           notice="an error is always logged, and never with the record"),
    Option("errors.retry.<option>", Kind.TEXT, "Kafka Connect's and Debezium Server's retries.",
           pattern=r"errors\.retry\..+", notice=_RETRIES),
    Option("errors.deadletterqueue.<option>", Kind.TEXT, "Kafka Connect's dead letters, which only sinks have.",
           pattern=r"errors\.deadletterqueue\..+", notice=_NO_LETTERS),
    Option("config.action.reload", Kind.TEXT, "Response to a changed secret.", "restart",
           notice="secrets are read at the start: restart the pipeline"),
    Option("tasks.max.enforce", Kind.BOOLEAN, "Whether too many tasks are an error.", True,
           notice="the log has one reader"),
    Option("plugin.version.<part>", Kind.TEXT, "Versions of Kafka Connect's plug-ins.",
           pattern=r"(connector|(key|value|header)\.converter)\.plugin\.version", notice=_WORKER),
    Option("topic.creation.enable", Kind.BOOLEAN, "Let the sink kafka make topics as topic.creation.* says.", True),
    Option("topic.creation.groups", Kind.LIST,
           "Groups of topics that the sink kafka makes, beside the group default; the first that matches counts.", []),
    Option("topic.creation.<group>.<option>", Kind.TEXT,
           "Topics of a group: include, exclude (expressions), partitions, replication.factor, and any option of a "
           "topic. topic.creation.default.partitions and .replication.factor are required.",
           pattern=r"topic\.creation\.[^.]+\..+"),
    Option("producer.override.<option>", Kind.SECRET, "Options of the worker's producer for this connector.",
           pattern=r"producer\.override\..+",
           notice="beside a connector of Kafka Connect whose sink is kafka they are the sink's; elsewhere there is no "
           "producer of a worker's"),
    Option("admin.override.<option>", Kind.SECRET, "Options of the worker's admin client and consumer.",
           pattern=r"(admin|consumer)\.override\..+", notice=_SINKS_OWN),
)  # fmt: skip
