"""A golden case of PostgreSQL, recorded: set up, stream, work, write down."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from tests.fix_postgres import Postgres, create, drop
from tests.golden import script
from tests.golden.case import Case
from tests.golden.normalise import HEARTBEATS
from tests.servers.registry import Registry
from tools.record.engine import Engine, Failed, GaveUp, build

DATABASE = "golden"
COUNTERS = "counters.json"
"""The file of a case with the attributes of Debezium's beans, by the bean's context."""
IDLE = 3.0
"""Seconds without a record after which a case is over, unless the case has its own number."""
CONVERTERS = {"json": None, "cloudevents": "io.debezium.converters.CloudEventsConverter"}
_IN_BASE64 = re.compile(rb'\{"bytes":"([A-Za-z0-9+/=]+)"\}')


def record(
    case: Case, postgres: Postgres, version: str, limit: float, folder: Path, *, only_counters: bool = False
) -> int:
    """Record `case` with Debezium `version` into `expected.jsonl.gz`; return the number of records.

    With `only_counters` the older recording stays, and COUNTERS gets what Debezium's beans show at the case's end.

    `folder` takes Debezium's log and offsets. An older recording is replaced only by a whole new one. Raises Failed
    when the engine gives up or `limit` seconds are over, psycopg.Error when the server refuses a statement.
    """
    classpath = build("postgres", version, case.knobs.get("format") == "connect")
    create(postgres, DATABASE)
    try:
        with postgres.connect(DATABASE) as session:
            for item in script.split(case.read("setup.sql")):
                if isinstance(item, script.Statement):
                    script.execute(session, item)
        with Registry() as registry:
            options = _options(case, postgres, folder, registry)
            if only_counters:
                options["recorder.counters"] = str(folder / COUNTERS)
            engine = Engine(classpath, options, folder, case.knobs.get("timezone", "UTC"), beats(case), limit)
            try:
                _run(case, postgres, engine)
                engine.stop()
                if "exit" in case.knobs:
                    raise Failed("Debezium ended in order, where the case says that it ends with an error")
            except GaveUp:
                if "exit" not in case.knobs:
                    raise
            finally:
                engine.kill()
            return keep_counters(case, engine, folder) if only_counters else store(case, engine, registry)
    finally:
        drop(postgres, DATABASE)


def beats(case: Case) -> str:
    """Return the prefix of the case's heartbeat topics."""
    return (
        case.properties.get("topic.heartbeat.name")
        or case.properties.get("topic.heartbeat.prefix")
        or case.properties.get("heartbeat.topics.prefix", HEARTBEATS)
    )


def _options(case: Case, postgres: Postgres, folder: Path, registry: Registry) -> dict[str, str]:
    options = case.options(
        {
            "PGHOST": postgres.host,
            "PGPORT": str(postgres.port),
            "PGUSER": postgres.user,
            "PGPASSWORD": postgres.password,
            "PGDATABASE": DATABASE,
            "OFFSETS": str(folder / "offsets.dat"),
            "REGISTRY": registry.apicurio,
        }
    )
    if case.knobs.get("record") == "true":
        options["recorder.places"] = "true"
    form = case.knobs.get("format", "json")
    if form == "connect":
        return options | {"recorder.format": form}
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
    """Wait until the snapshot is over and the slot is read, and then until no record comes."""
    engine.wait(engine.streams, "Debezium streamed")
    query = "select 1 from pg_replication_slots where slot_name = %s and database = %s and active"
    slot = case.properties.get("slot.name", "debezium")
    with postgres.connect() as connection:
        engine.wait(lambda: connection.execute(query, [slot, DATABASE]).fetchone() is not None, "the slot was read")
    engine.settle(0.7)


def store(case: Case, engine: Engine, registry: Registry | None = None) -> int:
    """Write a recording beside its case; return the number of records."""
    text = engine.records.read_bytes() if engine.records.exists() else b""
    versions = registry.versions if registry is not None else []
    if versions:
        subjects = {version.schema_id: version.subject for version in reversed(versions)}
        text = _IN_BASE64.sub(lambda found: _opened(found, subjects), text)
        rows = [
            {"id": one.schema_id, "subject": one.subject, "version": one.number, "schema": one.schema}
            for one in versions
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (case.path / "schemas.jsonl").write_text(lines, encoding="utf-8")
    else:
        (case.path / "schemas.jsonl").unlink(missing_ok=True)
    _write(case.path / "expected.jsonl.gz", text)
    if case.knobs.get("offsets") == "true":
        _write(case.path / "expected-offsets.jsonl.gz", engine.offsets.read_bytes())
    return text.count(b"\n")


def keep_counters(case: Case, engine: Engine, folder: Path) -> int:
    """Write what the beans showed beside the case; return the number of records."""
    found = json.loads((folder / COUNTERS).read_text(encoding="utf-8"))
    (case.path / COUNTERS).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return engine.count()


def _opened(found: re.Match[bytes], subjects: Mapping[int, str]) -> bytes:
    """Return bytes, with the subject of the schema if they begin with a zero and the id of a schema."""
    data = base64.b64decode(found[1])
    number = int.from_bytes(data[1:5], "big")
    if data[:1] != b"\0" or number not in subjects:
        return found[0]
    row = {"schema_subject": subjects[number], "id": number, "avro": found[1].decode()}
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _write(path: Path, text: bytes) -> None:
    # Without a name and a time inside, equal recordings are equal files.
    fresh = path.with_suffix(".new")
    fresh.write_bytes(gzip.compress(text, 9, mtime=0))
    fresh.replace(path)


def explain(error: Exception) -> str:
    """Return one line with the reason that a case could not be recorded."""
    words = " ".join(str(error).split()) if isinstance(error, psycopg.Error) else str(error)
    return f"the server refuses a statement: {words}" if isinstance(error, psycopg.Error) else words
