"""The drawing of the imports: no circle between the rooms and the modules of any package, whatever imports when."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PRODUCT = SOURCE / "tailrace"


@cache
def modules() -> dict[str, Path]:
    """Every module and package by its full name."""
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in sorted(PRODUCT.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported(path: Path) -> Iterator[str]:
    """The modules of the product that a module imports, at whatever place, for types alone as well."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module in modules():
            for alias in node.names:
                part = f"{node.module}.{alias.name}"
                yield part if part in modules() else node.module


@cache
def arrows() -> set[tuple[str, str]]:
    return {(name, other) for name, path in modules().items() for other in imported(path) if other != name}


def within(package: str) -> Mapping[str, set[str]]:
    """Which of a package's own parts imports which other ones; what stands in its `__init__` is the package's name."""
    found: dict[str, set[str]] = defaultdict(set)
    depth = package.count(".") + 2
    for name, other in arrows():
        if all(one == package or one.startswith(f"{package}.") for one in (name, other)):
            part, needed = (".".join(one.split(".")[:depth]) for one in (name, other))
            if part != needed:
                found[part].add(needed)
    return found


PACKAGES = sorted(".".join(path.parent.relative_to(SOURCE).parts) for path in PRODUCT.rglob("__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_parts_of_a_package_import_each_other_in_no_circle(package: str) -> None:
    try:
        TopologicalSorter(within(package)).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_import_is_seen() -> None:
    assert len(PACKAGES) > 30
    assert len(arrows()) > 1_500
    assert {
        ("tailrace.pipeline", "tailrace.spark.session"),
        ("tailrace.log.engine", "tailrace.log.contracts"),
    } <= arrows()
