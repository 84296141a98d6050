"""JSON as sent over the wire, with the order of keys, the text of numbers and the escapes of strings."""

from __future__ import annotations

import json
import re

SCHEMA = '{"schema":'
PAYLOAD = ',"payload":'
_TOKEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|[{}\[\]:,]|-?\d[\d.eE+\-]*|true|false|null|NaN|-?Infinity')


class Text(str):
    """A scalar as its JSON text: `"a"`, `1.50`, `null`."""

    __slots__ = ()

    @property
    def string(self) -> str | None:
        """The value of a JSON string; None for any other scalar."""
        return str(json.loads(self)) if self.startswith('"') else None

    @property
    def integer(self) -> int | None:
        """The value of a JSON integer; None for any other scalar."""
        return int(self) if self.lstrip("-").isdigit() else None


NULL = Text("null")


def quote(text: str) -> Text:
    """Return `text` as a JSON string."""
    return Text(json.dumps(text, ensure_ascii=False))


class Reader:
    """A parser of compact JSON into Text, dict and list; anything between the tokens, even a blank, is a ValueError.

    Keys of objects are JSON texts without their quotes. The schemas at the head of Connect's JSON repeat from record to
    record, so each is parsed once: results share them and must not be changed in place.
    """

    def __init__(self) -> None:
        self._schemas: dict[str, object] = {}

    def read(self, text: str) -> object:
        """Return the whole of `text` as one JSON value."""
        value, end = self.read_head(text, 0)
        if end != len(text):
            raise ValueError(f"text after the JSON value: {text[end : end + 40]!r}")
        return value

    def read_head(self, text: str, at: int) -> tuple[object, int]:
        """Return the JSON value that begins at `at`, and its end."""
        if not text.startswith(SCHEMA, at):
            return _value(text, at)
        begin = at + len(SCHEMA)
        for known, schema in self._schemas.items():
            # `known` ends with the key of the payload, so no schema is taken for a longer one.
            if text.startswith(known, begin):
                payload, end = _value(text, begin + len(known))
                if text.startswith("}", end):
                    return {"schema": schema, "payload": payload}, end + 1
        schema, end = _value(text, begin)
        if isinstance(schema, dict) and text.startswith(PAYLOAD, end):
            self._schemas[text[begin:end] + PAYLOAD] = schema
        return _value(text, at)


def same(one: object, other: object) -> bool:
    """Return True if the texts of two of a Reader's results are equal; keys count in their order."""
    if one is other:
        return True
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(
                key == name and same(item, other[name]) for (key, item), name in zip(one.items(), other, strict=True)
            )
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return not isinstance(other, dict | list) and str(one) == str(other)


def write(value: object) -> str:
    """Return the compact JSON text of a Reader's result."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{key}":{write(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return str(value)


def _value(text: str, at: int) -> tuple[object, int]:
    token = _token(text, at)
    at += len(token)
    if token == "{":
        members: dict[str, object] = {}
        if text.startswith("}", at):
            return members, at + 1
        while True:
            key = _token(text, at)
            at += len(key)
            if not key.startswith('"') or not text.startswith(":", at) or key[1:-1] in members:
                raise ValueError(f"no key, a repeated key or no colon at {text[at - len(key) : at + 20]!r}")
            members[key[1:-1]], at = _value(text, at + 1)
            token = _token(text, at)
            at += 1
            if token == "}":
                return members, at
            if token != ",":
                raise ValueError(f"neither comma nor brace at {text[at - 1 : at + 20]!r}")
    if token == "[":
        items: list[object] = []
        if text.startswith("]", at):
            return items, at + 1
        while True:
            item, at = _value(text, at)
            items.append(item)
            token = _token(text, at)
            at += 1
            if token == "]":
                return items, at
            if token != ",":
                raise ValueError(f"neither comma nor bracket at {text[at - 1 : at + 20]!r}")
    if token in "}]:,":
        raise ValueError(f"no JSON value at {text[at - 1 : at + 20]!r}")
    return Text(token), at


def _token(text: str, at: int) -> str:
    match = _TOKEN.match(text, at)
    if match is None:
        raise ValueError(f"no JSON token at {text[at : at + 40]!r}")
    return match.group()
