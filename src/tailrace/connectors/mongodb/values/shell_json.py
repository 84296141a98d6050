"""Conversion from the notation of MongoDB's shell and its Java driver to strict JSON. No I/O.

In addition to JSON the notation has names without quotes, texts in single quotes, regular expressions between slashes
and calls such as `ObjectId("…")`; extended JSON has a form for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# No two parts of an alternative match the same text, so matching takes linear time.
_TOKEN = re.compile(
    r"""\s+
    | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    | (?P<call>(?:new\s+)?[A-Za-z]+\s*\((?P<argument>[^()]*+)\))
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<pattern>/(?:[^/\\\n]|\\.)+/[a-z]*)
    | (?P<sign>[{}\[\]:,])""",
    re.VERBOSE | re.DOTALL,
)
_CALLS = {
    "ObjectId": "$oid",
    "ISODate": "$date",
    "Date": "$date",
    "NumberLong": "$numberLong",
    "NumberInt": "$numberInt",
    "NumberDecimal": "$numberDecimal",
    "UUID": "$uuid",
}
_WORDS = frozenset(("true", "false", "null"))


def strict_json(text: str) -> str:
    """Return the same value as strict JSON. Raises ValueError if the text is in neither notation.

    The message continues a sentence that begins with an option's name, and contains no part of the value.
    """
    try:
        json.loads(text)
    except RecursionError:
        raise ValueError("nests too much") from None
    except ValueError:
        text = "".join(_pieces(text))
        try:
            json.loads(text)
        except RecursionError:
            raise ValueError("nests too much") from None
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from None
    return text


def _pieces(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"is not JSON: no value begins at character {at}")
        at = token.end()
        kind = token.lastgroup
        if kind == "text":
            yield _quoted(token["text"])
        elif kind in ("call", "argument"):
            yield _called(token["call"], token["argument"].strip())
        elif kind == "name":
            yield token["name"] if token["name"] in _WORDS else json.dumps(token["name"])
        elif kind == "pattern":
            body, _, options = token["pattern"][1:].rpartition("/")
            expression = {"pattern": body.replace("\\/", "/"), "options": "".join(sorted(options))}
            yield json.dumps({"$regularExpression": expression})
        else:
            yield token.group()


def _quoted(text: str) -> str:
    if text[0] == '"':
        return text
    return '"' + re.sub(r"\\(.)|(\")", _unescaped, text[1:-1], flags=re.DOTALL) + '"'


def _unescaped(found: re.Match[str]) -> str:
    """Return the form in double quotes of an escape, or a double quote, from a text in single quotes."""
    if found[2]:
        return '\\"'
    return "'" if found[1] == "'" else found[0]


def _called(call: str, argument: str) -> str:
    name = call.partition("(")[0].strip().removeprefix("new").strip()
    if name not in _CALLS:
        raise ValueError(f"calls {name[:40]}, which is not known here; known are {', '.join(_CALLS)}")
    value = json.loads(_quoted(argument)) if argument[:1] in ("'", '"') else argument
    if not value:
        raise ValueError(f"calls {name} without a value")
    return json.dumps({_CALLS[name]: _moment(value) if _CALLS[name] == "$date" else value})


def _moment(value: str) -> object:
    """Return a date for extended JSON. A number is in ms since 1970, a day begins at midnight, and the default zone is
    UTC."""
    if re.fullmatch(r"-?\d{5,}", value):
        return {"$numberLong": value}
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return f"{value}T00:00:00Z"
    return value if re.search(r"(Z|[+-]\d\d:?\d\d)$", value) else f"{value}Z"
