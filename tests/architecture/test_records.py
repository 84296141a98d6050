"""A new encoding or transform touches one further file, and only encodings turn records into bytes."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tailrace.config import formats, transforms

PRODUCT = Path(__file__).parents[2] / "src" / "tailrace"
TABLE = "config/formats.py"
TRANSFORMS, ROOM = "config/transforms.py", "tailrace.transforms."
KINDS = ("formats/", "records/", "kernels/")
OWN_RECORD = "connectors/mongodb/records/texts.py"
"""This module assembles the update descriptions of MongoDB, a column written as JSON."""


def imported(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield every module that a module's imports name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PRODUCT.rglob("*.py")):
        yield path.relative_to(PRODUCT).as_posix(), ast.parse(path.read_text("utf-8"))


def test_an_encoding_touches_one_file_outside_its_own() -> None:
    """Only the table of formats names an encoding's module, and nothing outside of the room imports it."""
    touched: dict[str, set[str]] = {place: set() for place in formats.KNOWN.places.values()}
    for name, tree in modules():
        if name.startswith("formats/"):
            continue
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        names = set(imported(name, tree))
        for place, files in touched.items():
            room = place.partition(":")[0]
            if place in texts or any(found == room or found.startswith(f"{room}.") for found in names):
                files.add(name)
    assert touched == {place: {TABLE} for place in touched}


def test_a_transform_touches_one_file_outside_its_own() -> None:
    """Only the table of transforms, or a connector's descriptor for its own transforms, names a transform's module, and
    nothing outside of their room imports it."""
    rooms = {
        place.partition(":")[0] for part in (transforms.KNOWN, transforms.PREDICATES) for place in part.places.values()
    }
    found = {
        name
        for name, tree in modules()
        if not name.startswith("transforms/") and rooms.intersection(imported(name, tree))
    }
    assert rooms
    assert all(room.startswith(ROOM) for room in rooms)
    assert not found
    texts = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(ROOM)
    }
    assert {name for name in texts if not name.endswith("/descriptor.py")} == {TRANSFORMS}


def test_transforms_are_made_without_spark() -> None:
    """The transforms in the table run in workers and planners of any session."""
    places = {
        place.partition(":")[0] for part in (transforms.KNOWN, transforms.PREDICATES) for place in part.places.values()
    }
    code = (
        "import sys\n"
        + "".join(f"import {place}\n" for place in sorted(places))
        + "assert 'pyspark' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_encodings_put_documents_together() -> None:
    """Connectors and events produce columns, and never write into the programs of documents."""
    found = {
        name
        for name, tree in modules()
        if not name.startswith((*KINDS, OWN_RECORD)) and "tailrace.kernels.programs.Programs" in imported(name, tree)
    }
    assert not found


def test_a_layout_is_known_to_be_pure_data() -> None:
    """Layouts do not import Arrow, or anything that fills or encodes them."""
    tree = ast.parse((PRODUCT / "records" / "layout.py").read_text("utf-8"))
    rooms = {name.split(".")[1] for name in imported("records/layout.py", tree) if name.startswith("tailrace.")}
    assert rooms == {"columns", "kernels", "values"}
    assert not any(name.startswith("pyarrow") for name in imported("records/layout.py", tree))
