"""Debezium's ExtractNewDocumentState: records that hold only the document, with a schema of its own.

The fields of a document are known only when it arrives: records are grouped by the shapes of their documents and keys,
and a layout is made for each new shape. Where Debezium ends with a Java exception (arrays in arrays in format 1.1,
symbols and MinKey in format 3) the record gets the form of the other format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.connectors.mongodb.documents.options import AddedField, UnwrapSettings, unwrap
from tailrace.connectors.mongodb.documents.shapes import BOOLEAN, STRING, Fields, Shaper, flattened, is_left_out, struct
from tailrace.connectors.mongodb.documents.tree import Branch, DocumentStyle, Leaves, shape_column, tree_of
from tailrace.errors import ConfigError, ConversionError
from tailrace.records.layout import BlockColumn, Constant, Header, Node, RecordLayout, Struct
from tailrace.records.transform import RefusedRecord, Rewritten, Shared, VaryingLayout

_NAME = "ExtractNewDocumentState"
_ENVELOPE = ".Envelope"
_OPERATION = "__debezium-operation"
_UNSET = ("$set", "$unset")


@dataclass(frozen=True, slots=True)
class ExtractNewDocumentState:
    """Implements records.transform.Transform. `settings` are the options as they apply to the form of events."""

    options: tuple[tuple[str, str], ...]
    settings: UnwrapSettings = UnwrapSettings("3")  # noqa: RUF009
    notices: tuple[str, ...] = field(default=(), compare=False)

    def in_form(self, form: str) -> ExtractNewDocumentState:
        """Return the transform with the options' settings for events of this form. Raises ConfigError."""
        settings, faults = unwrap(dict(self.options), form)
        if settings is None:
            raise ConfigError("; ".join(faults) + ".", "Correct the options.")
        return replace(self, settings=settings, notices=(*self.notices, *settings.notices))

    def rewrite(self, record: RecordLayout) -> Rewritten:
        chosen = self.settings
        if record.value is None:
            if not chosen.keep_tombstones:
                return None
            return self._keyed(record, lambda made, key: key.of(made), self._operation("d"))
        envelope = record.value
        if not isinstance(envelope, Struct) or not (envelope.name or "").endswith(_ENVELOPE):
            return record
        op = _constant(envelope.part("op"))
        if op == "d" and chosen.deletes == "drop":
            return None
        return self._keyed(record, partial(self._changed, envelope, op), self._headers(envelope, op))

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        envelope = record.value
        if not isinstance(envelope, Struct) or self.settings.format == "1.1":
            return record, False
        added = self._headers(envelope, _constant(envelope.part("op")))
        return replace(record, headers=(*record.headers, *added)), False

    # --- keys and headers ----------------------------------------------------------------------------------------

    def _keyed(
        self, record: RecordLayout, made: Callable[[RecordLayout, _Key], Rewritten], headers: list[Header]
    ) -> Rewritten:
        """Return the records by the shapes of their keys."""
        record = replace(record, headers=(*record.headers, *headers))
        node = record.key.part("id") if isinstance(record.key, Struct) else None
        if not _is_image(node, "id"):
            raise RefusedRecord(f"{_NAME} finds no id of a document in the key, which another transform has changed")
        return VaryingLayout(shape_column("id", self.manner), partial(self._of_key, record, made))

    def _of_key(
        self, record: RecordLayout, made: Callable[[RecordLayout, _Key], Rewritten], shape: bytes | None
    ) -> Rewritten:
        return made(record, _Key(shape, self.manner))

    def _headers(self, envelope: Struct, op: str) -> list[Header]:
        """Return the headers that a change gets."""
        headers = self._operation(op) if self.settings.operation_header else []
        return headers + [Header(one.name, _added(one, envelope, self.settings)) for one in self.settings.headers]

    def _operation(self, op: str) -> list[Header]:
        """Return the headers that name the operation: __debezium-operation and `op` of add.headers, if they are
        chosen."""
        names = [_OPERATION] if self.settings.operation_header else []
        names += [one.name for one in self.settings.headers if one.field == "op" and not one.struct]
        return [Header(name, Constant(op, STRING.with_optional(False))) for name in names]

    # --- documents -----------------------------------------------------------------------------------------------

    @property
    def manner(self) -> DocumentStyle:
        """The style in which documents are shown."""
        chosen = self.settings
        return DocumentStyle(chosen.documents, chosen.sanitize, chosen.format != "1.1")

    def _changed(self, envelope: Struct, op: str, record: RecordLayout, key: _Key) -> Rewritten:
        old = self.settings.format == "1.1"
        made = _Made(self, envelope, record, key)
        if op == "d":
            return made.gone() if old else made.by_shape("before", made.whole, made.gone)
        if old:
            return made.by_shape("after", made.whole, partial(made.by_shape, "patch", made.patched, made.unknown))
        # a document that no longer existed when the server looked it up counts as deleted
        return made.by_shape("after", made.whole, partial(made.by_shape, "update", made.partly, made.gone))


