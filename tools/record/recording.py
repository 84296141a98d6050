"""One golden case of PostgreSQL, recorded: set up, stream, work, write down."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import psycopg

from tests.fix_postgres import Postgres, create, drop
from tests.golden import script
from tests.golden.case import Case
from tests.golden.normalise import HEARTBEATS
from tools.record.engine import Engine, Failed, build

DATABASE = "golden"
IDLE = 3.0
"""Seconds without a record after which a case is over, where it does not say otherwise."""
CONVERTERS = {"json": None, "cloudevents": "io.debezium.converters.CloudEventsConverter"}


def record(case: Case, postgres: Postgres, version: str, limit: float, folder: Path) -> int:
    """Record `case` with Debezium `version` into `expected.jsonl.gz`; the number of records.

    `folder` takes Debezium's log and offsets. An older recording is replaced only by a whole new one. Raises Failed
    when the engine gives up or `limit` seconds are over, psycopg.Error when the server refuses a statement.
    """
    classpath = build("postgres", version)
    create(postgres, DATABASE)
    try:
        with postgres.connect(DATABASE) as session:
            for item in script.split(case.read("setup.sql")):
                if isinstance(item, script.Statement):
                    script.execute(session, item)
        engine = Engine(
            classpath, _options(case, postgres, folder), folder, case.knobs.get("timezone", "UTC"), beats(case), limit
        )
        try:
            _run(case, postgres, engine)
            engine.stop()
        finally:
            engine.kill()
        return store(case, engine)
    finally:
        drop(postgres, DATABASE)


def beats(case: Case) -> str:
    """How the names of the case's heartbeat topics begin."""
    return (
        case.properties.get("topic.heartbeat.name")
        or case.properties.get("topic.heartbeat.prefix")
        or case.properties.get("heartbeat.topics.prefix", HEARTBEATS)
    )


def _options(case: Case, postgres: Postgres, folder: Path) -> dict[str, str]:
    options = case.options(
        {
            "PGHOST": postgres.host,
            "PGPORT": str(postgres.port),
            "PGUSER": postgres.user,
            "PGPASSWORD": postgres.password,
            "PGDATABASE": DATABASE,
            "OFFSETS": str(folder / "offsets.dat"),
        }
    )
    form = case.knobs.get("format", "json")
    if form not in CONVERTERS:
        raise Failed(f"no converter is known for the format {form}")
    converter = CONVERTERS[form]
    return options | ({"recorder.value.converter": converter} if converter else {})


def _run(case: Case, postgres: Postgres, engine: Engine) -> None:
    idle = float(case.knobs.get("idle", IDLE))
    engine.start()
    if case.knobs.get("nostream") == "true":
        engine.wait(lambda: engine.count() > 0, "the first record came")
        engine.settle(idle)
        return
    _await_streaming(case, postgres, engine)
    with postgres.connect(DATABASE) as session:
        for item in case.workload():
            if isinstance(item, script.Statement):
                script.execute(session, item)
                engine.check()
            elif item.name == "sleep":
                time.sleep(float(item.argument))
            elif item.name == "settle":
                engine.settle(float(item.argument))
            elif item.name == "wait":
                wanted = int(item.argument)
                engine.wait(lambda wanted=wanted: engine.count() >= wanted, f"record {wanted} came")  # type: ignore[misc]
            elif item.name == "stop":
                engine.settle(idle)
                engine.stop()
            else:
                engine.start()
                _await_streaming(case, postgres, engine)
    engine.settle(idle)


def _await_streaming(case: Case, postgres: Postgres, engine: Engine) -> None:
    """Wait until the snapshot is over and the slot is read, then for what is still on its way."""
    engine.wait(engine.streams, "Debezium streamed")
    query = "select 1 from pg_replication_slots where slot_name = %s and database = %s and active"
    slot = case.properties.get("slot.name", "debezium")
    with postgres.connect() as connection:
        engine.wait(lambda: connection.execute(query, [slot, DATABASE]).fetchone() is not None, "the slot was read")
    engine.settle(0.7)


def store(case: Case, engine: Engine) -> int:
    """Write a recording down beside its case; the number of records."""
    text = engine.records.read_bytes() if engine.records.exists() else b""
    _write(case.path / "expected.jsonl.gz", text)
    if case.knobs.get("offsets") == "true":
        _write(case.path / "expected-offsets.jsonl.gz", engine.offsets.read_bytes())
    return text.count(b"\n")


def _write(path: Path, text: bytes) -> None:
    # No name and no time inside, so that equal recordings are equal files.
    fresh = path.with_suffix(".new")
    fresh.write_bytes(gzip.compress(text, 9, mtime=0))
    fresh.replace(path)


def explain(error: Exception) -> str:
    """One line that says why a case could not be recorded."""
    words = " ".join(str(error).split()) if isinstance(error, psycopg.Error) else str(error)
    return f"the server refuses a statement: {words}" if isinstance(error, psycopg.Error) else words
