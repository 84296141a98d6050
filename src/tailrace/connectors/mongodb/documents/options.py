"""Unwrap: the options of Debezium's ExtractNewDocumentState, the one transform that there is; for MongoDB. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.config.config import Config

CLASS = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"

_DELETES_1 = ("drop", "rewrite", "none")
_DELETES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_BOTH = {
    "array.encoding": "array", "flatten.struct": "false", "flatten.struct.delimiter": "_",
}  # fmt: skip
_DEFAULTS = {
    "1.1": _BOTH
    | {
        "delete.handling.mode": "drop", "drop.tombstones": "true", "operation.header": "false",
        "add.source.fields": "", "sanitize.field.names": "false",
    },
    "3": _BOTH
    | {
        "delete.tombstone.handling.mode": "tombstone", "delete.tombstone.handling.mode.rewrite-with-id": "false",
        "add.fields": "", "add.fields.prefix": "__", "add.headers": "", "add.headers.prefix": "__",
    },
}  # fmt: skip
_REFUSED = {
    "predicate": "predicates are not available yet",
    "negate": "predicates are not available yet",
    "route.by.field": "Debezium accepts it for MongoDB and does nothing with it",
    "sanitize.field.names": "Debezium 3 accepts it and does nothing with it",
}


@dataclass(frozen=True, slots=True)
class Added:
    """A field that is added to a record or its headers: `struct` of the envelope that has it, "" for any."""

    struct: str
    field: str
    name: str


@dataclass(frozen=True, slots=True)
class Unwrap:
    """How events become documents. `deletes` is a word of delete.tombstone.handling.mode, whatever the format."""

    format: str
    documents: bool = False
    """array.encoding=document: an array is a struct of its elements."""
    flatten: bool = False
    delimiter: str = "_"
    deletes: str = "tombstone"
    keep_tombstones: bool = False
    with_id: bool = False
    operation_header: bool = False
    fields: tuple[Added, ...] = ()
    headers: tuple[Added, ...] = ()
    sanitize: bool = False

    @property
    def rewrites(self) -> bool:
        return self.deletes.startswith("rewrite")


def unwrap(names: list[str], given: Mapping[str, str], form: str) -> tuple[Unwrap | None, list[str]]:
    """The transform that `transforms` and its options in `given` describe, and what is wrong with them."""
    options = {name: text.strip() for name, text in given.items() if name.lower().startswith("transforms.")}
    if not names:
        return None, [f"{name} is given, but transforms is not" for name in options]
    if len(names) > 1:
        return None, ["transforms names several transforms: there is one, ExtractNewDocumentState"]
    start = f"transforms.{names[0]}."
    faults = [f"{name} belongs to no transform of transforms = {names[0]}" for name in options
              if not name.startswith(start)]  # fmt: skip
    own = {name.removeprefix(start): text for name, text in options.items() if name.startswith(start)}
    kind = own.pop("type", "")
    if kind != CLASS:
        return None, [f"{start}type = {kind or 'nothing'} is not supported: of the transforms there is {CLASS}"]
    values = dict(_DEFAULTS[form])
    for name, text in own.items():
        if name in values:
            values[name] = text
        elif name in _REFUSED:
            faults.append(f"{start}{name} is not supported: {_REFUSED[name]}")
        else:
            other = next((known for known in _DEFAULTS if name in _DEFAULTS[known]), "")
            reason = f"it belongs to event.format={other}" if other else "ExtractNewDocumentState has no such option"
            faults.append(f"{start}{name} is not supported: {reason}")
    for name, words in _WORDS.items():
        if name in values and values[name].lower() not in words:
            faults.append(f"{start}{name} must be one of {', '.join(words)}, not {values[name]!r}")
    if faults:
        return None, faults
    return _settings(form, {name: text.lower() if name in _WORDS else text for name, text in values.items()}), []


def configured(config: Config) -> Unwrap | None:
    """The transform of a configuration, None where it has none."""
    if not config.get("transforms"):
        return None
    given = {name: str(config[name]) for name in config if name.lower().startswith("transforms.")}
    return unwrap(config["transforms"], given, config.event_format)[0]


_FLAGS = ("true", "false")
_WORDS: dict[str, tuple[str, ...]] = {
    "array.encoding": ("array", "document"), "flatten.struct": _FLAGS, "delete.handling.mode": _DELETES_1,
    "drop.tombstones": _FLAGS, "operation.header": _FLAGS, "sanitize.field.names": _FLAGS,
    "delete.tombstone.handling.mode": _DELETES, "delete.tombstone.handling.mode.rewrite-with-id": _FLAGS,
}  # fmt: skip


def _settings(form: str, values: dict[str, str]) -> Unwrap:
    chosen: dict[str, Any] = {
        "documents": values["array.encoding"] == "document",
        "flatten": values["flatten.struct"] == "true",
        "delimiter": values["flatten.struct.delimiter"],
    }
    if form == "3":
        mode = values["delete.tombstone.handling.mode"]
        return Unwrap(
            form,
            deletes=mode,
            keep_tombstones=mode == "rewrite-with-tombstone",
            with_id=values["delete.tombstone.handling.mode.rewrite-with-id"] == "true",
            fields=_added(values["add.fields"], values["add.fields.prefix"]),
            headers=_added(values["add.headers"], values["add.headers.prefix"]),
            **chosen,
        )
    mode = values["delete.handling.mode"]
    return Unwrap(
        form,
        deletes="tombstone" if mode == "none" else mode,
        keep_tombstones=values["drop.tombstones"] == "false",
        operation_header=values["operation.header"] == "true",
        fields=tuple(Added("source", name, f"__{name}") for name in _listed(values["add.source.fields"])),
        sanitize=values["sanitize.field.names"] == "true",
        **chosen,
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _added(text: str, prefix: str) -> tuple[Added, ...]:
    """Entries as op, source.ts_ms and db:DB; the struct is a part of the new name unless one is given."""
    found = []
    for entry in _listed(text):
        path, _, new = entry.partition(":")
        struct, _, field = path.rpartition(".")
        found.append(Added(struct, field, prefix + (new or path.replace(".", "_"))))
    return tuple(found)
