"""Offsets and tasks carry the hypertable of TimescaleDB to which a chunk belongs."""

from __future__ import annotations

import json
import pickle

from tailrace.records.hypertables import NO_HYPERTABLES, Catalogue, Hypertable, Hypertables

OF = {
    ("_timescaledb_internal", "_hyper_2_3_chunk"): Hypertable("public", "conditions"),
    ("_timescaledb_internal", "_hyper_1_1_chunk"): Hypertable("_timescaledb_internal", "_m", "public", "by_day"),
}


def test_hypertables_survive_being_json_in_an_offset() -> None:
    found = Hypertables.from_json(json.loads(json.dumps(Hypertables(OF).to_json())))
    assert found == Hypertables(OF)
    assert found.of == OF
    assert NO_HYPERTABLES.to_json() == []


def test_their_json_does_not_depend_on_the_order_in_which_they_were_found() -> None:
    backwards = Hypertables(dict(reversed(OF.items())))
    assert backwards.to_json() == Hypertables(OF).to_json()
    assert backwards.to_json()[0][1] == "_hyper_1_1_chunk"
    assert hash(backwards) == hash(Hypertables(OF))
    assert backwards == Hypertables(OF)


def test_they_are_values_in_every_process() -> None:
    found = pickle.loads(pickle.dumps(Hypertables(OF)))
    assert (found, hash(found)) == (Hypertables(OF), hash(Hypertables(OF)))
    assert found != NO_HYPERTABLES
    assert found != OF
    assert repr(found) == "Hypertables(2 chunks)"


def test_a_log_in_is_never_shown() -> None:
    catalogue = Catalogue(("s",), (("database.password", "secret"),))
    assert "secret" not in repr(catalogue)
    assert catalogue == Catalogue(("s",), (("database.password", "secret"),))
    assert catalogue != Catalogue(("s",))
