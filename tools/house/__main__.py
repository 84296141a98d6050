"""`python -m tools.house`: facts about the sources, to decide on the division into modules. It never fails.

It lists modules that one other module imports, small and large files, long functions, names that stand in several
rooms, the modules that one UPDATE of PostgreSQL enters between the spool and its JSON bytes, and long sentences of the
documentation.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.house.prose import MOST_WORDS, long_sentences
from tools.house.way import entered

SOURCE = Path(__file__).parents[2] / "src"
PAGES = SOURCE.parent / "docs"
FEW_LINES = 40
MANY_LINES = 800
LONG_FUNCTION = 80


@dataclass(frozen=True)
class Module:
    """A module of the product: its file, its number of lines and its syntax tree."""

    name: str
    path: Path
    lines: int
    tree: ast.Module

    @property
    def is_room(self) -> bool:
        """Return True for the `__init__` of a package."""
        return self.path.name == "__init__.py"


def modules() -> dict[str, Module]:
    """Return the modules of the product by their names."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text("utf-8")
        found[name] = Module(name, path, len(text.splitlines()), ast.parse(text))
    return found


def importers(every: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return for each module the modules that import it, at any place."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in every.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                needed = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                needed = {part if part in every else node.module for part in parts}
            else:
                continue
            for name in needed & every.keys() - {module.name}:
                found[name].add(module.name)
    return found


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function of a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def repeated(every: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return the names of modules and classes that stand in several places, each with the places."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in every.values():
        if not module.is_room:
            found[module.name.rpartition(".")[2]].append(module.name)
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def show(title: str, lines: list[str], most: int | None) -> None:
    """Print a list under its title and its length, its first `most` lines."""
    print(f"\n{title}: {len(lines)}")
    for line in lines[:most]:
        print(f"  {line}")
    if most is not None and len(lines) > most:
        print(f"  and {len(lines) - most} more (--all)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every line of each list")
    most = None if parser.parse_args().all else 12
    every = modules()
    needed = importers(every)
    own = [module for module in every.values() if not module.is_room]
    print(f"{len(every)} files, {sum(module.lines for module in every.values())} lines")
    alone = [module for module in own if len(needed[module.name]) == 1]
    lines = [f"{module.lines:4} {module.name} <- {next(iter(needed[module.name]))}" for module in alone]
    show("modules that one module imports", sorted(lines), most)
    small = [f"{module.lines:4} {module.name}" for module in own if module.lines < FEW_LINES]
    show(f"files of fewer than {FEW_LINES} lines", sorted(small), most)
    large = [f"{module.lines:4} {module.name}" for module in own if module.lines > MANY_LINES]
    show(f"files of more than {MANY_LINES} lines", sorted(large, reverse=True), most)
    long = [
        f"{count:4} {module.name}.{name}"
        for module in own
        for name, count in functions(module)
        if count > LONG_FUNCTION
    ]
    show(f"functions of more than {LONG_FUNCTION} lines", sorted(long, reverse=True), most)
    names = [f"{name}: {', '.join(places)}" for name, places in repeated(every).items()]
    show("names of modules and classes in several places", names, most)
    show(f"sentences of more than {MOST_WORDS} words in the documentation", long_sentences(PAGES), most)
    show("modules that an UPDATE enters between the spool and its JSON", entered(), None)


if __name__ == "__main__":
    main()
