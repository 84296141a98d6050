"""The transforms as operations on DataFrames of a source's rows. Driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, udf

from tailrace.connectors import registry
from tailrace.connectors.descriptor import Schemas

_MADE = "_tailrace_made"


def extract_new_document_state(
    frame: DataFrame,
    options: Mapping[str, str] | None = None,
    event_format: str = "3",
    schemas: Schemas = Schemas(),  # noqa: B008
) -> DataFrame:
    """The rows of a source of documents with them in the place of events, as Debezium's ExtractNewDocumentState.

    `frame` has columns of `tailrace.columns.ROW_SCHEMA`, at least `op`, `key`, `value` and `headers`, and may be a
    stream; so has the result. `options` are the transform's own, without any prefix, as
    `{"array.encoding": "document"}`; `schemas` says which parts of the records carry schemas. Rows that are no changes
    stay as they are.

    Raises ConfigError for options that do not exist in the Debezium that `event_format` stands for.
    """
    unwrapping = registry.documents().unwrapping(options or {}, event_format, schemas)

    def apply(operation: str, key: bytes | None, value: bytes | None, headers: list[Any] | None) -> Any:
        given = [(pair["key"], pair["value"]) for pair in headers or ()]
        record = unwrapping.changed(operation, key, value, given)
        return None if record is None else (record.key, record.value, record.headers or None)

    parts = "key binary, value binary, headers array<struct<key: string, value: binary>>"
    made = frame.withColumn(_MADE, udf(apply, parts, useArrow=False)("op", "key", "value", "headers")).where(
        f"{_MADE} is not null"
    )
    replaced = {name: col(f"{_MADE}.{name}") for name in ("key", "value", "headers")}
    return made.withColumns(replaced).drop(_MADE)
