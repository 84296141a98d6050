"""The options of the Avro converters. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.formats.avro.schema import Rules
from tailrace.formats.given import Given
from tailrace.formats.registry.options import Registry, apicurio, confluent


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an Avro converter: the registry, and how schemas are made.

    `nulls_stay`: a null is written as null even if the schema has a default. `plain_records`: the schema of an optional
    struct at the top is its record, not a union.
    """

    registry: Registry
    rules: Rules
    nulls_stay: bool
    plain_records: bool


def options_of(kind: str, part: str, options: Mapping[str, str]) -> tuple[Options, Given]:
    """Return the options of a converter of vendor `kind` (Confluent or Apicurio) for `part`, the keys or the values.

    Raises ConfigError for unsupported options.
    """
    given = Given(f"{part}.converter.", options)
    registry = confluent(part, given) if kind == "confluent" else apicurio(part, given)
    for name in ("generalized.sum.type.support", "schema.backup.enabled"):
        given.refuse_true(name, "it makes other schemas")
    if kind == "apicurio":
        given.word("apicurio.registry.avro.encoding", ("", "BINARY"), "")
    # these matter only for reading, and for schema parameters that these records do not have
    given.idle("enhanced.avro.schema.support", "flatten.unions", "flatten.singleton.unions", "schemas.enable")
    rules = Rules(
        given.boolean("connect.meta.data", True),
        given.boolean("scrub.invalid.names", False),
        given.boolean("allow.optional.map.keys", False),
        given.boolean("discard.type.doc.default", False),
    )
    nulls_stay = given.boolean("ignore.default.for.nullables", False)
    return Options(registry, rules, nulls_stay, kind == "apicurio"), given
