"""A golden case of MySQL or MariaDB, recorded with Debezium against a real server of the tests."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from tests.golden import mysql_script
from tests.golden.case import Case
from tests.golden.mysql_runner import DATABASE, empty
from tests.golden.script import Directive, Statement
from tests.servers.mysql import PASSWORD, USER, MySqlServer
from tools.record.engine import Engine, Failed, GaveUp, build
from tools.record.recording import CONVERTERS, IDLE, beats, store

_READERS = "select state from information_schema.processlist where command like 'Binlog Dump%'"
_HAS_SENT = "has sent all binlog"


def record(case: Case, server: MySqlServer, version: str, limit: float, folder: Path) -> int:
    """Record `case` with Debezium `version` into `expected.jsonl.gz`; return the number of records.

    `folder` takes Debezium's log, offsets, schema history and signals. An older recording is replaced only by a whole
    new one. Raises Failed when the engine gives up or `limit` seconds are over, PyMySQL's errors when the server
    refuses a statement.
    """
    empty(server)
    with ExitStack() as stack:
        play = _Play(case, server, version, limit, folder)
        stack.callback(play.close)
        try:
            play.run()
            if "exit" in case.knobs:
                raise Failed("Debezium ended in order, where the case says that it ends with an error")
        except GaveUp as error:
            if "exit" not in case.knobs:
                raise
            (case.path / "expected-error.txt").write_text(f"{error}\n", encoding="utf-8")
        return store(case, play.engine)


class _Play:
    """A case while it is recorded."""

    def __init__(self, case: Case, server: MySqlServer, version: str, limit: float, folder: Path) -> None:
        self._case, self._server, self._folder = case, server, folder
        self._idle = float(case.knobs.get("idle", IDLE))
        self._signals = folder / "signals.txt"
        self._signals.touch()
        self._sessions: dict[str, Connection[Any]] = {}
        self._now = "main"
        variables = {
            "DBHOST": "127.0.0.1", "DBPORT": str(server.port), "DBUSER": USER, "DBPASSWORD": PASSWORD,
            "OFFSETS": str(folder / "offsets.dat"), "HISTORY": str(folder / "history.dat"),
            "SIGNALS": str(self._signals),
        }  # fmt: skip
        self._options = case.options(variables)
        converter = CONVERTERS[case.knobs.get("format", "json")]
        if converter:
            self._options["recorder.value.converter"] = converter
        classpath = build(case.database, version)
        zone = case.knobs.get("timezone", "UTC")
        self.engine = Engine(classpath, self._options, folder, zone, beats(case), limit)

    def run(self) -> None:
        """Carry out the set-up, the start and the workload, and stop."""
        with self._server.connect(DATABASE) as session, session.cursor() as cursor:
            for item in mysql_script.split(self._case.read("setup.sql")):
                if isinstance(item, Statement):
                    cursor.execute(item.text)
        if self._case.knobs.get("nostream") == "true":
            self.engine.start()
            self.engine.wait(lambda: self.engine.count() > 0, "the first record came")
            self.engine.settle(self._idle)
            self.engine.stop()
            return
        self._start()
        for step in mysql_script.split(self._case.read("run.sql")):
            self._do(step)
        self._stop()

    def _do(self, step: Statement | Directive) -> None:
        engine = self.engine
        if isinstance(step, Statement):
            if self._now not in self._sessions:
                self._sessions[self._now] = self._server.connect(DATABASE)
            with self._sessions[self._now].cursor() as cursor:
                cursor.execute(step.text)
        elif step.name == "session":
            self._now = step.argument
        elif step.name == "sleep":
            time.sleep(float(step.argument))
        elif step.name == "settle":
            engine.settle(float(step.argument))
        elif step.name == "wait":
            engine.wait(lambda: engine.count() >= int(step.argument), f"record {step.argument} came")
        elif step.name == "stop":
            self._stop()
        elif step.name == "start":
            self._start()
        elif step.name == "ended":
            engine.wait(lambda: False, "Debezium ended")
        elif step.name == "signal":
            with self._signals.open("a", encoding="utf-8") as file:
                file.write(step.argument + "\n")
        elif step.name == "config":
            name, _, value = step.argument.partition("=")
            self._options[name] = value
            engine.configure({name: value for name, value in self._options.items() if value})
        else:
            name = {"history": "history.dat", "offsets": "offsets.dat"}[step.argument]
            (self._folder / name).unlink(missing_ok=True)

    def _start(self) -> None:
        self.engine.start()
        self.engine.wait(self.engine.streams, "Debezium streamed")

        def has_all() -> bool:
            return any(_HAS_SENT in str(row[0]) for row in self._server.execute(_READERS))

        self.engine.wait(has_all, "the server sent its log")
        self.engine.settle(0.7)

    def _stop(self) -> None:
        self.engine.settle(self._idle)
        self.engine.stop()

    def close(self) -> None:
        """End the engine and the sessions."""
        self.engine.kill()
        for session in self._sessions.values():
            session.close()
