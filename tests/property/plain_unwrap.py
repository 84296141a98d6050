"""A plain ExtractNewDocumentState, which the layouts of documents by their shapes must equal.

It handles one record at a time: it reads the record's JSON and the text of its document, and writes the result of Kafka
Connect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.columns.row import HEADERS
from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue, read
from tailrace.connectors.mongodb.documents.options import AddedField, UnwrapSettings
from tailrace.errors import ConversionError
from tailrace.values.json_text import dumps, quoted
from tests.property.plain_shapes import (
    BOOLEAN,
    INT32,
    INT64,
    STRING,
    Schema,
    Shaped,
    Shaper,
    flattened,
    schema_json,
    struct,
    value_json,
)

_TEXTS = ("op", "version", "connector", "name", "snapshot", "db", "sequence", "rs", "collection", "lsid", "id")
_UNDECLARED: dict[str, Schema] = {"ord": INT32} | dict.fromkeys(_TEXTS, STRING)
"""Types of fields in headers with schemas, for values without schemas, which do not show the types."""

_DATA = frozenset("crud")
_MARK = b',"payload":'
_ENVELOPE = ".Envelope"


@dataclass(frozen=True, slots=True)
class Schemas:
    """For keys, values and headers, whether they carry their schemas: the converters' schemas.enable."""

    key: bool = True
    value: bool = True
    header: bool = True


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a sink gets it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Unwrapping:
    """The transform over rows."""

    def __init__(self, settings: UnwrapSettings, schemas: Schemas) -> None:
        self._settings = settings
        self._schemas = schemas
        old = settings.format == "1.1"
        self._identity = "id" if old else "_id"
        self._shaper = Shaper(settings.documents, settings.sanitize, not old)
        self._envelopes: dict[bytes, tuple[str | None, dict[str, Any]]] = {}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `batches` after the transform. Rows of other records than changes stay unchanged."""
        for batch in batches:
            changed = self.batch(batch)
            if changed.num_rows or not batch.num_rows:
                yield changed

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one batch after the transform. Raises ConversionError for a document that has no form."""
        operations, keys = batch.column("op").to_pylist(), batch.column("key").to_pylist()
        values, headers = batch.column("value").to_pylist(), batch.column("headers").to_pylist()
        rows: list[int] = []
        records: list[Record] = []
        of_delete: list[tuple[str, bytes | None]] = []
        for row, operation in enumerate(operations):
            given = [(pair["key"], pair["value"]) for pair in headers[row] or ()]
            if operation == "tombstone" and self._settings.format != "1.1":
                # both records share one headers object
                given = of_delete
            elif operation == "d":
                _, payload, types = self._opened(values[row])
                of_delete = self._with_added(given, payload, types)
            record = self.changed(operation, keys[row], values[row], given)
            if record is not None:
                rows.append(row)
                records.append(record)
        kept = batch.take(pa.array(rows, pa.int64()))
        pairs = [[{"key": name, "value": value} for name, value in record.headers] or None for record in records]
        made = {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(pairs, HEADERS),
        }
        columns = [made.get(field.name, kept.column(field.name)) for field in batch.schema]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def changed(
        self, operation: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> Record | None:
        """Return a row after the transform; None if it is dropped. Records other than changes stay unchanged."""
        if operation in _DATA or operation == "tombstone":
            return self.record(key, value, headers)
        return Record(key, value, headers)

    def _with_added(
        self, headers: list[tuple[str, bytes | None]], payload: dict[str, Any], types: dict[str, Any]
    ) -> list[tuple[str, bytes | None]]:
        """Return the headers of a change with those that the options add."""
        chosen = self._settings
        added = headers + (self._operation(payload["op"]) if chosen.operation_header else [])
        return added + [(field.name, self._header(field, payload, types)) for field in chosen.headers]

    def record(self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> Record | None:
        """Return the record of a change; None if it is dropped."""
        chosen = self._settings
        if value is None:
            if not chosen.keep_tombstones:
                return None
            return Record(self._key(self._id(key)), None, headers + self._operation("d"))
        name, payload, types = self._opened(value)
        operation = payload["op"]
        identity = self._id(key)
        document, partial = self._document(payload, identity)
        # A document that was gone when the server looked it up counts as deleted.
        deleted = operation == "d" or document is None
        if deleted and chosen.deletes == "drop":
            return None
        added = self._with_added(headers, payload, types)
        if deleted and not chosen.rewrites:
            return Record(self._key(identity), None, added)
        fields = self._fields(document or ExtendedDocument(), name, partial)
        if chosen.rewrites:
            fields.append(("__deleted", (BOOLEAN, "true" if deleted else "false")))
            if chosen.with_id and document is None:
                shaped = self._shaper.value(identity, f"{name}.{self._identity}", False)
                fields.append((self._identity, shaped))
        fields += [(field.name, self._added(field, payload, types)) for field in chosen.fields]
        return Record(self._key(identity), self._written(fields, name, self._schemas.value), added)

    def _opened(self, value: bytes) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
        """Return the name of the documents' schema, the payload of an event, and the schemas of its fields by name."""
        if not self._schemas.value:
            return None, json.loads(value), {}
        end = value.find(_MARK)
        head = value[:end]
        if head not in self._envelopes:
            schema = json.loads(head[len(b'{"schema":') :])
            fields = {field["field"]: field for field in schema["fields"]}
            self._envelopes[head] = schema["name"].removesuffix(_ENVELOPE), fields
        name, fields = self._envelopes[head]
        return name, json.loads(value[end + len(_MARK) : -1]), fields

    def _id(self, key: bytes | None) -> Any:
        """Return the value of `_id` that a key holds as text."""
        if key is None:
            return None
        payload = json.loads(key)
        text = (payload["payload"] if self._schemas.key else payload)["id"]
        return None if text is None else read(text)

    def _key(self, identity: Any) -> bytes:
        fields = self._shaper.fields(ExtendedDocument(id=identity), None)
        return self._written(fields, None, self._schemas.key)

    def _document(self, payload: dict[str, Any], identity: Any) -> tuple[ExtendedDocument | None, bool]:
        """Return the fields that a record shows, and True if they are only an update's; None if it shows none."""
        old = self._settings.format == "1.1"
        if payload["op"] == "d":
            before = None if old else payload.get("before")
            return (None if before is None else _read(before)), False
        if payload.get("after") is not None:
            document = _read(payload["after"])
            if old:
                document.pop("_id", None)
                document["id"] = identity
            return document, False
        if old:
            return self._patched(payload, identity)
        changed = (payload.get("updateDescription") or {}).get("updatedFields")
        if changed is None:
            return None, False
        document = _read(changed)
        document.setdefault("_id", identity)
        return document, True

    def _patched(self, payload: dict[str, Any], identity: Any) -> tuple[ExtendedDocument, bool]:
        patch = _read(payload["patch"]) if payload.get("patch") is not None else ExtendedDocument()
        partial = "$set" in patch or "$unset" in patch
        document = ExtendedDocument()
        if partial:
            for part in ("$set", "$unset"):
                inner = patch.get(part)
                document |= {
                    name: value if part == "$set" else None
                    for name, value in (inner.items() if isinstance(inner, ExtendedDocument) else ())
                }
        elif "_id" in patch:
            document |= {name: value for name, value in patch.items() if name != "_id"}
        else:
            raise ConversionError(
                "An update has neither $set nor $unset nor a whole document: ExtractNewDocumentState cannot show it.",
                "Servers from 5.0 on write other updates: rebuild documents with tailrace.transforms.document_state.",
            )
        document.setdefault("id", identity)
        return document, partial

    def _fields(self, document: ExtendedDocument, name: str | None, partial: bool) -> list[tuple[str, Shaped]]:
        chosen = self._settings
        fields = self._shaper.fields(document, name)
        if not chosen.flatten:
            return fields
        if partial:
            fields = [(field.replace(".", chosen.delimiter), shaped) for field, shaped in fields]
        return flattened(fields, chosen.delimiter, chosen.format != "1.1")

    def _added(self, field: AddedField, payload: dict[str, Any], types: dict[str, Any]) -> Shaped:
        """Return schema and value of a field of the envelope or of one of its structs."""
        within, declared = payload, types
        struct_name = field.struct or ("" if field.field in payload else "source")
        if struct_name:
            within = payload.get(struct_name) or {}
            declared = {part["field"]: part for part in types.get(struct_name, {}).get("fields", ())}
            if struct_name not in payload or (payload[struct_name] is not None and field.field not in within):
                raise _unknown(field)
        value = within.get(field.field)
        if isinstance(value, dict) or (types and field.field not in declared):
            raise _unknown(field)
        schema = (
            _schema(declared[field.field], self._settings.format != "1.1")
            if types
            else _UNDECLARED.get(field.field, INT64)
        )
        if types and isinstance(value, list):
            return schema, [None if item is None else dumps(item) for item in value]
        return schema, None if value is None else dumps(value)

    def _header(self, field: AddedField, payload: dict[str, Any], types: dict[str, Any]) -> bytes:
        schema, value = self._added(field, payload, types)
        return self._text(schema_json(schema), value_json(schema, value), self._schemas.header)

    def _operation(self, operation: str) -> list[tuple[str, bytes | None]]:
        """Return the header with the operation: that of format 1.1, and `op` of add.headers beside a tombstone."""
        chosen = self._settings
        names = ["__debezium-operation"] if chosen.operation_header else []
        names += [field.name for field in chosen.headers if field.field == "op" and not field.struct]
        schema = schema_json(("string", None, None, False, None))
        return [(name, self._text(schema, quoted(operation), self._schemas.header)) for name in names]

    def _written(self, fields: list[tuple[str, Shaped]], name: str | None, with_schema: bool) -> bytes:
        schema, value = struct(fields, name)
        text = value_json(schema, value)
        if not with_schema:
            return text.encode()
        return self._text(schema_json((*schema[:3], False, schema[4])), text, True)

    @staticmethod
    def _text(schema: str, text: str, with_schema: bool) -> bytes:
        return (f'{{"schema":{schema},"payload":{text}}}' if with_schema else text).encode()


def _read(text: str) -> ExtendedDocument:
    value = read(text)
    if isinstance(value, ExtendedDocument):
        return value
    # A document of only a wrapper's fields was read as the value that it stands for.
    raise ConversionError("An event holds a text that is no document." if not isinstance(value, TypedValue) else
                          "An event's document has the form of a single value of extended JSON.")  # fmt: skip


def _unknown(field: AddedField) -> ConversionError:
    path = f"{field.struct}.{field.field}" if field.struct else field.field
    return ConversionError(
        f"Events have no single field {path}, which a transform is to add.", "Name fields that events have."
    )


def _schema(declared: dict[str, Any], optional: bool) -> Schema:
    """Return the schema of a scalar, or of an array of scalars, in JsonConverter's form."""
    parts: Any = _schema(declared["items"], False) if declared["type"] == "array" else None
    if "parameters" in declared:
        parts = f',"parameters":{dumps(declared["parameters"])}'
        # Debezium 3 makes the field optional anew, without its default.
        parts += f',"default":{dumps(declared["default"])}' if "default" in declared and not optional else ""
    return (declared["type"], declared.get("name"), declared.get("version"), optional or declared["optional"], parts)
