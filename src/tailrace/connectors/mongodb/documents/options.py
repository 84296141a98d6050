"""Unwrap: the options of Debezium's ExtractNewDocumentState. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_DELETES_1 = ("drop", "rewrite", "none")
_DELETES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
# The options about added fields came with 1.2; they have the same meaning in both formats.
_BOTH = {
    "array.encoding": "array", "flatten.struct": "false", "flatten.struct.delimiter": "_",
    "add.fields": "", "add.fields.prefix": "__", "add.headers": "", "add.headers.prefix": "__",
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
    },
}  # fmt: skip
_MODE = "delete.tombstone.handling.mode"
# Options of Debezium 2 with their defaults. In Debezium 3 a single option, `_MODE`, replaces them.
_OLDER = {"delete.handling.mode": "drop", "drop.tombstones": "true"}
_IDLE = {
    "3": {
        "route.by.field": "Debezium does nothing with it for MongoDB either",
        "sanitize.field.names": "Debezium does nothing with it since 3 either",
        "operation.header": "Debezium dropped it in version 2; use add.headers = op",
        "add.source.fields": "Debezium dropped it in version 2; use add.fields",
    },
    "1.1": {"route.by.field": "Debezium does nothing with it for MongoDB either"},
}


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field to add to a record or its headers: `struct` is the part of the envelope that has it, "" for any."""

    struct: str
    field: str
    name: str


@dataclass(frozen=True, slots=True)
class UnwrapSettings:
    """The settings of the transform. `deletes` is a value of delete.tombstone.handling.mode in any format."""

    format: str
    documents: bool = False
    """array.encoding=document: an array is a struct of its elements."""
    flatten: bool = False
    delimiter: str = "_"
    deletes: str = "tombstone"
    keep_tombstones: bool = False
    with_id: bool = False
    operation_header: bool = False
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    sanitize: bool = False
    notices: tuple[str, ...] = field(default=(), compare=False)

    @property
    def rewrites(self) -> bool:
        return self.deletes.startswith("rewrite")


def unwrap(own: Mapping[str, str], form: str) -> tuple[UnwrapSettings | None, list[str]]:
    """Return the settings of the options for events of a form, and the faults of the options."""
    faults: list[str] = []
    notices: list[str] = []
    values = dict(_DEFAULTS[form])
    older: dict[str, str] = {}
    for name, text in own.items():
        if name in values:
            values[name] = text.strip()
        elif form == "3" and name in _OLDER:
            older[name] = text.strip().lower()
        elif name in _IDLE[form]:
            notices.append(f"{name} has no effect: {_IDLE[form][name]}.")
        else:
            other = next((known for known in _DEFAULTS if name in _DEFAULTS[known]), "")
            reason = f"it belongs to event.format={other}" if other else _no_such(name, (*values, *_OLDER))
            faults.append(f"{name} is not supported: {reason}")
    for name, words in _WORDS.items():
        for given_text in (source[name] for source in (values, older) if name in source):
            if given_text.lower() not in words:
                faults.append(f"{name} must be one of {', '.join(words)}, not {given_text!r}")
    if faults:
        return None, faults
    made = _settings(form, {name: text.lower() if name in _WORDS else text for name, text in values.items()})
    notices += [f"{name} {_superseded(own)}." for name in older]
    if older and _MODE not in own:
        made = _as_before(made, _OLDER | older)
    return replace(made, notices=tuple(notices)), []


def _no_such(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return "ExtractNewDocumentState has no such option" + (f"; the nearest is {close[0]}" if close else "")


def _superseded(own: Mapping[str, str]) -> str:
    if _MODE in own:
        return f"has no effect: {_MODE} is given"
    return f"is an older option, which works as in Debezium 2: {_MODE} replaces it"


def _as_before(made: UnwrapSettings, older: Mapping[str, str]) -> UnwrapSettings:
    """Return a copy of the settings with the handling of deletes that the two options of Debezium 2 choose."""
    mode = older["delete.handling.mode"]
    keeps = older["drop.tombstones"] == "false"
    return replace(made, deletes="tombstone" if mode == "none" else mode, keep_tombstones=keeps)


_FLAGS = ("true", "false")
_WORDS: dict[str, tuple[str, ...]] = {
    "array.encoding": ("array", "document"), "flatten.struct": _FLAGS, "delete.handling.mode": _DELETES_1,
    "drop.tombstones": _FLAGS, "operation.header": _FLAGS, "sanitize.field.names": _FLAGS,
    "delete.tombstone.handling.mode": _DELETES, "delete.tombstone.handling.mode.rewrite-with-id": _FLAGS,
}  # fmt: skip


def _settings(form: str, values: dict[str, str]) -> UnwrapSettings:
    chosen: dict[str, Any] = {
        "documents": values["array.encoding"] == "document",
        "flatten": values["flatten.struct"] == "true",
        "delimiter": values["flatten.struct.delimiter"],
        "headers": _added(values["add.headers"], values["add.headers.prefix"]),
    }
    fields = _added(values["add.fields"], values["add.fields.prefix"])
    if form == "3":
        mode = values["delete.tombstone.handling.mode"]
        return UnwrapSettings(
            form,
            deletes=mode,
            keep_tombstones=mode == "rewrite-with-tombstone",
            with_id=values["delete.tombstone.handling.mode.rewrite-with-id"] == "true",
            fields=fields,
            **chosen,
        )
    mode = values["delete.handling.mode"]
    return UnwrapSettings(
        form,
        deletes="tombstone" if mode == "none" else mode,
        keep_tombstones=values["drop.tombstones"] == "false",
        operation_header=values["operation.header"] == "true",
        fields=(*(AddedField("source", name, f"__{name}") for name in _listed(values["add.source.fields"])), *fields),
        sanitize=values["sanitize.field.names"] == "true",
        **chosen,
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _added(text: str, prefix: str) -> tuple[AddedField, ...]:
    """Return the entries of a list like `op, source.ts_ms, db:DB`. The struct is part of the name unless a name is
    given."""
    found = []
    for entry in _listed(text):
        path, _, new = entry.partition(":")
        struct, _, field = path.rpartition(".")
        found.append(AddedField(struct, field, prefix + (new or path.replace(".", "_"))))
    return tuple(found)