@dataclass(frozen=True, slots=True)
class _Key:
    """The `_id` of documents, all of one shape; None if there is none."""

    shape: bytes | None
    manner: DocumentStyle

    def fields(self, name: str, within: str) -> Fields:
        """Return the value as a field of this name in a struct; no field if Connect does not have its type."""
        if self.shape is None:
            return [(name, Constant(None, STRING))]
        tree = tree_of(self.shape, self.manner.spread)
        if is_left_out(tree):
            return []
        return [(name, Shaper(self.manner, Leaves("id", self.manner)).node(tree, f"{within}.{name}"))]

    def of(self, record: RecordLayout) -> RecordLayout:
        """Return the record with this key. Raises ConversionError if the key has no schema in Connect."""
        return replace(record, key=struct(self.fields("id", "null"), None))


@dataclass(frozen=True, slots=True)
class _Made:
    """The records of changes whose keys have one shape."""

    transform: ExtractNewDocumentState
    envelope: Struct
    record: RecordLayout
    key: _Key

    @property
    def chosen(self) -> UnwrapSettings:
        """The settings of the transform."""
        return self.transform.settings

    @property
    def name(self) -> str:
        """The name of the documents' schema."""
        return (self.envelope.name or "").removesuffix(_ENVELOPE)

    @property
    def identity(self) -> Fields:
        """The field of `_id`, as in the key."""
        return self.key.fields("id" if self.chosen.format == "1.1" else "_id", self.name)

    def by_shape(
        self, part: str, made: Callable[[str, Branch], Rewritten], without: Callable[[], Rewritten]
    ) -> Rewritten:
        """Return the records by the shapes of a part of the envelope; `without` makes those that lack the part."""
        image = "update" if part == "update" else part
        node = self.envelope.part("updateDescription" if part == "update" else part)
        if node is None or (isinstance(node, Constant) and node.value is None):
            return without()
        if not _is_image(node, image):
            raise RefusedRecord(f"{_NAME} finds no document in {part}, which another transform has changed")
        return VaryingLayout(shape_column(image, self.transform.manner), partial(self._of_shape, image, made, without))

    def _of_shape(
        self,
        image: str,
        made: Callable[[str, Branch], Rewritten],
        without: Callable[[], Rewritten],
        shape: bytes | None,
    ) -> Rewritten:
        if shape is None:
            return without()
        tree = tree_of(shape, self.transform.manner.spread)
        assert isinstance(tree, Branch)
        return made(image, tree)

    def _shaper(self, image: str) -> Shaper:
        manner = self.transform.manner
        return Shaper(manner, Leaves(image, manner))

    def whole(self, image: str, tree: Branch) -> Rewritten:
        """Return the record of a whole document: after a change, or before a delete."""
        if image == "before" and not self.chosen.rewrites:
            return self._record([], True, False)
        shaper = self._shaper(image)
        if self.chosen.format != "1.1":
            return self._record(shaper.fields(tree, self.name), image == "before", False)
        # the key's value replaces a field `id`, or comes last
        names = [name for name, _ in tree.parts]
        place = names.index("id") if "id" in names else len(names)
        before, behind = (
            shaper.fields(_without(Branch(parts), "_id", "id"), self.name)
            for parts in (tree.parts[:place], tree.parts[place:])
        )
        return self._record([*dict([*before, *self.identity, *behind]).items()], False, False)

    def partly(self, image: str, tree: Branch) -> Rewritten:
        """Return the record of the fields that an update has changed."""
        found = self._shaper(image).fields(tree, self.name)
        if all(name != "_id" for name, _ in tree.parts):
            found += self.identity
        return self._record(found, False, True)

    def patched(self, image: str, tree: Branch) -> Rewritten:
        """Return the record of the fields that a patch of the oplog sets and unsets, or of a replacing document."""
        parts, shaper = dict(tree.parts), self._shaper(image)
        is_partial = any(part in parts for part in _UNSET)
        found: Fields = []
        if is_partial:
            for part in _UNSET:
                inner = parts.get(part)
                if isinstance(inner, Branch) and not inner.is_array:
                    changed = shaper.fields(inner, self.name)
                    found += changed if part == "$set" else [(name, Constant(None, STRING)) for name, _ in changed]
        elif "_id" in parts:
            found = shaper.fields(_without(tree, "_id"), self.name)
        else:
            return self.unknown()
        found = [*dict(found).items()]
        if all(name != "id" for name, _ in found):
            found += self.identity
        return self._record(found, False, is_partial)

    def unknown(self) -> Rewritten:
        """Raise ConversionError for an update in an unknown form."""
        raise ConversionError(
            "An update has neither $set nor $unset nor a whole document: ExtractNewDocumentState cannot show it.",
            "Servers from 5.0 on write other updates: rebuild documents with tailrace.transforms.document_state.",
        )

    def gone(self) -> Rewritten:
        """Return the record of a deleted document without its fields; None if deletes are dropped."""
        found: Fields = []
        if self.chosen.deletes == "drop":
            return None
        return self._record(found, True, False, with_id=self.chosen.with_id)

    def _record(self, found: Fields, deleted: bool, is_partial: bool, with_id: bool = False) -> Rewritten:
        chosen = self.chosen
        if deleted and chosen.deletes == "drop":
            return None
        record = self.key.of(self.record)
        if deleted and not chosen.rewrites:
            return replace(record, value=None)
        if chosen.flatten:
            if is_partial:
                found = [(name.replace(".", chosen.delimiter), node) for name, node in found]
            found = flattened(found, chosen.delimiter, chosen.format != "1.1")
        if chosen.rewrites:
            found = [*found, ("__deleted", Constant(deleted, BOOLEAN))]
            if with_id:
                found += self.identity
        found = [*found, *((one.name, _added(one, self.envelope, chosen)) for one in chosen.fields)]
        return replace(record, value=struct(found, self.name))


