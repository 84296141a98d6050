"""Facts about the sources."""

from __future__ import annotations

from tools.house import __main__ as house
from tools.house.way import entered


def test_the_way_of_an_update_begins_with_its_task_and_ends_with_its_bytes() -> None:
    found = set(entered())
    assert {"log.rows.tasks", "connectors.postgres.protocol.decoder", "kernels.programs"} <= found
    assert not {name for name in found if name.startswith(("connectors.mongodb", "sinks", "spark"))}


def test_importers_are_found_at_whatever_place() -> None:
    every = house.modules()
    needed = house.importers(every)
    assert "tailrace.connectors.postgres.planner" in needed["tailrace.log.engine"]
    # Imported within a function.
    assert "tailrace.command.run" in needed["tailrace.pipeline"]
    assert max(count for _, count in house.functions(every["tailrace.errors"])) < house.LONG_FUNCTION
    assert all(len(places) > 1 for places in house.repeated(every).values())
