"""Connectors are found by name, by class and by entry point, and loaded only when needed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.connectors import registry
from tailrace.connectors.descriptor import load
from tailrace.errors import ConfigError
from tailrace.process.installation import pip_install

ROOT = Path(__file__).parents[2]
OTHER = """
from dataclasses import replace

from tailrace.connectors.registry import find

own = find("postgres")
CONNECTOR = replace(own, traits=replace(own.traits, connector="other"), names=("other",))
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory for packages."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def install(site: Path, package: str, name: str, source: str) -> None:
    """Install a package with one module and an entry point `name` into `site`."""
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {package}:CONNECTOR\n")
    (site / f"{package}.py").write_text(source)


@pytest.mark.parametrize("name", registry.OWN)
def test_every_part_of_a_connector_is_there(name: str) -> None:
    descriptor = registry.find(name)
    assert descriptor.name == name
    assert descriptor.format == f"{name}-cdc"
    for part in descriptor.parts.values():
        assert load(part) is not None
    for module in descriptor.loaded:
        assert module in descriptor.drivers or load(module) is not None
    module = descriptor.load_prerequisites()
    assert callable(module.demand)
    assert callable(module.check)
    form = descriptor.load_options().event_format
    assert set(descriptor.traits.versions) == {form, "3"}
    choices = next(option for option in registry.table(name) if option.name == "connector.class").choices
    assert descriptor.class_name in choices
    assert {choice.rpartition(".")[2].lower() for choice in choices} <= set(descriptor.names)


@pytest.mark.parametrize("name", registry.OWN)
def test_the_extra_brings_the_driver(name: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    descriptor = registry.find(name)
    extra = descriptor.requirement.removeprefix("tailrace[").removesuffix("]")
    assert descriptor.requirement == f"tailrace[{extra}]"
    assert extras[extra]
    told = registry.lacking_driver(ModuleNotFoundError("No module", name=f"{descriptor.drivers[-1]}.part"))
    assert told is not None
    # dialects of one room have one driver
    titles = [one.title for one in map(registry.find, registry.OWN) if one.drivers == descriptor.drivers]
    assert any(f"The driver of {title} is not installed" in told.message for title in titles)
    assert told.remedy == f"Install it: {pip_install(f'tailrace[{extra}]')}."


def test_another_module_that_is_missing_is_nobodys_driver() -> None:
    assert registry.lacking_driver(ModuleNotFoundError("No module", name="nowhere")) is None
    assert registry.lacking_driver(ValueError("psycopg")) is None


@pytest.mark.parametrize("name", registry.OWN)
def test_a_connector_is_found_by_every_name_of_its_class(name: str) -> None:
    descriptor = registry.find(name)
    for short in descriptor.names:
        assert registry.of_class(f" a.b.{short.upper()} ").name == name


def test_a_file_without_a_class_means_the_first() -> None:
    assert registry.of_class("").name == registry.OWN[0]


LOADED = """
import sys
from tailrace.connectors import registry
descriptor = registry.find(sys.argv[1])
descriptor.load_options()
print(*(name for name in sys.modules))
"""


@pytest.mark.parametrize("name", registry.OWN)
def test_who_reads_one_configuration_loads_no_other_connector_and_no_driver(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, name], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    room = registry.find(name).options.rpartition(".")[0]
    rooms = {registry.find(other).options.rpartition(".")[0] for other in registry.OWN}
    others = rooms - {room}
    drivers = {module for other in registry.OWN for module in registry.find(other).drivers}
    assert f"{room}.options" in loaded
    assert loaded & (others | drivers | {"numba", "numpy", "pyspark", "importlib.metadata"}) == set()


def test_another_package_brings_a_connector(site: Path) -> None:
    install(site, "brings", "other", OTHER)
    assert registry.find("other").format == "other-cdc"
    assert registry.of_class("com.example.Other").name == "other"
    assert [one.name for one in registry.known()] == [*registry.OWN, "other"]


def test_a_package_that_cannot_be_loaded_hinders_nobody_else(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(site, "brings", "other", OTHER)
    install(site, "broken", "another", "import nowhere_to_be_found")
    assert [one.name for one in registry.known()] == [*registry.OWN, "other"]
    assert "The connector another of the package broken cannot be loaded: ModuleNotFoundError" in caplog.text
    with pytest.raises(ConfigError, match="another of the package broken"):
        registry.find("another")


@pytest.mark.parametrize("source", ["CONNECTOR = 1", OTHER.replace('connector="other"', 'connector="different"')])
def test_what_is_no_connector_of_that_name_is_refused(site: Path, source: str) -> None:
    install(site, "odd", "other", source)
    with pytest.raises(ConfigError, match="is not a Descriptor of that name"):
        registry.find("other")


def test_two_packages_with_one_connector_are_told_apart_by_the_user(site: Path) -> None:
    install(site, "one", "other", OTHER)
    install(site, "two", "other", OTHER)
    with pytest.raises(ConfigError, match="The connector other is in several packages: one, two"):
        registry.find("other")


def test_no_package_takes_the_name_of_a_connector_of_tailrace(site: Path) -> None:
    install(site, "brings", "postgres", OTHER)
    assert registry.find("postgres").planner == "tailrace.connectors.postgres.planner:RetryingPlanner"
    assert [one.name for one in registry.known()] == list(registry.OWN)


def test_events_without_documents_have_no_transform() -> None:
    assert registry.find("postgres").load_documents() is None
    assert registry.documents() is registry.find("mongodb").load_documents()
