"""A new sink touches only its own module and one table."""

from __future__ import annotations

from tailrace import sinks
from tailrace.columns import COLUMNS
from tailrace.config.files import SERVER_SINKS
from tailrace.config.signals import CHANNELS, SINKS
from tests.architecture import sources

TABLE = "sinks/__init__.py"
# The only mention of a sink outside of the sinks: the default of debezium.sink.type.
DEFAULT = ("config/files.py", "console")


def own_modules() -> set[str]:
    """Return the modules of our own sinks."""
    return {place.partition(":")[0] for place in sinks.KNOWN.places.values()}


def test_a_sink_touches_one_file_outside_its_own() -> None:
    """Only the table of sinks names a sink's module; no other module imports it or holds its class's name."""
    classes = {name: place for place, _, name in (known.partition(":") for known in sinks.KNOWN.places.values())}
    touched: dict[str, set[str]] = {}
    for module in sources.modules():
        own = "tailrace." + module.name.removesuffix(".py").replace("/", ".")
        said = {
            place
            for place in own_modules()
            if place in module.opened or any(text.startswith(f"{place}:") for text in module.texts)
        }
        said.update(place for name, place in classes.items() if name in module.names)
        for place in said - {own}:
            touched.setdefault(place, set()).add(module.name)
    assert touched == {place: {TABLE} for place in own_modules()}


def test_no_shared_room_knows_a_sink_by_its_word() -> None:
    """Exceptions are `kafka` and `file`, which are also channels of signals, `http`, which is one of notifications,
    `tables`, which offsets and findings have, and Debezium Server's own list of names."""
    words = set(sinks.KNOWN.places).difference(CHANNELS, SINKS, {"tables"})
    listed = {("config/files.py", word) for word in SERVER_SINKS}
    found = {
        (module.name, word)
        for module in sources.modules()
        for word in words & module.texts
        if not module.name.startswith("sinks/")
    }
    assert found - listed == {DEFAULT}


def test_every_sink_says_what_it_needs() -> None:
    for name in sinks.KNOWN.places:
        kind = sinks.KNOWN.load(name)
        assert kind.name == name
        assert kind.columns
        assert set(kind.columns) <= set(COLUMNS)
        assert "delivery" in vars(kind), f"{name} does not say what a replay leaves"
