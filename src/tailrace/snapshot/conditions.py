"""Conditions of signals: SQL written by anyone who may send signals, executed with the connector's rights.

Some servers refuse a second statement by themselves, and some conditions are not SQL. For other databases, whose
drivers send any text, the condition is checked first. It must stay within the parentheses that are put around it, where
the grammar allows only expressions and selects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

FORBIDDEN = "signal.filters.enabled is false"

# The tokens of a text: literals and quoted names, with doubled quotes; comments; words; single characters. The patterns
# are possessive, so that a doubled quote is never taken for two, and an unclosed quote is noticed.
_STRING = r"'(?:[^']|'')*+'"
_NAME = r'"(?:[^"]|"")*+"'
_BRACKETED = r"\[(?:[^\]]|\]\])*+\]"
_COMMENT = r"--[^\n]*+(?:\n|\Z)|/\*(?:(?!\*/).)*+\*/"
_WORD = r"[^\W\d][\w@#$]*"
_TOKENS = {
    brackets: re.compile(
        f"(?P<quoted>{_STRING}|{_NAME}{'|' + _BRACKETED if brackets else ''})|(?P<comment>{_COMMENT})|(?P<word>{_WORD})"
        "|(?P<open>\\()|(?P<close>\\))|(?P<other>.)",
        re.DOTALL,
    )
    for brackets in (False, True)
}
# Statements that change something, and functions that send SQL to another server, or to this one in another session.
_NOT_READING = frozenset(
    ("alter", "backup", "call", "create", "dbcc", "declare", "delete", "deny", "drop", "exec", "execute", "grant",
     "insert", "into", "kill", "merge", "opendatasource", "openquery", "openrowset", "restore", "revert", "revoke",
     "shutdown", "truncate", "update", "waitfor")
)  # fmt: skip
# Some servers may take these characters for the end of a line, and so of a comment.
_LINE_ENDS = re.compile("\r(?!\n)|[\v\f\x1c-\x1e\x85\u2028\u2029]")


def fault(sql: str, *, brackets: bool) -> str:
    """Return why `sql` cannot be one condition or one select, as the rest of a sentence; "" if it can.

    With `brackets`, names may be in square brackets, as in Transact-SQL. A text that the server might read differently
    is refused.
    """
    depth = 0
    # a select may end with a semicolon
    sql = sql.rstrip("; \t\r\n")
    for token in _TOKENS[brackets].finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return "it closes a parenthesis that it has not opened"
        elif kind == "comment":
            # servers differ on nested comments
            if "/*" in text[2:] or _LINE_ENDS.search(text.rstrip("\r\n")):
                return "it has a comment that can be read in two ways"
            if text.startswith("--") and not text.endswith("\n"):
                return "it ends with a comment that is not closed"
        elif kind == "word" and text.lower() in _NOT_READING:
            return f"it has the word {text.lower()}, which needs quotes where it is a name"
        elif kind == "other" and text == ";":
            return "it has a semicolon"
        elif kind == "other" and (text in "'\"" or (brackets and text == "[")):
            return "it has a quote that is not closed"
        elif kind == "other" and sql.startswith("/*", token.start()):
            return "it has a comment that is not closed"
    return "it does not close all its parentheses" if depth else ""


def refusal(config: Mapping[str, Any], looked_at: Callable[[str], str] | None = None) -> Callable[[str], str]:
    """Return a function that gives the reason to refuse a signal's condition, as the rest of a sentence; "" to accept
    it.

    `looked_at` checks the text itself.
    """
    if not config["signal.filters.enabled"]:
        return lambda _: FORBIDDEN
    return looked_at or (lambda _: "")
