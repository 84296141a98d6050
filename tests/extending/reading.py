"""A query's rows, read in the test's process: by its planner, and by tasks pickled as for workers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from tailrace.connectors import registry
from tailrace.events.event_settings import EventSettings


def read(connector: str, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all rows up to now, in the order of their batches."""
    config = registry.parse(connector, given)
    planner = registry.find(connector).load_planner()(config, EventSettings.from_options(config, "run"))
    try:
        planner.stop_at_present()
        committed = planner.initial_offset()
        found: list[dict[str, Any]] = []
        while (end := planner.latest_offset(committed, None, None)) != committed:
            for task in planner.partitions(committed, end):
                sent = pickle.loads(pickle.dumps(task))
                found += [row for batch in sent.read() for row in batch.to_pylist()]
            committed = end
        return found
    finally:
        planner.close()
