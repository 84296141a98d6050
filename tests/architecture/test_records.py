"""A new encoding or transform touches one further file, and only encodings turn records into bytes."""

from __future__ import annotations

import subprocess
import sys

from tailrace.config import formats, transforms
from tests.architecture import sources

TABLE = "config/formats.py"
TRANSFORMS, ROOM = "config/transforms.py", "tailrace.transforms."
KINDS = ("formats/", "records/", "kernels/")
OWN_RECORD = "connectors/mongodb/records/texts.py"
"""This module assembles the update descriptions of MongoDB, a column written as JSON."""


def test_an_encoding_touches_one_file_outside_its_own() -> None:
    """Only the table of formats names an encoding's module, and nothing outside of the room imports it."""
    touched: dict[str, set[str]] = {place: set() for place in formats.KNOWN.places.values()}
    for module in sources.modules():
        if module.name.startswith("formats/"):
            continue
        for place, files in touched.items():
            room = place.partition(":")[0]
            is_imported = any(found == room or found.startswith(f"{room}.") for found in module.imported)
            if place in module.texts or is_imported:
                files.add(module.name)
    assert touched == {place: {TABLE} for place in touched}


def test_a_transform_touches_one_file_outside_its_own() -> None:
    """Only the table of transforms, or a connector's descriptor for its own transforms, names a transform's module, and
    nothing outside of their room imports it."""
    rooms = {
        place.partition(":")[0] for part in (transforms.KNOWN, transforms.PREDICATES) for place in part.places.values()
    }
    found = {
        module.name
        for module in sources.modules()
        if not module.name.startswith("transforms/") and rooms & module.imported
    }
    assert rooms
    assert all(room.startswith(ROOM) for room in rooms)
    assert not found
    texts = {module.name for module in sources.modules() if any(text.startswith(ROOM) for text in module.texts)}
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
        module.name
        for module in sources.modules()
        if not module.name.startswith((*KINDS, OWN_RECORD)) and "tailrace.kernels.programs.Programs" in module.imported
    }
    assert not found


def test_a_layout_is_known_to_be_pure_data() -> None:
    """Layouts do not import Arrow, or anything that fills or encodes them."""
    imported = next(module.imported for module in sources.modules() if module.name == "records/layout.py")
    rooms = {name.split(".")[1] for name in imported if name.startswith("tailrace.")}
    assert rooms == {"columns", "kernels", "values"}
    assert not any(name.startswith("pyarrow") for name in imported)
