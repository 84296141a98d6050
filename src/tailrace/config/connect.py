"""Options of Kafka Connect that stand in a connector's configuration: converters, offset storage, the worker's rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.config.formats import JSON_CONVERTER, format_of, is_known
from tailrace.config.option import Check, Kind, Option

_CHECKPOINT = "Spark's checkpoint takes the place of Kafka Connect's offset storage"
_WORKER = "it belongs to a Kafka Connect worker, and there is none"
_STOPS = "a record that cannot be made or written stops the pipeline, and none is dropped; \
event.processing.failure.handling.mode can put a bad change aside"
_RETRIES = "retriable.restart.connector.wait.ms and errors.max.retries say how a lost connection is tried again"
_POLLS = "a batch of Spark is what is committed together"
_SINKS_OWN = "the sink has a connection of its own: debezium.sink.kafka.producer.<option>"

_PARTS = ("key", "value", "header")
_OF_JSON = ("schemas.enable", "replace.null.with.default")
_JSON_REFUSED = {
    "decimal.format": ("base64", "decimals are written as base64, and as numbers only by decimal.handling.mode=double"),
    "schema.content": ("", "each record carries the schema of its own table version"),
}
"""Options of JSON's converter that would change bytes, with the value that would not, and the reason."""


def _json_only(part: str) -> Check:
    return lambda name: "" if format_of(name) == "json" else _refusal(name, part)


def _refusal(name: str, part: str) -> str:
    return f"= {name} is not supported: {part} are written by {JSON_CONVERTER} only, for now"


def _any_format(part: str) -> Check:
    return lambda name: "" if is_known(name) else _refusal(name, part)


def _converter(part: str) -> tuple[Option, ...]:
    prefix = f"{part}.converter"
    return (
        Option(prefix, Kind.TEXT, f"Converter of {part}s.", JSON_CONVERTER, check=_any_format(f"{part}s")),
        Option(f"{prefix}.schemas.enable", Kind.BOOLEAN, f"Whether {part}s carry their schema.", True),
        Option(f"{prefix}.replace.null.with.default", Kind.BOOLEAN, "Whether null becomes the column's default.", True),
        Option(
            f"{prefix}.<option>", Kind.TEXT, f"Further options of the {part}s' converter.",
            pattern=rf"{part}\.converter\..+",
        ),
    )  # fmt: skip


def unread(values: Mapping[str, Any], given: Mapping[str, str]) -> Iterator[tuple[str, str, bool]]:
    """Further options of converters that are not read, as (name, reason, whether that is a fault).

    JSON's converter passes over what it does not know, as the registry of the one that was there before it.
    """
    for name in given:
        part, converter, option = name.lower().partition("converter.")
        if not converter or part.rstrip(".") not in ("", *_PARTS) or option in _OF_JSON:
            continue
        named = [values[f"{one}converter"] for one in ([part] if part else ["key.", "value."])]
        if not all(format_of(converter) == "json" for converter in named):
            yield name, "the converter has no such option here", True
            continue
        neutral, reason = _JSON_REFUSED.get(option, ("", ""))
        changes = bool(reason) and given[name].strip().lower() != neutral
        yield name, reason if changes else "JSON's converter goes without it", changes


CONNECT = (
    *_converter("key"),
    *_converter("value"),
    Option("header.converter", Kind.TEXT, "Converter of headers.", JSON_CONVERTER, check=_json_only("headers")),
    Option(
        "header.converter.schemas.enable", Kind.BOOLEAN, "Whether headers carry their schema.", True,
    ),
    Option("header.converter.<option>", Kind.TEXT, "Further options of the headers' converter.",
           pattern=r"header\.converter\..+"),
    Option("converter.schemas.enable", Kind.BOOLEAN, "Whether keys, values and headers carry their schema.", True),
    Option("converter.replace.null.with.default", Kind.BOOLEAN, "Whether null becomes the column's default.", True,
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
    Option("errors.tolerance", Kind.TEXT, "Which errors are dropped.", "none", choices=("none", "all"), notice=_STOPS),
    Option("errors.log.<option>", Kind.TEXT, "Kafka Connect's log of errors.", pattern=r"errors\.log\..+",
           notice="an error is always logged, and never with the record"),
    Option("errors.retry.<option>", Kind.TEXT, "Kafka Connect's and Debezium Server's retries.",
           pattern=r"errors\.retry\..+", notice=_RETRIES),
    Option("errors.deadletterqueue.<option>", Kind.TEXT, "Kafka Connect's dead letters, which only sinks have.",
           pattern=r"errors\.deadletterqueue\..+", notice=_STOPS),
    Option("config.action.reload", Kind.TEXT, "What follows a changed secret.", "restart",
           notice="secrets are read at the start: restart the pipeline"),
    Option("tasks.max.enforce", Kind.BOOLEAN, "Whether too many tasks are an error.", True,
           notice="the log has one reader"),
    Option("plugin.version.<part>", Kind.TEXT, "Versions of Kafka Connect's plug-ins.",
           pattern=r"(connector|(key|value|header)\.converter)\.plugin\.version", notice=_WORKER),
    Option("topic.creation.enable", Kind.BOOLEAN, "The worker's switch for topic.creation.*.", True, notice=_WORKER),
    Option("topic.creation.groups", Kind.LIST,
           "Groups of topics that the sink kafka makes, beside the group default; the first that matches counts.", []),
    Option("topic.creation.<group>.<option>", Kind.TEXT,
           "How the topics of a group are made: include, exclude (expressions), partitions, replication.factor, and "
           "any option of a topic. topic.creation.default.partitions and .replication.factor are required.",
           pattern=r"topic\.creation\.[^.]+\..+"),
    Option("producer.override.<option>", Kind.SECRET, "Options of the worker's producer for this connector.",
           pattern=r"producer\.override\..+",
           notice="beside a connector of Kafka Connect whose sink is kafka they are the sink's; elsewhere there is no "
           "producer of a worker's"),
    Option("admin.override.<option>", Kind.SECRET, "Options of the worker's admin client and consumer.",
           pattern=r"(admin|consumer)\.override\..+", notice=_SINKS_OWN),
)  # fmt: skip
