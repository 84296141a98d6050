"""The formats of keys and values that a configuration may name. No I/O, any process."""

from __future__ import annotations

from tailrace.errors import ConfigError
from tailrace.extensions import Extensions

KNOWN = Extensions("tailrace.formats", "format", {"json": "tailrace.formats.json:JSON"}, ConfigError)
"""Every format of bytes by its name; each place holds an Encoding."""

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_JSON = ("json", "jsonconverter", JSON_CONVERTER.lower())


def format_of(converter: str) -> str:
    """The name of the format that a converter writes: the one it names, JSON for Kafka Connect's own words for it."""
    return "json" if converter.lower() in _JSON else converter


def is_known(converter: str) -> bool:
    """Whether there is a format for the converter."""
    name = format_of(converter)
    # only where it must: to look for other packages takes a tenth of a second
    return name in KNOWN.places or name in KNOWN.names()
