"""The `$match` stage by which the server drops unwanted change events. Planner; no I/O.

The stage only saves network traffic: the planner filters all events again. The stage therefore leaves out expressions
that the server might read differently from Python. The others are rewritten in the few constructs that mean the same to
both (PCRE2, "pcre2pattern"). A letter becomes a class of its two cases, since PCRE folds the case of more letters than
ASCII's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.config.expressions import Expression
from tailrace.connectors.mongodb.log.commands import TOLD
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter

DATA_CHANGES = {"insert": "c", "update": "u", "replace": "u", "delete": "d"}
"""Types of change events that become events, and their letters in `skipped.operations`."""
INVALIDATE = "invalidate"
_NAME = {"$concat": ["$ns.db", ".", "$ns.coll"]}
# PCRE2 as MongoDB builds it takes patterns of up to 32 kB.
_LONGEST = 16_000
_TOKEN = re.compile(
    r"""(?P<class>\[\^?(?:\\.|[^\]\\\[])+\])
    | \\(?P<escaped>.)
    | (?P<group>\((?:\?:)?(?!\?))
    | (?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})(?![?+]))
    | (?P<sign>[.|)^$])
    | (?P<plain>[^\\\[\](){}*+?.|^$])""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"(?P<low>\\?.)-(?P<high>\\.|[^\\])|\\(?P<escaped>.)|(?P<plain>.)", re.DOTALL)
_SHORT = {"d": "0-9", "w": "0-9A-Za-z_"}


def stage(captured: CollectionFilter, skipped: frozenset[str], *, scoped: bool) -> Mapping[str, Any]:
    """Return the `$match` for events of collections that `captured` includes, without the operations `skipped`.

    Signals, and commands on whole collections, are never skipped. A stream that is `scoped` to a database or a
    collection also keeps the event that ends it, since the next stream starts after its token.
    """
    kept = [name for name, letter in DATA_CHANGES.items() if letter not in skipped]
    choices: list[Mapping[str, Any]] = [{"operationType": {"$in": kept}, **_joined("$and", _names(captured))}]
    if captured.signals is not None:
        database, collection = captured.signals
        types = list(dict.fromkeys(["insert", *kept]))
        choices.append({"operationType": {"$in": types}, "ns.db": database, "ns.coll": collection})
    choices.append({"operationType": {"$in": list(TOLD)}})
    if scoped:
        choices.append({"operationType": INVALIDATE})
    return {"$match": _joined("$or", choices)}


def _joined(operator: str, conditions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not conditions:
        return {}
    return conditions[0] if len(conditions) == 1 else {operator: list(conditions)}


def _names(captured: CollectionFilter) -> list[Mapping[str, Any]]:
    """Return the conditions of the lists on names. All of them must hold."""
    found: list[Mapping[str, Any]] = []
    for kind in ("database", "collection"):
        included = captured.lists[f"{kind}.include"]
        if included:
            texts = [pcre(expression) for expression in included]
            # an expression that cannot be sent to the server might include any name
            if None not in texts:
                found.append(_joined("$or", list(_matches(kind, texts))))
            continue
        texts = [text for text in map(pcre, captured.lists[f"{kind}.exclude"]) if text is not None]
        if texts:
            found.append({"$nor": list(_matches(kind, texts))})
    return found


def _matches(kind: str, texts: Sequence[str | None]) -> Iterator[Mapping[str, Any]]:
    """Yield conditions of which one holds if a name matches one of `texts`: few long patterns instead of many short
    ones."""
    waiting: list[str] = []
    for text in [*texts, None]:
        if waiting and (text is None or len("|".join([*waiting, text]).encode()) > _LONGEST):
            # $ alone also matches before a line break at the end
            whole = f"^(?:{'|'.join(waiting)})$(?!\n)"
            if kind == "database":
                yield {"ns.db": {"$regex": whole}}
            else:
                yield {"$expr": {"$regexMatch": {"input": _NAME, "regex": whole}}}
            waiting = []
        if text is not None:
            waiting.append(text)


def pcre(expression: Expression) -> str | None:
    """Return the expression for PCRE without options; None if a part of it may mean something else there."""
    text, at = expression.backtracking, 0
    if text is None:
        # the server's engine backtracks, too
        return None
    folds = expression.ignore_case
    parts: list[str] = []
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        kind, found = token.lastgroup, token[token.lastgroup or 0]
        part: str | None
        if kind == "class":
            part = _class(found, folds)
        elif kind == "escaped":
            part = f"[{_SHORT[found]}]" if found in _SHORT else _literal(found, folds) if _is_sign(found) else None
        elif kind == "plain":
            part = _literal(found, folds)
        else:
            part = "(?:" if kind == "group" else found
        if part is None:
            return None
        parts.append(part)
    written = "".join(parts)
    return written if len(written.encode()) <= _LONGEST else None


def _is_sign(letter: str) -> bool:
    return not (letter.isalnum() or letter == "_")


def _literal(letter: str, folds: bool) -> str:
    if letter.isascii() and letter.isalpha():
        return f"[{letter.lower()}{letter.upper()}]" if folds else letter
    return re.escape(letter) if letter.isascii() else letter


def _class(text: str, folds: bool) -> str | None:
    """Return a class of characters with its letters in both cases; None if it may mean something else to PCRE."""
    negated = text.startswith("[^")
    inside = text[2 if negated else 1 : -1]
    members: list[str] = []
    at = 0
    while at < len(inside):
        member = _MEMBER.match(inside, at)
        if member is None:
            return None
        at = member.end()
        if member["low"] is not None:
            low, high = member["low"], member["high"]
            if not _is_span(low, high):
                return None
            spans = [(low, high)]
            if folds and low.isalpha():
                spans = [(low.lower(), high.lower()), (low.upper(), high.upper())]
            members += [f"{first}-{last}" for first, last in spans]
        elif member["escaped"] is not None:
            letter = member["escaped"]
            if letter not in _SHORT and not _is_sign(letter):
                return None
            members.append(_SHORT.get(letter) or f"\\{letter}")
        else:
            letter = member["plain"]
            both = letter.lower() + letter.upper() if folds and letter.isascii() and letter.isalpha() else letter
            members.append(both if letter.isalnum() or not letter.isascii() else f"\\{letter}")
    return f"[{'^' * negated}{''.join(members)}]" if members else None


def _is_span(low: str, high: str) -> bool:
    """Return True for a range of digits, or of letters of one case, whose other case is a range, too."""
    return any(low in span and high in span and low <= high for span in _SPANS)


_SPANS = ("0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
