"""A new sink touches only its own module and one table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tailrace import sinks
from tailrace.columns import COLUMNS
from tailrace.config.files import SERVER_SINKS
from tailrace.config.signals import CHANNELS, SINKS

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "src" / "tailrace"
TABLE = "sinks/__init__.py"
# The only mention of a sink outside of the sinks: the default of debezium.sink.type.
DEFAULT = ("config/files.py", "console")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PRODUCT.rglob("*.py")):
        yield path.relative_to(PRODUCT).as_posix(), ast.parse(path.read_text("utf-8"))


def own_modules() -> set[str]:
    """Return the modules of our own sinks."""
    return {place.partition(":")[0] for place in sinks.KNOWN.places.values()}


def test_a_sink_touches_one_file_outside_its_own() -> None:
    """Only the table of sinks names a sink's module; no other module imports it or holds its class's name."""
    classes = {place.partition(":")[2] for place in sinks.KNOWN.places.values()}
    touched: dict[str, set[str]] = {}
    for name, tree in modules():
        own = "tailrace." + name.removesuffix(".py").replace("/", ".")
        for node in ast.walk(tree):
            said: set[str] = set()
            if isinstance(node, ast.ImportFrom) and node.module in own_modules():
                said.add(node.module)
            elif isinstance(node, ast.Import):
                said.update(alias.name for alias in node.names if alias.name in own_modules())
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.update(place for place in own_modules() if node.value.startswith(f"{place}:"))
            elif isinstance(node, ast.Name) and node.id in classes:
                said.add(own)
            for place in said - {own}:
                touched.setdefault(place, set()).add(name)
    assert touched == {place: {TABLE} for place in own_modules()}


def test_no_shared_room_knows_a_sink_by_its_word() -> None:
    """Exceptions are `kafka` and `file`, which are also channels of signals, `http`, which is one of notifications,
    `tables`, which offsets and findings have, and Debezium Server's own list of names."""
    words = set(sinks.KNOWN.places).difference(CHANNELS, SINKS, {"tables"})
    listed = {("config/files.py", word) for word in SERVER_SINKS}
    found = {
        (name, node.value)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in words and not name.startswith("sinks/")
    }
    assert found - listed == {DEFAULT}


def test_every_sink_says_what_it_needs() -> None:
    for name in sinks.KNOWN.places:
        kind = sinks.KNOWN.load(name)
        assert kind.name == name
        assert kind.columns
        assert set(kind.columns) <= set(COLUMNS)
        assert "delivery" in vars(kind), f"{name} does not say what a replay leaves"
