"""Options of Kafka Connect that stand in a connector's configuration: converters, offset storage, the worker's rest."""

from __future__ import annotations

from tailrace.config.formats import JSON_CONVERTER, format_of, is_known
from tailrace.config.option import Check, Kind, Option

_CHECKPOINT = "Spark's checkpoint takes the place of Kafka Connect's offset storage"
_WORKER = "it belongs to a Kafka Connect worker, and there is none"


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
            pattern=rf"{part}\.converter\..+", unsupported="the JSON converter has no such option here",
        ),
    )  # fmt: skip


CONNECT = (
    *_converter("key"),
    *_converter("value"),
    Option("header.converter", Kind.TEXT, "Converter of headers.", JSON_CONVERTER, check=_json_only("headers")),
    Option(
        "header.converter.schemas.enable", Kind.BOOLEAN, "Whether headers carry their schema.", True,
    ),
    Option("converter.schemas.enable", Kind.BOOLEAN, "Whether keys, values and headers carry their schema.", True),
    Option("converter.replace.null.with.default", Kind.BOOLEAN, "Whether null becomes the column's default.", True,
           aliases=("replace.null.with.default",)),
    Option("offset.storage", Kind.TEXT, "Java class of the offset storage.", notice=_CHECKPOINT),
    Option("offset.storage.<option>", Kind.TEXT, "Its options.", pattern=r"offset\.storage\..+", notice=_CHECKPOINT),
    Option("offset.flush.<option>", Kind.TEXT, "When offsets are stored.", pattern=r"offset\.flush\..+",
           notice=_CHECKPOINT),
    Option("offset.commit.policy", Kind.TEXT, "When offsets are stored.", notice=_CHECKPOINT),
    Option("exactly.once.support", Kind.TEXT, "Kafka Connect's exactly-once delivery.", "requested",
           choices=("requested", "required"), refused=(("required", "Spark's Kafka sink delivers at least once"),),
           unsupported="Spark's Kafka sink delivers at least once"),
    Option("transaction.boundary", Kind.TEXT, "Kafka Connect's transactions.", "poll", unsupported=_WORKER),
    Option("errors.tolerance", Kind.TEXT, "Which errors are dropped.", "none",
           unsupported="no record is dropped"),
    Option("errors.<option>", Kind.TEXT, "Kafka Connect's error handling.",
           pattern=r"errors\.(log\..+|retry\..+|deadletterqueue\..+)", unsupported=_WORKER),
    Option("config.action.reload", Kind.TEXT, "What follows a changed secret.", "restart", unsupported=_WORKER),
    Option("topic.creation.groups", Kind.LIST,
           "Groups of topics that the sink kafka makes, beside the group default; the first that matches counts.", []),
    Option("topic.creation.<group>.<option>", Kind.TEXT,
           "How the topics of a group are made: include, exclude (expressions), partitions, replication.factor, and "
           "any option of a topic. topic.creation.default.partitions and .replication.factor are required.",
           pattern=r"topic\.creation\.[^.]+\..+"),
    Option("producer.override.<option>", Kind.TEXT, "Options of the worker's producer.",
           pattern=r"producer\.override\..+", unsupported="give them as debezium.sink.kafka.producer.<option>"),
)  # fmt: skip
