"""Composite types: structs of their attributes, which typed rows show. Planner and worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.columns.logical import Field, struct
from tailrace.values.conversion import Conversion

_QUOTE, _ESCAPE = '"', "\\"


def composite(attributes: Sequence[tuple[str, Conversion | None]]) -> Conversion:
    """Return the conversion to a struct of the attributes. An attribute without a conversion (None) is left out."""
    shown = [(name, of) for name, of in attributes if of is not None]
    schema = struct(*(Field(name, of.logical.with_optional(True)) for name, of in shown))
    return Conversion(schema, _values(attributes), zero={})


def _values(attributes: Sequence[tuple[str, Conversion | None]]) -> Callable[[str], dict[str, Any]]:
    def convert(text: str) -> dict[str, Any]:
        items = composite_items(text)
        if len(items) > len(attributes):
            raise ValueError("more attributes than the type has")
        # a value may be older than the type's last attributes
        items += [None] * (len(attributes) - len(items))
        pairs = zip(attributes, items, strict=True)
        return {name: None if item is None else of.plain(item) for (name, of), item in pairs if of is not None}

    return convert


def composite_items(text: str) -> list[str | None]:
    """Return the texts of a value's attributes, None for NULL. Raises ValueError unless it is in parentheses."""
    if len(text) < 2 or text[0] != "(" or text[-1] != ")":
        raise ValueError("not a composite value")
    if text == "()":
        return []
    items: list[str | None] = []
    place, last = 1, len(text) - 1
    while True:
        item, place = _item(text, place, last)
        items.append(item)
        if place == last:
            return items
        place += 1


def _item(text: str, place: int, last: int) -> tuple[str | None, int]:
    """Return the attribute at `place`, and its end: a comma or `last`."""
    parts: list[str] = []
    inside, start = False, place
    while place < last:
        letter = text[place]
        if letter == _ESCAPE:
            place += 1
            if place == last:
                raise ValueError("an escape without a character")
            parts.append(text[place])
        elif letter == _QUOTE and inside and text[place + 1] == _QUOTE:
            place += 1
            parts.append(_QUOTE)
        elif letter == _QUOTE:
            inside = not inside
        elif letter == "," and not inside:
            break
        else:
            parts.append(letter)
        place += 1
    if inside:
        raise ValueError("a quote that is not closed")
    return (None if place == start else "".join(parts)), place
