"""Functions have a limited number of parameters and are compiled in one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "tailrace"
MOST_PARAMETERS = 10


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the parsed sources."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def functions() -> Iterator[tuple[Path, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of the sources with its file and its name, for a method with its class."""
    for path, tree in trees().items():
        yield from ((path, name, found) for name, found in _functions(tree, ""))


def _functions(node: ast.AST, within: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.name + within, child
            yield from _functions(child, within)
        else:
            yield from _functions(child, f" of {child.name}" if isinstance(child, ast.ClassDef) else within)


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_no_function_has_many_parameters() -> None:
    counts = []
    for path, name, node in functions():
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [parameter for parameter in given if parameter.arg not in ("self", "cls")]
        counts.append((place(path), name, len(named)))
    assert len(counts) > 1000
    assert [found for found in counts if found[2] > MOST_PARAMETERS] == []


def test_functions_are_compiled_in_one_way() -> None:
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module == "numba"):
                names = {alias.name for alias in node.names}
                if names & {"numba", "njit", "jit", "vectorize", "guvectorize", "generated_jit"}:
                    found.append(place(path))
    assert set(found) <= {"kernels/compiled.py"}
