"""The options of Debezium's CloudEventsConverter. No I/O, any process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.columns.adjustment import adjusted
from tailrace.errors import ConfigError
from tailrace.formats.avro.encoding import Avro
from tailrace.formats.base import Encoding
from tailrace.formats.json.encoding import JSON, NUMERIC, Json
from tailrace.formats.option_reader import OptionReader
from tailrace.formats.others import other

_LOGIN = re.compile(r"//[^/]*@")
VALUE, HEADER, GENERATE = "value", "header", "generate"


@dataclass(frozen=True, slots=True)
class CloudEventsOptions:
    """The options of the converter.

    `metadata`: where the source block, the operation and the transaction are (value or headers). `id`, `type`, and
    `data_name` for the name of the data's schema: generated or from headers. `tracing`: the header traceparent becomes
    an attribute. `json` encodes the parts in JSON; `avro` encodes events and `data_avro` their data, if these are in
    Avro. `nulls_stay`: a null in the data is written as null even if the schema has a default.
    """

    json_schemas: bool
    data_format: str
    extensions: bool
    tracing: bool
    metadata: str
    id: str
    type: str
    data_name: str
    schema_name: str
    adjustment: str
    registry_url: str
    nulls_stay: bool
    json: Json
    avro: Encoding | None
    data_avro: Encoding | None

    def adjusted(self, name: str) -> str:
        """Return a schema's name with characters illegal in Avro replaced, if the options say so."""
        return adjusted(name, self.adjustment, dots=True)


def options_of(part: str, given: OptionReader) -> CloudEventsOptions:
    """Return the options. Raises ConfigError for unsupported ones."""
    if part != "value":
        raise ConfigError(f"{part}.converter cannot be CloudEventsConverter.", "It is a converter of values.")
    serializer = given.one_of("serializer.type", ("json", "avro"), "json")
    data = given.one_of("data.serializer.type", ("json", "avro"), "json")
    if serializer == "avro" and data == "json":
        raise ConfigError(
            f"{given.prefix}serializer.type = avro with {given.prefix}data.serializer.type = json is not supported.",
            "Let the data be Avro too, or the event be JSON.",
        )
    where = _sources(given)
    registered = given.part("avro.")
    encoding = None
    url = ""
    schemas, nulls_stay, in_json = _json(given)
    if data == "avro":
        apicurio = any(name.lower().startswith("apicurio.registry.") for name in registered)
        word = "avro-apicurio" if apicurio else "avro"
        made = other(word, part, "avro.", registered)
        nulls_stay = bool(made.keeps_nulls)
        encoding = given.nested("avro.", made)
        assert isinstance(encoding, Avro)
        assert encoding.options is not None
        # events may be read by anyone, so the URL has no login
        url = _LOGIN.sub("//", encoding.options.registry.access.url)
    return CloudEventsOptions(
        schemas,
        data,
        given.boolean("extension.attributes.enable", True),
        given.boolean("opentelemetry.tracing.attributes.enable", False),
        where["metadata"],
        where["id"],
        where["type"],
        where["data_name"],
        given.text("schema.cloudevents.name"),
        given.one_of("schema.name.adjustment.mode", ("none", "avro", "avro_unicode"), "avro"),
        url,
        nulls_stay,
        in_json,
        encoding if serializer == "avro" else None,
        encoding,
    )


def _json(given: OptionReader) -> tuple[bool, bool, Json]:
    """Return whether data in JSON has its schema, whether its nulls stay despite defaults, and its encoding."""
    schemas = given.boolean("json.schemas.enable", True)
    numeric = given.one_of("json.decimal.format", ("BASE64", "NUMERIC"), "BASE64") == "NUMERIC"
    nulls_stay = not given.boolean("json.replace.null.with.default", True)
    given.idle("schemas.enable", "json.schemas.cache.size")
    return schemas, nulls_stay, NUMERIC if numeric else JSON


def _sources(given: OptionReader) -> Mapping[str, str]:
    """Return the origin of each part of the metadata. `value` or `header` applies to all, other words to one."""
    text = given.text("metadata.source")
    words = [word.strip() for word in text.split(",") if word.strip()]
    general = VALUE
    single: dict[str, str] = {}
    for word in words:
        name, colon, place = word.partition(":")
        if not colon and word.lower() in (VALUE, HEADER):
            general = word.lower()
        elif colon and name in ("id", "type", "traceparent", "dataSchemaName") and place in (GENERATE, HEADER):
            single[name] = place
        else:
            raise ConfigError(
                f"{given.prefix}metadata.source has the word {word}, which is not known.",
                "Use value or header, and id, type, traceparent or dataSchemaName with :generate or :header.",
            )
    if single.get("traceparent") == GENERATE:
        raise ConfigError(
            f"{given.prefix}metadata.source = traceparent:generate is not supported.",
            "Records have this attribute only in a header: use traceparent:header, or leave it out.",
        )
    made = GENERATE if general == VALUE else HEADER
    named = given.boolean("schema.data.name.source.header.enable", False)
    return {
        "metadata": general,
        "id": single.get("id", made),
        "type": single.get("type", made),
        "data_name": single.get("dataSchemaName", made) if named else GENERATE,
    }
