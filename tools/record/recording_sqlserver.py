"""A golden case of SQL Server, recorded with Debezium against the TDS test server `tdsserver`."""

from __future__ import annotations

import time
from pathlib import Path

from tdsserver.process import TestServer, TestSession
from tests.golden import script
from tests.golden.case import Case
from tests.golden.tds_runner import heartbeats, prepared, variables
from tools.record.engine import Engine, Failed, build
from tools.record.recording import CONVERTERS, IDLE, store


def record(case: Case, server: TestServer, version: str, limit: float, folder: Path) -> int:
    """Record `case` with Debezium `version` into `expected.jsonl.gz`; return the number of records.

    `folder` takes Debezium's log, offsets and schema history. An older recording is replaced only by a whole new one.
    Raises Failed when the engine gives up or `limit` seconds are over, pytds.Error when the server refuses a statement.
    """
    classpath = build("sqlserver", version)
    options = case.options(variables(server, folder))
    converter = CONVERTERS[case.knobs.get("format", "json")]
    if converter:
        options["recorder.value.converter"] = converter
    with prepared(case, server) as (session, _):
        zone = case.knobs.get("timezone", "UTC")
        engine = Engine(classpath, options, folder, zone, heartbeats(case), limit)
        try:
            _run(case, session, engine)
            _stop(engine)
        finally:
            engine.kill()
        return store(case, engine)


def _run(case: Case, session: TestSession, engine: Engine) -> None:
    idle = float(case.knobs.get("idle", IDLE))
    engine.start()
    if case.knobs.get("nostream") == "true":
        engine.wait(lambda: engine.count() > 0, "the first record came")
        engine.settle(idle)
        return
    _await_streaming(engine)
    for item in case.workload():
        if isinstance(item, script.Statement):
            session.run(item.text)
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
            _stop(engine)
        else:
            engine.start()
            _await_streaming(engine)
    engine.settle(idle)


def _stop(engine: Engine) -> None:
    try:
        engine.stop()
    except Failed as error:
        # Debezium 1.0 does not wait long enough for its own thread. All delivered records are written by now.
        if "Interrupted while stopping coordinator" not in str(error):
            raise


def _await_streaming(engine: Engine) -> None:
    engine.wait(engine.streams, "Debezium streamed")
    # The first read of the log fixes the start of the stream.
    engine.settle(1.5)
