"""Composite types: structs of their attributes, which typed rows show. Planner, workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.columns.logical import Field, struct
from tailrace.values.conversion import Conversion

_QUOTE, _ESCAPE = '"', "\\"


def composite(attributes: Sequence[tuple[str, Conversion | None]]) -> Conversion:
    """A struct of the attributes, each with its conversion; one of an unknown type, which has none, is left out."""
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
    """The texts of the attributes of a value in parentheses, None for NULL. ValueError for another form."""
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
    """The attribute at `place`, and where it ends: at a comma or at `last`."""
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
