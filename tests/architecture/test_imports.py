"""There is no import cycle between the parts of any package of the product, its test server or its benchmark.

Every import counts, at any place in a module, and imports for types as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture import sources

ROOT = Path(__file__).parents[2]
TREES = (ROOT / "src" / "tailrace", ROOT / "tdsserver", ROOT / "bench")
"""The outermost packages that must follow the rule."""


def full_name(tree: Path, path: Path) -> str:
    """Return the name by which a file or directory of a tree is imported."""
    return ".".join(path.relative_to(tree.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    """Return every module and package by its full name."""
    return {full_name(tree, path): path for tree in TREES for path in sorted(tree.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Return the modules that a module imports, among those that must follow the rule."""
    for room, name in sources.module(path).taken:
        if not room:
            yield from (one for one in [name] if one in modules())
        elif room in modules():
            part = f"{room}.{name}"
            yield part if part in modules() else room


@cache
def arrows() -> set[tuple[str, str]]:
    """Return each module with each other module that it imports."""
    return {(name, other) for name, path in modules().items() for other in imported(path) if other != name}


def within(package: str) -> Mapping[str, set[str]]:
    """Return for each part of a package the other parts that it imports.

    The contents of `__init__` are a part with the package's own name.
    """
    found: dict[str, set[str]] = defaultdict(set)
    depth = package.count(".") + 2
    for name, other in arrows():
        if all(one == package or one.startswith(f"{package}.") for one in (name, other)):
            part, needed = (".".join(one.split(".")[:depth]) for one in (name, other))
            if part != needed:
                found[part].add(needed)
    return found


PACKAGES = sorted(full_name(tree, path) for tree in TREES for path in tree.rglob("__init__.py"))


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
        ("tdsserver.session", "tdsserver.model"),
        ("bench.suite", "bench.lake"),
    } <= arrows()
