"""`python -m tools.house.messages`: every text that the program shows to people, to be read from top to bottom.

The texts come from the syntax trees: errors, lines of the log, findings of `check`, sentences of options, help texts,
and sentences that reach one of these by a name. Expressions within a text are shown as `{…}`.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "tailrace"
KINDS = ("error", "log", "finding", "option", "help", "print", "text")

_WORD = re.compile(r"(?<![\w.{])[a-z]+'?[a-z]*(?=[ ,.:;?]|$)")
_CODE = re.compile(
    r"\s*(?:select|insert into|update|delete from|create|drop|alter|merge into|with|set|begin|declare|exec|call|values|"
    r"from|where|and|or|on|order by|union|lock|fetch|if|case|grant|truncate|comment on|copy|vacuum|savepoint|rollback|"
    r"cast|coalesce|concat|transform|struct|max|min|explode|named_struct|describe|#!|over|lag|get)\b"
)
"""The beginning of a statement or an expression, as opposed to a sentence."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the program: what it is part of, and its place."""

    kind: str
    path: str
    line: int
    text: str


@cache
def texts() -> tuple[Text, ...]:
    """Return the texts of all modules, in the order of their paths and lines."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        documented = _docstrings(tree)
        for node, kind in _strings(tree, "text"):
            text = _shown(node)
            fewest = 3 if kind == "text" else 2
            if id(node) not in documented and len(_WORD.findall(text)) >= fewest and not _CODE.match(text):
                found.append(Text(kind, path.relative_to(SOURCE).as_posix(), node.lineno, " ".join(text.split())))
    return tuple(found)


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the identities of the strings that stand by themselves."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _strings(node: ast.AST, kind: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield the outermost strings below a node, each with the kind of the call that it is given to."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and _shown(node):
        yield node, kind
    else:
        within = _kind(node) or kind
        for child in ast.iter_child_nodes(node):
            yield from _strings(child, within)


def _kind(node: ast.AST) -> str:
    """Return the kind of text that a statement or a call takes, "" if it tells nothing."""
    if isinstance(node, ast.Raise):
        return "error"
    if not isinstance(node, ast.Call):
        return ""
    last, owner = "", ""
    if isinstance(node.func, ast.Name):
        last = node.func.id
    elif isinstance(node.func, ast.Attribute):
        last, of = node.func.attr, node.func.value
        owner = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
    if owner == "log" or owner.endswith("_log"):
        return "log"
    if last in ("Finding", "Option", "print"):
        return last.lower()
    if last in ("add_argument", "add_parser", "ArgumentParser", "add_argument_group"):
        return "help"
    return "error" if last.endswith(("Error", "Failed", "Lost", "wrong", "refuse")) else ""


def _shown(node: ast.AST) -> str:
    """Return the text of a string, with `{…}` for what is put in; "" for an expression without text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_shown(part) or "{…}" for part in node.values)
    if isinstance(node, ast.BinOp):
        left, right = _shown(node.left), _shown(node.right)
        return (left or "{…}") + (right or "{…}") if left or right else ""
    return ""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house.messages", description=__doc__)
    parser.add_argument("--only", choices=KINDS, help="print one kind of text")
    only = parser.parse_args(argv).only
    by_file = defaultdict(list)
    for text in texts():
        if only in (None, text.kind):
            by_file[text.path].append(text)
    for path, found in by_file.items():
        print(f"\n{path}")
        for text in found:
            print(f"{text.line:5} {text.kind:8}{text.text}")


if __name__ == "__main__":
    main()
