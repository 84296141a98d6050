"""The formats of keys, values and headers that a configuration may name, with their options. No I/O, any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tailrace.config.extensions import Extensions
from tailrace.errors import ConfigError

KNOWN = Extensions(
    "tailrace.formats",
    "format",
    {
        "json": "tailrace.formats.json:JSON",
        "json-apicurio": "tailrace.formats.json.registry:REGISTRY_JSON",
        "avro": "tailrace.formats.avro:CONFLUENT",
        "avro-apicurio": "tailrace.formats.avro:APICURIO",
        "protobuf": "tailrace.formats.protobuf:CONFLUENT",
        "cloudevents": "tailrace.formats.cloudevents:CLOUD_EVENTS",
        "simplestring": "tailrace.formats.simple:STRING",
        "bytearray": "tailrace.formats.simple:BYTES",
        "binary": "tailrace.formats.simple:BINARY_DATA",
        "simpleheader": "tailrace.formats.simple:SIMPLE",
        "short": "tailrace.formats.simple:SHORT",
        "integer": "tailrace.formats.simple:INTEGER",
        "long": "tailrace.formats.simple:LONG",
        "float": "tailrace.formats.simple:FLOAT",
        "double": "tailrace.formats.simple:DOUBLE",
        "boolean": "tailrace.formats.simple:BOOLEAN",
    },
    ConfigError,
)
"""Every format of bytes by its name; each place holds an Encoding."""

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_CONNECT = "org.apache.kafka.connect.converters."
_CLASSES = {
    JSON_CONVERTER: "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "io.apicurio.registry.utils.converter.AvroConverter": "avro-apicurio",
    "io.apicurio.registry.utils.converter.ExtJsonConverter": "json-apicurio",
    "io.debezium.converters.BinaryDataConverter": "binary",
    "io.debezium.converters.CloudEventsConverter": "cloudevents",
    "org.apache.kafka.connect.storage.StringConverter": "simplestring",
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": "simpleheader",
    _CONNECT + "ByteArrayConverter": "bytearray",
    _CONNECT + "ShortConverter": "short",
    _CONNECT + "IntegerConverter": "integer",
    _CONNECT + "LongConverter": "long",
    _CONNECT + "FloatConverter": "float",
    _CONNECT + "DoubleConverter": "double",
    _CONNECT + "BooleanConverter": "boolean",
}
_WORDS = {"jsonconverter": "json"} | {name.lower(): word for name, word in _CLASSES.items()}
_NUMBERS = frozenset(("short", "integer", "long", "float", "double", "boolean"))
_OF_HEADERS = frozenset(("json", "simpleheader", "simplestring", "bytearray")) | _NUMBERS
_ONLY_OF_HEADERS = frozenset(("simpleheader",))
PARTS = ("key", "value", "header")
OF_ALL = ("schemas.enable", "replace.null.with.default")
"""Options of converters that have rows of their own."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format with its converter's options, without the prefix `key.converter.`, `value.converter.` or
    `header.converter.`; `part` is `key`, `value` or `header`."""

    name: str
    part: str
    options: tuple[tuple[str, str], ...] = field(repr=False)


def format_of(converter: str) -> str:
    """Return the name of a converter's format: tailrace's name for other projects' converters, else the name itself."""
    return _WORDS.get(converter.lower(), converter)


def is_known(converter: str, part: str = "value") -> bool:
    """Return True if there is a format for the converter; headers have fewer formats."""
    name = format_of(converter)
    if part == "header":
        return name in _OF_HEADERS
    if name in _ONLY_OF_HEADERS:
        return False
    # only if necessary: looking for other packages takes 0.1 s
    return name in KNOWN.places or name in KNOWN.names()


def part_format(values: Mapping[str, Any], part: str) -> Format | str:
    """Return the format of the keys, values or headers; only its name if its converter has no options."""
    converter = values[f"{part}.converter"]
    name, options = format_of(converter), dict(_options(values, part))
    names_apicurio = any(option.startswith("apicurio.registry.") for option in options)
    if name == "avro" and converter.lower() == name and names_apicurio:
        # Debezium Server has one word for both
        name = "avro-apicurio"
    if (name == "json" and not options) or not hasattr(_found(name), "with_options"):
        return name
    return Format(name, part, tuple(sorted(options.items())))


def form_of(values: Mapping[str, Any], part: str) -> Literal["json", "text", "bytes"]:
    """Return what the bytes of keys, values or headers are: JSON, other text, or bytes if neither is known."""
    name = format_of(values[f"{part}.converter"])
    if name == "cloudevents":
        serializers = [text for option, text in _options(values, part) if option == "serializer.type"]
        return "bytes" if "avro" in serializers[-1:] else "json"
    if name in ("json", "json-apicurio"):
        return "json"
    return "text" if name in ("simplestring", "simpleheader") else "bytes"


def _options(values: Mapping[str, Any], part: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a part's converter: those for keys and values, then its own, which override them."""
    own = f"{part}.converter."
    # few of the hundreds of options belong to converters
    names = [name for name in values if "converter." in name.lower()]
    for start in (own,) if part == "header" else ("converter.", own):
        for name in names:
            option = name[len(start) :]
            if name.lower().startswith(start) and option.lower() not in OF_ALL:
                yield option, str(values[name])


def _found(name: str) -> Any:
    return KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)


def taken(values: Mapping[str, Any], part: str) -> Any:
    """Return the format of a part with its converter's options, a tailrace.formats.base.EncodingChoice; None without
    options.

    Raises ConfigError.
    """
    found = part_format(values, part)
    return None if isinstance(found, str) else _found(found.name).with_options(part, dict(found.options))
