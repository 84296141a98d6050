"""The demo's run: starts the server and the pipeline, runs the workload, and stops everything. Driver.

The work runs on a separate thread; the main thread shows the seconds and receives signals. Ctrl-C therefore never
interrupts a step half-way: the work raises `_Stopped` between steps, and its clean-up always runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tailrace.demo import inventory
from tailrace.demo.embedded import THROWAWAY, Server
from tailrace.demo.records import Record, RecordFiles
from tailrace.demo.screen import Screen
from tailrace.errors import ConfigError, TailraceError

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig
    from tailrace.pipeline import Pipeline

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAUSE_S = 1.2
"""Seconds between two steps of the workload, so that the output can be read."""
PATIENCE_S = 90.0
"""Seconds within which the records of one step must arrive."""
_LOOK_S = 0.05

PROPERTIES = """\
# A Debezium Server configuration. Only the sink `file` is tailrace's own.
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.database.hostname={host}
debezium.source.database.port={port}
debezium.source.database.user={user}
debezium.source.database.password={password}
debezium.source.database.dbname={database}
debezium.source.topic.prefix=demo
debezium.source.schema.include.list=inventory
debezium.source.slot.name=demo
debezium.source.publication.autocreate.mode=filtered
debezium.source.skipped.operations=none
debezium.source.poll.interval.ms=100
debezium.source.checkpoint.location={directory}/checkpoint
debezium.format.schemas.enable=false
debezium.sink.type=file
debezium.sink.file.path={directory}/events
"""


class _Stopped(Exception):
    """Raised in the work's thread after a signal."""


