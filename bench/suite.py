"""The measurements, one after another, in the order of PHASES. Driver."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from bench import (
    baseline,
    chains,
    changetables,
    drain,
    incremental,
    lake,
    large,
    latency,
    many,
    mongodb,
    mysql,
    records,
    tables,
    transaction,
    verify,
    writers,
)
from bench.report import COPY, MIB, PEEK, PLAIN, PLAIN_SCHEMAS, RECEIVE, Measurement
from bench.usage import Meter
from bench.workload import TRANSACTION, Workload
from tests.servers.registry import Registry

PHASES = (
    "stream", "transforms", "records", "update", "snapshot", "wide", "types", "latency", "incremental", "many",
    "changetables", "mongodb", "mysql", "transaction", "writers", "tables", "verify",
)  # fmt: skip
BENCH = tables.plain("bench")
WARM_ROWS = 10_000
WARM_ROUNDS = 2
"""Unmeasured runs over the whole backlog, in which the JVM compiles the code that it runs."""

TABLES = {"wide": (20, ""), "types": (10, "_format3")}
"""Phases with a table of their own, each with N and its case. The table has one row for N rows of the other tables, and
format 1.7 has fewer types."""

PLAIN_PRODUCER = {"linger.ms": "0", "batch.size": "16384"}
"""The defaults of Kafka's producer; the product's sink has other defaults."""

ORDERS = {"": {"event.order": "key"}, "_topic": {}}
FORMATS = {"": {"event.format": "1.7"}, "_format3": {"event.format": "3"}}
CASES: dict[str, Mapping[str, str]] = {
    order + form: ORDERS[order] | FORMATS[form] for form in FORMATS for order in ORDERS
}
"""The options of a case by the end of its name. The empty end is the order of each key in the default format, 1.7;
`_format3` is the present format, with its context headers."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of a slot: the messages of `rows` rows for a publication, `size` bytes up to the LSN `end`."""

    slot: str
    publication: str
    end: str
    rows: int
    size: int


