"""Sentences of the documentation that are too long to be read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 35

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*(\[])")
_MARK = re.compile(r"^\s*(?:[-*>] |\d+\. |#+ |!!!.*$|===.*$)", re.MULTILINE)


def words(text: str) -> int:
    """Return the number of words, without marks of tables and lists."""
    return sum(any(char.isalnum() for char in word) for word in text.split())


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page outside of tables and blocks of code, each span of code as one word."""
    plain = _LINK.sub(r"\1", _CODE.sub("Code", _COMMENT.sub("", _FENCE.sub("", text))))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |#))", plain):
        lines = [line for line in paragraph.splitlines() if not line.lstrip().startswith("|")]
        joined = " ".join(_MARK.sub("", line).strip() for line in lines)
        yield from (sentence for sentence in _END.split(joined) if sentence)


def long_sentences(pages: Path) -> list[str]:
    """Return the sentences of all pages that have more than MOST_WORDS words, the longest first."""
    found = [
        (words(sentence), f"{page.relative_to(pages)}: {sentence[:90]}…")
        for page in sorted(pages.rglob("*.md"))
        for sentence in sentences(page.read_text("utf-8"))
    ]
    return [f"{count:4} {line}" for count, line in sorted(found, reverse=True) if count > MOST_WORDS]
