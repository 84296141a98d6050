"""The options of the Protobuf converter. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import ConfigError
from tailrace.formats.given import Given
from tailrace.formats.protobuf.schema import Rules
from tailrace.formats.registry.options import Registry, confluent


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a Protobuf converter: the registry, and how messages are made.

    `nulls_stay`: a null is left out even if the schema has a default.
    """

    registry: Registry
    rules: Rules
    nulls_stay: bool


def options_of(part: str, options: Mapping[str, str]) -> tuple[Options, Given]:
    """Return the options of the converter of `part`, the keys or the values. Raises ConfigError for unsupported
    options."""
    given = Given(f"{part}.converter.", options)
    if given.names("apicurio.registry."):
        raise ConfigError(
            f"{part}.converter has options of Apicurio's registry, and its converter to Protobuf is not supported.",
            "Apicurio's registry has Confluent's interface too: name it in schema.registry.url "
            "(…/apis/ccompat/v7), with io.confluent.connect.protobuf.ProtobufConverter.",
        )
    registry = confluent(part, given)
    if not given.boolean("skip.known.types", True):
        raise ConfigError(
            f"{part}.converter.skip.known.types = false is not supported: schemas are registered without references.",
            "Leave it out: registries know the types that are imported.",
        )
    if given.text("schema.format"):
        raise ConfigError(
            f"{part}.converter.schema.format is not supported: schemas are registered as text.", "Leave it out."
        )
    # these matter only for reading, and for schema parameters that these records do not have
    given.idle("enhanced.protobuf.schema.support", "generalized.sum.type.support", "generate.index.for.unions",
               "generate.struct.for.nulls", "flatten.unions", "int.for.enums", "optional.for.proto2",
               "wrapper.for.raw.primitives", "reference.subject.name.strategy", "reference.lookup.only",
               "schemas.enable")  # fmt: skip
    rules = Rules(
        given.boolean("scrub.invalid.names", False),
        given.boolean("optional.for.nullables", False),
        given.boolean("wrapper.for.nullables", False),
    )
    return Options(registry, rules, given.boolean("ignore.default.for.nullables", False)), given