@dataclass
class Suite:
    """Runs phases and gathers their measurements. `servers` is the broker's address; `say` prints a line."""

    spark: SparkSession
    workload: Workload
    servers: str
    rows: int
    repeat: int
    say: Callable[[str], None]
    measurements: list[Measurement] = field(default_factory=list)
    latency: latency.Latency | None = None
    extra: dict[str, float] = field(default_factory=dict)
    _topics: int = 0

    def run(self, phases: tuple[str, ...]) -> None:
        """Run the phases in the order of PHASES; all need the rows that the first phase inserts."""
        self.workload.create(BENCH)
        self._warm(phases)
        if set(phases) & {"stream", "transforms", "update", "snapshot", "incremental"}:
            self._stream(phases)
        if "snapshot" in phases:
            self._snapshot()
        if "update" in phases:
            self._update()
        for phase, (share, name) in TABLES.items():
            if phase in phases:
                self._table(phase, max(self.rows // share, 2), name)
        if "latency" in phases:
            self.say(f"latency: {latency.RATE} rows a second for {latency.SECONDS} s")
            self.latency = latency.measure(self.spark, self.workload)
            self.say(f"latency: p50 {self.latency.p50:.0f} ms, p99 {self.latency.p99:.0f} ms")
        if "incremental" in phases:
            self._incremental()
        if "many" in phases:
            self._many()
        if "changetables" in phases:
            self._change_tables()
        if "mongodb" in phases:
            self.extra |= mongodb.measure(self.spark, max(self.rows // 5, 3), self.repeat, self.say)
            self.say(f"mongodb: {self.extra['mongodb_ratio']:.2f} of a bare cursor")
        if "mysql" in phases:
            found = mysql.measure(self.spark, self.workload, max(self.rows // 5, 3), self.repeat, self.say)
            self.extra |= found
            self.say(", ".join(f"{name} {value:.2f}" for name, value in found.items()))
        if "transaction" in phases:
            self.extra |= transaction.measure(self.spark, self.workload.server.pid, 3 * self.rows, self.say)
        if "records" in phases:
            self.extra |= records.measure(self.say)
        if "writers" in phases:
            self.extra |= writers.measure(self.spark, self.workload, self.repeat, self.say)
        if "tables" in phases:
            self.extra |= lake.measure(self.spark, self.workload, self.rows, self.repeat, self.say)
            self.extra |= large.measure(self.spark, self.workload, max(self.rows // 10, TRANSACTION), self.say)
        if "verify" in phases:
            self.extra |= verify.measure(self.spark, self.workload, self.rows, self.repeat, self.say)

    def _warm(self, phases: tuple[str, ...]) -> None:
        """Run a small query of each sort, to load the JVM's classes, the workers' modules and the compiled kernels."""
        self.say(f"warm-up with {WARM_ROWS:,} rows")
        warm = tables.plain("warm")
        self.workload.create(warm)
        with self._slot("warm"):
            self.workload.insert(warm, WARM_ROWS)
            self.workload.update("warm", WARM_ROWS)
            with self.workload.copy_of("warm") as copy:
                self._expect(drain.to_noop(self.spark, self._log_options("warm", copy, CASES[""])), 2 * WARM_ROWS)
            if "stream" in phases:
                with self.workload.copy_of("warm") as copy:
                    settings = self._log_options("warm", copy, {**CASES[""], "topic.prefix": "warm"})
                    self._expect(drain.to_kafka(self.spark, settings, self.servers, {}), 2 * WARM_ROWS)
        if "snapshot" in phases:
            self._expect(drain.to_noop(self.spark, self._snapshot_options("warm")), WARM_ROWS)

    def _stream(self, phases: tuple[str, ...]) -> None:
        with self._slot("bench_insert"):
            self.say(f"inserting {self.rows:,} rows")
            self.workload.insert(BENCH, self.rows)
            backlog = self._backlog("bench_insert", BENCH.name, self.rows)
            if "stream" in phases:
                self._drains(backlog)
            if "transforms" in phases:
                self._transforms(backlog)

    def _drains(self, backlog: Backlog) -> None:
        """Drain the backlog to both sinks, in every case."""
        for number in range(WARM_ROUNDS):
            self.say(f"warm-up {number + 1} of {WARM_ROUNDS} with the whole backlog")
            for name in CASES:
                self._noop("bench_insert", name)()
            self._kafka("bench_insert", "", {})()
        for number in range(self.repeat):
            noop = {f"noop{name}": self._noop("bench_insert", name) for name in CASES}
            kafka = {f"kafka{name}": self._kafka("bench_insert", name, {}) for name in CASES}
            plain = {
                f"kafka{name}_default_producer": self._kafka("bench_insert", name, PLAIN_PRODUCER) for name in ORDERS
            }
            self._baselines("stream", number, backlog, "noop")
            self._group("stream", number, "noop", noop, backlog.size)
            # The baselines in the middle belong to both groups.
            self._baselines("stream", number, backlog, "noop", "kafka")
            self._group("stream", number, "kafka", kafka | plain, backlog.size)
            self._baselines("stream", number, backlog, "kafka")

    def _transforms(self, backlog: Backlog) -> None:
        """Run each chain between two drains of plain JSON, the second of which counts for the next chain, too."""
        with Registry() as registry:
            cases = {**chains.CHAINS, chains.AVRO: chains.avro(registry.address)}
            parts = {PLAIN: cases, PLAIN_SCHEMAS: chains.WITH_SCHEMAS}
            plain = {PLAIN: chains.Chain({}), PLAIN_SCHEMAS: chains.Chain(chains.SCHEMAS)}
            reads = {name: self._chain(backlog, chain) for of in (plain, *parts.values()) for name, chain in of.items()}
            for number in range(WARM_ROUNDS):
                self.say(f"warm-up {number + 1} of {WARM_ROUNDS} of transforms")
                for read in reads.values():
                    read()
            for number in range(self.repeat):
                for beside, of in parts.items():
                    names = _turned(of, number)
                    self._measured("transforms", number, beside, reads[beside], backlog.size, names[0])
                    for place, name in enumerate(names):
                        self._measured("transforms", number, name, reads[name], backlog.size, name)
                        following = names[place : place + 2]
                        self._measured("transforms", number, beside, reads[beside], backlog.size, *following)

    def _chain(self, backlog: Backlog, chain: chains.Chain) -> Callable[[], drain.Drained]:
        def read() -> drain.Drained:
            with self.workload.copy_of(backlog.slot) as copy:
                settings = self._log_options(BENCH.name, copy, {**CASES[""], **chain.options})
                return self._expect(drain.to_noop(self.spark, settings), backlog.rows // chain.one_of)

        return read

    def _update(self) -> None:
        rows = self.rows // 2
        with self._slot("bench_update"):
            self.say(f"updating {rows:,} rows under replica identity full")
            self.workload.update("bench", rows)
            backlog = self._backlog("bench_update", BENCH.name, rows)
            for number in range(self.repeat):
                cases = {f"noop{name}": self._noop("bench_update", name, rows) for name in CASES}
                self._baselines("update_full", number, backlog, "noop")
                self._group("update_full", number, "noop", cases, backlog.size)
                self._baselines("update_full", number, backlog, "noop")

    def _table(self, phase: str, rows: int, name: str) -> None:
        """Measure inserts into a table that no other phase measures."""
        if phase == "wide":
            table = tables.wide(phase)
        else:
            known = tables.extensions(self.workload.extensions())
            for statement in (*(f"create extension {name}" for name in known), *tables.MADE):
                self.workload.execute(statement)
            table = tables.types(phase, known)
        self.workload.create(table)
        slot = f"bench_{phase}"
        with self._slot(slot):
            self.say(f"inserting {rows:,} rows of {len(table.columns)} columns")
            self.workload.insert(table, rows)
            backlog = self._backlog(slot, table.name, rows)
            read = self._noop(slot, name, rows, table.name)
            self.say("warm-up with this backlog")
            read()
            for number in range(self.repeat):
                self._baselines(phase, number, backlog, "noop")
                self._group(phase, number, "noop", {f"noop{name}": read}, backlog.size)
                self._baselines(phase, number, backlog, "noop")

    def _snapshot(self) -> None:
        def copy() -> float:
            return baseline.copy_out(self.workload, "bench")

        def read() -> drain.Drained:
            return self._expect(drain.to_noop(self.spark, self._snapshot_options("bench")), self.rows)

        for number in range(self.repeat):
            self._baseline("snapshot", number, self.rows, COPY, copy, "noop")
            self._group("snapshot", number, "noop", {"noop": read})
            self._baseline("snapshot", number, self.rows, COPY, copy, "noop")

    def _many(self) -> None:
        """Measure many small tables: their snapshot, from the start of a process, and a stream over them."""
        self.say(f"{many.TABLES:,} tables of {many.ROWS} rows")
        many.create(self.workload)
        taken = [many.snapshot(self.workload) for _ in range(self.repeat)]
        rows, ends = zip(*taken, strict=True)
        found = {"many_snapshot_seconds": statistics.median(rows), "many_snapshot_end_seconds": statistics.median(ends)}
        engine = [seconds for _ in range(self.repeat) if (seconds := many.engine_snapshot(self.workload)) is not None]
        if engine:
            found["many_snapshot_engine_seconds"] = statistics.median(engine)
        self.say(f"{many.RATE:,} updates a second over them")
        runs = [many.stream(self.spark, self.workload) for _ in range(self.repeat)]
        found["many_latency_p50_ms"] = statistics.median(run.p50 for run in runs)
        found["many_latency_p99_ms"] = statistics.median(run.p99 for run in runs)
        self.extra |= found
        self.say(", ".join(f"{name} {value:.2f}" for name, value in found.items()))

    def _change_tables(self) -> None:
        """Measure a fifth of the rows, since the test server is slow."""
        found = changetables.measure(self.spark, max(self.rows // 5, 3), self.repeat, self.say)
        self.extra |= found
        self.say(", ".join(f"{name} {value:.2f}" for name, value in found.items()))

    def _incremental(self) -> None:
        """Measure incremental snapshots beside transactions of ten rows; as `incremental_singly_`, of one row; as
        `incremental_gathering_`, of ten rows with pauses between the query's batches.

        The first snapshot is not counted: the JVM compiles its code meanwhile.
        """
        forms = {"incremental_": (10, 0), "incremental_singly_": (1, 0)}
        forms["incremental_gathering_"] = (10, incremental.GATHERING)
        self._beside(0, *forms["incremental_"])
        rounds: list[dict[str, float]] = []
        for number in range(self.repeat):
            figures: dict[str, float] = {}
            for place, (prefix, form) in enumerate(forms.items(), 1 + len(forms) * number):
                figures |= {prefix + name: value for name, value in self._beside(place, *form).items()}
            rounds.append(figures)
        self.extra |= {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
        self.extra["snapshot_repeated_share"] = incremental.repeated(self.spark, self.workload)

    def _beside(self, number: int, together: int, gathering: int) -> dict[str, float]:
        """Return the figures of the incremental snapshot `number`, beside transactions of `together` rows."""
        beside = f"{incremental.RATE} rows a second, {together} in a transaction"
        self.say(f"incremental snapshot beside {beside}, which gather for {gathering} ms")
        self.workload.settle(BENCH.name)
        before = baseline.copy_out(self.workload, "bench")
        found = incremental.measure(self.spark, self.workload, number, together, gathering)
        copied = (before + baseline.copy_out(self.workload, "bench")) / 2
        figures = {
            "copy_seconds": copied,
            "seconds": found.seconds,
            "per_second": found.rows / found.seconds,
            "ratio": copied / found.seconds,
            "copy_beside_seconds": found.copy_seconds,
            "beside_ratio": found.copy_seconds / found.seconds,
            "latency_p50_ms": found.p50,
            "latency_p99_ms": found.p99,
            "latency_without_p50_ms": found.p50_without,
            "latency_without_p99_ms": found.p99_without,
            "latency_p99_ratio": found.p99 / found.p99_without,
        }
        self.say(", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
        return figures

    # --- one measurement -----------------------------------------------------------------------------------------

    def _backlog(self, slot: str, table: str, rows: int) -> Backlog:
        """Return the backlog of `slot`, after the server has done its background work."""
        end = self.workload.log_end()
        self.workload.settle(table)
        return Backlog(slot, table, end, rows, self.workload.log_bytes(slot, table))

    def _noop(
        self, slot: str, name: str, rows: int | None = None, table: str = BENCH.name
    ) -> Callable[[], drain.Drained]:
        def read() -> drain.Drained:
            with self.workload.copy_of(slot) as copy:
                drained = drain.to_noop(self.spark, self._log_options(table, copy, CASES[name]))
            return self._expect(drained, rows or self.rows)

        return read

    def _kafka(self, slot: str, name: str, producer: Mapping[str, str]) -> Callable[[], drain.Drained]:
        def read() -> drain.Drained:
            self._topics += 1
            prefix = f"bench{self._topics}"
            with self.workload.copy_of(slot) as copy:
                settings = self._log_options("bench", copy, {**CASES[name], "topic.prefix": prefix})
                drained = drain.to_kafka(self.spark, settings, self.servers, producer)
            drain.delete_topic(self.spark, self.servers, f"{prefix}.public.bench")
            return self._expect(drained, self.rows)

        return read

    def _group(
        self, phase: str, number: int, group: str, cases: Mapping[str, Callable[[], drain.Drained]], size: int = 0
    ) -> None:
        for name in _turned(cases, number):
            self._measured(phase, number, name, cases[name], size, group)

    def _measured(
        self, phase: str, number: int, name: str, read: Callable[[], drain.Drained], size: int, *groups: str
    ) -> None:
        with Meter(self.workload.server.pid) as meter:
            drained = read()
        usage = meter.usage
        for group in groups:
            self._add(
                Measurement(
                    phase,
                    name,
                    number,
                    group,
                    drained.rows,
                    drained.seconds,
                    drained.steady_seconds,
                    usage.total_cpu,
                    usage.other_cpu,
                    usage.cpu,
                    usage.python_bytes / MIB,
                    usage.jvm_bytes / MIB,
                    {part: size / MIB for part, size in usage.python_parts.items()},
                    drained.batches,
                    usage.shared_python_bytes / MIB,
                    size,
                ),
                group == groups[0],
            )

    def _baselines(self, phase: str, number: int, backlog: Backlog, *groups: str) -> None:
        def receive() -> float:
            with self.workload.copy_of(backlog.slot) as copy:
                return baseline.receive(self.workload, copy, backlog.publication, backlog.end)

        def peek() -> float:
            with self.workload.copy_of(backlog.slot) as copy:
                return baseline.peek(self.workload, copy, backlog.publication)

        self._baseline(phase, number, backlog.rows, RECEIVE, receive, *groups, size=backlog.size)
        self._baseline(phase, number, backlog.rows, PEEK, peek, *groups, size=backlog.size)

    def _baseline(
        self, phase: str, number: int, rows: int, case: str, run: Callable[[], float], *groups: str, size: int = 0
    ) -> None:
        with Meter(self.workload.server.pid) as meter:
            seconds = run()
        usage = meter.usage
        for group in groups:
            self._add(
                Measurement(
                    phase,
                    case,
                    number,
                    group,
                    rows,
                    seconds,
                    total_cpu=usage.total_cpu,
                    other_cpu=usage.other_cpu,
                    cpu=usage.cpu,
                    log_bytes=size,
                ),
                group == groups[0],
            )

    def _add(self, run: Measurement, told: bool = True) -> None:
        self.measurements.append(run)
        if told:
            steady = f" (batches {run.steady_seconds:.2f} s)" if run.steady_seconds is not None else ""
            self.say(f"round {run.round + 1} of {self.repeat}: {run.name} {run.seconds:.2f} s{steady}")

    @contextmanager
    def _slot(self, slot: str) -> Iterator[None]:
        self.workload.create_slot(slot)
        try:
            yield
        finally:
            self.workload.drop_slot(slot)

    def _log_options(self, table: str, slot: str, more: Mapping[str, str]) -> dict[str, str]:
        return drain.options(self.workload, table, {"slot.name": slot, "snapshot.mode": "never", **more})

    def _snapshot_options(self, table: str) -> dict[str, str]:
        return drain.options(self.workload, table, {"snapshot.mode": "initial_only"})

    @staticmethod
    def _expect(drained: drain.Drained, rows: int) -> drain.Drained:
        """Return `drained`; raises RuntimeError if it is not the events of `rows` rows."""
        if drained.rows != rows:
            raise RuntimeError(f"the query delivered {drained.rows} of {rows} events")
        return drained


def _turned(cases: Iterable[str], number: int) -> list[str]:
    """Return the cases of a round. Each round begins with another case, since the JVM makes the first case slowest."""
    names = sorted(cases)
    first = number % len(names)
    return names[first:] + names[:first]
