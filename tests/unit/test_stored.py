"""Checkpoints and tables of earlier versions are read, and those of a newer one are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tailrace
from tailrace.connectors import registry
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.errors import PositionLost, SinkError
from tailrace.sinks.tables import rebuild
from tests.fuzz.stored import sample_offsets
from tests.stored import versions

KINDS: dict[str, Any] = {one.__name__: one for one in (PostgresOffset, MongoOffset, TablesOffset, BinlogOffset)}


def test_the_present_version_is_among_those_that_are_kept() -> None:
    assert [path.name for path in versions()][-1:] == [tailrace.__version__]


@pytest.mark.parametrize("version", versions(), ids=lambda path: path.name)
def test_offsets_of_an_earlier_version_are_read_and_written_with_the_same_text(version: Path) -> None:
    stored = json.loads((version / "offsets.json").read_text("utf-8"))
    assert {name for name, _ in stored} == set(KINDS)
    for name, fields in stored:
        again = KINDS[name].from_json(json.loads(json.dumps(fields))).to_json()
        assert KINDS[name].from_json(again).to_json() == again
        assert set(fields) <= set(again)


@pytest.mark.parametrize("version", versions(), ids=lambda path: path.name)
def test_the_checkpoint_of_an_earlier_version_is_read(version: Path) -> None:
    offset = stored_offset(version / "checkpoint")
    assert offset is not None
    found = PostgresOffset.from_json(offset)
    assert found.server is not None
    assert found.log.commit_lsn > 0
    # the same text: Spark compares offsets by it
    assert json.dumps(found.to_json()) == json.dumps(offset)
    status = registry.find("postgres").load_describe()(offset, {})
    assert status.position


# --- what a newer version has written


@pytest.mark.parametrize(("kind", "fields"), sample_offsets(), ids=str)
def test_an_offset_of_a_newer_version_is_refused_by_name(kind: Any, fields: dict[str, Any]) -> None:
    kind.from_json(fields | {"form": 1})
    with pytest.raises(PositionLost, match="newer tailrace has written the checkpoint: its offsets have the form 2"):
        kind.from_json(fields | {"form": 2})
    with pytest.raises(PositionLost, match="does not know the field later of its offsets") as refused:
        kind.from_json(fields | {"later": 1})
    assert "Install the newer version again" in refused.value.remedy
    with pytest.raises(PositionLost, match="not understood"):
        kind.from_json(fields | {"form": "x"})


def test_tables_of_a_newer_version_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"tailrace.pipeline": "p"}
    monkeypatch.setattr(rebuild, "_stored", lambda spark, path: SimpleNamespace(properties=lambda: given))
    session: Any = None
    rebuild.demand_sound(session, "/lake", "p")
    given["tailrace.form"] = "2"
    with pytest.raises(SinkError, match="newer tailrace has written the tables under /lake: they have the form 2"):
        rebuild.demand_sound(session, "/lake", "p")