def _without(tree: Branch, *names: str) -> Branch:
    return Branch(tuple(part for part in tree.parts if part[0] not in names))


def _is_image(node: Node | None, image: str) -> bool:
    return isinstance(node, BlockColumn) and node.name == image


def _constant(node: Node | None) -> str:
    return str(node.value) if isinstance(node, Constant) and node.value else ""


def _added(added: AddedField, envelope: Struct, chosen: UnwrapSettings) -> Node:
    """Return the value of an added field, from the envelope or a struct in it. Raises ConversionError if there is
    none."""
    place = added.struct or ("" if envelope.part(added.field) is not None else "source")
    within: Node | None = envelope.part(place) if place else envelope
    found = _part(within, added.field)
    if found is None or found.type.connect == "struct":
        path = f"{added.struct}.{added.field}" if added.struct else added.field
        raise ConversionError(
            f"A transform cannot add {path}: events have no such field with a single value.",
            "Name fields that events have.",
        )
    if chosen.format == "1.1":
        return found
    # Debezium 3 makes the field optional and drops its default
    return _typed(found, replace(found.type, optional=True, default=ABSENT))


def _part(within: Node | None, name: str) -> Node | None:
    if isinstance(within, Struct):
        return within.part(name)
    kind = None if within is None else next((one.type for one in within.type.fields if one.name == name), None)
    if kind is None or not isinstance(within, BlockColumn):
        return None
    return BlockColumn(f"{within.name}.{name}", kind, within.by)


def _typed(node: Node, kind: LogicalType) -> Node:
    assert not isinstance(node, Struct)
    return replace(node, type=kind)  # type: ignore[arg-type]


def extract_new_document_state(options: Mapping[str, str]) -> ExtractNewDocumentState:
    """Return the transform with these options, for events of the current format. `in_form` raises ConfigError."""
    return ExtractNewDocumentState(tuple(sorted(options.items())))


def in_the_place_of_rows(options: Mapping[str, str]) -> ExtractNewDocumentState:
    """Return the transform for a configuration that names ExtractNewRecordState."""
    notice = f"type is taken as {_NAME}: a document has no fields before it is read."
    return ExtractNewDocumentState(tuple(sorted(options.items())), notices=(notice,))
