"""The modules of the product, each read and parsed once for all tests of the architecture.

Only what the tests look for is kept: the syntax trees of all modules would be walked by each garbage collection.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "src" / "tailrace"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module: its name, for a method with its class, and the number of parameters without self."""

    name: str
    parameters: int


@dataclass(frozen=True, slots=True)
class Module:
    """Facts of a module, at whatever place in it they stand.

    `imported` has every module that an import names, and `MODULE.NAME` for each name that is taken from a module;
    `opened` has the modules without such names, and `taken` the names that are imported. `texts` are string constants,
    docstrings included, and `names` the variables.
    """

    name: str
    path: Path
    imported: frozenset[str]
    opened: frozenset[str]
    taken: frozenset[tuple[str, str]]
    texts: frozenset[str]
    names: frozenset[str]
    functions: tuple[Function, ...]


@cache
def modules() -> tuple[Module, ...]:
    """Return the modules of the product, named by their paths in it, in the order of the paths."""
    return tuple(module(path) for path in sorted(PRODUCT.rglob("*.py")))


@cache
def module(path: Path) -> Module:
    """Return the facts of one module, also of one beside the product."""
    tree = ast.parse(path.read_text("utf-8"))
    opened: set[str] = set()
    taken: set[tuple[str, str]] = set()
    texts: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts.add(node.value)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            if node.module is not None:
                opened.add(node.module)
                taken.update((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            opened.update(alias.name for alias in node.names)
            taken.update(("", alias.name) for alias in node.names)
    imported = opened.union(f"{room}.{name}" for room, name in taken if room)
    name = (path.relative_to(PRODUCT) if path.is_relative_to(PRODUCT) else path).as_posix()
    return Module(
        name,
        path,
        frozenset(imported),
        frozenset(opened),
        frozenset(taken),
        frozenset(texts),
        frozenset(names),
        tuple(_functions(tree, "")),
    )


def _functions(node: ast.AST, within: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
            named = [parameter for parameter in given if parameter.arg not in ("self", "cls")]
            yield Function(child.name + within, len(named))
            yield from _functions(child, within)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _functions(child, f" of {child.name}" if isinstance(child, ast.ClassDef) else within)
