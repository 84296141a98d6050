"""The options of the Avro converters. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.formats.avro.schema import Rules
from tailrace.formats.given import Given
from tailrace.formats.registry.options import Registry, apicurio, confluent


@dataclass(frozen=True, slots=True)
class Options:
    """What the converter's options say: the registry, and how schemas are made.

    `nulls_stay` tells that a null is written as null where the schema has a default. `plain_records` tells that the
    schema of an optional struct at the top is the record's own, and no union.
    """

    registry: Registry
    rules: Rules
    nulls_stay: bool
    plain_records: bool


def options_of(kind: str, part: str, options: Mapping[str, str]) -> tuple[Options, Given]:
    """The options of a converter of Confluent's or Apicurio's, `kind`, for the keys or the values, `part`.

    Raises ConfigError for what is not supported.
    """
    given = Given(f"{part}.converter.", options)
    registry = confluent(part, given) if kind == "confluent" else apicurio(part, given)
    for name in ("generalized.sum.type.support", "schema.backup.enabled"):
        given.refuse_true(name, "it makes other schemas")
    if kind == "apicurio":
        given.word("apicurio.registry.avro.encoding", ("", "BINARY"), "")
    # these only matter for parameters of schemas that these records do not have, and for reading
    given.idle("enhanced.avro.schema.support", "flatten.unions", "flatten.singleton.unions", "schemas.enable")
    rules = Rules(
        given.boolean("connect.meta.data", True),
        given.boolean("scrub.invalid.names", False),
        given.boolean("allow.optional.map.keys", False),
        given.boolean("discard.type.doc.default", False),
    )
    nulls_stay = given.boolean("ignore.default.for.nullables", False)
    return Options(registry, rules, nulls_stay, kind == "apicurio"), given
