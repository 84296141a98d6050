"""The document after a change: patches of every version of MongoDB, applied to the previous document. Worker.

Documents are ExtendedDocuments. Patches follow the server's rules for its oplog: a number in a path is an index in an
array and a name in a document; missing parents become documents; an array grows with nulls.
"""

from __future__ import annotations

from typing import Any

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue, read
from tailrace.errors import ConversionError

_REMOVED = object()


def state_after(before: ExtendedDocument | None, payload: dict[str, Any]) -> ExtendedDocument | None:
    """Return the document after an event, of either format; None if there is none, or if it cannot be known.

    `before` is the document after all earlier events, None if it does not exist; it may be modified. The result of an
    update is unknown if `before` is None and the event does not have the whole document. Raises ConversionError for a
    patch in a form that no known server writes, or that does not fit the document.
    """
    operation = payload["op"]
    if operation == "d":
        return None
    if payload.get("after") is not None:
        return _document(read(payload["after"]))
    if operation != "u":
        return None
    if "updateDescription" in payload:
        description = payload["updateDescription"]
        if before is None or description is None:
            return None
        updated = (
            ExtendedDocument()
            if description["updatedFields"] is None
            else _document(read(description["updatedFields"]))
        )
        sizes = [(part["field"], part["size"]) for part in description["truncatedArrays"] or ()]
        return described(before, updated, description["removedFields"] or [], sizes)
    patch = _document(read(payload["patch"]))
    return patched(before, patch)


def patched(before: ExtendedDocument | None, patch: ExtendedDocument) -> ExtendedDocument | None:
    """Return the document after the `o` of an update in the oplog: `$set` and `$unset`, a diff, or the whole
    document."""
    if patch.get("$v") == 2 and isinstance(patch.get("diff"), ExtendedDocument):
        if before is None:
            return None
        diff = patch["diff"]
        if "updatedFields" in diff:
            # a compatible server (not MongoDB) writes the descriptions of its change streams
            sizes = [(part["field"], part["newSize"]) for part in diff.get("truncatedArrays", ())]
            return described(before, diff["updatedFields"], diff.get("removedFields", []), sizes)
        return _differing(before, diff)
    if not any(name.startswith("$") for name in patch):
        return patch
    unknown = set(patch) - {"$v", "$set", "$unset"}
    if unknown:
        raise ConversionError(f"An update in the oplog has a part {min(unknown)}, which is not known.")
    if before is None:
        return None
    for path, value in patch.get("$set", {}).items():
        _put(before, path, value)
    for path in patch.get("$unset", {}):
        _remove(before, path)
    return before


def described(
    before: ExtendedDocument, updated: ExtendedDocument, removed: list[str], sizes: list[tuple[str, int]]
) -> ExtendedDocument:
    """Return the document after an update as a change stream describes it."""
    for path in removed:
        _remove(before, path)
    for path, size in sizes:
        array = _inner(before, path.split("."))
        if not isinstance(array, list):
            raise _unfit()
        del array[size:]
    for path, value in updated.items():
        _put(before, path, value)
    return before


def _differing(before: ExtendedDocument, diff: ExtendedDocument) -> ExtendedDocument:
    """Return a document after a diff of `$v: 2`: d(elete), u(pdate), i(nsert), and s with a name for a diff of that
    field."""
    for part in diff:
        if part not in ("d", "u", "i") and not part.startswith("s"):
            raise ConversionError(f"An update in the oplog has a part {part} in its diff, which is not known.")
    for name in diff.get("d", {}):
        before.pop(name, None)
    before.update(diff.get("u", {}))
    for part, inner in diff.items():
        if part.startswith("s"):
            name = part[1:]
            if name not in before:
                raise _unfit()
            before[name] = _changed(before[name], inner)
    for name, value in diff.get("i", {}).items():
        # an inserted field goes to the end, even if it existed
        before.pop(name, None)
        before[name] = value
    return before


def _changed(value: Any, diff: ExtendedDocument) -> Any:
    if not diff.get("a"):
        if not isinstance(value, ExtendedDocument):
            raise _unfit()
        return _differing(value, diff)
    if not isinstance(value, list):
        raise _unfit()
    size = diff.get("l")
    if size is not None:
        del value[size:]
        value.extend([None] * (size - len(value)))
    for part, inner in diff.items():
        if part in ("a", "l"):
            continue
        kind, place = part[:1], part[1:]
        if kind not in ("u", "s") or not place.isdigit():
            raise ConversionError(f"An update in the oplog has a part {part} in an array's diff, which is not known.")
        index = int(place)
        if kind == "u":
            _set_item(value, index, inner)
        elif index < len(value):
            value[index] = _changed(value[index], inner)
        else:
            raise _unfit()
    return value


def _set_item(array: list[Any], index: int, value: Any) -> None:
    array.extend([None] * (index + 1 - len(array)))
    array[index] = value


def _child(container: Any, name: str) -> Any:
    """Return the value of a name in a container; _REMOVED if there is none."""
    if isinstance(container, list):
        if not name.isdigit():
            raise _unfit()
        return container[int(name)] if int(name) < len(container) else _REMOVED
    if isinstance(container, ExtendedDocument):
        return container.get(name, _REMOVED)
    return _REMOVED


def _inner(container: Any, names: list[str]) -> Any:
    for name in names:
        container = _child(container, name)
    return container


def _assign(container: Any, name: str, value: Any) -> None:
    if isinstance(container, list):
        if not name.isdigit():
            raise _unfit()
        _set_item(container, int(name), value)
    elif isinstance(container, ExtendedDocument):
        container[name] = value
    else:
        raise _unfit()


def _put(document: ExtendedDocument, path: str, value: Any) -> None:
    *way, last = path.split(".")
    container: Any = document
    for name in way:
        inner = _child(container, name)
        if inner is _REMOVED:
            inner = ExtendedDocument()
            _assign(container, name, inner)
        container = inner
    _assign(container, last, value)


def _remove(document: ExtendedDocument, path: str) -> None:
    *way, last = path.split(".")
    container = _inner(document, way)
    if isinstance(container, ExtendedDocument):
        container.pop(last, None)
    elif isinstance(container, list) and last.isdigit() and int(last) < len(container):
        # the item becomes null, so that the others keep their places
        container[int(last)] = None


def _document(value: Any) -> ExtendedDocument:
    if not isinstance(value, ExtendedDocument):
        kind = value.kind if isinstance(value, TypedValue) else "value"
        raise ConversionError(f"The text of a document in an event is a {kind}.")
    return value


def _unfit() -> ConversionError:
    return ConversionError(
        "An update does not fit the document that results from earlier events.",
        "Events of this key are missing or out of order: start again with a snapshot.",
    )
