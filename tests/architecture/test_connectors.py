"""Each database has its own room: no shared room knows its name, and a new database changes hardly any other file."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tests.architecture import sources

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tailrace"
CONNECTORS = SOURCE / "connectors"
REGISTRY = CONNECTORS / "registry.py"
FAMILY = CONNECTORS / "changetables"
"""The room that two databases share, whose prose may name either of them."""
SHOWN = (SOURCE / "demo", SOURCE / "embedded.py")
"""The demonstration, which shows one database on a server of its own. A new connector adds nothing there."""
WRITTEN = SOURCE / "sinks" / "jdbc"
"""The sink that writes rows to a database, with that database's driver and SQL. A new connector adds nothing there."""
MOST_FILES = 2


def room(descriptor: Descriptor) -> Path:
    """Return the directory of a connector; dialects of one database share theirs."""
    return CONNECTORS / descriptor.options.split(".")[2]


def words(descriptor: Descriptor) -> frozenset[str]:
    """Return the names of a connector, its database and its drivers, in small letters."""
    called = {descriptor.name, descriptor.traits.event_name, descriptor.title, *descriptor.names, *descriptor.drivers}
    return frozenset(name.lower() for name in called)


def has_any(text: str, names: frozenset[str]) -> bool:
    """Return True if one of the names stands in the text, in any case."""
    found = text.lower()
    return any(name in found for name in names)


def shared_files() -> list[Path]:
    """Return the files of all rooms that belong to no connector, except the registry."""
    own = [*(room(registry.find(name)) for name in registry.OWN), FAMILY, WRITTEN, *SHOWN]
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if not any(path.is_relative_to(room) for room in own)]
    return [path for path in paths if path != REGISTRY]


@cache
def code(path: Path) -> str:
    """Return a module without its comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            texts = [one for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
            node.body = [one for one in body if one not in texts] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def test_no_connectors_name_stands_in_a_shared_room() -> None:
    files = shared_files()
    rooms = {path.relative_to(SOURCE).parts[0] for path in files}
    assert rooms >= {"config", "columns", "events", "kernels", "snapshot", "sinks", "spark", "transforms"}
    assert rooms >= {"command", "monitoring", "process", "pipeline.py", "connectors"}
    every = frozenset().union(*(words(registry.find(name)) for name in registry.OWN))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if has_any(path.read_text("utf-8"), every)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if has_any(line, every)
    ]
    assert found == []


def touched(descriptor: Descriptor) -> list[str]:
    """Return the files outside of a connector's room that name it, which a new connector must touch."""
    names = words(descriptor)
    others = [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(path.is_relative_to(one) for one in (room(descriptor), WRITTEN, *SHOWN))
    ]
    found = [path for path in others if has_any(path.read_text("utf-8"), names) and has_any(code(path), names)]
    project = ROOT / "pyproject.toml"
    found += [project] if has_any(project.read_text("utf-8"), names) else []
    return [str(path.relative_to(ROOT)) for path in found]


@pytest.mark.parametrize("name", registry.OWN)
def test_a_database_touches_two_files_outside_of_its_room(name: str) -> None:
    files = touched(registry.find(name))
    assert str(REGISTRY.relative_to(ROOT)) in files
    assert len(files) <= MOST_FILES, files


def test_a_driver_is_imported_by_its_own_room_alone_and_named_in_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    contract = next(one for one in contracts if one["name"] == "Only connectors import database drivers")
    drivers = {module: registry.find(name) for name in registry.OWN for module in registry.find(name).drivers}
    assert set(contract["forbidden_modules"]) == set(drivers)
    for module in sources.modules():
        for driver in {name.partition(".")[0] for name in module.opened} & set(drivers):
            rooms = (room(drivers[driver]), WRITTEN)
            assert any(module.path.is_relative_to(one) for one in rooms), f"{module.path} imports {driver}"


def test_a_room_has_its_descriptor_and_no_two_have_a_name_in_common() -> None:
    rooms = {path.parent.name for path in CONNECTORS.glob("*/descriptor.py")}
    assert rooms == {room(registry.find(name)).name for name in registry.OWN}
    taken = [short for name in registry.OWN for short in registry.find(name).names]
    assert len(set(taken)) == len(taken)
