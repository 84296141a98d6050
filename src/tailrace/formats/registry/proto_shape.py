"""The shape of a Protobuf schema: what decides how its bytes are written, and what they mean. Any process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tailrace.formats.registry.shape import Meaning

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[\w.]+|\S', re.DOTALL)
_LABELS = ("optional", "required", "repeated")
_KNOWN = ("google.", "confluent.")
_CLOSING = {"{": "}", "[": "]", "<": ">"}


def proto_shape(text: str) -> Any:
    """Return the messages in their order with their fields only; other messages by their names."""
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith(("//", "/*"))]
    return _Reader(tokens).messages()


@dataclass(slots=True)
class _Reader:
    tokens: list[str]
    at: int = 0
    _lines: list[Any] = field(default_factory=list)

    def messages(self) -> list[Any]:
        """Return the messages up to the end of the text or of the enclosing message; their fields go into `_lines`."""
        found: list[Any] = []
        while self.at < len(self.tokens) and self._token != "}":
            if self._token == "message":
                name = self.tokens[self.at + 1]
                inside = _Reader(self.tokens, self.at + 3)
                messages = inside.messages()
                self.at = inside.at + 1
                found.append([name, sorted(inside._lines, key=_place), messages])
            elif self._token == "oneof":
                inside = _Reader(self.tokens, self.at + 3)
                inside.messages()
                self.at = inside.at + 1
                self._lines += inside._lines
            else:
                self._statement()
        return found

    @property
    def _token(self) -> str:
        return self.tokens[self.at]

    def _statement(self) -> None:
        """Read a field, or anything else up to its semicolon or the end of its braces."""
        words: list[str] = []
        scale = Meaning(None)
        while self.at < len(self.tokens) and self._token != ";":
            if self._token in _CLOSING:
                skipped = self._skip()
                if skipped[0] == "<":
                    words[-1] += "".join(skipped)
                elif skipped[0] == "{":
                    break
                else:
                    scale = _scale(skipped)
            else:
                words.append(self._token)
                self.at += 1
        else:
            self.at += 1
        label = words.pop(0) if words and words[0] in _LABELS else ""
        if len(words) == 4 and words[2] == "=" and words[3].isdigit():
            self._lines.append([int(words[3]), label, _name(words[0]), words[1], scale])

    def _skip(self) -> list[str]:
        """Return the tokens from an opening brace to its closing one."""
        first, depth = self.at, 0
        opening, closing = self._token, _CLOSING[self._token]
        while self.at < len(self.tokens):
            depth += (self._token == opening) - (self._token == closing)
            self.at += 1
            if not depth:
                break
        return self.tokens[first : self.at]


def _place(line: list[Any]) -> tuple[int, str]:
    return line[0], line[3]


def _scale(options: list[str]) -> Meaning:
    """Return the scale in the options of a decimal field."""
    pair: dict[str, str] = {}
    for place, token in enumerate(options):
        if token in "{}":
            pair = {}
        elif options[place - 1] == ":" and options[place - 2] in ("key", "value"):
            pair[options[place - 2]] = token.strip("\"'")
        if pair.get("key") == "scale" and pair.get("value", "").lstrip("-").isdigit():
            return Meaning(int(pair["value"]))
    return Meaning(None)


def _name(kind: str) -> str:
    """Return the name of a field's type: the last part for messages of the schema's own."""
    kind = kind.removeprefix(".")
    return kind if kind.startswith(_KNOWN) else kind.rpartition(".")[2]