def main(keep: str | None = None, fast: bool = False) -> int:
    """Run the demo; return 0, or 128 plus the number of the signal that ended it (Ctrl-C: 130).

    `keep` is the directory for its files, by default a new temporary one; `fast` leaves out the pauses. Raises
    ConfigError if the directory is not empty, and the pipeline's errors.
    """
    if keep is not None and Path(keep).exists() and any(Path(keep).iterdir()):
        raise ConfigError(f"The directory {keep} is not empty.", "Name another one: a demo starts from nothing.")
    demo = Demo(Screen(sys.stdout), Path(keep).absolute() if keep else None, fast)
    # A demo under nohup outlives its terminal.
    taken = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, demo.interrupt) for number in taken}
    try:
        return demo.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Demo:
    """A run of the demo. `run` is called once, on the main thread."""

    def __init__(self, screen: Screen, keep: Path | None, fast: bool) -> None:
        self._screen = screen
        self._keep = keep
        self._fast = fast
        self._stop = threading.Event()
        self._done = threading.Event()
        self._signal = 0
        self._nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - the interpreter closes it
        self._failure: BaseException | None = None
        self._server = Server(settings=THROWAWAY)
        self._directories: list[Path] = []
        self._counted: Counter[str] = Counter()
        self._example: Record | None = None

    def run(self) -> int:
        worker = threading.Thread(target=self._work, name="tailrace-demo", daemon=True)
        worker.start()
        while not self._done.wait(0.1):
            self._screen.tick()
        worker.join()
        if self._signal:
            return 128 + self._signal
        if self._failure is not None:
            raise self._failure
        return 0

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first lets the work stop; a second ends the process at once, without stopping Spark."""
        if not self._signal:
            self._signal = number
            # From now on PySpark's threads would print an error for every connection that ends.
            sys.stderr = self._nowhere
            self._stop.set()
            return
        self._server.stop()
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)
        # The JVM ends when its input, a pipe from this process, closes.
        os._exit(128 + self._signal)

    # --- the worker thread ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with ExitStack() as stack:
                self._course(stack)
        except _Stopped:
            pass
        except BaseException as error:
            # Not reported after a signal (see `run`): the same signal may have ended a server early.
            self._failure = error
        finally:
            if self._signal:
                self._screen.line("Stopped: PostgreSQL and Spark have ended, the temporary files are gone.")
            self._done.set()

    def _course(self, stack: ExitStack) -> None:
        screen = self._screen
        began = time.monotonic()
        screen.line("tailrace: the row changes of a PostgreSQL as Debezium events, through Spark.")
        screen.line("Ctrl-C ends it at any moment and leaves nothing behind.")
        screen.line()
        directory = self._directory(stack)
        scratch = self._temporary(stack, "tailrace-spark-", always=True)
        stack.callback(self._say_stopping)
        with screen.step("Starting a private PostgreSQL"):
            stack.callback(self._server.stop)
            self._server.start()
        self._go_on()
        run = self._configure(directory)
        self._create_tables(run)
        self._go_on()
        screen.line()
        with screen.step("Starting Spark"):
            pipeline = self._start_spark(run, scratch, stack)
        self._go_on()
        self._watch(pipeline, run, stack)
        self._summary(directory, time.monotonic() - began)

    def _say_stopping(self) -> None:
        if self._stop.is_set():
            self._screen.line("Stopping …")

    def _directory(self, stack: ExitStack) -> Path:
        """Return the pipeline's directory. A temporary one is removed if the demo fails or is interrupted."""
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            return self._keep
        return self._temporary(stack, "tailrace-demo-", always=False)

    def _temporary(self, stack: ExitStack, prefix: str, *, always: bool) -> Path:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        self._directories.append(path)

        def remove(kind: type[BaseException] | None, *rest: Any) -> None:
            if always or kind is not None:
                shutil.rmtree(path, ignore_errors=True)

        stack.push(remove)
        return path

    def _configure(self, directory: Path) -> RunConfig:
        from tailrace.connectors import registry

        server = self._server
        text = PROPERTIES.format(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=inventory.DATABASE,
            directory=directory,
        )
        path = directory / "application.properties"
        path.write_text(text, "utf-8")
        self._screen.line()
        self._screen.line("All that the pipeline is given, a Debezium Server file:")
        self._screen.block("".join(f"  {line}\n" for line in text.splitlines()), "2")
        return registry.read(path)

    def _create_tables(self, run: RunConfig) -> None:
        from tailrace.connectors.postgres.server.connection import connect

        with connect({**run.source, "database.dbname": "postgres"}) as connection:
            connection.execute(f"create database {inventory.DATABASE}".encode())
        with connect(run.source) as connection:
            connection.execute(inventory.TABLES.encode())

    def _start_spark(self, run: RunConfig, scratch: Path, stack: ExitStack) -> Pipeline:
        """Return the pipeline, with a session whose files are in `scratch` and whose JVM ends with the demo."""
        from tailrace.pipeline import Pipeline
        from tailrace.spark.session import session

        config = {
            "spark.local.dir": str(scratch),
            "spark.python.unix.domain.socket.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
        # The query raises its error itself; Spark's log would print it again, at length.
        spark = session(config, app_name="tailrace demo", memory="1g", log_level="off")
        stack.callback(_end_java, spark)
        pipeline = Pipeline(run, spark)
        stack.callback(pipeline.stop)
        return pipeline

    def _watch(self, pipeline: Pipeline, run: RunConfig, stack: ExitStack) -> None:
        """Show the snapshot, then run the workload step by step and show the records of each step."""
        from tailrace.connectors.postgres.server.connection import connect

        screen = self._screen
        written = RecordFiles(Path(run.sink.options["path"]))
        with screen.step("Taking the snapshot (the first time, compiling what reads it)"):
            pipeline.start()
            records = self._await(pipeline, written, inventory.ROWS)
        self._title(f"The {inventory.ROWS} rows that were there before", ())
        self._show(records)
        connection = stack.enter_context(connect(run.source))
        for step in inventory.STEPS:
            self._pause()
            self._title(step.title, step.shown)
            began = time.monotonic()
            connection.execute("begin")
            for statement in step.sql:
                connection.execute(statement.encode())
            connection.execute(step.end.encode())
            if step.records:
                self._show(self._await(pipeline, written, len(step.records)))
                screen.line(f"{time.monotonic() - began:.2f} s from the commit to the file", "2", " " * 12)
            else:
                self._stop.wait(PAUSE_S)
                self._show(written.new())
                screen.line("nothing", "2", " " * 12)
        self._pause()
        # Unexpected records may come late; the count at the end includes them.
        self._show(written.new())

    def _title(self, title: str, statements: tuple[str, ...]) -> None:
        self._screen.line()
        self._screen.line(f"── {title}", "1")
        for statement in statements:
            self._screen.line(f"{statement};", "34", "   ")

    def _await(self, pipeline: Pipeline, written: RecordFiles, count: int) -> list[Record]:
        """Return the next `count` records. Raises the query's failure, or TailraceError if they do not arrive."""
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count:
            self._go_on()
            query = pipeline.query
            assert query is not None
            if not query.isActive:
                raise query.exception() or TailraceError("The query ended by itself.")
            if time.monotonic() > deadline:
                raise TailraceError(f"{count - len(records)} records did not arrive in {PATIENCE_S:.0f} s.")
            records.extend(written.new())
            self._stop.wait(_LOOK_S)
        return records

    def _show(self, records: list[Record]) -> None:
        for record in records:
            self._counted[record.op] += 1
            if record.op == "u" and record.value["before"] is not None and self._example is None:
                self._example = record
            self._screen.record(record)

    def _pause(self) -> None:
        if not self._fast:
            self._stop.wait(PAUSE_S)
        self._go_on()

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _summary(self, directory: Path, seconds: float) -> None:
        import json

        block, line = self._screen.block, self._screen.line
        assert self._example is not None
        line()
        line("── One event in full: its key, then its value", "1")
        for part in (self._example.key, self._example.value):
            block(json.dumps(part, indent=2, ensure_ascii=False))
        counted, expected = self._counted, inventory.expected()
        names = {"r": "read", "c": "create", "u": "update", "d": "delete", "t": "truncate", "0": "tombstone"}
        line()
        line(f"── {counted.total()} records in {seconds:.0f} s", "1")
        line("   " + ", ".join(f"{counted[op]} {name}" for op, name in names.items()))
        if counted != expected:
            raise TailraceError(f"The workload gives {expected.total()} records: {dict(expected)}.")
        block(f"   events      {directory}/events/*.jsonl\n   checkpoint  {directory}/checkpoint\n"
              f"   settings    {directory}/application.properties")  # fmt: skip
        line()
        line("── Next: put your own server into the settings (database.*), then", "1")
        command, settings = _command(), f"{directory}/application.properties"
        block(f"   {command} check {settings}\n"
              f"   {command} run {settings} --checkpoint {directory}/own"
              f" --set debezium.sink.file.path={directory}/own-events\n"
              f"   {command} run --help")  # fmt: skip
        if self._keep is None:
            line(f"   (rm -r {directory} when you have seen enough)", "2")


def _command() -> str:
    """Return the command for this program: `tailrace` if it is on PATH."""
    if shutil.which("tailrace"):
        return "tailrace"
    program = Path(sys.argv[0])
    return os.path.relpath(program) if program.name == "tailrace" else f"{sys.executable} -m tailrace.command.cli"


def _end_java(spark: Any) -> None:
    """Stop the session, and wait for its JVM to end: it would outlive this process by a moment."""
    from tailrace.monitoring.processes import release

    gateway = spark.sparkContext._gateway
    try:
        spark.stop()
        release(gateway)
        gateway.shutdown()
    finally:
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(30)
