"""The machine, which starts everything, kills at random, and compares at the end of each round."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pymysql
from pymongo.errors import PyMongoError

from tests.chaos import binlog, progress, victims
from tests.chaos.check import Checker, Faults
from tests.chaos.db2 import Db2
from tests.chaos.mongodb import Mongo
from tests.chaos.postgres import Postgres
from tests.chaos.process import Tailrace
from tests.chaos.proxy import Proxy
from tests.chaos.sinks import PREFIX, Files, Sink, Topics
from tests.chaos.source import Offset, Source, Watch
from tests.chaos.sqlserver import SqlServer
from tests.chaos.victims import CLUSTER, VICTIMS, Scene, Victim, Volume
from tests.servers import kafka
from tests.servers.spark_cluster import SparkCluster

SOURCES: dict[str, Callable[[], Source]] = {
    "postgres": Postgres, "mongodb": Mongo, "sqlserver": SqlServer, "db2": Db2, "mysql": binlog.mysql,
    "mariadb": binlog.mariadb,
}  # fmt: skip
UNREACHABLE = (psycopg.OperationalError, PyMongoError, pymysql.err.MySQLError)
"""Errors after a kill if the server is not there."""
PATIENCE = 180.0
"""Seconds after a kill within which Spark must commit something, unless the options set another limit."""
EARLY = 15.0
NEVER = (2, 5, 6, 7)
"""Exit codes that no kill may cause: wrong configuration, lost position, bytes or values not understood."""


class Stuck(Exception):
    """Nothing has been committed for too long, or a run does not end."""


@dataclass
class Options:
    """The options of a run of the machine."""

    seed: int
    connector: str = "postgres"
    kills: int = 200
    each: int = 20
    sink: str = "file"
    order: str = "topic"
    only: tuple[str, ...] = ()
    seconds: float = 0.0
    """Seconds after the first commit from which on each round has only one kill; 0 for no limit."""
    patience: float = PATIENCE
    signals: bool = True
    cluster: bool = False
    """True if tasks run on a stand-alone cluster, whose parts are victims, too."""
    keep: bool = False
    folder: Path | None = None


@dataclass
class Round:
    """The events and the findings of a round."""

    number: int
    kills: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    events: int = 0
    repeats: int = 0
    reads: int = 0
    seconds: float = 0.0


class Machine:
    """A pipeline from a source, killed repeatedly, as a context manager."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.choice = random.Random(options.seed)
        self.folder = options.folder or Path(tempfile.mkdtemp(prefix="tailrace-chaos-"))
        self._stack = ExitStack()
        self._round = Round(0)
        self._excused = True
        self._is_away = False
        self._first: Offset | None = None
        self._limit: float | None = None
        self._watch: Watch | None = None
        self._committed = -1
        self.failed = False
        self.source: Source = SOURCES[options.connector]()

    # --- everything that runs ------------------------------------------------------------------------------------

    def __enter__(self) -> Machine:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self.failed:
            self.source.keep(self.folder)
            if self.scene.volume is not None:
                # Free the small file system.
                shutil.copytree(self.checkpoint, self.folder / "checkpoint", dirs_exist_ok=True)
        self._stack.close()
        if not self.failed and not self.options.keep and self.options.folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self) -> None:
        options, stack = self.options, self._stack
        self.folder.mkdir(parents=True, exist_ok=True)
        self.source.open(stack)
        proxy = stack.enter_context(Proxy(self.source.port))
        broker = None
        self.sink: Sink = Files(self.folder / "out")
        if options.sink == "kafka":
            broker = stack.enter_context(kafka.Broker(kafka.fetch()))
            self.sink = Topics(broker.servers)
        volume = None
        if not options.only or "disk" in options.only:
            try:
                volume = Volume(self.folder / "small")
                stack.callback(volume.close)
            except OSError as error:
                print(f"no full disk: a small file system cannot be made ({error})", flush=True)
        self.checkpoint = (volume.folder if volume else self.folder) / "checkpoint"
        self._write_configuration(proxy.port)
        arguments = [str(self.folder / "application.properties"), "--checkpoint", str(self.checkpoint)]
        cluster = None
        if options.cluster:
            cluster = stack.enter_context(SparkCluster())
            arguments += ["--master", cluster.master, "--conf", "spark.executor.memory=512m"]
        self.tailrace = Tailrace(self.folder, arguments, victims.environment(volume))
        stack.callback(self.tailrace.kill)
        self.scene = Scene(self.source, proxy, self.tailrace, self.choice, broker, volume, self._tend, cluster)
        self.writers = self.source.writers(options.seed, options.signals, self._reads_first)
        stack.callback(self.writers.stop)
        self.checker = Checker(by_key=options.order == "key", repeats=self.sink.repeats)

    def _write_configuration(self, port: int) -> None:
        source = {
            **self.source.options(port), "topic.prefix": PREFIX, "skipped.operations": "none",
            "event.order": self.options.order, "extended.headers.enabled": "false",
            "retriable.restart.connector.wait.ms": "2000",
        }  # fmt: skip
        entries = {f"debezium.source.{name}": text for name, text in source.items()}
        entries |= {f"debezium.sink.{name}": text for name, text in self.sink.settings().items()}
        entries["debezium.format.schemas.enable"] = "false"
        text = "".join(f"{name}={value}\n" for name, value in entries.items())
        (self.folder / "application.properties").write_text(text)

    # --- a run ---------------------------------------------------------------------------------------------------

    def rounds(self) -> Iterator[Round]:
        """Yield round after round, until all kills are done, the time is over, or something was found."""
        done = 0
        number = 0
        while done < self.options.kills and not self.failed:
            number += 1
            self._round = Round(number)
            at = time.monotonic()
            try:
                self._kill_for_a_while(min(self.options.each, self.options.kills - done))
                if not self._round.findings:
                    self._finish()
            except Stuck as stuck:
                self._round.findings.append(str(stuck))
                with suppress(Exception):
                    self._report_stuck()
            self._round.seconds = time.monotonic() - at
            self.failed = bool(self._round.findings)
            done += len(self._round.kills)
            yield self._round
            if self._is_over():
                return

    def _is_over(self) -> bool:
        return self._limit is not None and time.monotonic() > self._limit

    def _kill_for_a_while(self, count: int) -> None:
        self._watch = self.source.watch(self.checkpoint)
        if self._watch is not None:
            self._watch.start()
        self.writers.start()
        if self.tailrace.ended() is not None or not self.tailrace.runs:
            self._start()
        if self.options.seconds and self._limit is None:
            self._until_committed()
            self._limit = time.monotonic() + self.options.seconds
        hasty = 0
        while len(self._round.kills) < count and not (self._round.kills and self._is_over()):
            if self._round.findings or (self._watch is not None and self._watch.faults):
                break
            if self.choice.random() < 0.6 or hasty >= 2:
                self._until_committed()
                hasty = 0
                self.scene.away(self.choice.uniform(0, 2.5))
            else:
                hasty += 1
                self.scene.away(self.choice.uniform(0.3, 6))
            self._kill()
        if self._watch is not None:
            self._round.findings += self._watch.faults[:5]
        if not self._round.findings:
            self._until_committed()

    def _kill(self) -> None:
        name, victim = self._choose()
        fresh = progress.newest_commit(self.checkpoint) <= self._committed
        if victim.is_part or fresh or self._reads_rows():
            # A run that starts, or that reads rows under an exported snapshot, may end if its server goes.
            self._excused = True
        at = time.strftime("%H:%M:%S")
        if self.tailrace.ended() is not None and victim.is_part:
            return
        self._is_away = True
        try:
            did = victim.kill(self.scene)
        except UNREACHABLE:
            return
        finally:
            self._is_away = False
        if did is None:
            return
        self._round.counts[name] += 1
        self._round.kills.append(f"{at} {name}: {did}" + (" (at the start)" if fresh else ""))
        self._committed_at_kill = progress.newest_commit(self.checkpoint)
        if name == "term":
            self._terminated()
        if name == "worker":
            # The batch fails, unless the worker was idle.
            self.scene.away(0.5)

    def _choose(self) -> tuple[str, Victim]:
        known = VICTIMS | (CLUSTER if self.scene.cluster else {})
        chosen = {
            name: victim
            for name, victim in known.items()
            if (not self.options.only or name in self.options.only)
            and (name != "broker" or self.scene.broker)
            and (name != "disk" or self.scene.volume)
        }
        name = self.choice.choices(list(chosen), [victim.weight for victim in chosen.values()])[0]
        return name, chosen[name]

    def _terminated(self) -> None:
        code = self.tailrace.wait(self.options.patience)
        if code is None:
            raise Stuck(f"the run has not ended {self.options.patience:.0f} s after SIGTERM")
        self._round.exits[f"SIGTERM: {code}"] += 1
        self._judge(code)
        self._start()

    def _judge(self, code: int) -> None:
        """Note an irregular exit after SIGTERM. An early signal, before Python handles it, ends the process."""
        early = code == -signal.SIGTERM and time.monotonic() - self.tailrace.began < EARLY
        if code != 0 and not early:
            self._round.findings.append(f"exit code {code} after SIGTERM:\n{self.tailrace.said[-3000:]}")

    def _start(self) -> None:
        self._committed = progress.newest_commit(self.checkpoint)
        self._excused = False
        self.tailrace.start()

    def _tend(self) -> None:
        """Restart the run if it has ended, and note the reason."""
        self._note_begin()
        code = self.tailrace.ended()
        if code is None:
            return
        last = self._round.kills[-1] if self._round.kills else "no kill"
        self._round.exits[str(code)] += 1
        if code in NEVER or not self._excused:
            self._round.findings.append(
                f"the run ended by itself with the exit code {code} after {last}:\n{self.tailrace.said[-3000:]}"
            )
        self._start()
        # A run that is started while something is down may end.
        self._excused = self._is_away

    def _until_committed(self) -> None:
        """Wait for the next commit. Raises Stuck if there is none within the patience of the options."""
        before = progress.newest_commit(self.checkpoint)
        deadline = time.monotonic() + self.options.patience
        while progress.newest_commit(self.checkpoint) <= before:
            if time.monotonic() > deadline:
                last = self._round.kills[-1] if self._round.kills else "the start"
                raise Stuck(f"no commit within {self.options.patience:.0f} s after {last}")
            if self._round.findings:
                return
            time.sleep(0.05)
            self._tend()

    def _reads_rows(self) -> bool:
        """Return True if the newest batch was one of a snapshot, first or incremental."""
        number = progress.newest_commit(self.checkpoint)
        found = progress.offset(self.checkpoint, number + 1) or progress.offset(self.checkpoint, number)
        return found is None or "snapshot" in found or bool(found.get("progress"))

    def _reads_first(self) -> bool:
        """Return True if the first snapshot is still running."""
        found = progress.offset(self.checkpoint, progress.newest_commit(self.checkpoint))
        return found is None or "snapshot" in found

    def _note_begin(self) -> None:
        """Note the offset of the first batch, where the log begins, before Spark removes it."""
        if self._first is None and progress.newest_commit(self.checkpoint) >= 0:
            self._first = progress.offset(self.checkpoint, 0)

    # --- the end of a round --------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Stop the writers, let everything be delivered, and compare."""
        self.writers.stop()
        self._tend()
        self.tailrace.terminate()
        code = self.tailrace.wait(self.options.patience)
        if code is None:
            raise Stuck(f"the run has not ended {self.options.patience:.0f} s after SIGTERM")
        self._judge(code)
        self.tailrace.start("--once")
        code = self.tailrace.wait(2 * self.options.patience)
        if code is None:
            raise Stuck(f"the run with --once has not ended after {2 * self.options.patience:.0f} s")
        if code != 0:
            self._round.findings.append(f"exit code {code} with --once:\n{self.tailrace.said[-3000:]}")
        if self._watch is not None:
            self._watch.stop()
            self._round.findings += self._watch.faults[:5]
            if not self._watch.samples:
                self._round.findings.append("nothing was ever compared with the commit log")
        self._round.findings += self.writers.failures
        lost = self.writers.lost()
        if lost:
            self._round.findings.append(
                f"the server itself has lost commits, or kept what was rolled back: {lost[:20]}"
            )
        faults = self._compare()
        if faults:
            self._round.findings.append(str(faults))
        else:
            self.sink.forget()

    def _compare(self) -> Faults:
        self._note_begin()
        assert self._first is not None
        for change, delivered in self.source.committed(self._first):
            self.checker.committed(change, delivered)
        before = self.checker.events, self.checker.repeats, self.checker.reads
        records = (self.source.record(*record) for record in self.sink.records())
        faults = self.checker.check((one for one in records if one is not None), self.source.rows())
        self._round.events = self.checker.events - before[0]
        self._round.repeats = self.checker.repeats - before[1]
        self._round.reads = self.checker.reads - before[2]
        if not self._reads_first():
            self.checker.snapshot_is_over()
        return faults

    def _report_stuck(self) -> None:
        self._round.findings.append("\n".join([*self.source.described(), self.tailrace.said[-3000:]]))
